"""The paper's pair frontier: cost-ratio sweep, changes of the optimum, break-even, and slopes of a curve.

Two tiers, one error of the high-cost one costing ``r`` errors of the low-cost one. At a fixed sum of budgets each
feasible pair is a line in ``r``, ``n_lo E_lo + r n_hi E_hi``; the lower envelope of these lines says which pair is best
at which cost ratio and where the optimum changes. Paper, section "The Allocation Frontier".

    >>> uniform, cost = {"high": 0.300, "low": 0.373}, {"high": 0.133, "low": 0.843}
    >>> f"{break_even(uniform, cost, n=300):.2f}"
    '2.82'
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve
from stakes.budgets.hull import TIE
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.statistics import RATIOS


@dataclass(frozen=True)
class Pair:
    """Budgets of the high-cost and the low-cost tier, and their measured errors."""

    high: int
    low: int
    error_high: float
    error_low: float

    def cwe(self, ratio: float) -> float:
        """Cost-weighted error at equal tier sizes: ``(r E_hi + E_lo) / (r + 1)``."""
        return (ratio * self.error_high + self.error_low) / (ratio + 1)


@dataclass(frozen=True)
class Change:
    """At cost ratio ``ratio`` the optimum passes from ``before`` to ``after``."""

    ratio: float
    before: Pair
    after: Pair


def frontier(high: Curve, low: Curve, total: int) -> tuple[Pair, ...]:
    """Every measured pair whose budgets add up to exactly ``total``, by rising budget of the high-cost tier."""
    errors = dict(zip(low.budgets, low.errors, strict=True))
    return tuple(
        Pair(budget, total - budget, error, errors[total - budget])
        for budget, error in zip(high.budgets, high.errors, strict=True)
        if total - budget in errors
    )


def sweep(high: Curve, low: Curve, total: int, ratios: Iterable[float] = RATIOS) -> dict[float, Allocation]:
    """The optimum at each cost ratio for one sample of each tier; ``total`` is the pair's sum of budgets."""
    curves, counts = {"high": high, "low": low}, {"high": 1, "low": 1}
    return {ratio: allocate(curves, {"high": ratio, "low": 1}, counts, total) for ratio in ratios}


def change_ratios(
    high: Curve, low: Curve, total: int, *, start: float = 1.0, counts: Mapping[str, int] | None = None
) -> tuple[Change, ...]:
    """The exact cost ratios above ``start`` at which the optimum under ``total`` changes, rising.

    Walks the lower envelope of ``n_lo E_lo + r n_hi E_hi`` over the pairs that fit: from the pair that is best just
    above ``start``, the next is the one whose line is met first. The default starts at 1, where the tiers cost the
    same; below it the names would be swapped. Snap published rates first (``snap``).
    """
    n_high, n_low = (counts["high"], counts["low"]) if counts else (1, 1)
    fits = _best_pairs(high, low, total, n_high, n_low)
    if not fits:
        smallest = n_high * high.budgets[0] + n_low * low.budgets[0]
        raise InfeasibleBudget(f"no pair of measured budgets fits in {total} tokens; give at least {smallest}")

    def first(ties: Iterable[Pair]) -> Pair:
        """Just above a tie the smallest high-cost error wins; then fewest tokens, then the most even."""
        return min(
            ties, key=lambda p: (p.error_high, p.error_low, n_high * p.high + n_low * p.low, abs(p.high - p.low))
        )

    def lost(pair: Pair) -> float:
        return (n_low * pair.error_low + start * n_high * pair.error_high) / (n_low + start * n_high)

    least = min(lost(pair) for pair in fits)
    best = first(pair for pair in fits if lost(pair) <= least + TIE)
    changes: list[Change] = []
    while True:
        crossings = [
            (n_low * (pair.error_low - best.error_low) / (n_high * (best.error_high - pair.error_high)), pair)
            for pair in fits
            if pair.error_high < best.error_high - TIE
        ]
        if not crossings:
            return tuple(changes)
        ratio = min(r for r, _ in crossings)
        after = first(pair for r, pair in crossings if r <= ratio * (1 + TIE))
        changes.append(Change(ratio, best, after))
        best = after


def break_even(
    uniform: Mapping[str, float], cost: Mapping[str, float], n: int | Mapping[str, int] | None = None
) -> float:
    """The cost ratio at which the cost arm's CWE equals the uniform arm's; above it the cost arm is better.

    ``r* = n_lo (low_cost - low_uniform) / (n_hi (high_uniform - high_cost))``

    Parameters
    ----------
    uniform, cost
        Error rates ``{"high": ..., "low": ...}`` of the two arms.
    n
        Samples per tier, one number for both or one each. When given, the rates are first snapped to ``k / n``, which
        undoes the rounding of published figures, and tiers of unequal size are weighted.

    Returns
    -------
    float
        ``0.0`` where a tier gains and none loses, so that every ratio justifies the cost arm; ``inf`` where the
        high-cost tier loses, or neither gains, so that from no ratio upward it does (see ``pays_below``).
    """
    gained, lost = _moved(uniform, cost, n)
    if gained > TIE:
        return lost / gained if lost > TIE else 0.0
    return 0.0 if gained >= -TIE and lost < -TIE else math.inf


def pays_below(
    uniform: Mapping[str, float], cost: Mapping[str, float], n: int | Mapping[str, int] | None = None
) -> float | None:
    """The cost ratio below which the arm is better: the high-cost tier loses and the low-cost one gains; else None."""
    gained, lost = _moved(uniform, cost, n)
    return lost / gained if gained < -TIE and lost < -TIE else None


def format_pays(break_even: float, below: float | None) -> str:
    """At which cost ratios an arm pays: ``2.82`` (from there on), ``every r``, ``below 0.86`` or ``never``."""
    if below is not None:
        return f"below {below:.2f}"
    return "every r" if break_even == 0 else "never" if math.isinf(break_even) else f"{break_even:.2f}"


def _moved(
    uniform: Mapping[str, float], cost: Mapping[str, float], n: int | Mapping[str, int] | None
) -> tuple[float, float]:
    """Errors that the high-cost tier is spared, and errors that the low-cost tier gets instead."""
    sizes = {"high": 1, "low": 1} if n is None else {"high": n, "low": n} if isinstance(n, int) else dict(n)
    rates = {}
    for arm, errors in (("uniform", uniform), ("cost", cost)):
        for tier in ("high", "low"):
            if tier not in errors or not 0 <= errors[tier] <= 1:
                given = errors.get(tier, "missing")
                raise BadInput(f"the {arm} arm's error in tier {tier!r} is {given}; give a rate in [0, 1]")
            rates[arm, tier] = errors[tier] if n is None else snap(errors[tier], sizes[tier])
    gained = sizes["high"] * (rates["uniform", "high"] - rates["cost", "high"])
    lost = sizes["low"] * (rates["cost", "low"] - rates["uniform", "low"])
    return gained, lost


def snap(rate: float, n: int) -> float:
    """The rate ``k / n`` nearest to a published, rounded one."""
    if not 0 <= rate <= 1 or n < 1:
        raise BadInput(f"cannot snap a rate of {rate} to {n} samples; give a rate in [0, 1] and at least one sample")
    return round(rate * n) / n


def _best_pairs(high: Curve, low: Curve, total: int, n_high: int, n_low: int) -> list[Pair]:
    """For every budget of the high-cost tier, the best low-cost one that fits; no other pair is ever the optimum."""
    best: list[int] = []  # among the budgets up to each one, the least error's; of equal ones, the smallest's
    for i, error in enumerate(low.errors):
        best.append(i if not best or error < low.errors[best[-1]] else best[-1])
    pairs = []
    for budget, error in zip(high.budgets, high.errors, strict=True):
        fitting = bisect_right(low.budgets, (total - n_high * budget) // n_low)
        if fitting:
            i = best[fitting - 1]
            pairs.append(Pair(budget, low.budgets[i], error, low.errors[i]))
    return pairs


@dataclass(frozen=True)
class Marginal:
    """The change of error per token between two measured budgets.

    ``(e(b2) - e(b1)) / (b2 - b1)``, with the standard error that two independent binomial rates would have (an upper
    bound when the same samples were answered at both budgets). Paper: 0.00173 and 0.00171 at the uniform split, with a
    standard error of about 2e-4.

    >>> slope = central_marginal(Curve([224, 304, 384], [0.507, 0.300, 0.230], 300), 304)
    >>> f"{slope.per_token:.5f} {slope.standard_error:.4f}"
    '-0.00173 0.0002'
    """

    start: int
    stop: int
    per_token: float
    standard_error: float

    @property
    def change(self) -> float:
        """The change of error over the whole step."""
        return self.per_token * (self.stop - self.start)


def marginals(curve: Curve) -> tuple[Marginal, ...]:
    """The slope of every step of the measured grid."""
    return tuple(_slope(curve, i, i + 1) for i in range(len(curve.budgets) - 1))


def central_marginal(curve: Curve, budget: int) -> Marginal:
    """The slope between the neighbors of ``budget``, which must not be at the edge of the grid."""
    i = curve.index(budget)
    if i in (0, len(curve.budgets) - 1):
        raise BadInput(f"budget {budget} is at the edge of the grid, so it has no neighbor on one side")
    return _slope(curve, i - 1, i + 1)


def _slope(curve: Curve, i: int, j: int) -> Marginal:
    width = curve.budgets[j] - curve.budgets[i]
    variance = sum(curve.errors[k] * (1 - curve.errors[k]) / curve.counts[k] for k in (i, j))
    rise = curve.errors[j] - curve.errors[i]
    return Marginal(curve.budgets[i], curve.budgets[j], rise / width, math.sqrt(variance) / width)
