"""How fast error falls with tokens, and whether two tiers differ in it.

Finite differences of a measured curve, ``(e(b2) - e(b1)) / (b2 - b1)`` per token, with the standard error that two
independent binomial rates would have (an upper bound when the same samples were asked at both budgets and errors
agree). Paper: marginals at the uniform split 0.00173 and 0.00171, slope SE about 2e-4.

    >>> from stakes.budgets.curve import Curve
    >>> slope = central_marginal(Curve([224, 304, 384], [0.507, 0.300, 0.230], 300), 304)
    >>> f"{slope.per_token:.5f} {slope.standard_error:.4f}"
    '-0.00173 0.0002'
"""

import math
from dataclasses import dataclass

from stakes.budgets.curve import Curve
from stakes.errors import BadInput


@dataclass(frozen=True)
class Marginal:
    """The change of error per token between two measured budgets."""

    start: int
    stop: int
    per_token: float
    standard_error: float

    @property
    def change(self) -> float:
        """The change of error over the whole step."""
        return self.per_token * (self.stop - self.start)


def _between(curve: Curve, i: int, j: int) -> Marginal:
    width = curve.budgets[j] - curve.budgets[i]
    variance = sum(curve.errors[k] * (1 - curve.errors[k]) / curve.counts[k] for k in (i, j))
    rise = curve.errors[j] - curve.errors[i]
    return Marginal(curve.budgets[i], curve.budgets[j], rise / width, math.sqrt(variance) / width)


def marginals(curve: Curve) -> tuple[Marginal, ...]:
    """One step of the measured grid after the other."""
    return tuple(_between(curve, i, i + 1) for i in range(len(curve.budgets) - 1))


def central_marginal(curve: Curve, budget: int) -> Marginal:
    """The slope over the neighbours of ``budget``, which must not be at the edge of the grid."""
    i = curve.index(budget)
    if i in (0, len(curve.budgets) - 1):
        raise BadInput(f"budget {budget} is at the edge of the grid, so it has no neighbour on one side")
    return _between(curve, i - 1, i + 1)


@dataclass(frozen=True)
class SlopeTest:
    """Whether two tiers' curves are parallel: ``statistic`` ~ chi-squared with ``degrees`` if they are."""

    statistic: float
    degrees: int
    p: float
    budgets: tuple[int, ...]


def slopes_differ(first: Curve, second: Curve) -> SlopeTest:
    """Test that the difference of two curves is the same at every budget they share (equal slopes everywhere).

    ``Q = sum w_b (d_b - d)^2`` with ``d_b = e1(b) - e2(b)``, ``w_b`` one over its binomial variance and ``d`` the
    weighted mean: chi-squared with (budgets - 1) degrees. Budgets are taken as independent, which overstates the
    noise when the same samples were asked at each; with the outcomes at hand use
    ``evaluation.slopes.slope_test``, which keeps them together and has no such assumption.
    """
    shared = [b for b in first.budgets if b in second.budgets]
    if len(shared) < 2:
        raise BadInput(f"two curves need at least two budgets in common to compare slopes; these have {len(shared)}")
    weights, differences = [], []
    for budget in shared:
        variance = 0.0
        for curve in (first, second):
            i = curve.index(budget)
            wrong, n = curve.errors[i] * curve.counts[i], curve.counts[i]
            rate = (wrong + 0.5) / (n + 1)  # 0 or all wrong would give the point infinite weight
            variance += rate * (1 - rate) / n
        weights.append(1 / variance)
        differences.append(first.error(budget) - second.error(budget))
    mean = sum(w * d for w, d in zip(weights, differences, strict=True)) / sum(weights)
    statistic = sum(w * (d - mean) ** 2 for w, d in zip(weights, differences, strict=True))
    from scipy.special import chdtrc

    degrees = len(shared) - 1
    return SlopeTest(statistic, degrees, float(chdtrc(degrees, statistic)), tuple(shared))
