"""One account of a shared ledger as one process holds it: the lease in hand, how large it should be, its statistics.

A lease follows the demand: it covers what was lately taken in the time until another one would be usable, and at least
a part of what the fleet has left. A process never asks for more than half of that, and puts back what is far beyond its
need. ``Allowance`` draws on it and waits for nothing; ``shared`` exchanges the reports.
"""

from typing import TYPE_CHECKING, Any

from stakes.budgets.allowance import MEMORY, Traffic
from stakes.gateway.ledger.protocol import Hand

if TYPE_CHECKING:
    from stakes.gateway.ledger.shared import SharedLedger

SPREAD = 4  # a quarter of what the fleet has left is spread over its processes, needed or not
SHORTEST_S = 0.02  # time over which a demand is measured, at least


class Lease:
    """What one process holds of one account; a ledger for ``Allowance``. ``share``: of the burst, None for all."""

    def __init__(self, ledger: "SharedLedger", name: str, share: float | None) -> None:
        self.name, self._share, self._ledger = name, share, ledger
        self.hand = Hand()
        self.available = 0  # credit of the ledger, by its last reply
        self._others = self.burst  # this, what other processes hold, and what this one holds and cannot use yet
        self._at_failure = 0  # the hand when the ledger could no longer be reached
        self._traffic: Traffic | None = None
        self._tiers: dict[str, int] = {}  # images by tier, and sums over settled ones: cumulative under one name
        self._settled: tuple[int, float, int] = (0, 0, 0)
        self._prior: dict[str, float] = {}
        self._lowest = self._lacked = 0  # of the hand, and asked for in vain, since the last report
        self._largest = 0  # single withdrawal
        self._at_report = 0  # the hand after the last report
        self._overdrawn = 0  # not reported yet
        self._rate = 0.0  # tokens a second that the hand must provide

    @property
    def share(self) -> float:
        """The share of the burst."""
        return 1.0 if self._share is None else self._share

    @share.setter
    def share(self, share: float) -> None:
        self._share = share

    @property
    def burst(self) -> int:
        """Tokens that the total of this account may run ahead of the mean."""
        return self._ledger.burst if self._share is None else int(self._share * self._ledger.burst)

    @burst.setter
    def burst(self, tokens: int) -> None:
        if self._share is None:  # a part follows the common ledger
            self._ledger.burst = tokens

    @property
    def processes(self) -> int:
        """How many processes share the ledger."""
        return self._ledger.processes

    @property
    def credit(self) -> int:
        """Tokens that the fleet has left, as far as this process knows.

        Without the ledger the part of the others goes with the lease in hand, so that budgets fall as it is used up.
        """
        hand, ledger = self.hand.tokens, self._ledger
        if ledger.reachable:
            return hand + self._others
        if ledger.local:
            return hand + self.burst - ledger.overdrawn
        return hand + self._others * min(hand, self._at_failure) // max(1, self._at_failure)

    @property
    def waiting(self) -> int:
        """Tokens of this process that cannot be used yet, because the ledger may still lose them."""
        return max(0, self.hand.acknowledged - self.hand.usable)

    def withdraw(self, tokens: int) -> int:
        """Take up to so many tokens from the lease in hand."""
        ledger = self._ledger
        with ledger.lock:
            lacking = max(0, tokens - self.hand.tokens)
            if lacking and ledger.overdraw(lacking, self.burst):
                self.hand, self._overdrawn, lacking = self.hand.overdraw(lacking), self._overdrawn + lacking, 0
            taken = max(0, tokens - lacking)
            self.hand = self.hand.add(-taken)
            self._lowest = min(self._lowest, self.hand.tokens)
            self._largest = max(self._largest, tokens)
            self._lacked += lacking
            low = 2 * self.hand.tokens < self._largest and self.available > 0 and not self.hand.pending
        ledger.touch(low)
        return taken

    def deposit(self, tokens: int) -> None:
        """Put tokens back into the lease in hand; the next report returns what is too much."""
        with self._ledger.lock:
            self.hand = self.hand.add(tokens)
        self._ledger.touch(False)

    def part(self, name: str, share: float) -> "Lease":
        """The lease of an account with a share of its own."""
        return self._ledger.lease(name, share)

    def follow(self, traffic: Traffic) -> None:
        """Share these statistics with the other processes."""
        self._prior = dict(zip(traffic.tiers, traffic.weights, strict=True))
        self._traffic = traffic

    def close(self) -> None:
        """Return everything that this process holds, and end its leases."""
        self._ledger.close()

    def state(self) -> dict[str, float]:
        """What this process knows of the ledger."""
        return self._ledger.state()

    def warnings(self) -> list[str]:
        """What operators must know now."""
        return self._ledger.warnings()

    def collect(self) -> None:
        """Add to the report what was seen and settled since the last one; takes the lock of the controller."""
        traffic = self._traffic
        if traffic is None:
            return
        with traffic.lock:
            for tier, images in zip(traffic.tiers, traffic.unsent, strict=True):
                self._tiers[tier] = self._tiers.get(tier, 0) + images
            traffic.unsent = [0] * len(traffic.unsent)
            more, traffic.unsent_settled = traffic.unsent_settled, (0, 0, 0)
        images, planned, taken = self._settled
        self._settled = images + more[0], planned + more[1], taken + more[2]

    def report(self, elapsed_s: float, lead_s: float, processes: int, ends: bool) -> dict[str, Any]:
        """What is told and asked of the ledger now; ``lead_s``: until a lease asked for now is usable."""
        hand = self.hand
        demand = self._at_report - min(self._lowest, hand.tokens) + self._lacked
        self._rate = max(demand / max(elapsed_s, SHORTEST_S), 0.9 * self._rate)
        left = max(0, self.credit)
        need = self._largest + int(1.5 * lead_s * self._rate)
        base = min(self.burst, left) // (SPREAD * max(1, processes))
        wanted = 0 if ends else max(base, min(need, left // 2))
        self._largest -= self._largest // 16
        if hand.tokens > 2 * wanted:
            hand = hand.put_back(hand.tokens - wanted)
        self.hand, self._at_report, self._lowest, self._lacked = hand, hand.tokens, hand.tokens, 0
        held = hand.tokens + self.waiting
        return {
            "name": self.name, "limit": -1 if self._share is None else self.burst,
            "withdrawn": hand.usable, "deposited": hand.deposited, "held": held,
            "ask": max(0, wanted - held), "tiers": dict(self._tiers), "settled": list(self._settled),
            "prior": self._prior, "tokens": 0 if self._traffic is None else self._traffic.planned,
        }  # fmt: skip

    def learn(self, reply: dict[str, Any], sent: float, received: float, loss_s: float, unbroken: bool) -> int:
        """Take over a reply; returns how many tokens in use the ledger had forgotten, which is 0 by its conditions."""
        before = self.hand
        lost: int = max(0, before.usable - self._overdrawn - reply["before"])
        self.hand = before.learn(reply["withdrawn"], reply["before"], sent, received, loss_s, unbroken)
        self._overdrawn = 0
        gained = self.hand.tokens - before.tokens
        self._at_report, self._lowest = self._at_report + gained, self._lowest + gained
        self.available = reply["credit"]
        self._others = self.available + self.waiting + reply["others"]
        return lost

    def adopt(self, reply: dict[str, Any]) -> None:
        """Take over the statistics of the fleet; what was seen since the report counts on top."""
        traffic, weights = self._traffic, reply["weights"]
        if traffic is None:
            return
        with traffic.lock:
            decay = (1 - 1 / MEMORY) ** sum(traffic.unsent)
            traffic.weights = [
                weights[tier] * decay + unsent if tier in weights else own
                for tier, own, unsent in zip(traffic.tiers, traffic.weights, traffic.unsent, strict=True)
            ]
            traffic.seen = [0] * len(traffic.seen)
            images, planned, taken = traffic.unsent_settled
            decay = (1 - 1 / MEMORY) ** images
            traffic.planned, traffic.taken = reply["planned"] * decay + planned, reply["taken"] * decay + taken

    def cut_off(self) -> None:
        """The ledger can no longer be reached."""
        self._at_failure = self.hand.tokens

    def restart(self, charge: bool) -> dict[str, Any]:
        """Begin anew under another name of the process; the report that registers it.

        ``charge``: the ledger is another one, and does not know of what this process has withdrawn.
        """
        taken = max(0, self.hand.usable - self.hand.deposited) if charge else 0
        self.hand, self._tiers, self._settled = self.hand.renamed()._replace(usable=taken), {}, (0, 0, 0)
        self._overdrawn = 0
        return {**self.report(1.0, 0.0, 1, ends=False), "withdrawn": taken, "deposited": 0, "ask": 0}
