"""What if one tier may use two budgets? Spending what a whole-tier choice must leave over.

The relaxed optimum (``hull``) mixes two budgets in at most one tier. Here that tier's split is in whole samples: from a
choice that fits, move ``k`` samples of one tier to a larger budget, ``k`` as large as the tokens left over allow.
"""

from collections.abc import Sequence
from typing import NamedTuple

from stakes.budgets.hull import Menu


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
