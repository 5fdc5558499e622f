"""Which allocations race? Every choice of one budget a tier within the total, and how good each is at given errors."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.estimators.choose import Terms
from stakes.errors import BadInput, InfeasibleBudget

MOST = 50_000  # candidates: five tiers of eight budgets

Bools = NDArray[np.bool_]
"""By candidate."""


@dataclass(frozen=True)
class Candidates:
    """``table``: candidates × tiers, columns of the grid. ``weight``: of each tier's error rate in the CWE."""

    tiers: Sequence[str]
    grid: Sequence[int]
    table: NDArray[np.int64]
    weight: Mapping[str, float]
    tokens: NDArray[np.int64]
    """That each candidate spends in all."""

    @classmethod
    def of(cls, terms: Terms, grid: Sequence[int]) -> "Candidates":
        """All that the terms allow."""
        tiers = list(terms.costs)
        floors = {tier: max(terms.floor or 1, (terms.floors or {}).get(tier, 1)) for tier in tiers}
        allowed = [[j for j, budget in enumerate(grid) if budget >= floors[tier]] for tier in tiers]
        if math.prod(map(len, allowed)) > MOST:
            raise BadInput(f"{len(tiers)} tiers of {len(grid)} budgets are too many to race; give a coarser grid")
        every = np.array(list(product(*allowed)), dtype=np.int64).reshape(-1, len(tiers))
        tokens = np.array(grid)[every] @ np.array([terms.counts[tier] for tier in tiers])
        fits = tokens <= terms.total
        if not fits.any():
            raise InfeasibleBudget(f"no choice of budgets of the grid fits in {terms.total} tokens; give more")
        whole = sum(terms.counts[tier] * terms.costs[tier] for tier in tiers)
        weight = {tier: terms.counts[tier] * terms.costs[tier] / whole for tier in tiers}
        return cls(tiers, grid, every[fits], weight, tokens[fits])

    def __len__(self) -> int:
        return len(self.table)

    def budgets(self, candidate: int) -> dict[str, int]:
        """A candidate's budgets by tier."""
        return {tier: self.grid[self.table[candidate, k]] for k, tier in enumerate(self.tiers)}

    def columns(self, among: Bools) -> dict[str, list[int]]:
        """By tier, the columns of the grid that these candidates have."""
        return {tier: sorted(set(self.table[among, k].tolist())) for k, tier in enumerate(self.tiers)}

    def most_even(self) -> int:
        """The most even candidate, and of those the one with the largest budgets: who leads before any answer."""
        return int(np.lexsort((-self.table.sum(axis=1), np.ptp(self.table, axis=1)))[0])

    def cwe(self, rates: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Cost-weighted error of every candidate at these error rates."""
        return np.asarray(sum(self.weight[tier] * rates[tier][self.table[:, k]] for k, tier in enumerate(self.tiers)))

    def narrow(self, among: Bools, cwe: NDArray[np.float64], number: int) -> Bools:
        """Candidates made of the best ``number`` budgets of each tier, by the best candidate that has them."""
        merit = np.where(among, cwe, np.inf)
        keep = among.copy()
        for k in range(len(self.tiers)):
            columns = np.unique(self.table[among, k])
            order = np.argsort([merit[self.table[:, k] == column].min() for column in columns], kind="stable")
            keep &= np.isin(self.table[:, k], columns[order[:number]])
        keep[int(merit.argmin())] = True
        return keep

    def best(self, among: Bools, cwe: NDArray[np.float64]) -> int:
        """The candidate of least CWE; of equal ones, the one with fewest tokens."""
        rows = np.flatnonzero(among)
        return int(rows[np.lexsort((self.tokens[rows], cwe.round(12)[rows]))[0]])
