"""Which budget does each tier get, exactly? The multiple-choice knapsack behind ``allocate``.

Minimise the summed losses under ``sum(tokens) <= total``, one entry per tier. With ``v*`` the smallest loss possible,
the answer is, among all choices with loss <= ``v* + TIE``, the one with fewest tokens; then the most even (smallest
``sum n b²``: at equal tokens, the smallest variance of budgets over samples); then the smallest loss; then the one
that gives the first-named tier more. The rule is stated against ``v*`` and never pairwise, because "equal within
1e-12" is not transitive, and it is decided in whole numbers (``hull.ONE``), which add up the same in any order.

Up to 65,536 combinations are listed outright; beyond that ``core`` searches.

    >>> from stakes.budgets.solver import segments
    >>> high = Menu.of([32, 64], [0.9, 0.1], count=10, share=0.5)
    >>> low = Menu.of([32, 64], [0.9, 0.2], count=10, share=0.5)
    >>> solve([high, low], segments([high, low]), total=960)
    Solution(choice=[1, 0], gap=0.0)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What is one more token worth? The allocation problem relaxed to lower convex hulls.
#
# With tokens ``n_t b`` and losses ``n_t c_t e_t(b) / sum(n c)`` each tier is a set of points, one per measured budget.
# Letting a tier mix two budgets replaces its points by their lower convex hull, and the relaxed optimum takes the
# hulls'
# segments in order of steepness until the total is spent. The slope where it stops is the Lagrange multiplier
# ``lambda`` of the paper's section "Allocation Principle": the fall of CWE per further token.
#
#     >>> menu = Menu.of(budgets=[32, 64, 96], errors=[0.9, 0.8, 0.2], count=1, share=1.0)
#     >>> lower_hull(menu)        # 64 lies above the line from 32 to 96
#     [0, 2]
#     >>> relaxed = relax([menu], segments([menu]), total=96)
#     >>> relaxed.choice, relaxed.slack
#     ([2], 0)


TIE = 1e-12  # differences of CWE up to this are ties
ONE = 1 << 60  # a loss of 1.0 in fixed point; rounding adds 2**-61 per tier, 1e-16 over 300 tiers, far below TIE
TIE_LOSS = int(TIE * ONE)


class Menu(NamedTuple):
    """One tier's permitted budgets, rising, in whole numbers."""

    budgets: tuple[int, ...]
    tokens: tuple[int, ...]  # n b
    losses: tuple[int, ...]  # ONE * n c e(b) / sum(n c)
    spreads: tuple[int, ...]  # n b², whose sum at equal tokens orders splits by variance

    @classmethod
    def of(cls, budgets: Sequence[int], errors: Sequence[float], count: int, share: float) -> "Menu":
        """The menu of a tier of ``count`` samples that carries ``share`` of all cost."""
        scale = share * ONE
        return cls(
            tuple(budgets),
            tuple([count * b for b in budgets]),
            tuple([round(scale * e) for e in errors]),
            tuple([count * b * b for b in budgets]),
        )

    @property
    def samples(self) -> int:
        """The tier's samples."""
        return self.tokens[0] // self.budgets[0]

    def take(self, indices: Sequence[int]) -> "Menu":
        """The same menu with only these entries."""
        return Menu(*[tuple([column[i] for i in indices]) for column in self])


def undominated(menu: Menu) -> list[int]:
    """Entries that lose less than every cheaper one; any other has a cheaper entry that serves as well."""
    kept: list[int] = []
    best = menu.losses[0] + 1
    for i, loss in enumerate(menu.losses):
        if loss < best:
            best = loss
            kept.append(i)
    return kept


def lower_hull(menu: Menu) -> list[int]:
    """Entries on the falling part of the lower convex hull of (tokens, losses), each step less steep than the last."""
    tokens, losses = menu.tokens, menu.losses
    hull: list[int] = []
    for i in undominated(menu):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            # b stays only when it lies strictly below the line from a to i (exact: these are integers)
            if (losses[b] - losses[a]) * (tokens[i] - tokens[a]) < (losses[i] - losses[a]) * (tokens[b] - tokens[a]):
                break
            hull.pop()
        hull.append(i)
    return hull


class Segment(NamedTuple):
    """One step along a tier's hull: how steep, how long, and the entry it leads to."""

    slope: float  # fixed-point loss per token
    tokens: int
    tier: int
    entry: int


@dataclass(frozen=True)
class Relaxation:
    """Where the relaxed optimum stands, rounded down to whole tiers."""

    choice: list[int]  # per tier, the entry reached by whole segments
    slack: int  # tokens left for the segment that no longer fits
    price: float  # its slope: fixed-point loss per token; 0 when every segment fits


def segments(menus: Sequence[Menu]) -> list[Segment]:
    """The segments of all tiers' hulls, steepest first."""
    found = []
    for tier, menu in enumerate(menus):
        for a, b in pairwise(lower_hull(menu)):
            tokens = menu.tokens[b] - menu.tokens[a]
            found.append(Segment((menu.losses[a] - menu.losses[b]) / tokens, tokens, tier, b))
    found.sort(key=lambda segment: -segment[0])  # stable: a tier's own segments keep their order
    return found


def relax(menus: Sequence[Menu], steepest: Sequence[Segment], total: int) -> Relaxation:
    """The relaxed optimum under ``total``, which must cover every tier's smallest entry.

    At a total where a segment ends exactly, the price is the next segment's slope: what a *further* token brings.
    """
    choice = [0] * len(menus)
    slack = total - sum([menu.tokens[0] for menu in menus])
    for slope, tokens, tier, entry in steepest:
        if tokens > slack:
            return Relaxation(choice, slack, slope)
        choice[tier] = entry
        slack -= tokens
    return Relaxation(choice, slack, 0.0)


LISTED = 1 << 16  # combinations that are cheaper to list than to search
WORK = 6_000_000  # partial choices a search may look at, a second or two; then it keeps the most promising only


class Solution(NamedTuple):
    """One entry per tier, and how much smaller the optimal CWE could be (0.0 when this is proven optimal)."""

    choice: list[int]
    gap: float


def solve(
    menus: Sequence[Menu], steepest: Sequence[Segment], total: int, *, listed: int = LISTED, work: int = WORK
) -> Solution:
    """The optimum of undominated ``menus`` under ``total``, which must cover every tier's smallest entry."""
    if math.prod([len(menu.tokens) for menu in menus]) <= listed:
        return Solution(_list_all(menus, total), 0.0)
    from stakes.budgets.solver_core import Core

    return Solution(*Core(menus, steepest, total, work).solve())


def _list_all(menus: Sequence[Menu], total: int) -> list[int]:
    tokens = _outer_sum([menu.tokens for menu in menus])
    losses = _outer_sum([menu.losses for menu in menus])
    near = np.flatnonzero(tokens <= total)
    lost = losses[near]
    near = near[lost <= lost.min() + TIE_LOSS]
    spent = tokens[near]
    near = near[spent == spent.min()]
    if near.size > 1:
        spread = _outer_sum([menu.spreads for menu in menus])[near]
        near = near[spread == spread.min()]
        lost = losses[near]
        near = near[lost == lost.min()]
    flat, choice = int(near[-1]), []  # the last in C order gives the first-named tier most
    for menu in reversed(menus):
        flat, entry = divmod(flat, len(menu.tokens))
        choice.append(entry)
    return choice[::-1]


def _outer_sum(columns: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    sums = np.array(columns[0], dtype=np.int64)
    for column in columns[1:]:
        sums = np.add.outer(sums, np.array(column, dtype=np.int64)).ravel()
    return sums


# What if one tier may use two budgets? Spending what a whole-tier choice must leave over.
#
# The relaxed optimum (``hull``) mixes two budgets in at most one tier. Here that tier's split is in whole samples:
# from a
# choice that fits, move ``k`` samples of one tier to a larger budget, ``k`` as large as the tokens left over allow.


class Mixture(NamedTuple):
    """A choice in which ``moved`` samples of tier ``tier`` take the entry ``upper`` instead."""

    choice: tuple[int, ...]
    tier: int
    upper: int
    moved: int
    loss: float  # of the whole, fixed point
    tokens: int

    def splits(self, menus: Sequence[Menu]) -> list[dict[int, int]]:
        """Per tier, how many samples take which budget."""
        splits = [{menu.budgets[i]: menu.samples} for menu, i in zip(menus, self.choice, strict=True)]
        if self.moved:
            menu, lower = menus[self.tier], self.choice[self.tier]
            split = {menu.budgets[lower]: menu.samples - self.moved, menu.budgets[self.upper]: self.moved}
            splits[self.tier] = {budget: samples for budget, samples in split.items() if samples}
        return splits


def best_mixture(menus: Sequence[Menu], choices: Sequence[Sequence[int]], total: int) -> Mixture:
    """The least loss that moving samples of one tier reaches from any of ``choices``; at a tie, the fewest tokens."""
    found = [mixture for choice in choices for mixture in _mixtures(menus, choice, total)]
    return min(found, key=lambda mixture: (mixture.loss, mixture.tokens))


def _mixtures(menus: Sequence[Menu], choice: Sequence[int], total: int) -> list[Mixture]:
    tokens = sum(menu.tokens[i] for menu, i in zip(menus, choice, strict=True))
    loss = sum(menu.losses[i] for menu, i in zip(menus, choice, strict=True))
    found = [Mixture(tuple(choice), 0, choice[0], 0, loss, tokens)]
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        for j in range(i + 1, len(menu.budgets)):
            step = menu.budgets[j] - menu.budgets[i]
            moved = min(menu.samples, (total - tokens) // step)
            if moved and menu.losses[j] < menu.losses[i]:
                fall = (menu.losses[i] - menu.losses[j]) * moved / menu.samples
                found.append(Mixture(tuple(choice), tier, j, moved, loss - fall, tokens + moved * step))
    return found
