"""How to find the best of 64^300 choices: a core of tiers that grows until nothing outside it can matter.

Against the relaxed optimum (``hull.relax``) with multiplier ``p``, an entry that changes tokens by ``dw`` and loss by
``dv`` has reduced loss ``r = dv + p dw >= 0``, and every choice under the total loses at least ``bound + sum r``.
Hence (after Pisinger 1995, "A minimal algorithm for the multiple-choice knapsack problem"):

- a partial choice with ``bound + sum r`` above the best known loss is dead (``partial``);
- tiers join by their smallest ``r``; once that alone is too much, all further tiers keep the relaxed choice, proven.

That finds the smallest loss and the fewest tokens within a tie of it; ``even`` then settles the choices that tie
there. A search that would look at more than ``work`` partial choices keeps the most promising ones and says what it
gave up, which is the gap.
"""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from stakes.budgets.solver import ONE, TIE_LOSS, Menu, Segment, relax
from stakes.budgets.solver_even import most_even
from stakes.budgets.solver_partial import BLUR, Columns, Limits, Trail, grow, nearest_others, start, total

NOISE = 4096  # exceeds the float error of any sum of reduced losses (4e-15 of CWE); it only ever widens the room


class Core:
    """One instance: undominated menus, as differences from the relaxed choice."""

    def __init__(self, menus: Sequence[Menu], steepest: Sequence[Segment], most: int, work: int) -> None:
        smallest = sum(menu.tokens[0] for menu in menus)
        steps = np.concatenate([np.subtract(menu.tokens, menu.tokens[0]) for menu in menus])
        self.grain = max(1, int(np.gcd.reduce(steps)))  # choices spend smallest + k * grain, so the bound may too
        relaxed = relax(menus, steepest, smallest + (most - smallest) // self.grain * self.grain)
        self.choice, self.slack, self.price = relaxed.choice, relaxed.slack, relaxed.price
        self.menus, self.work, self.noise = menus, work, NOISE + BLUR * len(menus)
        self.tiers: list[Columns] = []
        for menu, entry in zip(menus, self.choice, strict=True):
            tokens, losses, spreads = np.array(menu[1:], dtype=np.int64)
            tokens, losses, spreads = tokens - tokens[entry], losses - losses[entry], spreads - spreads[entry]
            self.tiers.append(Columns(tokens, losses, spreads, losses + self.price * tokens))

    def solve(self) -> tuple[list[int], float]:
        """The choice, and the proven gap in CWE."""
        choice, least, given_up = self._fewest_tokens()
        gap = least - (given_up - self.price * self.slack)
        if gap > self.noise:
            return choice, gap / ONE  # ties of an unproven answer mean nothing yet
        room = self._room(least, total(self.tiers, choice)[0])
        return most_even(self.tiers, choice, least + TIE_LOSS, room, self.work // 4), 0.0

    def _fewest_tokens(self) -> tuple[list[int], int, float]:
        """A choice with the fewest tokens within a tie of the least loss, that loss, and the least r given up."""
        best = self._greedy()
        spent, least, _ = total(self.tiers, best)
        slack, work, given_up = self.slack, self.work, np.inf
        room = self._room(least, slack)
        nearest = nearest_others([tier.reduced for tier in self.tiers], self.choice)
        order = [int(t) for t in np.argsort(nearest, kind="stable") if nearest[t] <= room]
        limits = Limits.of([self.tiers[t] for t in order], room, slack, self.price)
        states, trail = start(), Trail(self.choice)
        for joined, t in enumerate(order, start=1):
            if nearest[t] > room:
                break  # later tiers are no nearer: none may leave the relaxed choice
            if room <= TIE_LOSS + 2 * self.noise < self.price * (slack - spent + self.grain):
                break  # the bound is met, and one grain less than the best spends would lose more than a tie
            # of equal bounds, rows near the slack are the ones that a few more tiers can complete
            worth = states.reduced + self.price / 64 * np.abs(slack - states.tokens)
            grown = grow(states, self.tiers[t], room, limits, joined, worth, work // 8)
            states, work, given_up = grown.states, work - grown.work, min(given_up, grown.given_up)
            trail.add(t, grown)
            fits = np.flatnonzero(states.tokens <= slack)
            if fits.size and states.losses[fits].min() < least:
                row = fits[np.argmin(states.losses[fits])]
                best, spent, least = trail.back(row), int(states.tokens[row]), int(states.losses[row])
                room = self._room(least, slack)
        near = np.flatnonzero((states.tokens <= slack) & (states.losses <= least + TIE_LOSS))
        if near.size and states.tokens[near].min() < spent:
            best = trail.back(near[np.argmin(states.tokens[near])])
        return best, least, given_up

    def _room(self, least: int, slack: int) -> float:
        """The largest sum of r that a choice within a tie of ``least`` can have at ``slack`` tokens or fewer."""
        return least + TIE_LOSS + self.price * slack + self.noise

    def _greedy(self) -> list[int]:
        """Spend the slack on the largest fall of loss that fits, again and again: a first choice to beat."""
        choice, slack = list(self.choice), self.slack
        while True:
            most, where = 0, (-1, -1)
            for t, menu in enumerate(self.menus):
                now = choice[t]
                entry = bisect_right(menu.tokens, menu.tokens[now] + slack, lo=now) - 1
                if (fall := menu.losses[now] - menu.losses[entry]) > most:
                    most, where = fall, (t, entry)
            if not most:
                return choice
            t, entry = where
            slack -= self.menus[t].tokens[entry] - self.menus[t].tokens[choice[t]]
            choice[t] = entry
