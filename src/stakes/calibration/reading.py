"""How a calibration gets the tier of each sample, and the policy its signal.

A signal that is given reads both. Without one, a signal is trained on the samples' labels. The policy stores the one
trained on every label. The tiers that budgets are chosen and certified with are its readings out of fold: each question
is read by a model that has seen neither its document nor its text. A signal reads its own training questions better
than others, so a check on those readings would promise too much.

    training = train_on_labels(samples, {"total": 20, "date": 5, "company": 2, "address": 1})
    training.agreement, training.right_by_tier
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.formats import counted
from stakes.signals import LearnedSignal, Signal, TaskIdentity
from stakes.signals.named import named_signal
from stakes.tiers import as_tiers

DEFAULT = "requests"
"""The signal of samples without labels, and of requests where labels cannot be learned."""
LEAST = 10
"""Labelled questions of each tier: with fewer, one of five folds has at most one, and agreement cannot be measured."""


@dataclass(frozen=True)
class SignalTraining:
    """A signal trained on the labels of samples, and how it reads the same samples out of fold.

    Where the questions are too alike to hold any out, there are no such readings: ``why_not`` says why, the figures are
    None, and the tiers of the calibration are the labels.
    """

    signal: LearnedSignal = field(repr=False)
    counts: Mapping[str, int]
    readings: tuple[str, ...] | None = None
    agreement: float | None = None
    kappa: float | None = None
    right_by_tier: Mapping[str, float] | None = None
    """The share of each label's questions that is read as that tier."""
    undecided: float | None = None
    why_not: str = ""

    def as_read(self, samples: Sequence[Sample], costs: Mapping[str, float]) -> list[Sample]:
        """The samples with their out-of-fold readings as tiers."""
        if self.readings is None:
            raise BadInput(f"there are no readings out of fold: {self.why_not}")
        unread = [tier for tier in costs if tier not in self.readings]
        if unread:
            raise BadInput(
                f"out of fold, no question is read as tier {unread[0]!r}, so its curve cannot be measured as it would "
                f"be served; label more such questions, or calibrate on the labels with --signal tier"
            )
        return [replace(sample, tier=tier) for sample, tier in zip(samples, self.readings, strict=True)]

    def record(self) -> dict[str, object]:
        """Everything but the signal and its readings, as JSON."""
        return {
            "questions": sum(self.counts.values()),
            "tiers": dict(self.counts),
            "held_out": self.readings is not None,
            "agreement": self.agreement,
            "kappa": self.kappa,
            "right_by_tier": None if self.right_by_tier is None else dict(self.right_by_tier),
            "undecided": self.undecided,
            "why_not_held_out": self.why_not,
        }


def default_signal(samples: Sequence[Sample], costs: Mapping[str, float]) -> str:
    """``train`` where every sample has a label and every label a cost; else ``DEFAULT``.

    A label without a cost is an error, and so are more than two tiers for samples without labels.
    """
    labels = dict.fromkeys(sample.tier for sample in samples)
    if "" not in labels:
        missing = [label for label in labels if label not in costs]
        if missing:
            raise BadInput(
                f"the label {missing[0]!r} has no cost; give one for every label, such as --cost {missing[0]}=1, or "
                f"name the signal that reads the tiers, such as --signal {DEFAULT}"
            )
        return "train"
    if len(costs) > 2:
        without = sum(not sample.tier for sample in samples)
        raise BadInput(
            f"{without} of {len(samples)} samples have no tier, and {DEFAULT} by itself reads only the most and the "
            f"least expensive of {', '.join(costs)}; label every sample, or name the --signal that reads the tiers"
        )
    return DEFAULT


def train_on_labels(samples: Sequence[Sample], costs: Mapping[str, float], seed: int = 0) -> SignalTraining:
    """Train on the labels of prepared samples; too few labels of a tier are an error."""
    from stakes.signals.crossval import cross_fit

    counts = Counter(sample.tier for sample in samples)
    check_enough(counts)
    prompts, tiers = [sample.prompt for sample in samples], [sample.tier for sample in samples]
    try:
        fitted = cross_fit(prompts, tiers, [sample.document for sample in samples], costs=costs, seed=seed)
    except BadInput as error:
        signal = LearnedSignal(costs=costs, seed=seed).fit(prompts, tiers)
        return SignalTraining(signal, dict(counts), why_not=str(error))
    return SignalTraining(
        signal=fitted.signal,
        counts=dict(counts),
        readings=tuple(reading.tier for reading in fitted.readings),
        agreement=fitted.confusion.agreement,
        kappa=fitted.confusion.kappa,
        right_by_tier=fitted.right_by_tier,
        undecided=fitted.undecided,
    )


def check_enough(counts: Mapping[str, int]) -> None:
    """Refuse too few labels to learn from."""
    listed = ", ".join(f"{count} {tier}" for tier, count in counts.items()) or "none"
    if len(counts) < 2:
        raise BadInput(
            f"the labels are {listed}, and tokens move between at least two tiers; add questions whose mistakes cost "
            "less, with a label and a cost of their own"
        )
    rarest = min(counts, key=counts.__getitem__)
    if counts[rarest] < LEAST:
        raise BadInput(
            f"only {counted(counts[rarest], 'question')} of tier {rarest!r} ({listed}), and a signal needs at least "
            f"{LEAST} of each tier to learn from, better 100; label more, or name a signal such as --signal requests"
        )


@dataclass(frozen=True)
class SettledTiers:
    """The samples with the tiers of the calibration, and the signal of the policy."""

    samples: Sequence[Sample]
    signal: Signal
    labels: bool  # whether the tiers are labels
    training: SignalTraining | None = None
    note: str = ""
    """Why no signal was trained, where the labels suggested it."""

    def agreement(self, labelled: Sequence[Sample]) -> float | None:
        """How often the signal reads the label: out of fold where it was trained on them, None where that fails."""
        if self.training is not None:
            return self.training.agreement
        return sum(self.signal(one.prompt, one.task).tier == one.tier for one in labelled) / len(labelled)


def settle_tiers(
    samples: Sequence[Sample],
    costs: Mapping[str, float],
    signal: Signal | str,
    *,
    named: bool = True,
    per_request: bool = False,
) -> SettledTiers:
    """Tiers and signal of a calibration; ``samples`` are prepared, with the tiers that a given signal reads.

    ``named``: the user asked for this signal. Labels that are too few to train on by default are taken as they are.
    """
    if not isinstance(signal, str):
        check_tiers(samples, costs, signal)
        return SettledTiers(samples, signal, labels=per_request)
    training, note = None, ""
    if signal == "train":
        try:
            training = train_on_labels(samples, costs)
            serving: Signal = training.signal
        except BadInput as too_few:
            if named:
                raise
            try:
                serving = serving_signal(samples, costs)
            except BadInput:
                raise too_few from None
            note = f"no signal was trained on the labels, which are taken as they are: {too_few}"
    elif signal == "tier":
        serving = serving_signal(samples, costs)
    else:
        raise BadInput(f"signal is a signal, 'train' or 'tier', not {signal!r}")
    labels = training is None or training.readings is None or per_request
    settled = samples if training is None or labels else training.as_read(samples, costs)
    check_tiers(settled, costs, serving)
    return SettledTiers(settled, serving, labels, training, note)


def usable_labels(samples: Sequence[Sample], costs: Mapping[str, float]) -> dict[str, str] | None:
    """The label of every sample, by id; None where one is missing or has no cost, so that mistakes cost by reading."""
    labels = {sample.id: sample.label for sample in samples}
    return labels if all(label in costs for label in labels.values()) else None


def check_tiers(samples: Sequence[Sample], costs: Mapping[str, float], signal: Signal) -> None:
    """Every tier of a sample or of the signal needs a cost, and every cost a sample; checked before any answer."""
    as_tiers(costs)
    present = dict.fromkeys(sample.tier for sample in samples)
    for tier in [*present, *signal.tiers]:
        if tier not in costs:
            whose = "a sample's" if tier in present else "one that the signal can name"
            raise BadInput(f"tier {tier!r} ({whose}) has no cost; give one for it, such as --cost {tier}=1")
    for tier in costs:
        if tier not in present:
            raise BadInput(
                f"no sample is of tier {tier!r}, so its curve cannot be measured; the samples are "
                f"{', '.join(present) or 'none'}"
            )


def serving_signal(samples: Sequence[Sample], costs: Mapping[str, float]) -> Signal:
    """The signal of a policy calibrated on labels, which requests lack: by task if that decides, or ``DEFAULT``."""
    by_task: dict[str, set[str]] = {}
    for sample in samples:
        by_task.setdefault(sample.task or "", set()).add(sample.tier)
    if "" not in by_task and len(by_task) > 1 and all(len(tiers) == 1 for tiers in by_task.values()):
        tasks = {task: next(iter(tiers)) for task, tiers in by_task.items()}
        return TaskIdentity(tasks, most_expensive=max(costs, key=costs.__getitem__))
    if len(costs) == 2:
        return named_signal(DEFAULT, costs)
    raise BadInput(
        f"the labels {', '.join(costs)} can be read neither off the task nor by {DEFAULT}, so no request could be "
        "given its tier; leave --signal out, and a signal is trained on the labels"
    )
