"""How many tokens may still be given? The running total behind the hard budget, and nothing that is clever.

For every ``n``, the first ``n`` images granted (cancelled ones left out) take at most ``sum(mean) + burst`` tokens. A
grant that waits to be settled counts in full, and what it may leave over counts for nothing until it is settled:

    allowance = burst + sum over settled (mean - spent) - sum over outstanding grants max(0, sum(budget - mean))   >= 0

So a grant that is cancelled never takes back tokens that another was promised. Proof for a prefix that ends within
grant g: when g was made, every grant before it was settled or outstanding, an outstanding one takes at most its
budgets, and the allowance, which counted just these and perhaps some that were cancelled later, was not exceeded by
any of g's images in their order (``cut``).
"""

from collections.abc import Sequence
from threading import Lock

from stakes.errors import BadInput, LedgerBreach


class Allowance:
    """The total of one stream of images; policies that follow one another share it. Hold ``lock`` around every call."""

    def __init__(self, burst: int) -> None:
        self.lock = Lock()
        self.burst = burst
        self.images = 0  # granted and not cancelled
        self.granted = 0  # their budgets
        self.spent = 0  # by settled images
        self.waiting = 0  # images outstanding
        self.promised = 0  # their budgets
        self._saved = 0  # mean - spent, over settled images
        self._reserved = 0

    @property
    def left(self) -> int:
        """Tokens that may be given beyond the mean of the images to come."""
        return self.burst + self._saved - self._reserved

    def cut(self, budgets: Sequence[int], mean: int) -> list[int]:
        """The budgets, no image of which takes the total beyond its limit; never below ``min(budget, mean)``."""
        left, kept = max(0, self.left), []
        for budget in budgets:
            kept.append(min(budget, mean + left))
            left += mean - kept[-1]
        return kept

    def reserve(self, budgets: Sequence[int], mean: int) -> None:
        """Promise these budgets."""
        self._count(budgets, mean, 1)

    def release(self, budgets: Sequence[int], mean: int) -> None:
        """Take a promise back, as if it had never been made."""
        self._count(budgets, mean, -1)

    def settle(self, budgets: Sequence[int], mean: int, spent: int | Sequence[int]) -> int:
        """Turn a promise into what was spent, one number for the request or one for each image; gives the sum."""
        each = [spent] if isinstance(spent, int) else list(spent)
        limits = [sum(budgets)] if isinstance(spent, int) else list(budgets)
        if len(each) != len(limits):
            raise BadInput(
                f"{len(each)} numbers of tokens spent for {len(limits)} images; give one for each, or their sum"
            )
        for took, limit in zip(each, limits, strict=True):
            if not 0 <= took <= limit:
                raise LedgerBreach(
                    f"{took} tokens were spent where {limit} were granted; fit to the grant, or cancel it"
                )
        self._count(budgets, mean, -1)
        self.images += len(budgets)
        self.granted += sum(budgets)
        self.spent += sum(each)
        self._saved += mean * len(budgets) - sum(each)
        return sum(each)

    def _count(self, budgets: Sequence[int], mean: int, sign: int) -> None:
        total = sum(budgets)
        self.images += sign * len(budgets)
        self.granted += sign * total
        self.waiting += sign * len(budgets)
        self.promised += sign * total
        self._reserved += sign * max(0, total - mean * len(budgets))
