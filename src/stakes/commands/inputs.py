"""What a person means by "these questions, tiers read so": samples files, synthetic pages and signals in words."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stakes.errors import BadInput
from stakes.tiers import extremes

if TYPE_CHECKING:
    from stakes.data.sample import Sample
    from stakes.evaluation.items import Asked
    from stakes.evaluation.outcome_log import Outcome
    from stakes.signals import Judge, Signal


Pages = Annotated[
    str | None, typer.Option(help="Fresh synthetic pages in place of a file: forms, charts, infographics, …")
]
PerTier = Annotated[int, typer.Option(help="With --pages: questions of each tier.")]
Log = Annotated[
    Path | None, typer.Option(help="The log of answers that a run resumes from. Default: beside the policy.")
]
SIGNAL_HELP = (
    "How tiers are read: keywords, keywords:FILE (one a line), task:FILE.json or task:docvqa=high,vqav2=low, "
    "learned:FILE (stakes signal train), tier (labels), judge:FILE (a judge's labels, by id or question)."
)
SERVED_SIGNAL_HELP = (
    "How tiers are read in place of the policy's own way: keywords, keywords:FILE, task:MAP, learned:FILE or only FILE."
)


def read_signal(word: str, costs: Mapping[str, float]) -> "Signal | None":
    """The signal that a word names; None for labels: ``tier``, the samples' own, and ``judge:FILE`` (``judge_of``)."""
    from stakes.signals import KeywordRule, LearnedSignal, TaskIdentity

    kind, _, rest = word.partition(":")
    if word == "keywords":
        return KeywordRule()
    if kind == "keywords" and rest:
        from stakes.signals.keywords import read_keywords

        return KeywordRule(read_keywords(rest), *_dear_and_cheap(costs))
    if word == "tier" or (kind == "judge" and rest):
        return None
    if kind == "task" and rest:
        return TaskIdentity(_task_map(rest), dearest=max(costs, key=costs.__getitem__))
    if kind == "learned" and rest:
        return LearnedSignal.load(rest)
    raise BadInput(
        f"no signal is called {word!r}; give keywords, keywords:FILE, task:MAP, learned:FILE, judge:FILE, "
        "or tier for the labels"
    )


def judge_of(word: str, costs: Mapping[str, float]) -> "Judge | None":
    """The judge whose labels ``judge:FILE`` names, of the tiers that have a cost; None for any other word."""
    from stakes.signals import Judge

    kind, _, file = word.partition(":")
    if kind != "judge" or not file:
        return None
    if file.startswith(("http://", "https://")):
        raise BadInput(
            f"{word} is an address, and the tiers of samples are read off labels; have the questions judged there by "
            "stakes reproduce labels --judge ADDRESS --judge-model NAME --folder DIR, and give judge:DIR/judge.jsonl"
        )
    return Judge(labels=file, rubric={tier: tier for tier in costs}, dearest=max(costs, key=costs.__getitem__))


def judged(read: "Sequence[Sample]", judge: "Judge") -> "list[Sample]":
    """The samples with a judge's labels as their tiers; one that has none is an error, since labels are not guessed."""
    verdicts = judge.read([sample.question for sample in read], [sample.id for sample in read])
    missing = [sample.id for sample, verdict in zip(read, verdicts, strict=True) if not verdict.decided]
    if missing:
        raise BadInput(
            f"{len(missing)} of {len(read)} samples have no label in {judge.name.removeprefix('labels ')}, the first "
            f"{missing[0]!r}; label them by id or question, or leave them out"
        )
    return [replace(sample, tier=verdict.tier) for sample, verdict in zip(read, verdicts, strict=True)]


def served_signal(word: str, costs: Mapping[str, float]) -> "Signal":
    """The signal for questions that come without labels; a file's name alone is a learned signal's."""
    if word == "tier":
        raise BadInput("questions that come in have no labels to read; clients name tiers by the header x-stakes-tier")
    if word.startswith("judge:"):
        raise BadInput(
            f"{word} holds a judge's labels of known questions, and those that come in are new; train a signal on the "
            "labels (stakes signal train) and give learned:FILE"
        )
    read = read_signal(f"learned:{word}" if Path(word).is_file() else word, costs)
    assert read is not None  # only labels give none
    return read


def signal_file(word: str) -> Path | None:
    """The file that a signal in words is read from, if any."""
    for name in (word, word.partition(":")[2]):
        if name and Path(name).is_file():
            return Path(name)
    return None


def _dear_and_cheap(costs: Mapping[str, float]) -> tuple[str, str]:
    """The names of a keyword rule's two tiers: high and low, unless the costs are of two others."""
    if len(costs) != 2 or set(costs) == {"high", "low"}:
        return "high", "low"
    return extremes(costs)


def tell(*notes: str) -> None:
    """What is worth knowing before any answer is paid for, on stderr; what is empty is not."""
    for note in filter(None, notes):
        typer.echo(f"note: {note}", err=True)


def told_labels(read: "Sequence[Sample]", asked: "Sequence[Asked]") -> str:
    """That tiers were not read as the file labels them; empty where they were, or where it labels none."""
    pairs = [(sample.tier, one.tier) for sample, one in zip(read, asked, strict=False) if sample.tier is not None]
    other = sum(label != tier for label, tier in pairs)
    if not other:
        return ""
    return f"the file's labels disagree with the signal on {other} of {len(pairs)} questions; --signal tier uses them"


def told_units(asked: "Sequence[Asked]") -> str:
    """Which documents share pages and so count as one; empty where none does."""
    from stakes.evaluation.items import told_joined

    return told_joined(asked)


def told_reading(signal: "Signal", questions: Sequence[str]) -> str:
    """That no keyword is in these questions, or that a learned signal knows some from its training; else empty."""
    from stakes.signals import KeywordRule, LearnedSignal

    if isinstance(signal, KeywordRule) and not any(map(signal.find, questions)):
        return f"no keyword is in any of these {len(questions)} questions, so all are {signal.low}; see --signal"
    known = sum(map(signal.trained_on, questions)) if isinstance(signal, LearnedSignal) else 0
    if not known:
        return ""
    return (
        f"the signal was trained on {known} of these {len(questions)} questions, so that how well it reads them is not "
        "held out; go by the agreement that stakes signal train told, or train it on others"
    )


def told_pieces(asked: "Sequence[Asked]", outcomes: "Iterable[Outcome]") -> str:
    """How many right answers are only a piece of the true one, which ``relaxed`` takes; empty where none is."""
    from stakes.evaluation.grading import is_piece

    answers = {one.id: one.answers for one in asked}
    right = [outcome for outcome in outcomes if outcome.metric == "relaxed" and outcome.correct]
    pieces = [outcome for outcome in right if is_piece(outcome.prediction, answers[outcome.sample])]
    if not pieces:
        return ""
    first = pieces[0]
    return (
        f"{len(pieces)} of {len(right):,} right answers are only a piece of the true one, such as "
        f"{first.prediction.strip()!r} for {answers[first.sample][0]!r}: the metric relaxed takes them, exact does not"
    )


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


def serving_signal(labelled: "Sequence[tuple[str, str | None, str]]", costs: Mapping[str, float]) -> "Signal":
    """What a policy calibrated on labels reads tiers by, since a label is not there when a question comes.

    ``labelled``: (question, task, tier) of every sample. The task where it tells the tier, else the keyword rule.
    """
    from stakes.signals import KeywordRule, TaskIdentity

    by_task: dict[str, set[str]] = {}
    for _, task, tier in labelled:
        by_task.setdefault(task or "", set()).add(tier)
    if "" not in by_task and len(by_task) > 1 and all(len(tiers) == 1 for tiers in by_task.values()):
        tasks = {task: next(iter(tiers)) for task, tiers in by_task.items()}
        return TaskIdentity(tasks, dearest=max(costs, key=costs.__getitem__))
    if set(KeywordRule().tiers) == set(costs):
        return KeywordRule()
    raise BadInput(
        f"the labels {', '.join(costs)} can be read neither off the task nor by keywords, so no request could be "
        "given its tier; train a signal on them (stakes signal train) and give --signal learned:FILE"
    )


def gather(
    samples: Path | None,
    pages: str | None,
    per_tier: int,
    split: str,
    signal: "Signal | None",
    judge: "Judge | None" = None,
) -> "tuple[list[Asked], list[Sample]]":
    """What is asked: a samples file or fresh pages, and not both; the samples are those of the file.

    ``judge``: whose labels stand in place of the file's own.
    """
    from stakes.data.sample import read_samples
    from stakes.evaluation.items import ask, ask_pages

    if (samples is None) == (pages is None):
        raise BadInput("give either a samples file or --pages FAMILY, and not both")
    if pages is not None:
        if judge is not None:
            raise BadInput("a judge's labels are of a samples file; leave --pages out, or take --signal tier")
        return ask_pages(pages, split, per_tier, signal), []
    assert samples is not None
    read = read_samples(samples)
    if judge is not None:
        read = judged(read, judge)
    return ask(read, samples.parent, signal), read


def whole_numbers(option: str, text: str) -> list[int]:
    """``32,64,96`` as numbers."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise BadInput(f"{option} takes whole numbers with commas between, such as 32,64,96, not {text!r}") from None


def check_writable(path: Path, *needed: Path | None) -> None:
    """Say now, not after an hour of answers, that a file could not be written, or is one of those ``needed``."""
    import os

    check_apart(path, *needed)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror}); choose another place") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path} cannot be written; choose another place")


def check_apart(path: Path, *needed: Path | None) -> None:
    """Refuse to write where a file lies that the same command needs, under whatever name."""
    for other in needed:
        if other is not None and _is_same(path, other):
            named = "" if str(path) == str(other) else f" (as {other})"
            raise BadInput(
                f"{path} is a file that this command itself needs{named}, and writing there would destroy it; choose "
                "another name to write to"
            )


def _is_same(one: Path, other: Path) -> bool:
    """Whether two names, however spelt, are of one file, be it there or not yet."""
    import os

    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
