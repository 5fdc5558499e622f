"""The allowance: tokens that one process may still take, on credit from a ledger that outlives it.

The guarantee is of the ledger: over all processes that ever drew on it, for every ``n``, the first ``n`` images granted
(cancelled ones left out) take at most ``sum(mean) + burst`` tokens. Within one process:

    in hand = withdrawn - deposited + sum over settled images (mean - spent)
                                    - sum over outstanding grants max(0, sum(budget - mean))  >= 0

A grant that waits to be settled counts in full, and what it may leave over counts for nothing until it is settled, so a
cancelled grant never takes back tokens that were reserved for another. Proof for a prefix that ends within grant g:
when g was made, every grant before it was settled or outstanding, an outstanding one takes at most its budgets, and
what was in hand, which counted exactly these and perhaps some that were cancelled later, was not exceeded by any of g's
images in their order (``cut``). Credit in hand is withdrawn from the ledger beforehand, so a process that is killed
loses what it had in hand: tokens may be lost, and are never spent twice.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from stakes.errors import BadInput, LedgerBreach

MEMORY = 2000  # images: shorter follows chance, longer spends a high-cost phase's budgets on what came before it


class Ledger(Protocol):
    """The credit that processes draw on: ``burst`` tokens at first. No method waits for a disk or a network."""

    @property
    def burst(self) -> int:
        """Tokens that the total may run ahead of the mean."""
        ...

    @burst.setter
    def burst(self, tokens: int) -> None: ...

    @property
    def credit(self) -> int:
        """Tokens that can still be withdrawn, as far as this process knows; below 0 after a smaller burst was set."""
        ...

    def withdraw(self, tokens: int) -> int:
        """Take up to so many tokens; how many there were. They count as spent until they are deposited again."""
        ...

    def deposit(self, tokens: int) -> None:
        """Put tokens back that were withdrawn or saved and are not needed."""
        ...

    def follow(self, traffic: "Traffic") -> None:
        """Share these statistics with the other processes, if there are any."""
        ...


class MemoryLedger:
    """A ledger that lives and ends with its process."""

    def __init__(self, burst: int) -> None:
        self.burst = burst
        self._deposited = 0
        self._lock = Lock()

    @property
    def credit(self) -> int:
        """Tokens that can still be withdrawn."""
        return self.burst + self._deposited

    def withdraw(self, tokens: int) -> int:
        """Take up to so many tokens."""
        with self._lock:
            taken = max(0, min(tokens, self.credit))
            self._deposited -= taken
            return taken

    def deposit(self, tokens: int) -> None:
        """Put tokens back."""
        with self._lock:
            self._deposited += tokens

    def follow(self, traffic: "Traffic") -> None:
        """There is no other process."""


class Traffic:
    """What the images of one stream are like: weights of the tiers, and tokens taken of those planned.

    Both are exponentially forgotten over MEMORY images. ``unsent``: what other processes do not know of yet. Hold
    ``lock`` around every call.
    """

    def __init__(self, lock: Lock, tiers: Sequence[str], weights: Sequence[float], tokens: float) -> None:
        self.lock, self.tiers, self.weights = lock, tuple(tiers), list(weights)
        self.planned = self.taken = tokens  # over settled grants
        self.seen = [0] * len(tiers)  # not yet in the weights
        self.unsent = [0] * len(tiers)
        self.unsent_settled: tuple[int, float, int] = (0, 0, 0)  # images, tokens planned, tokens taken

    def see(self, tier: int, images: int) -> None:
        """Images of a tier arrived."""
        self.seen[tier] += images
        self.unsent[tier] += images

    def update(self) -> list[float]:
        """Bring the weights up to date; the shares of the tiers."""
        decay = (1 - 1 / MEMORY) ** sum(self.seen)
        self.weights = [weight * decay + seen for weight, seen in zip(self.weights, self.seen, strict=True)]
        self.seen = [0] * len(self.seen)
        whole = sum(self.weights)
        return [weight / whole for weight in self.weights]

    def settle(self, images: int, planned: float, taken: int) -> None:
        """Images were settled: what their tiers give, whatever the native sizes, and what they took."""
        decay = (1 - 1 / MEMORY) ** images
        self.planned = self.planned * decay + planned
        self.taken = self.taken * decay + taken
        before = self.unsent_settled
        self.unsent_settled = before[0] + images, before[1] + planned, before[2] + taken


class Allowance:
    """The tokens that one stream of images may still take. Hold ``lock`` around every call but ``rebalance``."""

    def __init__(self, ledger: Ledger) -> None:
        self.lock = Lock()
        self.ledger = ledger
        self.images = 0  # granted and not cancelled
        self.granted = 0  # their budgets
        self.spent = 0  # by settled images
        self.outstanding = 0  # images granted, neither settled nor cancelled
        self.reserved = 0  # their budgets
        self._withdrawn = 0  # and not deposited again
        self._saved = 0  # mean - spent, over settled images
        self._excess = 0  # reserved beyond the mean, over outstanding grants

    @property
    def burst(self) -> int:
        """Tokens that the total may run ahead of the mean."""
        return self.ledger.burst

    @property
    def in_hand(self) -> int:
        """Tokens that may be given at once beyond the mean of the images to come."""
        return self._withdrawn + self._saved - self._excess

    @property
    def left(self) -> int:
        """Tokens that may be given beyond the mean of the images to come, those in the ledger included."""
        return self.in_hand + self.ledger.credit

    def rebalance(self, wanted: int) -> None:
        """Withdraw or deposit so that ``wanted`` tokens are in hand, or as many as there are.

        What is deposited leaves this process first, and what is withdrawn enters it last: nothing is counted twice.
        """
        with self.lock:
            over = self.in_hand - max(0, wanted)
            if over > 0:
                self._withdrawn -= over
        if over > 0:
            self.ledger.deposit(over)
        elif over < 0:
            taken = self.ledger.withdraw(-over)
            with self.lock:
                self._withdrawn += taken

    def close(self) -> None:
        """Deposit all that is in hand, at the end of the process."""
        with self.lock:
            rest = max(0, self.in_hand)
            self._withdrawn -= rest
        if rest:
            self.ledger.deposit(rest)

    def cut(self, budgets: Sequence[int], mean: int) -> list[int]:
        """The budgets, cut so that no image takes the total beyond its limit; never below ``min(budget, mean)``."""
        left, cut = max(0, self.in_hand), []
        for budget in budgets:
            cut.append(min(budget, mean + left))
            left += mean - cut[-1]
        return cut

    def reserve(self, budgets: Sequence[int], mean: int, *, undo: bool = False) -> None:
        """Reserve these budgets, or undo their reservation."""
        sign, total = -1 if undo else 1, sum(budgets)
        self.images += sign * len(budgets)
        self.granted += sign * total
        self.outstanding += sign * len(budgets)
        self.reserved += sign * total
        self._excess += sign * max(0, total - mean * len(budgets))

    def settle(self, budgets: Sequence[int], mean: int, spent: int | Sequence[int]) -> int:
        """Replace a reservation by the tokens spent, one number for the request or one per image; returns the sum."""
        each = [spent] if isinstance(spent, int) else list(spent)
        limits = [sum(budgets)] if isinstance(spent, int) else list(budgets)
        if len(each) != len(limits):
            raise BadInput(
                f"{len(each)} numbers of tokens spent for {len(limits)} images; give one for each, or their sum"
            )
        for tokens, limit in zip(each, limits, strict=True):
            if not 0 <= tokens <= limit:
                raise LedgerBreach(
                    f"{tokens} tokens were spent where {limit} were granted; fit to the grant, or cancel it"
                )
        self.reserve(budgets, mean, undo=True)
        self.images += len(budgets)
        self.granted += sum(budgets)
        self.spent += sum(each)
        self._saved += mean * len(budgets) - sum(each)
        return sum(each)
