"""The allocation problem in whole numbers, and its relaxation to lower convex hulls.

With tokens ``n_t b`` and losses ``n_t c_t e_t(b) / sum(n c)`` each tier is a set of points, one per measured budget.
If a tier may mix two budgets, its points become their lower convex hull, and the relaxed optimum takes the segments of
all hulls in order of steepness until the total is spent. The slope where it stops is the Lagrange multiplier
``lambda`` of the paper's section "Allocation Principle": the fall of CWE per further token.

    >>> menu = Menu.of(budgets=[32, 64, 96], errors=[0.9, 0.8, 0.2], count=1, share=1.0)
    >>> lower_hull(menu)        # 64 lies above the line from 32 to 96
    [0, 2]
    >>> relaxed = relax([menu], total=96)
    >>> relaxed.choice, relaxed.slack
    ([2], 0)
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

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
        return cls(
            tuple(budgets),
            tuple([count * b for b in budgets]),
            tuple([round(share * ONE * e) for e in errors]),
            tuple([count * b * b for b in budgets]),
        )

    @property
    def samples(self) -> int:
        """The number of samples of the tier."""
        return self.tokens[0] // self.budgets[0]

    def select(self, entries: Sequence[int]) -> "Menu":
        """The same menu with only these entries."""
        return Menu(*[tuple([column[i] for i in entries]) for column in self])


class Sums(NamedTuple):
    """Tokens and loss of one choice: an entry for every tier."""

    tokens: int
    loss: int

    @classmethod
    def of(cls, menus: Sequence[Menu], choice: Sequence[int]) -> "Sums":
        """The sums over all tiers, exact."""
        pairs = list(zip(menus, choice, strict=True))
        return cls(sum([menu.tokens[i] for menu, i in pairs]), sum([menu.losses[i] for menu, i in pairs]))


def undominated(menu: Menu) -> list[int]:
    """Entries that lose less than every entry with fewer tokens; no other entry is ever needed."""
    entries: list[int] = []
    for i, loss in enumerate(menu.losses):
        if not entries or loss < menu.losses[entries[-1]]:
            entries.append(i)
    return entries


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


class Relaxation(NamedTuple):
    """The relaxed optimum, rounded down to whole tiers."""

    choice: list[int]  # per tier, the entry reached by whole segments
    slack: int  # tokens left for the segment that no longer fits
    price: float  # its slope: fixed-point loss per token; 0 when every segment fits

    def bound(self, menus: Sequence[Menu]) -> float:
        """A lower bound on the loss of every choice within the total, fixed point."""
        return Sums.of(menus, self.choice).loss - self.price * self.slack


def relax(menus: Sequence[Menu], total: int) -> Relaxation:
    """The relaxed optimum under ``total``, which must cover every tier's smallest entry.

    At a total where a segment ends exactly, the price is the slope of the next one: what a *further* token brings.
    """
    segments = []
    for tier, menu in enumerate(menus):
        for a, b in pairwise(lower_hull(menu)):
            tokens = menu.tokens[b] - menu.tokens[a]
            segments.append(((menu.losses[a] - menu.losses[b]) / tokens, tokens, tier, b))
    segments.sort(key=lambda segment: -segment[0])  # stable: the segments of a tier keep their order
    choice = [0] * len(menus)
    slack = total - sum([menu.tokens[0] for menu in menus])
    for slope, tokens, tier, entry in segments:
        if tokens > slack:
            return Relaxation(choice, slack, slope)
        choice[tier] = entry
        slack -= tokens
    return Relaxation(choice, slack, 0.0)
