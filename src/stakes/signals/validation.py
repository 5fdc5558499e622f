"""The paper's two judge experiments: the keyword rule against a judge, and a signal learned from the judge's labels.

Paper, "Validation of Consequence Signals" (rule against judge on 100 + 100 questions) and "Automatic Consequence Signal
Prediction", second row (the predictor trained on the judge's labels). Both run with an endpoint or with a labels file.
The sample depends on seed and ids alone, not on file order or library version.

    validate_with_judge(questions, judge, ids=ids).confusion.agreement     # paper: 0.725, kappa 0.450
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion, disagreements
from stakes.signals.base import Reading
from stakes.signals.crossval import Scores, score_folds
from stakes.signals.judge import Judge
from stakes.signals.keywords import KeywordRule
from stakes.tiers import PAPER_TIERS


@dataclass(frozen=True)
class Validation:
    """The rule against the judge on one sample."""

    sampled: tuple[int, ...]  # indices into the questions
    judged: tuple[int, ...]  # those of them on which the judge decided; the others count for neither side
    confusion: Confusion  # rule first, judge second
    disagreements: tuple[tuple[str, str], ...]  # question and kind


def stratified_sample(tiers: Sequence[str], keys: Sequence[str], per_tier: int = 100, seed: int = 0) -> tuple[int, ...]:
    """Pick ``per_tier`` questions of each tier by a hash of seed and key; their indices, in order.

    A tier with fewer is an error: a smaller sample would no longer be balanced.
    """
    if len(tiers) != len(keys):
        raise BadInput(f"every question needs one tier and one key, not {len(tiers)} and {len(keys)}")
    if per_tier < 1:
        raise BadInput(f"a sample needs at least one question of each tier, not {per_tier!r}")
    short = {tier: n for tier, n in sorted(Counter(tiers).items()) if n < per_tier}
    if short or not tiers:
        raise BadInput(
            f"a sample of {per_tier} questions per tier needs that many of each, but there are {short or 'none'}"
        )
    ranks = [(hashlib.sha256(f"{seed}\0{key}".encode()).digest(), i) for i, key in enumerate(keys)]
    picked: list[int] = []
    for tier in sorted(set(tiers)):
        picked += [i for _, i in sorted(ranks[i] for i, name in enumerate(tiers) if name == tier)[:per_tier]]
    return tuple(sorted(picked))


def validate_with_judge(
    questions: Sequence[str],
    judge: Judge,
    *,
    ids: Sequence[str] | None = None,
    per_tier: int = 100,
    seed: int = 0,
) -> Validation:
    """Compare the keyword rule with a judge on a seed-fixed sample balanced by the rule's tier."""
    rule = KeywordRule()
    tiers = [rule(question).tier for question in questions]
    sampled = stratified_sample(tiers, questions if ids is None else ids, per_tier, seed)
    verdicts = judge.read([questions[i] for i in sampled], None if ids is None else [ids[i] for i in sampled])
    _require_decided(verdicts, judge)
    decided = {i: verdict.tier for i, verdict in zip(sampled, verdicts, strict=True) if verdict.decided}
    ours, theirs = [tiers[i] for i in decided], list(decided.values())
    names = [tier.name for tier in PAPER_TIERS if tier.name in {*ours, *theirs, *judge.tiers}]
    return Validation(
        sampled=sampled,
        judged=tuple(decided),
        confusion=Confusion.of(ours, theirs, names),
        disagreements=tuple(disagreements([questions[i] for i in decided], ours, theirs)),
    )


def predict_judge(
    questions: Sequence[str],
    judge: Judge,
    *,
    ids: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    repeats: int = 10,
    seed: int = 0,
) -> Scores:
    """Cross-validate a learned signal on the judge's verdicts of these questions (the paper: its sample of 200)."""
    verdicts = judge.read(questions, ids)
    _require_decided(verdicts, judge)
    decided = [i for i, verdict in enumerate(verdicts) if verdict.decided]
    return score_folds(
        [questions[i] for i in decided],
        [verdicts[i].tier for i in decided],
        None if groups is None else [groups[i] for i in decided],
        most_expensive=judge.most_expensive,
        repeats=repeats,
        seed=seed,
    )


def _require_decided(verdicts: Sequence[Reading], judge: Judge) -> None:
    if not any(verdict.decided for verdict in verdicts):
        raise BadInput(
            f"judge {judge.name} decided none of the {len(verdicts)} questions; the first: {verdicts[0].why}"
        )
