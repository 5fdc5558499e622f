"""Which of many equally good choices is the most even? The core search once more, on spreads.

Among the choices with the same tokens whose loss is within the tie, the most even has the smallest ``sum n b²``: at
equal tokens, the smallest variance of budgets over samples. A multiplier ``m`` on tokens (``_trend``) gives each tier
its most even entry, the one with least ``u - m w``; every other entry adds to that, and the core grows as in ``core``
until no tier outside it can improve the best spread. A last search joins the tiers in their given order and settles
what is still equal: the smallest loss, then more for the first-named tier.
"""

from collections.abc import Sequence

import numpy as np

from stakes.budgets.solver_partial import Columns, Ints, Limits, States, Trail, grow, nearest_others, start, total


def most_even(tiers: Sequence[Columns], choice: list[int], most: int, room: float, work: int) -> list[int]:
    """The most even choice with the tokens of ``choice`` and a loss up to ``most``, as far as ``work`` allows.

    ``room`` is the largest sum of reduced losses that such a choice can have.
    """
    free = [t for t, tier in enumerate(tiers) if np.count_nonzero(tier.reduced <= room) > 1]
    if not free:
        return choice
    around = _Around([tiers[t] for t in free], [choice[t] for t in free], most, room, work)
    order = [int(t) for t in np.argsort(around.nearest, kind="stable")]
    around.search(order, by_nearest=True)
    around.search(sorted(order), by_nearest=False)
    best = list(choice)
    for t, entry in zip(free, around.best, strict=True):
        best[t] = entry
    return best


class _Around:
    """The tiers as differences from the choice that is most even tier by tier, and the best full choice so far."""

    def __init__(self, tiers: Sequence[Columns], choice: list[int], most: int, room: float, work: int) -> None:
        tokens, _, spread = total(tiers, choice)
        kept = [tier.reduced <= room for tier in tiers]
        self.trend = _trend([(t.tokens[k], t.spreads[k]) for t, k in zip(tiers, kept, strict=True)], tokens)
        uneven = [np.where(k, t.spreads - self.trend * t.tokens, np.inf) for t, k in zip(tiers, kept, strict=True)]
        self.middle = [int(np.argmin(column)) for column in uneven]
        self.nearest = nearest_others(uneven, self.middle) - [u[m] for u, m in zip(uneven, self.middle, strict=True)]
        self.tiers = [
            Columns(t.tokens - t.tokens[m], t.losses - t.losses[m], t.spreads - t.spreads[m], t.reduced)
            for t, m in zip(tiers, self.middle, strict=True)
        ]
        base = total(tiers, self.middle)
        self.slack, self.most, self.spread = tokens - base[0], most - base[1], spread - base[2]
        self.room, self.work, self.best = room, work, choice

    def search(self, order: list[int], *, by_nearest: bool) -> None:
        """Let the tiers join in this order; by nearest, stop at the first that cannot better the best spread."""
        order = [t for t in order if self._may_move(t)]
        limits = Limits.of([self.tiers[t] for t in order], self.room, self.slack, 0.0)
        states, trail, work = start(), Trail(self.middle), self.work
        for joined, t in enumerate(order, start=1):
            if by_nearest:
                self._settle(states, trail)
                if not self._may_move(t):
                    return
            worth = states.spreads - self.trend * states.tokens + self.trend // 64 * np.abs(self.slack - states.tokens)
            share = work // (8 if by_nearest else len(order) - joined + 1)
            bounds = limits._replace(spread=self.spread, trend=self.trend)
            grown = grow(states, self.tiers[t], self.room, bounds, joined, worth, share)
            states, work = grown.states, work - grown.work
            trail.add(t, grown)
        self._settle(states, trail)

    def _may_move(self, t: int) -> bool:
        return bool(self.trend * self.slack + self.nearest[t] <= self.spread)

    def _settle(self, states: States, trail: Trail) -> None:
        """Keep the best row that is a full choice: it has the tokens, and its loss ties."""
        most = self.most + sum([grown.blur for _, grown in trail.steps])
        full = np.flatnonzero((states.tokens == self.slack) & (states.losses <= most))
        if full.size:
            first = full[np.lexsort((states.ranks[full], states.losses[full], states.spreads[full]))[0]]
            if states.spreads[first] <= self.spread:
                self.best, self.spread = trail.back(first), int(states.spreads[first])


def _trend(tiers: Sequence[tuple[Ints, Ints]], tokens: int) -> int:
    """The multiplier at which the tiers' most even entries spend just about ``tokens``: it bounds spreads best."""
    low, high = 0, 2 + 2 * max([int(np.ptp(u) // np.ptp(w)) for w, u in tiers])  # n (a² - b²) / n (a - b) = a + b
    while high - low > 1:
        trend = (low + high) // 2
        spent = sum([int(w[np.argmin(u - trend * w)]) for w, u in tiers])
        low, high = (low, trend) if spent > tokens else (trend, high)
    return low
