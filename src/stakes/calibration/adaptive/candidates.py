"""Every choice of one budget per tier within the total, and its cost-weighted error on many sets of curves at once.

With harm limits, which choices are permitted depends on the curves (``budgets.harm``): another choice may be permitted
on each set of curves. Uniform always is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.harm import SAME, Limits
from stakes.budgets.uniform import largest_within
from stakes.calibration.estimators import Terms
from stakes.errors import BadInput, InfeasibleBudget

MOST = 50_000  # candidates: five tiers of eight budgets


@dataclass(frozen=True)
class Candidates:
    """``table``: candidates × tiers, columns of the grid; those with fewer tokens come first."""

    grid: Sequence[int]
    table: NDArray[np.int64]
    weights: Mapping[str, float]
    """By tier, of its error rate in the CWE."""
    limits: Limits
    uniform: int
    """The column of uniform's budget, which limits compare with."""

    @classmethod
    def of(cls, terms: Terms, grid: Sequence[int]) -> "Candidates":
        """All that the terms permit."""
        tiers = list(terms.costs)
        floors = {tier: max(terms.floor or 1, (terms.floors or {}).get(tier, 1)) for tier in tiers}
        allowed = [[j for j, budget in enumerate(grid) if budget >= floors[tier]] for tier in tiers]
        if math.prod(map(len, allowed)) > MOST:
            raise BadInput(
                f"{len(tiers)} tiers of {len(grid)} budgets are too many for adaptive sampling; give a coarser grid"
            )
        table = np.array(list(product(*allowed)), dtype=np.int64).reshape(-1, len(tiers))
        tokens = np.array(grid)[table] @ np.array([terms.counts[tier] for tier in tiers])
        order = np.argsort(tokens, kind="stable")
        table = table[order[: int((tokens <= terms.total).sum())]]
        if not len(table):
            raise InfeasibleBudget(f"no choice of budgets of the grid fits in {terms.total} tokens; give more")
        whole = sum(terms.counts[tier] * terms.costs[tier] for tier in tiers)
        weights = {tier: terms.counts[tier] * terms.costs[tier] / whole for tier in tiers}
        limits = terms.max_harm or {}
        even = largest_within(grid, terms.total // sum(terms.counts.values())) if limits else grid[0]
        return cls(grid, table, weights, limits, list(grid).index(even))

    def __len__(self) -> int:
        return len(self.table)

    def budgets(self, candidate: int) -> dict[str, int]:
        """A candidate's budgets by tier."""
        return {tier: self.grid[column] for tier, column in zip(self.weights, self.table[candidate], strict=True)}

    def columns(self, probability: NDArray[np.float64], least: float) -> dict[str, list[int]]:
        """By tier, the columns whose candidates have at least this probability together."""
        sums = [np.bincount(column, probability, len(self.grid)) for column in self.table.T]
        return {tier: np.flatnonzero(s >= least).tolist() for tier, s in zip(self.weights, sums, strict=True)}

    def cwe(self, rates: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """CWE of every candidate, … × candidates; ``rates``: error rates by tier, … × grid."""
        tiers = zip(self.weights.items(), self.table.T, strict=True)
        return np.asarray(sum(weight * rates[tier][..., column] for (tier, weight), column in tiers))

    def beyond_limits(self, rates: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """Which candidates raise a tier's error by more than its limit, … × candidates."""
        found = np.zeros((*next(iter(rates.values())).shape[:-1], len(self.table)), dtype=bool)
        for tier, column in zip(self.weights, self.table.T, strict=True):
            if tier in self.limits:
                rise = rates[tier] - rates[tier][..., [self.uniform]]
                found |= (rise > self.limits[tier] + SAME)[..., column]
        return found
