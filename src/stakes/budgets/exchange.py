"""Would moving budget from one tier to another help? The paper's discrete first-order condition.

Derivatives mean nothing on a grid with non-convex curves; what holds at an optimum is that no exchange pays: lower
one tier a step (or none, when tokens are left), raise another as far as the freed tokens allow, and CWE does not
fall. Paper, section "Allocation Principle". ``allocate`` checks this on every answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stakes.budgets.hull import Menu


class Exchange(NamedTuple):
    """Raise tier ``raised`` to ``entry``, paid for by one step down of tier ``lowered`` (-1: by tokens left over)."""

    lowered: int
    raised: int
    entry: int
    gain: int  # fall of the loss, in fixed point

    def apply(self, choice: Sequence[int]) -> list[int]:
        """The choice after the exchange."""
        moved = list(choice)
        moved[self.raised] = self.entry
        if self.lowered >= 0:
            moved[self.lowered] -= 1
        return moved


def best_exchange(menus: Sequence[Menu], choice: Sequence[int], total: int) -> Exchange | None:
    """The exchange with the largest gain, or None when none gains anything."""
    left = total - sum([menu.tokens[i] for menu, i in zip(menus, choice, strict=True)])
    lowered, freed, lost = [-1], [left], [0]
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        if i:
            lowered.append(tier)
            freed.append(left + menu.tokens[i] - menu.tokens[i - 1])
            lost.append(menu.losses[i - 1] - menu.losses[i])
    tokens, losses = np.array(freed), np.array(lost)
    best: Exchange | None = None
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        above = menu.tokens[i:]
        if len(above) == 1:
            continue
        reach = np.searchsorted(above, tokens + above[0], side="right") - 1
        falling = np.minimum.accumulate(menu.losses[i:])
        gains = menu.losses[i] - falling[reach] - losses
        for row in np.argsort(-gains)[:2]:  # the best may lower this very tier; then the second best counts
            if lowered[row] != tier and gains[row] > (best.gain if best else 0):
                entry = i + int(np.argmax(falling == falling[reach[row]]))
                best = Exchange(lowered[row], tier, entry, int(gains[row]))
    return best
