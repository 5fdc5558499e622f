"""Which partial choices can still become the answer? Growing them by one tier, and dropping the dead.

A row holds what a partial choice differs by from the choice around which the search runs: tokens ``w``, loss ``v``,
reduced loss ``r``, spread ``u`` (see ``core``). A row is dead when its ``r`` leaves the room, when the tiers to come
can bring its tokens no more under the slack, when its spread cannot be beaten down any more, or when another row
serves at least as well in every completion.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLUR = 8  # fixed-point losses that differ by less, per tier, differ by the rounding of the inputs (7e-18 of CWE)
CROWD = 4096  # rows from which such differences are overlooked, or every rounding founds a family of its own

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


class Columns(NamedTuple):
    """One tier's entries, as differences from the choice around which the search runs (``reduced``: from the hull)."""

    tokens: Ints
    losses: Ints
    spreads: Ints
    reduced: Floats


class States(NamedTuple):
    """Partial choices, one per row."""

    tokens: Ints
    losses: Ints
    spreads: Ints
    reduced: Floats
    ranks: Ints  # smaller gives the first-joined tiers more; kept only while spreads are

    def take(self, rows: Rows) -> "States":
        """Some of the rows."""
        tokens, losses, spreads, reduced, ranks = self
        return States(tokens[rows], losses[rows], spreads[rows], reduced[rows], ranks[rows])


class Limits(NamedTuple):
    """What a full choice must meet, and what the tiers yet to join can do (suffix sums in joining order)."""

    slack: int
    price: float  # r per token left unspent
    lowest: Ints  # tokens of later tiers at the least
    highest: Ints  # and at the most
    spread: int | None = None  # when given: exactly ``slack`` tokens and at most this spread,
    trend: int = 0  # where later tiers add at least ``trend`` times their tokens

    @classmethod
    def of(cls, tiers: Sequence[Columns], room: float, slack: int, price: float) -> "Limits":
        """The limits when ``tiers`` join in this order and may use the entries with ``r`` in the room."""
        tokens = [tier.tokens[tier.reduced <= room] for tier in tiers]
        lows, highs = [int(w.min()) for w in tokens], [int(w.max()) for w in tokens]
        return cls(slack, price, suffix_sums(lows), suffix_sums(highs))


class Grown(NamedTuple):
    """The live rows after one more tier; per row its parent row and the tier's entry; the cost of finding out."""

    states: States
    parents: Rows
    entries: Rows
    work: int
    given_up: float  # the least ``r`` among rows dropped for lack of work, inf when none was
    blur: int  # by how much a row's loss may exceed that of one it replaced


class Trail:
    """The way back from a row to its choice; tiers that have not joined keep theirs in ``base``."""

    def __init__(self, base: Sequence[int]) -> None:
        self.base, self.steps = base, list[tuple[int, Grown]]()

    def add(self, tier: int, grown: Grown) -> None:
        """One more tier joined."""
        self.steps.append((tier, grown))

    def back(self, row: int) -> list[int]:
        """The choice of a row of the last step."""
        choice = list(self.base)
        for tier, grown in reversed(self.steps):
            choice[tier] = int(grown.entries[row])
            row = int(grown.parents[row])
        return choice


def start() -> States:
    """The empty partial choice."""
    zero = np.zeros(1, dtype=np.int64)
    return States(zero, zero, zero, np.zeros(1), zero)


def total(tiers: Sequence[Columns], choice: Sequence[int]) -> tuple[int, int, int]:
    """Tokens, loss and spread of a full choice."""
    pairs = list(zip(tiers, choice, strict=True))
    return (
        sum([int(tier.tokens[entry]) for tier, entry in pairs]),
        sum([int(tier.losses[entry]) for tier, entry in pairs]),
        sum([int(tier.spreads[entry]) for tier, entry in pairs]),
    )


def nearest_others(values: Sequence[Floats], choice: Sequence[int]) -> Floats:
    """Per tier the smallest value of an entry other than the chosen one; inf when there is none."""
    others = [np.delete(column, entry) for column, entry in zip(values, choice, strict=True)]
    return np.array([column.min(initial=np.inf) for column in others])


def suffix_sums(values: Sequence[int]) -> Ints:
    """At ``i`` the sum of ``values[i:]``; one longer than ``values``."""
    return np.cumsum([0, *values[::-1]], dtype=np.int64)[::-1]


def grow(
    states: States, tier: Columns, room: float, limits: Limits, joined: int, worth: Floats | Ints, work: int
) -> Grown:
    """Every live row with every entry of ``tier``, the ``joined``-th tier; beyond ``work`` only rows of least worth."""
    mine = np.flatnonzero(tier.reduced <= room)
    origin, most, given_up = np.arange(states.tokens.size), max(16, work // mine.size), np.inf
    if origin.size > most:
        origin = np.argpartition(worth, most)
        given_up = float(states.reduced[origin[most:]].min())
        origin = origin[:most]
        states = states.take(origin)
    reduced = np.add.outer(tier.reduced[mine], states.reduced).ravel()
    tokens = np.add.outer(tier.tokens[mine], states.tokens).ravel()
    short = limits.slack - tokens - limits.highest[joined]  # tokens that later tiers can no longer spend
    live = reduced + limits.price * np.maximum(short, 0) <= room
    live &= tokens + limits.lowest[joined] <= limits.slack
    if limits.spread is not None:
        spreads = np.add.outer(tier.spreads[mine], states.spreads).ravel()
        live &= (short <= 0) & (spreads + limits.trend * (limits.slack - tokens) <= limits.spread)
    flat = np.flatnonzero(live)
    taken, parents = mine[flat // origin.size], flat % origin.size
    states = States(
        tokens[flat],
        states.losses[parents] + tier.losses[taken],
        states.spreads[parents] + tier.spreads[taken],
        reduced[flat],
        states.ranks[parents] * tier.tokens.size - taken if limits.spread is not None else parents,
    )
    blur = BLUR if limits.spread is not None and flat.size > CROWD else 1
    rows = alive(states) if limits.spread is None else alive_even(states, blur)
    states = states.take(rows)
    if limits.spread is not None:
        states = states._replace(ranks=np.argsort(np.argsort(states.ranks)))  # 0, 1, 2, … again, or they overflow
    return Grown(states, origin[parents[rows]], taken[rows], reduced.size, given_up, blur - 1)


def alive(states: States) -> Rows:
    """Rows that lose less than every row with as few tokens or fewer."""
    rows: Rows = np.lexsort((states.losses, states.tokens))
    losses = states.losses[rows]
    kept = np.ones(rows.size, dtype=bool)
    kept[1:] = losses[1:] < np.minimum.accumulate(losses)[:-1]
    return rows[np.flatnonzero(kept)]


def alive_even(states: States, blur: int) -> Rows:
    """As ``alive`` against rows with fewer tokens; at equal tokens a larger loss lives on with a smaller spread.

    A row that loses no less than one with fewer tokens cannot end as the choice with fewest tokens, so its spread
    does not matter. At equal tokens, loss and spread both do: a smaller spread may still end within the tie. Losses
    that differ by less than ``blur`` count as equal there.
    """
    rows: Rows = np.lexsort((states.ranks, states.losses, states.spreads, states.losses // blur, states.tokens))
    if rows.size < 2:
        return rows
    tokens, losses = states.tokens[rows], states.losses[rows]
    starts = np.ones(rows.size, dtype=bool)
    starts[1:] = tokens[1:] != tokens[:-1]
    group = np.cumsum(starts) - 1
    least = np.minimum.accumulate(np.minimum.reduceat(losses, np.flatnonzero(starts)))
    before = np.concatenate(([np.iinfo(np.int64).max], least[:-1]))
    # ranks of spreads, shifted below all earlier groups, let one running minimum serve every group
    spread = np.unique(states.spreads[rows], return_inverse=True)[1] - group * rows.size
    kept = losses < before[group]
    kept[1:] &= starts[1:] | (spread[1:] < np.minimum.accumulate(spread)[:-1])
    return rows[np.flatnonzero(kept)]
