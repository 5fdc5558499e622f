"""Which numbers does the page carry? Everything that its controls need to recompute, and nothing else.

Curves as measured, isotonic and as the estimator drew them; what every arm got wrong by document and tier, so that CWE
and its interval follow the costs; latency by budget; tokens at full resolution.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stakes.budgets.curve import Curve, proportion_interval
from stakes.calibration.evaluate import Evaluation
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import RATIOS
from stakes.report.run import Run
from stakes.tiers import extremes


def facts(run: Run) -> dict[str, Any]:
    """The record that the page's script reads, as plain JSON values."""
    policy, costs = run.policy, run.costs
    measured = [tier for tier in policy.tiers if tier in run.curves]
    return {
        "tiers": [_tier(run, tier) for tier in measured],
        "costs": costs,
        "budgets": policy.budgets,
        "dearest": extremes(costs)[0],
        "cheapest": extremes(costs)[1],
        "mean": policy.mean_budget,
        "floor": None if policy.floor == 1 else policy.floor,
        "estimator": policy.estimator,
        "ratios": list(RATIOS),
        "native": native_by_tier(run),
        "arms": None if run.evaluation is None else arms(run.evaluation, run.arm_outcomes),
        "latency": latency(run.outcomes or run.arm_outcomes),
    }


def _tier(run: Run, tier: str) -> dict[str, Any]:
    curve, fitted = run.curves[tier], run.fitted[tier]
    low, high = zip(*curve.intervals(), strict=True)
    return {
        "name": tier,
        "cost": run.costs[tier],
        "n": run.counts[tier],
        "budgets": curve.budgets,
        "errors": curve.errors,
        "counts": curve.counts,
        "low": low,
        "high": high,
        "isotonic": curve.isotonic().errors,
        "fitted": [fitted.error(b) for b in curve.budgets] if fitted.budgets == curve.budgets else curve.errors,
    }


def native_by_tier(run: Run) -> dict[str, float]:
    """Mean tokens at full resolution of each tier's samples."""
    seen: dict[str, dict[str, int]] = {}
    for outcome in run.outcomes or run.arm_outcomes:
        seen.setdefault(outcome.tier, {})[outcome.sample] = outcome.native
    return {tier: sum(native.values()) / len(native) for tier, native in seen.items()}


def arms(found: Evaluation, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Each arm's row with its intervals, and wrong answers by document and tier."""
    seen = found.comparison
    answers = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    tiers = list(seen.counts)
    rows = []
    documents: list[str] = []
    for row in seen.rows:
        mine = [answers[key] for key in zip(found.plan.samples, found.plan.budgets[row.arm], strict=True)]
        documents = list(dict.fromkeys(outcome.document for outcome in mine))
        rows.append(
            {
                "arm": row.arm,
                "errors": row.errors,
                "intervals": {tier: proportion_interval(row.errors[tier], seen.counts[tier]) for tier in tiers},
                "average": row.average,
                "average_interval": proportion_interval(row.average, len(mine)),
                "cwe": row.cwe,
                "gain": None if row.gain is None else [row.gain.value, row.gain.low, row.gain.high],
                "few": "" if row.gain is None else row.gain.few,
                "dear": None if row.dear is None else [row.dear.b, row.dear.c, row.dear.p],
                # "never" where no cost ratio makes it pay: JSON has no infinity
                "break_even": "never" if row.break_even == float("inf") else row.break_even,
                "realised": row.realised,
                "layers": row.layers,
                "wrong": _by_document(mine, documents, tiers, wrong=True),
            }
        )
        asked = _by_document(mine, documents, tiers, wrong=False)
    return {
        "rows": rows,
        "tiers": tiers,
        "counts": seen.counts,
        "costs": seen.costs,
        "dearest": seen.dearest,
        "documents": len(documents),
        "asked": asked,
        "metric": seen.metric,
        "total": found.plan.total,
        "counted": found.plan.counted,
        "deviation": found.deviation,
    }


def _by_document(
    outcomes: Sequence[Outcome], documents: Sequence[str], tiers: Sequence[str], *, wrong: bool
) -> list[list[int]]:
    """documents x tiers: questions asked, or answered wrongly."""
    place, column = {d: i for i, d in enumerate(documents)}, {t: i for i, t in enumerate(tiers)}
    table = [[0] * len(tiers) for _ in documents]
    for outcome in outcomes:
        table[place[outcome.document]][column[outcome.tier]] += not (wrong and outcome.correct)
    return table


def latency(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    """Median and quartiles of the logged milliseconds at each budget; arms asking many sizes are binned."""
    import numpy as np

    by_budget: dict[int, list[float]] = {}
    for outcome in outcomes:
        if outcome.ms > 0:
            by_budget.setdefault(outcome.budget, []).append(outcome.ms)
    if len(by_budget) > 40:
        merged: dict[int, list[float]] = {}
        for budget, times in by_budget.items():
            merged.setdefault(max(1, round(budget / 32) * 32), []).extend(times)
        by_budget = merged
    return [
        {
            "budget": budget,
            "n": len(times),
            **dict(zip(("p25", "median", "p75"), map(float, np.percentile(times, [25, 50, 75])), strict=True)),
        }
        for budget, times in sorted(by_budget.items())
    ]


def frontier_rows(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    ratio: float,
    floor: int | None = None,
) -> list[dict[str, Any]]:
    """CWE at every budget of the dearest tier, the others at their optimum under what that leaves of the total.

    The dearest tier's cost is ``ratio`` times the cheapest's; the least of these is ``allocate``'s optimum.
    """
    from stakes.budgets.allocate import allocate
    from stakes.errors import InfeasibleBudget

    dearest, cheapest = extremes(costs)
    prices = {**costs, dearest: ratio * costs[cheapest]}
    rest = {tier: curve for tier, curve in curves.items() if tier != dearest}
    weight = {tier: counts[tier] * prices[tier] for tier in curves}
    rows = []
    for budget, error in zip(curves[dearest].budgets, curves[dearest].errors, strict=True):
        if floor is not None and budget < floor:
            continue
        try:
            left = total - counts[dearest] * budget
            others = allocate(
                rest, {tier: prices[tier] for tier in rest}, {tier: counts[tier] for tier in rest}, left, floor
            )
        except InfeasibleBudget:
            continue
        lost = weight[dearest] * error + others.cwe * sum(weight[tier] for tier in rest)
        told = ", ".join(f"{tier} {b}" for tier, b in others.budgets.items())
        rows.append({"ratio": f"{ratio:.6g}", "budget": budget, "cwe": lost / sum(weight.values()), "others": told})
    return rows
