"""What do soft stakes bring end to end, the signal's mistakes included? From a log of outcomes to a price.

Curves are those of the true tiers (the labels); budgets follow from what the signal says, as they will when nobody has
labelled anything. The promise is cross-fitted: price and curves from one half of the documents, tried on the other, and
the other way round, each question at the cost of its label and with the answer it got at the budget it would have had.
A signal that was trained on these very questions makes fewer mistakes here than it will elsewhere; train it on others.

    soft = soften(measured, outcomes, questions, signal, {"high": 5, "low": 1}, 304)
    soft.plan.price, soft.promise.cwe, soft.promise.hard_cwe
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve
from stakes.budgets.per_request import SoftPlan, above, expected_losses, spend, trust_of, unchanged_range
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.drift import same_answer, upper_by_tier
from stakes.calibration.estimators import DEFAULT, named, raw
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.signals.base import Signal

MOVED = 0.01  # the ratio's range is that within which no more than this share of the questions changes its budget


@dataclass(frozen=True)
class Asking:
    """A question of the calibration as it will come when deployed, and its label."""

    sample: str
    document: str
    question: str
    tier: str
    task: str | None = None


@dataclass(frozen=True)
class Promise:
    """CWE and tokens an image with predicted tiers, on documents that nothing was chosen on."""

    cwe: float
    tokens: float
    hard_cwe: float
    """One budget for each predicted tier instead, at the same mean budget."""
    hard_tokens: float
    right: float
    """How often the signal reads the label."""
    ratio: float
    """Of the dearest cost to the cheapest."""
    same_from: float
    same_to: float
    """Ratios over which at most a hundredth of the questions would change its budget."""


@dataclass(frozen=True)
class Softened:
    """A price for the policy, and what it promises."""

    plan: SoftPlan
    promise: Promise


def soften(
    measured: ByDocument,
    outcomes: Sequence[Outcome],
    asked: Sequence[Asking],
    signal: Signal,
    costs: Mapping[str, float],
    mean_budget: int,
    estimator: str = DEFAULT,
    floor: int | None = None,
) -> Softened:
    """The price for the questions asked, and the promise that goes with it."""
    right = {(o.sample, o.budget): o.correct for o in outcomes}
    grid = measured.budgets
    missing = [one.sample for one in asked if any((one.sample, b) not in right for b in grid)]
    if missing:
        raise BadInput(f"soft stakes need every question at every budget; {missing[0]!r} lacks some (raced?)")
    parts = [set(measured.take(rows).documents) for rows in measured.parts(2)]
    sums = np.zeros(5)  # cost at stake, soft and hard: cost lost, tokens
    for chosen, tried in (parts, parts[::-1]):
        first = [one for one in asked if one.document in chosen]
        second = [one for one in asked if one.document in tried]
        rows = [i for i, document in enumerate(measured.documents) if document in chosen]
        curves = _fit(measured.take(rows), estimator, floor, tried)
        plan = _plan(first, signal, costs, mean_budget, curves)[0]
        hard = _hard(first, signal, costs, mean_budget, curves)
        for one in second:
            reading, weights = plan.weights(signal, costs, one.question, one.task, None)
            soft_budget, hard_budget = plan.budget(curves, weights, one.question, one.sample), hard[reading.tier]
            cost = costs[one.tier]
            sums += (
                cost,
                cost * (not right[one.sample, soft_budget]),
                soft_budget,
                cost * (not right[one.sample, hard_budget]),
                hard_budget,
            )
    curves = _fit(measured, estimator, floor)
    plan, ends, agree = _plan(asked, signal, costs, mean_budget, curves, ranged=True)
    n, ratio = len(asked), max(costs.values()) / min(costs.values())
    promise = Promise(sums[1] / sums[0], sums[2] / n, sums[3] / sums[0], sums[4] / n, agree, ratio, *ends)
    promise = Promise(**{key: float(value) for key, value in asdict(promise).items()})
    seen = _watched(plan, outcomes, asked, signal, costs, curves)
    return Softened(plan.model_copy(update={"promise": asdict(promise), **seen}), promise)


def _watched(
    plan: SoftPlan,
    outcomes: Sequence[Outcome],
    asked: Sequence[Asking],
    signal: Signal,
    costs: Mapping[str, float],
    curves: Mapping[str, Curve],
) -> dict[str, dict[str, float]]:
    """What holds of these questions and is to hold of others: disagreement with full budget and mix, by tier read."""
    said = {(o.sample, o.budget): o.prediction for o in outcomes}
    full, compared = max(budget for _, budget in said), []
    for one in asked:
        reading, weights = plan.weights(signal, costs, one.question, one.task, None)
        here = said[one.sample, plan.budget(curves, weights, one.question, one.sample)]
        compared.append((reading.tier, one.document, same_answer(here, said[one.sample, full])))
    read = [tier for tier, _, _ in compared]
    return {"disagreement": upper_by_tier(compared), "mix": {tier: read.count(tier) / len(read) for tier in costs}}


def _fit(measured: ByDocument, estimator: str, floor: int | None, unseen: Collection[str] = ()) -> dict[str, Curve]:
    # "auto: pooled" is pooled; bootstrap resamples choices and leaves the curves as measured
    fit = named(estimator.removeprefix("auto: "), unseen) or raw
    fitted = fit(measured.curves(), measured)
    return {tier: above(curve, floor or 1) for tier, curve in fitted.items()}


def _plan(
    asked: Sequence[Asking],
    signal: Signal,
    costs: Mapping[str, float],
    mean_budget: int,
    curves: Mapping[str, Curve],
    ranged: bool = False,
) -> tuple[SoftPlan, tuple[float, float], float]:
    """The price for these questions, its range of cost ratios, and how often the signal is right."""
    tiers = list(costs)
    readings = [signal(one.question, one.task) for one in asked]
    labels = [one.tier for one in asked]
    open_plan = SoftPlan(price=0.0, trust=trust_of(signal, readings, labels, tiers))
    unit = dict.fromkeys(tiers, 1.0)
    found = [open_plan.weights(signal, unit, one.question, one.task, None)[1] for one in asked]
    likely = np.array([[w.get(tier, 0.0) for tier in tiers] for w in found])
    errors = np.array([curves[tier].errors for tier in tiers])
    grid, total = curves[tiers[0]].budgets, mean_budget * len(asked)
    scale, dear = np.array([costs[tier] for tier in tiers]), max(tiers, key=costs.__getitem__)
    bought = spend(expected_losses(likely * scale, errors), grid, total)
    ends = (0.0, 0.0)
    if ranged:
        ratio = costs[dear] / min(costs.values())

        def weights_at(r: float) -> np.ndarray:
            return likely * np.where([tier == dear for tier in tiers], r * min(costs.values()), scale)

        ends = unchanged_range(weights_at, errors, grid, total, ratio, MOVED)
    agree = sum(reading.tier == label for reading, label in zip(readings, labels, strict=True)) / len(asked)
    return open_plan.model_copy(update={"price": bought.price, "share": bought.share}), ends, agree


def _hard(
    asked: Sequence[Asking],
    signal: Signal,
    costs: Mapping[str, float],
    mean_budget: int,
    curves: Mapping[str, Curve],
) -> dict[str, int]:
    """One budget for each tier that the signal reads: what a policy without soft stakes would give.

    A tier that it reads in none of these questions gets the largest measured budget within the mean.
    """
    readings = [signal(one.question, one.task).tier for one in asked]
    counts = {tier: readings.count(tier) for tier in costs if tier in readings}
    best = allocate({t: curves[t] for t in counts}, {t: costs[t] for t in counts}, counts, mean_budget * len(asked))
    grid = next(iter(curves.values())).budgets  # from the floor up
    within = max((budget for budget in grid if budget <= mean_budget), default=grid[0])
    return {tier: best.budgets.get(tier, within) for tier in costs}
