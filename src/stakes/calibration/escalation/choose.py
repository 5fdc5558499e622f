"""Choose an option for every tier: the options as points of tokens and loss, and ``allocate`` on these points.

The loss of an option is its expected cost by question, relative to the cost of a mistake c:

    tokens = first + P(asked again) second
    loss   = P(wrong and not flagged) + (review cost / c) P(flagged)

The error of a fixed budget is the estimator's. An option with a second attempt is read off the same answers, as a
difference from the error at its second budget, which is all that the estimator knows better:

    P(wrong) = e(second) + P(first stands and is wrong) - P(first stands, and the second would be wrong)

Both shares are of sure answers, rarely wrong, and paired: their difference varies far less than an error rate.
Thresholds are quantiles of the measured confidences. A predicted budget is read off the answers in the same way, as a
difference from the error at the fixed budget next to its mean tokens, with predictions for each question by a fit on
other documents. Nothing here is evidence: options are judged on other documents.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve
from stakes.budgets.options.tier_plan import REFERENCE, BudgetPredictor, Escalation, TierOption
from stakes.calibration.escalation.answers import AnswerTable, Floats, TierAnswers
from stakes.calibration.estimators import Terms
from stakes.data.sample import Sample
from stakes.vision.image.decode import open_image
from stakes.vision.image.statistics import STATISTICS, page_statistics

ESCALATED = (0.03, 0.06, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65)
"""Shares of a tier's questions that a threshold sends to a second attempt."""
FLAGGED = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5)
"""Shares that a threshold flags."""
STRENGTH = 0.3  # inverse of the ridge penalty; statistics are standardised
LEAST_SCALE = 1e-3  # of a statistic that does not vary: well above the rounding of its center to 6 digits
PARTS = 4
PRICES = tuple(float(f"{price:.4g}") for price in np.geomspace(3e-5, 6e-3, 24))
"""Of a token, in mistakes: from nearly every image at the largest budget to nearly every one at the smallest."""
DIGITS = 6  # of a threshold, as of a confidence


@dataclass(frozen=True)
class OptionPoint:
    """An option, its tokens per question and its loss."""

    option: TierOption
    tokens: float
    loss: float


@dataclass(frozen=True)
class OptionRules:
    """Which options are permitted: a second attempt, a predicted budget, and review at a cost (None: no review).

    Budgets are predicted where the statistics of the images are known.
    """

    escalate: bool = True
    review_cost: float | None = None
    predict: bool = True

    @property
    def fixed(self) -> bool:
        """Whether budgets are the only options."""
        return not (self.escalate or self.predict or self.review_cost is not None)


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
    floor = terms.floor or 1
    for point in option_points(own, curves[tier], rules, terms.costs[tier], floor):
        tokens = math.ceil(point.tokens - 1e-9)
        permitted = point.option.budget >= floor and min(point.loss, 1) <= most
        if permitted and (tokens not in best or point.loss < best[tokens].loss - 1e-12):
            best[tokens] = point
    return dict(sorted(best.items()))


def _at_uniform(curve: Curve, terms: Terms) -> float:
    mean = terms.total // sum(terms.counts.values())
    return curve.error(max((budget for budget in curve.budgets if budget <= mean), default=curve.budgets[0]))


def option_points(
    own: TierAnswers, curve: Curve, rules: OptionRules, cost: float, floor: int = 1
) -> Iterator[OptionPoint]:
    """Every option of a tier, fixed budgets first; ``curve``: the estimator's errors; ``cost``: of a mistake.

    ``floor``: the smallest budget that may be predicted.
    """
    weight = own.cost / own.cost.sum()  # a mistake counts by its question's cost

    def point(
        option: TierOption, error: float, wrong: Floats, confidence: Floats, tokens: float | None = None
    ) -> Iterator[OptionPoint]:
        """The option, and with review: ``wrong`` and ``confidence`` of the answer that is returned."""
        tokens = float(own.serve(option).tokens.mean()) if tokens is None else tokens
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
    for option, at in predicted_options(own, floor) if rules.predict else ():
        final, tokens = wrong[np.arange(len(own)), at], float(np.array(own.budgets)[at].mean())
        error = curve.error(option.budget) + float(weight @ (final - wrong[:, own.budgets.index(option.budget)]))
        yield from point(option, error, final, own.confidence[np.arange(len(own)), at], tokens)
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


def predicted_options(own: TierAnswers, floor: int = 1) -> Iterator[tuple[TierOption, NDArray[np.int64]]]:
    """A tier's options of predicted budgets, one for each price, and the column of each question's budget.

    The columns are by fits without the question's document, so that tokens and errors read off them are honest. The
    option's own predictor is fitted on all questions. None where statistics are not known, documents are few, or
    the answers are all right or all wrong.
    """
    names, unit = np.unique(own.documents, return_inverse=True)
    if not own.statistics.size or len(names) < 2 * PARTS:
        return
    part = np.random.default_rng(0).permutation(len(names))[unit] % PARTS
    fits = [_fit(own, part != number, floor) for number in range(PARTS)]
    whole = _fit(own, np.ones(len(own), bool), floor)
    if whole is None or None in fits:
        return
    budgets = np.array(own.budgets)

    def columns(price: float, least: int) -> NDArray[np.int64]:
        found = np.zeros(len(own), np.int64)
        for number, fitted in enumerate(fits):
            assert fitted is not None
            rows = part == number
            found[rows] = fitted.model_copy(update={"price": price}).predict(own.statistics[rows], least)
        return np.searchsorted(budgets, found)

    for price in PRICES:
        mean = budgets[columns(price, whole.budgets[0])].mean()
        least = max([budget for budget in whole.budgets if budget <= mean], default=whole.budgets[0])
        yield TierOption(least, predictor=whole.model_copy(update={"price": price})), columns(price, least)


def page_statistics_of(samples: Sequence[Sample]) -> dict[str, tuple[float, ...]]:
    """The statistics of each sample's image, by its id; an image is read once."""
    pages = {sample.digest: sample for sample in samples}
    found = {digest: page_statistics(open_image(sample.load())) for digest, sample in pages.items()}
    return {sample.id: found[sample.digest] for sample in samples}


def _fit(own: TierAnswers, rows: NDArray[np.bool_], floor: int) -> BudgetPredictor | None:
    from sklearn.linear_model import LogisticRegression

    values, right = own.statistics[rows], ~own.wrong[rows]
    if right.all() or not right.any():
        return None
    center, scale = values.mean(axis=0), np.maximum(values.std(axis=0), LEAST_SCALE)
    standard = np.repeat((values - center) / scale, len(own.budgets), axis=0)
    logs = np.tile(np.log(np.array(own.budgets) / REFERENCE), len(values))[:, None]
    fitted = LogisticRegression(C=STRENGTH, max_iter=1000).fit(
        np.hstack([standard, logs, standard * logs]), right.ravel()
    )
    weights, count = fitted.coef_[0], len(STATISTICS)
    return BudgetPredictor(
        statistics=STATISTICS,
        center=_plain(center),
        scale=_plain(scale),
        level=_plain(np.concatenate([fitted.intercept_, weights[:count]])),
        slope=_plain(weights[count:]),
        budgets=tuple(budget for budget in own.budgets if budget >= floor),
        price=0.0,
    )


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
