"""Inputs of commands: samples files and synthetic pages, signals by name, ``tier=value`` words, and notes on them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from stakes.errors import BadInput

if TYPE_CHECKING:
    from stakes.budgets.policy import Policy
    from stakes.data.sample import Sample
    from stakes.evaluation.outcome_log import Outcome
    from stakes.signals import Judge, Prompt, Signal

N = TypeVar("N", int, float)

Costs = Annotated[
    list[str] | None, typer.Option(help="Cost of a mistake, as tier=cost; once per tier. Default: high=5, low=1.")
]
Pages = Annotated[
    str | None, typer.Option(help="Fresh synthetic pages in place of a file: forms, receipts, charts, infographics, …")
]
PerTier = Annotated[int, typer.Option(help="With --pages: questions of each tier.")]
Log = Annotated[
    Path | None, typer.Option(help="The log of answers that a run resumes from. Default: next to the policy.")
]
SIGNAL_HELP = (
    "How tiers are read: requests, requests:FILE (your fields), keywords, keywords:FILE (one per line), task:FILE.json "
    "or task:docvqa=high,vqav2=low, learned:FILE (stakes signal train), module:Class, tier (labels), judge:FILE (a "
    "judge's labels, by id or question)."
)
CALIBRATED_SIGNAL_HELP = (
    f"{SIGNAL_HELP} Default: train, a signal trained on the samples' labels, if every sample has one and every label a "
    "--cost; else requests."
)
METRIC_HELP = "The metric: value, fields, relaxed, exact, anls, chartqa or vqa."
Undecided = Annotated[
    str | None,
    typer.Option(help="The tier of requests in which nothing is recognised. Default: the most expensive one."),
]
SERVED_SIGNAL_HELP = (
    "How tiers are read instead of the policy's own way: requests, requests:FILE, keywords, keywords:FILE, task:MAP, "
    "learned:FILE or only FILE, module:Class."
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


def parse_signal(word: str, costs: Mapping[str, float], undecided: str | None = None) -> "Signal | None":
    """The named signal; None for labels: ``tier``, the samples' own, and ``judge:FILE`` (``parse_judge``)."""
    from stakes.signals.named import named_signal

    kind, _, rest = word.partition(":")
    if word == "tier" or (kind == "judge" and rest):
        return None
    if word == "train":
        raise BadInput("train is a signal of calibrate only: it learns the labels of the samples that it calibrates on")
    return named_signal(word, costs, undecided)


def default_signal(file: Path | None, costs: Mapping[str, float], stated: bool) -> str:
    """The signal of ``calibrate`` where none is named; ``stated``: the user gave the costs.

    Synthetic pages are read by the paper's rule, and files by the rule of ``stakes.calibrate``. Labels are not learned
    at costs that nobody stated.
    """
    from stakes.calibration import reading
    from stakes.data.sample import read_samples

    if file is None:
        return "keywords"
    return reading.default_signal(read_samples(file), costs) if stated else reading.DEFAULT


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


def parse_served_signal(word: str, costs: Mapping[str, float], undecided: str | None = None) -> "Signal":
    """A signal for requests, which have no labels; a file name alone is a learned signal."""
    if word == "tier":
        raise BadInput("requests have no labels to read; clients name tiers in the header x-stakes-tier")
    if word.startswith("judge:"):
        raise BadInput(
            f"{word} holds a judge's labels of known questions, and requests are new; train a signal on the labels "
            "(stakes signal train) and give learned:FILE"
        )
    signal = parse_signal(f"learned:{word}" if Path(word).is_file() else word, costs, undecided)
    assert signal is not None  # only labels give none
    return signal


def use_signal(rules: "Policy", word: str | None, undecided: str | None = None) -> None:
    """Let a policy read tiers by the signal that was named, or by its own with another tier for undecided requests."""
    from stakes.signals import RequestSignal

    if word:
        rules.use(parse_served_signal(word, rules.costs, undecided))
    elif undecided is not None:
        if rules.signal.get("kind") != "requests":
            raise BadInput(
                f"--undecided is for the signal requests, and this policy's is {rules.signal.get('kind')}; leave it out"
            )
        rules.use(RequestSignal.from_dict({**rules.signal, "undecided": undecided}))


def signal_file(word: str) -> Path | None:
    """The file that a signal is read from, if any."""
    for name in (word, word.partition(":")[2]):
        if name and Path(name).is_file():
            return Path(name)
    return None


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


def note_on_reading(signal: "Signal", questions: "Sequence[str | Prompt]") -> str:
    """A note if no keyword occurs in the questions, or if a learned signal was trained on some of them; else empty."""
    from stakes.signals import KeywordRule, LearnedSignal
    from stakes.signals.prompt import text_of

    if isinstance(signal, KeywordRule) and not any(signal.find(text_of(question)) for question in questions):
        return f"no keyword is in any of these {len(questions)} questions, so all are {signal.low}; see --signal"
    known = sum(map(signal.trained_on, questions)) if isinstance(signal, LearnedSignal) else 0
    if not known:
        return ""
    return (
        f"the signal was trained on {known} of these {len(questions)} questions, so its accuracy on them is not held "
        "out; use the agreement that stakes signal train printed, or train it on other questions"
    )


def note_on_partial_answers(samples: "Sequence[Sample]", outcomes: "Iterable[Outcome]") -> str:
    """How many answers ``relaxed`` accepts and ``value`` does not, as they are only a part; empty where none is."""
    from stakes.evaluation.grading import grade, is_piece

    answers = {sample.id: sample.answers for sample in samples}
    right = [outcome for outcome in outcomes if outcome.metric == "relaxed" and outcome.correct]
    pieces = [outcome for outcome in right if is_piece(outcome.prediction, answers[outcome.sample])]
    partial = [outcome for outcome in pieces if not grade(outcome.prediction, answers[outcome.sample], "value")]
    if not partial:
        return ""
    first = partial[0]
    return (
        f"{len(partial)} of {len(right):,} correct answers are only a part of the true one, such as "
        f"{first.prediction.strip()!r} for {answers[first.sample][0]!r}; relaxed accepts them, --metric value does not"
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
