"""Choose an option for every tier: the options as points of tokens and loss, and ``allocate`` on these points.

The loss of an option is its expected cost by question, relative to the cost of a mistake c:

    tokens = first + P(asked again) second
    loss   = P(wrong and not flagged) + (review cost / c) P(flagged)

The error of a fixed budget is the estimator's. An option with a second attempt is read off the same answers, as a
difference from the error at its second budget, which is all that the estimator knows better:

    P(wrong) = e(second) + P(first stands and is wrong) - P(first stands, and the second would be wrong)

Both shares are of sure answers, rarely wrong, and paired: their difference varies far less than an error rate.
Thresholds are quantiles of the measured confidences. Nothing here is evidence: options are judged on other documents.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve
from stakes.budgets.options.tier_plan import Escalation, TierOption
from stakes.calibration.escalation.answers import AnswerTable, Floats, TierAnswers
from stakes.calibration.estimators import Terms

ESCALATED = (0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65)
"""Shares of a tier's questions that a threshold sends to a second attempt."""
FLAGGED = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Shares that a threshold flags."""
DIGITS = 6  # of a threshold, as of a confidence


@dataclass(frozen=True)
class OptionPoint:
    """An option, its tokens per question and its loss."""

    option: TierOption
    tokens: float
    loss: float


@dataclass(frozen=True)
class OptionRules:
    """Which options are permitted: a second attempt or not, and at which cost a person reviews (None: no review)."""

    escalate: bool = True
    review_cost: float | None = None

    @property
    def fixed(self) -> bool:
        """Whether budgets are the only options."""
        return not self.escalate and self.review_cost is None


@dataclass(frozen=True)
class ChosenOptions:
    """An option for each tier, and the allocation of their points.

    ``splits``: of each tier, the share of its questions that takes an option; one option has all, or with ``mix`` two.
    """

    options: Mapping[str, TierOption]
    allocation: Allocation
    splits: Mapping[str, Mapping[TierOption, float]]


def choose_options(
    table: AnswerTable, curves: Mapping[str, Curve], terms: Terms, rules: OptionRules, *, mix: bool = False
) -> ChosenOptions:
    """The options with the smallest expected cost within the total; ``curves``: the estimator's.

    ``mix``: one tier may use two, as a gateway serves fixed budgets in turn to spend what whole tiers leave over.
    """
    menus = {tier: _menu(tier, table.tiers[tier], curves, terms, rules) for tier in terms.costs}
    points = {tier: Curve(list(menu), [one.loss for one in menu.values()], 1) for tier, menu in menus.items()}
    best = allocate(points, terms.costs, terms.counts, terms.total, mix=mix)
    splits = {
        tier: {
            menus[tier][tokens].option: samples / terms.counts[tier]
            for tokens, samples in best.mixed.get(tier, {mean: terms.counts[tier]}).items()
        }
        for tier, mean in best.budgets.items()
    }
    return ChosenOptions({tier: menus[tier][tokens].option for tier, tokens in best.budgets.items()}, best, splits)


def _menu(
    tier: str, own: TierAnswers, curves: Mapping[str, Curve], terms: Terms, rules: OptionRules
) -> dict[int, OptionPoint]:
    """By whole tokens, rising, the best option of a tier; of equally good ones the first, which is the simplest."""
    limit = (terms.max_harm or {}).get(tier)
    most = math.inf if limit is None else limit + _at_uniform(curves[tier], terms)
    best: dict[int, OptionPoint] = {}
    for point in option_points(own, curves[tier], rules, terms.costs[tier]):
        tokens = math.ceil(point.tokens - 1e-9)
        permitted = point.option.budget >= (terms.floor or 1) and min(point.loss, 1) <= most
        if permitted and (tokens not in best or point.loss < best[tokens].loss - 1e-12):
            best[tokens] = point
    return dict(sorted(best.items()))


def _at_uniform(curve: Curve, terms: Terms) -> float:
    mean = terms.total // sum(terms.counts.values())
    return curve.error(max((budget for budget in curve.budgets if budget <= mean), default=curve.budgets[0]))


def option_points(own: TierAnswers, curve: Curve, rules: OptionRules, cost: float) -> Iterator[OptionPoint]:
    """Every option of a tier, fixed budgets first; ``curve``: the estimator's errors; ``cost``: of a mistake."""
    weight = own.cost / own.cost.sum()  # a mistake counts by its question's cost

    def point(option: TierOption, error: float, wrong: Floats, confidence: Floats) -> Iterator[OptionPoint]:
        """The option, and with review: ``wrong`` and ``confidence`` of the answer that is returned."""
        tokens = float(own.serve(option).tokens.mean())
        yield OptionPoint(option, tokens, min(1.0, max(0.0, error)))
        if rules.review_cost is None or rules.review_cost >= cost:
            return
        for below in thresholds(confidence, FLAGGED):
            flagged = confidence < below
            caught = float(weight @ (wrong * flagged))
            loss = max(0.0, error - caught) + rules.review_cost / cost * float(flagged.mean())
            yield OptionPoint(replace(option, review_below=below), tokens, min(1.0, loss))

    wrong = own.wrong.astype(float)
    for i, budget in enumerate(own.budgets):
        yield from point(TierOption(budget), curve.error(budget), wrong[:, i], own.confidence[:, i])
    if not rules.escalate:
        return
    for i, first in enumerate(own.budgets):
        for below in thresholds(own.confidence[:, i], ESCALATED):
            again = own.confidence[:, i] < below
            for j in range(i + 1, len(own.budgets)):
                option = TierOption(first, Escalation(to=own.budgets[j], below=below))
                error = curve.error(own.budgets[j]) + float(weight @ (~again * (wrong[:, i] - wrong[:, j])))
                final = np.where(again, wrong[:, j], wrong[:, i])
                sure = np.where(again, own.confidence[:, j], own.confidence[:, i])
                yield from point(option, error, final, sure)


def thresholds(confidence: Floats, shares: tuple[float, ...]) -> list[float]:
    """Thresholds below which about these shares of the confidences lie, each half way between two of them.

    >>> thresholds(np.array([0.2, 0.4, 0.8, 1.0]), (0.25, 0.5))
    [0.3, 0.6]
    """
    values = np.sort(confidence)
    found: dict[float, None] = {}
    for share in shares:
        at = round(share * len(values))
        if 0 < at < len(values) and values[at - 1] < values[at]:
            below = round(float(values[at - 1] + values[at]) / 2, DIGITS)
            if values[at - 1] < below <= values[at]:
                found[below] = None
    return list(found)
