"""The exact solver behind ``allocate``: a multiple-choice knapsack, one menu per tier.

Minimize the summed losses under ``sum(tokens) <= total``. Up to 65,536 combinations (``LISTED``) every choice is
enumerated in whole numbers, and ties are settled. With ``v*`` the smallest loss possible, the answer is, among all
choices with loss <= ``v* + TIE``, the one with fewest tokens; then the most even (smallest ``sum n b²``: at equal
tokens, the smallest variance of budgets over samples); then the smallest loss; then the one that gives the first-named
tier more. The rule is stated against ``v*`` and never pairwise, because "equal within 1e-12" is not transitive.

Larger instances take three steps. What is guaranteed of them: the choice fits the total exactly, no exchange between
two tiers improves it (exact), and ``gap`` says how far below it the optimum can lie. No order of ties is guaranteed.

1. Exchanges improve the relaxed optimum to a first choice of loss ``v``. It is optimal if ``v`` meets the bound of the
   hulls, which is exact.
2. With multiplier ``p`` of the relaxation, an entry has the reduced loss ``r = loss + p tokens - min(loss + p tokens)``
   over its tier, and any choice loses at least ``bound + sum r``. Entries with ``r > v - bound + TIE`` are removed. If
   at most 65,536 combinations remain, they are enumerated, ties included.
3. Otherwise HiGHS solves what remains (``scipy.optimize.milp``), identical tiers together. It works in floating point
   with an absolute tolerance of 1e-6, which ``SCALE`` makes 1e-13 of CWE. Its answer is rounded and summed up again in
   whole numbers, and taken only if it fits and is better than the first choice. ``gap`` rests on its dual bound.

    >>> high = Menu.of([32, 64], [0.9, 0.1], count=10, share=0.5)
    >>> low = Menu.of([32, 64], [0.9, 0.2], count=10, share=0.5)
    >>> solve([high, low], total=960)
    Solution(choice=[1, 0], gap=0.0)
"""

import math
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.hull import ONE, TIE_LOSS, Menu, Sums, relax

LISTED = 1 << 16  # combinations that are enumerated
SECONDS = 2.0  # for HiGHS; after that the best choice so far is returned with its gap
SCALE = 1e7 / ONE  # of HiGHS's objective per fixed-point loss
_STDOUT = threading.Lock()  # held while the process's stdout is redirected
NOISE = 1 << 13  # exceeds the float error of a reduced loss (7e-15 of CWE); it only keeps more entries


class Solution(NamedTuple):
    """One entry per tier, and how much smaller the optimal CWE could be (0.0 when this is proven optimal)."""

    choice: list[int]
    gap: float


def exchange(menus: Sequence[Menu], choice: Sequence[int], total: int) -> list[int] | None:
    """The choice after the exchange with the largest gain, or None when none gains anything.

    The discrete first-order condition of the paper, section "Allocation Principle". Derivatives mean nothing on a grid
    with non-convex curves. At an optimum no exchange pays: lower one tier a step (or none, when tokens are left), raise
    another as far as the freed tokens allow, and CWE does not fall.
    """
    left = total - Sums.of(menus, choice).tokens
    lowered, freed, lost = [-1], [left], [0]
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        if i:
            lowered.append(tier)
            freed.append(left + menu.tokens[i] - menu.tokens[i - 1])
            lost.append(menu.losses[i - 1] - menu.losses[i])
    tokens, losses = np.array(freed), np.array(lost)
    most, best = 0, None
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        above = menu.tokens[i:]
        if len(above) == 1:
            continue
        reach = np.searchsorted(above, tokens + above[0], side="right") - 1
        falling = np.minimum.accumulate(menu.losses[i:])
        gains = menu.losses[i] - falling[reach] - losses
        for row in np.argsort(-gains)[:2]:  # the best may lower this very tier; then the second best counts
            if lowered[row] != tier and gains[row] > most:
                most, best = gains[row], [entry - (k == lowered[row]) for k, entry in enumerate(choice)]
                best[tier] = i + int(np.argmax(falling == falling[reach[row]]))
    return best


def solve(menus: Sequence[Menu], total: int, *, listed: int = LISTED) -> Solution:
    """The optimum of undominated ``menus`` under ``total``, which must cover every tier's smallest entry."""
    if _combinations(menus) <= listed:
        return Solution(_enumerate(menus, total), 0.0)
    smallest = sum([menu.tokens[0] for menu in menus])
    grain = max(1, math.gcd(*[tokens - menu.tokens[0] for menu in menus for tokens in menu.tokens]))
    total = smallest + (total - smallest) // grain * grain  # every choice spends smallest + k grain
    relaxed = relax(menus, total)
    bound = relaxed.bound(menus)
    choice = _improve(menus, relaxed.choice, total)
    largest = Sums.of(menus, choice).loss - bound + TIE_LOSS + NOISE
    reduced = [np.array(menu.losses) + relaxed.price * np.array(menu.tokens) for menu in menus]
    entries = [np.flatnonzero(column - column.min() <= largest).tolist() for column in reduced]
    core = [menu.select(of_tier) for menu, of_tier in zip(menus, entries, strict=True)]
    if _combinations(core) <= listed:
        return Solution([of_tier[i] for of_tier, i in zip(entries, _enumerate(core, total), strict=True)], 0.0)
    if Sums.of(menus, choice).loss - bound > TIE_LOSS:
        other, dual = _highs(core, relaxed.price, total, grain)
        if other is not None:
            other = _improve(menus, [of_tier[i] for of_tier, i in zip(entries, other, strict=True)], total)
            choice = min(choice, other, key=lambda one: Sums.of(menus, one).loss)
        bound = max(bound, dual)
    gap = Sums.of(menus, choice).loss - bound
    return Solution(choice, gap / ONE if gap > TIE_LOSS else 0.0)


def _combinations(menus: Sequence[Menu]) -> int:
    return math.prod([len(menu.tokens) for menu in menus])


def _improve(menus: Sequence[Menu], choice: list[int], total: int) -> list[int]:
    """The choice after the best exchanges, one after the other, until none gains anything."""
    while better := exchange(menus, choice, total):
        choice = better
    return choice


def _enumerate(menus: Sequence[Menu], total: int) -> list[int]:
    """The best of all combinations, by the order of ties in the module's docstring."""
    tokens = _outer_sum([menu.tokens for menu in menus])
    losses = _outer_sum([menu.losses for menu in menus])
    near = np.flatnonzero(tokens <= total)
    near = near[losses[near] <= losses[near].min() + TIE_LOSS]
    near = near[tokens[near] == tokens[near].min()]
    if near.size > 1:
        spreads = _outer_sum([menu.spreads for menu in menus])
        near = near[spreads[near] == spreads[near].min()]
        near = near[losses[near] == losses[near].min()]
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


def _highs(menus: Sequence[Menu], price: float, total: int, grain: int) -> tuple[list[int] | None, float]:
    """HiGHS's choice, None where it has none that fits, and its lower bound on the loss in fixed point.

    Tiers with the same menu share their variables: how many of them leave the entry of least reduced loss for another.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    groups: dict[Menu, list[int]] = {}
    for tier, menu in enumerate(menus):
        groups.setdefault(menu, []).append(tier)
    base = {menu: int(np.argmin(np.array(menu.losses) + price * np.array(menu.tokens))) for menu in groups}
    moves = [(menu, i) for menu in groups for i in range(len(menu.tokens)) if i != base[menu]]
    tokens = np.array([(menu.tokens[i] - menu.tokens[base[menu]]) // grain for menu, i in moves], dtype=float)
    losses = np.array([menu.losses[i] - menu.losses[base[menu]] for menu, i in moves], dtype=float)
    sizes = np.array([len(tiers) for tiers in groups.values()])
    owners = np.repeat(np.arange(sizes.size), [len(menu.tokens) - 1 for menu in groups])
    per_group = csr_array((np.ones(owners.size), (owners, np.arange(owners.size))), shape=(sizes.size, owners.size))
    choice = [base[menu] for menu in menus]
    spent, lost = Sums.of(menus, choice)
    with _stdout_silenced():
        result = milp(
            losses * SCALE,
            integrality=np.ones(owners.size),
            bounds=Bounds(0, sizes[owners]),
            constraints=[
                LinearConstraint(per_group, -np.inf, sizes),
                LinearConstraint(tokens[None, :], -np.inf, (total - spent) // grain),
            ],
            options={"mip_rel_gap": 0, "time_limit": SECONDS},
        )
    bound = -math.inf if result.mip_dual_bound is None else lost + result.mip_dual_bound / SCALE
    if result.x is None:
        return None, bound
    for (menu, i), number in zip(moves, np.rint(result.x).astype(int), strict=True):
        for _ in range(min(number, len(groups[menu]))):
            choice[groups[menu].pop()] = i
    return (choice if Sums.of(menus, choice).tokens <= total else None), bound


@contextmanager
def _stdout_silenced() -> Iterator[None]:
    """Discard what is written to the process's stdout: HiGHS prints debug lines there, whatever its options say."""
    with _STDOUT, open(os.devnull, "wb") as nowhere:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
