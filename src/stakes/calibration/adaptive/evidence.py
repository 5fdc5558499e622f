"""Evidence against a candidate allocation: the wealth of a bettor who bets that it is not the best.

Document d has n_dt questions of tier t, all documents n_t; its first slice asks one of each tier at random (or all of
them). For candidate A and the leader B, and with w_t = n_t c_t / sum(n c) the weight of tier t in the CWE,

    y_d = sum_t w_t n_dt / n_t (share of d's asked questions of tier t wrong at A - the same at B)
    m   = max over d of  sum over the tiers in which A and B differ of  w_t n_dt / n_t
    wealth_A = mean over bet sizes l of  prod over units  prod over d in the unit  (1 + l y_d / m),     0 < l < 1

A randomly drawn question represents all of its document's, so E y_d is what d adds to CWE(A) - CWE(B): documents count
by their questions, as they do in the CWE. (With every document counted alike, the best choice for small pages would
win, and the best for all questions be ruled out.)

Why wealth is evidence: let A be the best, so that CWE(A) <= CWE(B) whoever leads. B and m depend on earlier units only
(and on sizes, which are not answers), |y_d| <= m, and a unit's documents are independent. So its factor has expectation

    prod_d (1 + l E y_d / m)  <=  (1 + l / (g m) sum_d E y_d)^g  <=  1          g documents, factors above 1 - l > 0

the first by the inequality of arithmetic and geometric means; the second because a unit has a document of every block
of ``units.form_units`` (of a last, short one with the same chance as any other unit), so that sum_d E y_d is a share of
CWE(A) - CWE(B) <= 0. The wealth against the best candidate thus never grows on average, and exceeds 1/delta with a
probability of at most delta, ever (Ville). Documents need not be of one size, nor need a single one be fair to A.

Condition: documents of a block are independent draws of what the policy will serve. Cost: m is the largest document's,
so where one holds a tenth of all questions, bets on the others are small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.adaptive.units import Columns, DocumentSlices
from stakes.calibration.estimators import Terms
from stakes.errors import BadInput, InfeasibleBudget

MOST = 50_000  # candidates: five tiers of eight budgets
BET_SIZES = 0.9 * 0.5 ** np.arange(7)

Bools = NDArray[np.bool_]
"""By candidate."""


@dataclass(frozen=True)
class Candidates:
    """Every choice of one budget per tier within the total.

    ``table``: candidates × tiers, columns of the grid. ``weight``: of each tier's error rate in the CWE.
    """

    tiers: Sequence[str]
    grid: Sequence[int]
    table: NDArray[np.int64]
    weight: Mapping[str, float]
    tokens: NDArray[np.int64]
    """The total of each candidate."""

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

    def columns(self, among: Bools) -> Columns:
        """By tier, the columns of the grid that these candidates have."""
        return {tier: sorted(set(self.table[among, k].tolist())) for k, tier in enumerate(self.tiers)}

    def most_even(self) -> int:
        """The most even candidate, and of those the one with the largest budgets: the leader before any answer."""
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


class Wealth:
    """The wealth against every candidate, updated unit by unit."""

    def __init__(self, candidates: Candidates, slices: DocumentSlices) -> None:
        self.candidates, self.size = candidates, slices.size
        self.worth = np.column_stack(
            [
                candidates.weight[tier] * slices.whole[tier] / max(1, slices.size[tier].sum())
                for tier in candidates.tiers
            ]
        )
        """Weight of each row's document in the CWE, w_t n_dt / n_t: rows × tiers."""
        self.kinds = np.unique(self.worth, axis=0)
        self.bounds: dict[int, float] = {}
        self.log_wealth = np.zeros((len(candidates), len(BET_SIZES)))
        """Candidates × bet sizes."""

    def ruled_out(self, threshold: float) -> Bools:
        """Candidates against which the wealth has reached ``exp(threshold)``."""
        top = self.log_wealth.max(axis=1)
        mean: NDArray[np.float64] = top + np.log(np.exp(self.log_wealth - top[:, None]).mean(axis=1))
        return mean >= threshold

    def update(self, rows: Sequence[int], wrong: Mapping[str, NDArray[np.int64]], asked: Columns, leader: int) -> None:
        """Bet on new documents; ``wrong``: rows × grid. Candidates that were not asked with the leader keep theirs."""
        table, tiers = self.candidates.table, self.candidates.tiers
        leading, known = table[leader], np.ones(len(table), dtype=bool)
        for k, tier in enumerate(tiers):
            was_asked = np.zeros(len(self.candidates.grid), dtype=bool)
            was_asked[asked.get(tier, [leading[k]])] = True
            known &= was_asked[table[:, k]]
        rivals = table[known]
        scale = 1 / self.bound(rivals != leading)
        for row in rows:
            y = np.zeros(len(rivals))
            for k, tier in enumerate(tiers):
                if tier in asked and self.size[tier][row]:
                    loss = self.worth[row, k] / self.size[tier][row] * wrong[tier][row]
                    y += loss[rivals[:, k]] - loss[leading[k]]
            if y.any():
                self.log_wealth[known] += np.log1p(np.outer(y * scale, BET_SIZES))

    def bound(self, differ: Bools) -> NDArray[np.float64]:
        """m by candidate, 1 for the leader itself, which never loses; ``differ``: candidates × tiers."""
        codes, which = np.unique(differ @ (1 << np.arange(differ.shape[1])), return_inverse=True)
        for code in set(codes.tolist()) - set(self.bounds):
            pattern = code >> np.arange(differ.shape[1]) & 1
            self.bounds[code] = float((self.kinds @ pattern).max()) or 1.0
        return np.array([self.bounds[code] for code in codes.tolist()])[which]
