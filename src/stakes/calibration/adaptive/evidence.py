"""How is evidence against a candidate kept? As the capital of somebody who bets that it is not the best.

Document d has n_dt questions of tier t, all documents n_t; its first slice asks one of each tier, drawn by lot (or all
of them). For candidate A and the leader B, and with w_t = n_t c_t / sum(n c) the weight of tier t in the CWE,

    y_d = sum_t w_t n_dt / n_t (share of d's asked questions of tier t wrong at A - the same at B)
    m   = max over d of  sum over the tiers in which A and B differ of  w_t n_dt / n_t
    capital_A = mean over bets l of  prod over units  prod over d in the unit  (1 + l y_d / m),     0 < l < 1

A question drawn by lot stands for all of its document's, so E y_d is what d adds to CWE(A) - CWE(B): documents count by
their questions, as they do in the CWE. (With every document counted alike, the best choice for small pages would win,
and the best for all questions be ruled out.) Why the capital may be read as evidence: let A be the best, so that
CWE(A) <= CWE(B) whoever leads. B and m depend on earlier units only (and on sizes, which are no answers), |y_d| <= m,
and a unit's documents are independent. So its factor has the expectation

    prod_d (1 + l E y_d / m)  <=  (1 + l / (g m) sum_d E y_d)^g  <=  1          g documents, factors above 1 - l > 0

the first by the inequality of arithmetic and geometric means; the second because a unit has a document of every block
of ``race_rows.deal`` (of a last, short one with the same chance as any other unit), so that large and small ones have
their share in each and sum_d E y_d is a share of CWE(A) - CWE(B) <= 0. The capital of the best candidate thus never
grows on average, and exceeds 1/delta with a chance of at most delta, ever (Ville). Documents need not be of one size,
nor a single one of them be fair to A.

What that takes: documents of a block are independent draws of what the policy will serve. What it costs: m is the
largest document's, so where one holds a tenth of all questions, the others cannot be bet on boldly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.adaptive.rows import Cells, Pages
from stakes.calibration.estimators.choose import Terms
from stakes.errors import BadInput, InfeasibleBudget

# Which allocations race? Every choice of one budget a tier within the total, and how good each is at given errors.


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


BETS = 0.9 * 0.5 ** np.arange(7)


class Bets:
    """Everybody's capital, unit by unit."""

    def __init__(self, choices: Candidates, pages: Pages) -> None:
        self.choices, self.size = choices, pages.size
        self.worth = np.column_stack(
            [choices.weight[tier] * pages.whole[tier] / max(1, pages.size[tier].sum()) for tier in choices.tiers]
        )
        """Of each row's document in the CWE, w_t n_dt / n_t: rows × tiers."""
        self.kinds = np.unique(self.worth, axis=0)
        self.bounds: dict[int, float] = {}
        self.capital = np.zeros((len(choices), len(BETS)))
        """Logarithms, candidates × bets."""

    def lost(self, bar: float) -> Bools:
        """Candidates against which the bets have won ``exp(bar)``."""
        top = self.capital.max(axis=1)
        won: NDArray[np.float64] = top + np.log(np.exp(self.capital - top[:, None]).mean(axis=1))
        return won >= bar

    def unit(self, rows: Sequence[int], wrong: Mapping[str, NDArray[np.int64]], cells: Cells, leader: int) -> None:
        """Bet on new documents; ``wrong``: rows × columns of the grid. Who was not asked with the leader, waits."""
        table, tiers = self.choices.table, self.choices.tiers
        mine, known = table[leader], np.ones(len(table), dtype=bool)
        for k, tier in enumerate(tiers):
            can = np.zeros(len(self.choices.grid), dtype=bool)
            can[cells.get(tier, [mine[k]])] = True
            known &= can[table[:, k]]
        rivals = table[known]
        scale = 1 / self.bound(rivals != mine)
        for row in rows:
            y = np.zeros(len(rivals))
            for k, tier in enumerate(tiers):
                if tier in cells and self.size[tier][row]:
                    lost = self.worth[row, k] / self.size[tier][row] * wrong[tier][row]
                    y += lost[rivals[:, k]] - lost[mine[k]]
            if y.any():
                self.capital[known] += np.log1p(np.outer(y * scale, BETS))

    def bound(self, differ: Bools) -> NDArray[np.float64]:
        """m by candidate, for the leader itself, which never loses, 1; ``differ``: candidates × tiers."""
        codes, which = np.unique(differ @ (1 << np.arange(differ.shape[1])), return_inverse=True)
        for code in set(codes.tolist()) - set(self.bounds):
            pattern = code >> np.arange(differ.shape[1]) & 1
            self.bounds[code] = float((self.kinds @ pattern).max()) or 1.0
        return np.array([self.bounds[code] for code in codes.tolist()])[which]
