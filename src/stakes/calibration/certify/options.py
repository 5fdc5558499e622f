"""Certify options: second attempts and review, judged on documents that they were not chosen on.

* no harm: options ship only if the lower confidence bound of what they save over uniform, counting mistakes that pass
  and reviews, is above zero;
* an upper bound of every tier's error among the answers that no person sees;
* ceilings: with review, a tier's ceiling is of those answers. Thresholds are tested from the one that looks safest on
  the choosing documents towards fewer flags, each at the full level, until one fails (fixed-sequence testing). The
  order is fixed before the certifying documents are seen.

Conditions are those of ``certificate``. Options are one choice, made on the choosing documents alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stakes.budgets.options.tier_plan import OptionEvidence, TierOption
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import lower_ratio, p_error_at_least
from stakes.calibration.certify.certificate import Certificate, Certification, UpperError
from stakes.calibration.certify.no_harm import NoHarm, lost_cost
from stakes.calibration.escalation.answers import AnswerTable, TierAnswers
from stakes.calibration.escalation.choose import thresholds
from stakes.calibration.escalation.judge import OptionVerdict, by_document_counts, cost_of, judge
from stakes.errors import BadInput

SHARES = tuple(share / 100 for share in (*range(1, 21), *range(22, 52, 2), *range(55, 95, 5)))
"""Shares flagged that a ceiling may take."""


@dataclass(frozen=True)
class ReviewCeiling:
    """A tier's ceiling of the error among answers that are not flagged, and the threshold that keeps it."""

    tier: str
    ceiling: float
    level: float
    below: float | None
    """None: no threshold is certified to keep it."""
    tested: int

    def __str__(self) -> str:
        if self.below is None:
            return (
                f"{self.tier} error <= {self.ceiling:g} among unflagged answers cannot be certified with "
                f"{self.level:.4g} confidence; allow more errors or label more documents"
            )
        return (
            f"{self.tier} error <= {self.ceiling:g} among unflagged answers with {self.level:.4g} confidence, with "
            f"review below {self.below:.4g}"
        )


def certify_options(
    table: AnswerTable, measured: ByDocument, verdict: OptionVerdict, goal: Certification, uniform: int, estimator: str
) -> tuple[Certificate, Mapping[str, TierOption], Mapping[str, OptionEvidence]]:
    """The certificate, the options under its ceilings, and their evidence; where it does not pass, uniform ships.

    ``table``, ``measured``: all documents. ``verdict``: of options that were taken.
    """
    names = verdict.chosen_names
    (own, other), second = table.divide(names), measured.divide(names)[1]
    ceilings = _ceilings(own, other, verdict, goal)
    options = {
        tier: replace(option, review_below=met.below) if (met := ceilings.get(tier)) and met.below else option
        for tier, option in verdict.options.items()
    }
    test = _no_harm(other, options, verdict, uniform, goal.confidence)
    evidence = judge(other, second, options, goal.confidence)
    for tier, ceiling in ceilings.items():  # its threshold was chosen on these documents, so that its bound is this
        if ceiling.below is not None:
            evidence[tier] = evidence[tier].model_copy(update={"upper": ceiling.ceiling, "level": ceiling.level})
    passed = test.lower > 0
    sure = f"{goal.confidence:.4g} confidence"
    why = (
        f"on documents they were not chosen on, options save at least {test.lower:.3f} of the cost at stake with {sure}"
        if passed
        else f"options are not certified to help: with {sure} they are only known to save {test.lower:.3f}"
    )
    if not passed:
        options = {tier: TierOption(uniform) for tier in options}
        evidence = judge(other, second, options, goal.confidence)
    certificate = Certificate(
        confidence=goal.confidence,
        shipped="tiered" if passed else "uniform",
        budgets={tier: option.budget for tier, option in options.items()},
        why=why,
        no_harm=test,
        ceilings={},
        upper_errors={
            tier: UpperError(options[tier].budget, one.error or 0.0, 1.0 if one.upper is None else one.upper)
            for tier, one in evidence.items()
        },
        chosen_on=verdict.chosen_on,
        certified_on=verdict.judged_on,
        estimator=estimator,
        tiers="read" if measured.labelled is None else "labelled",
        max_per_document=goal.max_per_document,
        options={tier: str(option) for tier, option in options.items()},
        review_ceilings={tier: str(ceiling) for tier, ceiling in ceilings.items()} if passed else {},
    )
    return certificate, options, {} if not passed else evidence


def _no_harm(
    table: AnswerTable, options: Mapping[str, TierOption], verdict: OptionVerdict, uniform: int, level: float
) -> NoHarm:
    """The cost of options against uniform's, by document."""
    saved: dict[str, float] = {}
    weight: dict[str, float] = {}
    costs = {}
    for tier, answers in table.tiers.items():
        before = cost_of(answers, answers.serve(TierOption(uniform)), verdict.rules)
        after = cost_of(answers, answers.serve(options[tier]), verdict.rules)
        for name, less, cost in zip(answers.documents.tolist(), before - after, answers.cost, strict=True):
            saved[name] = saved.get(name, 0.0) + float(less)
            weight[name] = weight.get(name, 0.0) + float(cost)
        costs[tier] = max(float(answers.cost.max()), verdict.rules.review_cost or 0.0)
    part, whole = (np.array(list(column.values())) for column in (saved, weight))
    lower = lower_ratio(part, whole, level, lost_cost(whole, costs))
    budgets = {tier: option.budget for tier, option in options.items()}
    return NoHarm(budgets, uniform, float(part.sum() / whole.sum()), lower, level)


def _ceilings(
    own: AnswerTable, other: AnswerTable, verdict: OptionVerdict, goal: Certification
) -> dict[str, ReviewCeiling]:
    for tier in goal.ceilings:
        if tier not in verdict.options:
            raise BadInput(f"a ceiling is given for tier {tier!r}; the tiers are {', '.join(verdict.options)}")
    level = 1 - (1 - goal.confidence) / max(1, len(goal.ceilings))
    return {
        tier: review_ceiling(tier, own.tiers[tier], other.tiers[tier], verdict.options[tier], ceiling, level)
        for tier, ceiling in goal.ceilings.items()
    }


def review_ceiling(
    tier: str, own: TierAnswers, other: TierAnswers, option: TierOption, ceiling: float, level: float
) -> ReviewCeiling:
    """The threshold with the fewest flags that is certified to keep a ceiling; ``own``: the choosing documents.

    An option's own threshold is kept where it passes with the others.
    """
    plain = replace(option, review_below=None)
    found = {*thresholds(own.returned_confidence(plain), SHARES), *filter(None, [option.review_below])}
    strict_first = sorted(found, reverse=True)
    grow = max(1.0, len(other) / max(1, len(own)))  # as if the choosing documents were as many as the certifying ones
    safest = min(range(len(strict_first)), key=lambda i: _p(own, plain, strict_first[i], ceiling, grow), default=0)
    passed: list[float] = []
    for below in strict_first[safest:]:
        if _p(other, plain, below, ceiling) >= 1 - level:
            break
        passed.append(below)
    kept = option.review_below if option.review_below in passed else min(passed, default=None)
    return ReviewCeiling(tier, ceiling, level, kept, len(passed))


def _p(answers: TierAnswers, option: TierOption, below: float, ceiling: float, grow: float = 1.0) -> float:
    wrong, passed, _ = by_document_counts(answers, answers.serve(replace(option, review_below=below)))
    if not passed.any():
        return 1.0
    if grow > 1:
        times = round(grow)
        wrong, passed = np.tile(wrong, times), np.tile(passed, times)
    return p_error_at_least(wrong, passed, ceiling)
