"""Which budget does each tier get, exactly? The multiple-choice knapsack behind ``allocate``.

Minimise the summed losses under ``sum(tokens) <= total``, one entry per tier. With ``v*`` the smallest loss possible,
the answer is, among all choices with loss <= ``v* + TIE``, the one with fewest tokens; then the most even (smallest
``sum n b²``: at equal tokens, the smallest variance of budgets over samples); then the smallest loss; then the one
that gives the first-named tier more. The rule is stated against ``v*`` and never pairwise, because "equal within
1e-12" is not transitive, and it is decided in whole numbers (``hull.ONE``), which add up the same in any order.

Up to 65,536 combinations are listed outright; beyond that ``core`` searches.

    >>> from stakes.budgets.hull import segments
    >>> high = Menu.of([32, 64], [0.9, 0.1], count=10, share=0.5)
    >>> low = Menu.of([32, 64], [0.9, 0.2], count=10, share=0.5)
    >>> solve([high, low], segments([high, low]), total=960)
    Solution(choice=[1, 0], gap=0.0)
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.core import Core
from stakes.budgets.hull import TIE_LOSS, Menu, Segment

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
