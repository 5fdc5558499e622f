"""Inputs of commands: samples files and synthetic pages, signals by name, ``tier=value`` words, and notes on them."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stakes.errors import BadInput
from stakes.tiers import extremes

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.evaluation.outcome_log import Outcome
    from stakes.signals import Judge, Signal

N = TypeVar("N", int, float)

Costs = Annotated[
    list[str] | None, typer.Option(help="Cost of a mistake, as tier=cost; once per tier. Default: high=5, low=1.")
]
Pages = Annotated[
    str | None, typer.Option(help="Fresh synthetic pages in place of a file: forms, charts, infographics, …")
]
PerTier = Annotated[int, typer.Option(help="With --pages: questions of each tier.")]
Log = Annotated[
    Path | None, typer.Option(help="The log of answers that a run resumes from. Default: next to the policy.")
]
SIGNAL_HELP = (
    "How tiers are read: keywords, keywords:FILE (one per line), task:FILE.json or task:docvqa=high,vqav2=low, "
    "learned:FILE (stakes signal train), tier (labels), judge:FILE (a judge's labels, by id or question)."
)
SERVED_SIGNAL_HELP = (
    "How tiers are read instead of the policy's own way: keywords, keywords:FILE, task:MAP, learned:FILE or only FILE."
)


def tier_words(option: str, words: list[str]) -> dict[str, str]:
    """``tier=value`` words by tier."""
    read: dict[str, str] = {}
    for word in words:
        tier, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not tier:
            raise BadInput(f"{option} takes tier=value, such as high=5, not {word!r}")
        if tier in read:
            raise BadInput(f"{option} names tier {tier!r} twice; keep one")
        read[tier] = value
    return read


def tier_numbers(option: str, words: list[str], kind: type[N]) -> dict[str, N]:
    """``tier=number`` words by tier."""
    numbers = {}
    for tier, value in tier_words(option, words).items():
        try:
            numbers[tier] = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise BadInput(f"{option} {tier}={value}: {value!r} is not {what}") from None
    return numbers


def whole_numbers(option: str, text: str) -> list[int]:
    """``32,64,96`` as numbers."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise BadInput(f"{option} takes whole numbers with commas between, such as 32,64,96, not {text!r}") from None


def parse_signal(word: str, costs: Mapping[str, float]) -> "Signal | None":
    """The named signal; None for labels: ``tier``, the samples' own, and ``judge:FILE`` (``parse_judge``)."""
    from stakes.signals import KeywordRule, LearnedSignal, TaskIdentity

    kind, _, rest = word.partition(":")
    if word == "keywords":
        return KeywordRule()
    if kind == "keywords" and rest:
        from stakes.signals.keywords import read_keywords

        names = ("high", "low") if len(costs) != 2 or set(costs) == {"high", "low"} else extremes(costs)
        return KeywordRule(read_keywords(rest), *names)
    if word == "tier" or (kind == "judge" and rest):
        return None
    if kind == "task" and rest:
        return TaskIdentity(_task_map(rest), most_expensive=max(costs, key=costs.__getitem__))
    if kind == "learned" and rest:
        return LearnedSignal.load(rest)
    raise BadInput(
        f"no signal is called {word!r}; give keywords, keywords:FILE, task:MAP, learned:FILE, judge:FILE, "
        "or tier for the labels"
    )


def parse_judge(word: str, costs: Mapping[str, float]) -> "Judge | None":
    """The judge whose labels ``judge:FILE`` holds, for the tiers with a cost; None for any other word."""
    from stakes.signals import Judge

    kind, _, file = word.partition(":")
    if kind != "judge" or not file:
        return None
    if file.startswith(("http://", "https://")):
        raise BadInput(
            f"{word} is an address, but tiers of samples are read from labels; have the questions judged there with "
            "stakes reproduce labels --judge ADDRESS --judge-model NAME --folder DIR, and give judge:DIR/judge.jsonl"
        )
    return Judge(labels=file, rubric={tier: tier for tier in costs}, most_expensive=max(costs, key=costs.__getitem__))


def parse_served_signal(word: str, costs: Mapping[str, float]) -> "Signal":
    """A signal for requests, which have no labels; a file name alone is a learned signal."""
    if word == "tier":
        raise BadInput("requests have no labels to read; clients name tiers in the header x-stakes-tier")
    if word.startswith("judge:"):
        raise BadInput(
            f"{word} holds a judge's labels of known questions, and requests are new; train a signal on the labels "
            "(stakes signal train) and give learned:FILE"
        )
    signal = parse_signal(f"learned:{word}" if Path(word).is_file() else word, costs)
    assert signal is not None  # only labels give none
    return signal


def signal_file(word: str) -> Path | None:
    """The file that a signal is read from, if any."""
    for name in (word, word.partition(":")[2]):
        if name and Path(name).is_file():
            return Path(name)
    return None


def _task_map(text: str) -> dict[str, str]:
    if Path(text).is_file():
        try:
            read = json.loads(Path(text).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BadInput(f"{text} is not a JSON file of tasks ({error})") from None
        if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
            raise BadInput(f'{text} should read {{"docvqa": "high", "vqav2": "low"}}')
        return read
    pairs = [word.partition("=") for word in text.split(",")]
    if not all(task and equals and tier for task, equals, tier in pairs):
        raise BadInput(f"{text!r} is neither a file nor a map of tasks such as docvqa=high,vqav2=low")
    return {task.strip(): tier.strip() for task, _, tier in pairs}


def gather_samples(
    file: Path | None,
    pages: str | None,
    per_tier: int,
    split: str,
    signal: "Signal | None",
    judge: "Judge | None" = None,
) -> "tuple[list[Sample], list[Sample]]":
    """Prepared samples of a file or of fresh pages, and the file's samples as they were read.

    ``judge``: its labels replace the file's own.
    """
    from stakes.data.sample import read_samples
    from stakes.evaluation.samples import draw_samples, prepare_samples

    if (file is None) == (pages is None):
        raise BadInput("give either a samples file or --pages FAMILY, and not both")
    if pages is not None:
        if judge is not None:
            raise BadInput("a judge's labels belong to a samples file; leave --pages out, or use --signal tier")
        return draw_samples(pages, split, per_tier, signal), []
    assert file is not None
    read = read_samples(file)
    if judge is not None:
        read = _with_verdicts(read, judge)
    return prepare_samples(read, file.parent, signal), read


def _with_verdicts(samples: "Sequence[Sample]", judge: "Judge") -> "list[Sample]":
    """The samples with a judge's labels as their tiers; a missing label is an error, because labels are not guessed."""
    verdicts = judge.read([sample.question for sample in samples], [sample.id for sample in samples])
    missing = [sample.id for sample, verdict in zip(samples, verdicts, strict=True) if not verdict.decided]
    if missing:
        raise BadInput(
            f"{len(missing)} of {len(samples)} samples have no label in {judge.name.removeprefix('labels ')}, the "
            f"first {missing[0]!r}; label them by id or question, or leave them out"
        )
    return [replace(sample, tier=verdict.tier) for sample, verdict in zip(samples, verdicts, strict=True)]


def print_notes(*notes: str) -> None:
    """Print what a user should know before answers are paid for, on stderr; empty notes are skipped."""
    for note in filter(None, notes):
        typer.echo(f"note: {note}", err=True)


def note_on_labels(read: "Sequence[Sample]", samples: "Sequence[Sample]") -> str:
    """A note if the signal reads other tiers than the file's labels; else empty."""
    pairs = [(before.tier, sample.tier) for before, sample in zip(read, samples, strict=False) if before.tier]
    other = sum(label != tier for label, tier in pairs)
    if not other:
        return ""
    return f"the file's labels disagree with the signal on {other} of {len(pairs)} questions; --signal tier uses them"


def note_on_reading(signal: "Signal", questions: Sequence[str]) -> str:
    """A note if no keyword occurs in the questions, or if a learned signal was trained on some of them; else empty."""
    from stakes.signals import KeywordRule, LearnedSignal

    if isinstance(signal, KeywordRule) and not any(map(signal.find, questions)):
        return f"no keyword is in any of these {len(questions)} questions, so all are {signal.low}; see --signal"
    known = sum(map(signal.trained_on, questions)) if isinstance(signal, LearnedSignal) else 0
    if not known:
        return ""
    return (
        f"the signal was trained on {known} of these {len(questions)} questions, so its accuracy on them is not held "
        "out; use the agreement that stakes signal train printed, or train it on other questions"
    )


def note_on_partial_answers(samples: "Sequence[Sample]", outcomes: "Iterable[Outcome]") -> str:
    """How many correct answers are only a part of the true one, which ``relaxed`` accepts; empty where none is."""
    from stakes.evaluation.grading import is_piece

    answers = {sample.id: sample.answers for sample in samples}
    right = [outcome for outcome in outcomes if outcome.metric == "relaxed" and outcome.correct]
    partial = [outcome for outcome in right if is_piece(outcome.prediction, answers[outcome.sample])]
    if not partial:
        return ""
    first = partial[0]
    return (
        f"{len(partial)} of {len(right):,} correct answers are only a part of the true one, such as "
        f"{first.prediction.strip()!r} for {answers[first.sample][0]!r}; the metric relaxed accepts them, exact not"
    )


def check_writable(path: Path, *needed: Path | None) -> None:
    """Refuse early, not after an hour of answers, a file that cannot be written or is one of those ``needed``."""
    check_distinct(path, *needed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another place") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path} cannot be written; choose another place")


def check_distinct(path: Path, *needed: Path | None) -> None:
    """Refuse to overwrite a file that the same command reads, under whatever name."""
    for other in needed:
        if other is not None and _is_same(path, other):
            named = "" if str(path) == str(other) else f" (as {other})"
            raise BadInput(
                f"{path} is a file that this command itself needs{named}, and writing there would destroy it; choose "
                "another name to write to"
            )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, whether or not it exists."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
