"""What is one more token worth? The allocation problem relaxed to lower convex hulls.

With tokens ``n_t b`` and losses ``n_t c_t e_t(b) / sum(n c)`` each tier is a set of points, one per measured budget.
Letting a tier mix two budgets replaces its points by their lower convex hull, and the relaxed optimum takes the hulls'
segments in order of steepness until the total is spent. The slope where it stops is the Lagrange multiplier
``lambda`` of the paper's section "Allocation Principle": the fall of CWE per further token.

    >>> menu = Menu.of(budgets=[32, 64, 96], errors=[0.9, 0.8, 0.2], count=1, share=1.0)
    >>> lower_hull(menu)        # 64 lies above the line from 32 to 96
    [0, 2]
    >>> relaxed = relax([menu], segments([menu]), total=96)
    >>> relaxed.choice, relaxed.slack
    ([2], 0)
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
