"""Calibrate per-request costs: the shadow price for a set of samples, and what it brings with the signal's mistakes.

Curves are those of the true tiers (the labels); budgets follow from what the signal reads, as they will in deployment.
The estimate is cross-fitted: price and curves from one half of the documents, tested on the other, and the other way
round, each question at the cost of its label and with its answer at the budget that it would have had. A signal that
was trained on these very questions makes fewer mistakes here than it will on others; train it on others.

    plan = calibrate_per_request(outcomes, samples, signal, {"high": 5, "low": 1}, 304)
    plan.price, plan.estimate["cwe"], plan.estimate["hard_cwe"]
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve, above_floor
from stakes.budgets.per_request import PerRequestPlan, expected_losses, label_probabilities, spend, unchanged_range
from stakes.budgets.policy import Policy
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.certify.drift import same_answer, upper_by_tier
from stakes.calibration.estimators import DEFAULT, fit
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.signals.base import Signal
from stakes.signals.prompt import text_of
from stakes.tiers import at_ratio, own_ratio

ESTIMATE = ("cwe", "tokens", "hard_cwe", "hard_tokens", "right", "ratio", "same_from", "same_to")
MOVED = 0.01  # the stated range of cost ratios is that within which at most this share of the budgets changes


def calibrate_per_request(
    outcomes: Sequence[Outcome],
    samples: Sequence[Sample],
    signal: Signal,
    costs: Mapping[str, float],
    mean_budget: int,
    estimator: str = DEFAULT,
    floor: int | None = None,
) -> PerRequestPlan:
    """The price for these samples, whose tiers are their labels, and the estimate that goes with it.

    The estimate has ``cwe`` and ``tokens`` per image with predicted tiers, on documents that nothing was chosen on;
    ``hard_cwe`` and ``hard_tokens`` with one budget for each predicted tier instead, at the same mean budget;
    ``right``, how often the signal reads the label; ``ratio``, of the highest cost to the lowest; and ``same_from`` and
    ``same_to``, the ratios over which at most a hundredth of the questions would change its budget.
    """
    measured = by_document(outcomes, costs)
    answers = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    missing = [s.id for s in samples if any((s.id, budget) not in answers for budget in measured.budgets)]
    if missing:
        raise BadInput(
            f"per-request costs need every question at every budget; {missing[0]!r} lacks some (adaptive sampling?)"
        )
    pricing = _Pricing(signal, costs, mean_budget)
    parts = [measured.subset(rows) for rows in measured.parts(2)]
    sums = np.zeros(5)  # cost at stake; by request and by tier: cost lost, tokens
    for fitted_on, tested_on in (parts, parts[::-1]):
        curves = _curves(fitted_on, estimator, floor)
        first, second = (
            [sample for sample in samples if sample.document in documents]
            for documents in (set(fitted_on.documents), set(tested_on.documents))
        )
        plan, hard = pricing.plan(first, curves), pricing.by_tier(first, curves)
        for sample in second:
            tier, by_request = pricing.decide(plan, curves, sample)
            cost, losses = costs[sample.tier], []
            for budget in (by_request, hard[tier]):
                losses += [cost * (not answers[sample.id, budget].correct), budget]
            sums += (cost, *losses)
    curves = _curves(measured, estimator, floor)
    plan, n = pricing.plan(samples, curves), len(samples)
    right = sum(signal(s.prompt, s.task).tier == s.tier for s in samples) / n
    figures = (*sums[1:] / (sums[0], n, sums[0], n), right, *pricing.unchanged_ratios(samples, curves))
    estimate = {name: float(figure) for name, figure in zip(ESTIMATE, figures, strict=True)}
    # What drift monitoring compares with, by tier read: disagreement with full budget, and the mix.
    full, compared = measured.budgets[-1], []
    for sample in samples:
        tier, budget = pricing.decide(plan, curves, sample)
        small, large = (answers[sample.id, b].prediction for b in (budget, full))
        compared.append((tier, sample.document, same_answer(small, large)))
    read = Counter(tier for tier, _, _ in compared)
    conditions = {"disagreement": upper_by_tier(compared), "mix": {tier: read[tier] / n for tier in costs}}
    return plan.model_copy(update={"estimate": estimate, **conditions})


def errors_by_label(policy: Policy, samples: Sequence[Sample], curves: Mapping[str, Curve]) -> dict[str, float]:
    """By label, the mean error on these curves of the budgets that a policy with per-request costs gives."""
    errors: dict[str, list[float]] = {tier: [] for tier in curves}
    for sample in samples:
        budget = policy.decide(sample.prompt, sample.task, about=sample.id).budget
        errors[sample.tier].append(curves[sample.tier].error(budget))
    return {tier: sum(found) / len(found) for tier, found in errors.items()}


def _curves(measured: ByDocument, estimator: str, floor: int | None) -> dict[str, Curve]:
    return above_floor(fit(estimator, measured.curves(), measured), floor)


@dataclass(frozen=True)
class _Pricing:
    """Budgets from what ``signal`` reads, at these costs and this mean."""

    signal: Signal
    costs: Mapping[str, float]
    mean_budget: int

    def plan(self, samples: Sequence[Sample], curves: Mapping[str, Curve]) -> PerRequestPlan:
        """The price at which these samples spend their total."""
        likely, trusting = self._likely(samples)
        scaled = likely * np.array(list(self.costs.values()))
        bought = spend(expected_losses(scaled, self._errors(curves)), _grid(curves), self.mean_budget * len(samples))
        return trusting.model_copy(update={"price": bought.price, "share": bought.share})

    def decide(self, plan: PerRequestPlan, curves: Mapping[str, Curve], sample: Sample) -> tuple[str, int]:
        """The tier that the signal reads, and the budget at the price."""
        reading, weights = plan.weights(self.signal, self.costs, sample.prompt, sample.task, None)
        return reading.tier, plan.budget(curves, weights, text_of(sample.prompt), sample.id)

    def unchanged_ratios(self, samples: Sequence[Sample], curves: Mapping[str, Curve]) -> tuple[float, float, float]:
        """The cost ratio, and the range of ratios (``tiers.at_ratio``) over which nearly no budget changes."""
        likely, _ = self._likely(samples)

        def weights_at(ratio: float) -> NDArray[np.float64]:
            return np.asarray(likely * np.array(list(at_ratio(self.costs, ratio).values())))

        total, ratio = self.mean_budget * len(samples), float(own_ratio(self.costs))
        return ratio, *unchanged_range(weights_at, self._errors(curves), _grid(curves), total, ratio, MOVED)

    def by_tier(self, samples: Sequence[Sample], curves: Mapping[str, Curve]) -> dict[str, int]:
        """One budget for each tier that the signal reads: what a policy without per-request costs would give.

        A tier that it reads in none of these samples gets the largest measured budget within the mean.
        """
        readings = [self.signal(sample.prompt, sample.task).tier for sample in samples]
        counts = {tier: readings.count(tier) for tier in self.costs if tier in readings}
        costs = {tier: self.costs[tier] for tier in counts}
        best = allocate({tier: curves[tier] for tier in counts}, costs, counts, self.mean_budget * len(samples))
        grid = _grid(curves)  # from the floor up
        within = max((budget for budget in grid if budget <= self.mean_budget), default=grid[0])
        return {tier: best.budgets.get(tier, within) for tier in self.costs}

    def _likely(self, samples: Sequence[Sample]) -> tuple[NDArray[np.float64], PerRequestPlan]:
        """Probabilities of each tier, samples × tiers, and the plan without a price that they come from."""
        tiers = list(self.costs)
        readings = [self.signal(sample.prompt, sample.task) for sample in samples]
        labels = [sample.tier for sample in samples]
        plan = PerRequestPlan(price=0.0, trust=label_probabilities(self.signal, readings, labels, tiers))
        unit = dict.fromkeys(tiers, 1.0)
        weights = [plan.weights(self.signal, unit, sample.prompt, sample.task, None)[1] for sample in samples]
        return np.array([[row.get(tier, 0.0) for tier in tiers] for row in weights]), plan

    def _errors(self, curves: Mapping[str, Curve]) -> NDArray[np.float64]:
        return np.array([curves[tier].errors for tier in self.costs])


def _grid(curves: Mapping[str, Curve]) -> tuple[int, ...]:
    return next(iter(curves.values())).budgets
