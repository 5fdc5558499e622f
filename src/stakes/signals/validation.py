"""Does the rule track real consequence, and can a model learn the judge's view? The paper's two judge experiments.

Paper, "Validation of Consequence Signals" (rule against judge on 100 + 100 questions) and "Automatic Consequence Signal
Prediction", second row (the predictor trained on the judge's labels). Both run from an endpoint or a labels file, and
say "not run" where there is no judge. The sample depends on seed and ids alone, not on file order or library version.

    validate_with_judge(questions, judge, ids=ids).agreement     # paper: 0.725, kappa 0.450
    validate_with_judge(questions, None).status                  # 'not run'
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion, Disagreement, count_kinds, disagreements
from stakes.signals.base import Reading, Signal
from stakes.signals.judge import Judge
from stakes.signals.keywords import KeywordRule

if TYPE_CHECKING:
    from stakes.signals.crossval import Report


NO_JUDGE = "no judge was given; give an endpoint (base_url and model) or a labels file"


@dataclass(frozen=True)
class Validation:
    """The rule against the judge on one sample. ``status`` is "run" or "not run"; then ``why`` says why not."""

    status: str
    why: str
    seed: int
    sampled: tuple[int, ...] = ()  # indices into the questions
    judged: tuple[int, ...] = ()  # those of them on which the judge decided
    unjudged: int = 0  # sampled questions on which the judge was undecided; they count for neither side
    confusion: Confusion | None = None  # rule first, judge second
    disagreements: tuple[Disagreement, ...] = ()

    @property
    def agreement(self) -> float | None:
        """The share on which both agree, or None where it was not run."""
        return self.confusion.agreement if self.confusion else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, or None where it was not run."""
        return self.confusion.kappa if self.confusion else None

    def to_dict(self) -> dict[str, Any]:
        """Return the validation as plain JSON values."""
        return {
            "status": self.status,
            "why": self.why,
            "seed": self.seed,
            "sampled": len(self.sampled),
            "unjudged": self.unjudged,
            **(self.confusion.to_dict() if self.confusion else {}),
            "kinds": count_kinds(self.disagreements),
            "disagreements": [asdict(each) for each in self.disagreements],
        }


@dataclass(frozen=True)
class Prediction:
    """The predictor cross-validated on the judge's labels, beside the rule's own agreement with them."""

    status: str
    why: str
    unjudged: int = 0
    report: "Report | None" = None
    rule: Confusion | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as plain JSON values."""
        report = self.report.to_dict() if self.report else None
        rule = self.rule.to_dict() if self.rule else None
        return {"status": self.status, "why": self.why, "unjudged": self.unjudged, "report": report, "rule": rule}


def stratified_sample(tiers: Sequence[str], keys: Sequence[str], per_tier: int = 100, seed: int = 0) -> tuple[int, ...]:
    """Pick ``per_tier`` questions of each tier, by a hash of seed and key; return their indices in order.

    A tier with fewer is an error: a smaller sample would no longer be balanced.
    """
    if len(tiers) != len(keys):
        raise BadInput(f"every question needs one tier and one key, not {len(tiers)} and {len(keys)}")
    if per_tier < 1:
        raise BadInput(f"a sample needs at least one question of each tier, not {per_tier!r}")
    short = {tier: n for tier, n in sorted(Counter(tiers).items()) if n < per_tier}
    if short or not tiers:
        raise BadInput(
            f"a sample of {per_tier} questions a tier needs that many of each, but there are {short or 'none'}"
        )
    ranks = [(hashlib.sha256(f"{seed}\0{key}".encode()).digest(), i) for i, key in enumerate(keys)]
    picked: list[int] = []
    for tier in sorted(set(tiers)):
        picked += [i for _, i in sorted(ranks[i] for i, name in enumerate(tiers) if name == tier)[:per_tier]]
    return tuple(sorted(picked))


def validate_with_judge(
    questions: Sequence[str],
    judge: Judge | None,
    *,
    ids: Sequence[str] | None = None,
    rule: Signal | None = None,
    per_tier: int = 100,
    seed: int = 0,
    order: Sequence[str] = ("high", "medium", "low"),
) -> Validation:
    """Compare the rule (default: the keyword rule) with a judge on a seed-fixed sample balanced by the rule's tier."""
    if judge is None:
        return Validation("not run", NO_JUDGE, seed)
    read = rule or KeywordRule()
    said = [read(question).tier for question in questions]
    sampled = stratified_sample(said, questions if ids is None else ids, per_tier, seed)
    verdicts = judge.read([questions[i] for i in sampled], None if ids is None else [ids[i] for i in sampled])
    kept = [(i, verdict.tier) for i, verdict in zip(sampled, verdicts, strict=True) if verdict.decided]
    _require(verdicts, judge)
    ours, theirs = [said[i] for i, _ in kept], [tier for _, tier in kept]
    names = [name for name in order if name in {*ours, *theirs, *judge.tiers}]
    return Validation(
        status="run",
        why=f"judge {judge.name}",
        seed=seed,
        sampled=sampled,
        judged=tuple(i for i, _ in kept),
        unjudged=len(verdicts) - len(kept),
        confusion=Confusion.of(ours, theirs, names),
        disagreements=tuple(disagreements([questions[i] for i, _ in kept], ours, theirs, order)),
    )


def predict_judge(
    questions: Sequence[str],
    judge: Judge | None,
    *,
    ids: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    rule: Signal | None = None,
    repeats: int = 10,
    seed: int = 0,
) -> Prediction:
    """Cross-validate a learned signal on the judge's verdicts of these questions (the paper: its sample of 200)."""
    if judge is None:
        return Prediction("not run", NO_JUDGE)
    from stakes.signals.learned import LearnedSignal

    verdicts = judge.read(questions, ids)
    _require(verdicts, judge)
    kept = [i for i, verdict in enumerate(verdicts) if verdict.decided]
    texts, tiers = [questions[i] for i in kept], [verdicts[i].tier for i in kept]
    learner = LearnedSignal(dearest=judge.dearest, seed=seed)
    report = learner.cross_validate(texts, tiers, None if groups is None else [groups[i] for i in kept], repeats)
    read = rule or KeywordRule()
    table = Confusion.of([read(text).tier for text in texts], tiers)
    return Prediction("run", f"judge {judge.name}", len(verdicts) - len(kept), report, table)


def _require(verdicts: Sequence[Reading], judge: Judge) -> None:
    if not any(verdict.decided for verdict in verdicts):
        raise BadInput(
            f"judge {judge.name} decided none of the {len(verdicts)} questions; the first: {verdicts[0].why}"
        )
