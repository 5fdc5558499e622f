"""Uniform, one budget for all tiers: the baseline of every comparison.

It spends what it is compared with: budgets of 376 tokens on average are compared with uniform at 376. On curves, the
error there is interpolated between the two nearest measured budgets (``uniform_at``); ``stakes evaluate`` answers at
that budget.

Where answers at a measured budget are needed, ``largest_within`` is the largest one within the mean. It takes no more
tokens than the mean, and the choice that is compared with it may take no more than it. Certificates, the held-out
check of ``calibrate``, adaptive sampling and harm limits use it.

    >>> curves = {"high": Curve([304, 448], [0.30, 0.16], 300), "low": Curve([304, 448], [0.40, 0.20], 300)}
    >>> even = uniform_at(curves, 376)
    >>> str(even), {tier: round(error, 3) for tier, error in even.errors.items()}
    ('uniform at 376 tokens, interpolated', {'high': 0.23, 'low': 0.3})
    >>> largest_within([32, 304, 448], 400)
    304
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stakes.budgets.curve import Curve
from stakes.errors import InfeasibleBudget


@dataclass(frozen=True)
class Uniform:
    """Every tier at the same tokens, and each tier's error there."""

    tokens: float
    errors: Mapping[str, float]
    interpolated: bool
    """Whether ``tokens`` is not a measured budget of every tier."""

    def cwe(self, costs: Mapping[str, float], counts: Mapping[str, float]) -> float:
        """Cost-weighted error: ``sum(n c e) / sum(n c)``."""
        weight = {tier: counts[tier] * costs[tier] for tier in self.errors}
        return sum(weight[tier] * error for tier, error in self.errors.items()) / sum(weight.values())

    def __str__(self) -> str:
        return f"uniform at {format_tokens(self.tokens)} tokens" + (", interpolated" if self.interpolated else "")


def uniform_at(curves: Mapping[str, Curve], tokens: float) -> Uniform | None:
    """Uniform at these tokens per image; None where a tier was not measured on both sides of them."""
    errors = {}
    for tier, curve in curves.items():
        if not curve.budgets[0] <= tokens <= curve.budgets[-1]:
            return None
        errors[tier] = error_at(curve, tokens)
    return Uniform(float(tokens), errors, any(tokens not in curve.budgets for curve in curves.values()))


def error_at(curve: Curve, tokens: float) -> float:
    """The error at ``tokens``, on the straight line between the nearest measured budgets."""
    right = bisect_left(curve.budgets, tokens)
    if curve.budgets[right] == tokens:
        return curve.errors[right]
    (start, stop), (before, after) = curve.budgets[right - 1 : right + 1], curve.errors[right - 1 : right + 1]
    return before + (after - before) * (tokens - start) / (stop - start)


def largest_within(grid: Iterable[int], mean_budget: int) -> int:
    """The largest measured budget within the mean."""
    budgets = list(grid)
    within = max((budget for budget in budgets if budget <= mean_budget), default=None)
    if within is None:
        raise InfeasibleBudget(
            f"the smallest measured budget is {min(budgets)}, above the mean budget of {mean_budget}"
        )
    return within


def format_tokens(tokens: float) -> str:
    """A mean of tokens: ``376``, ``375.3``."""
    return f"{tokens:.1f}".removesuffix(".0")
