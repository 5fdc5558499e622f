"""A store in memory with a clock of its own, that can be cut off, lose writes and be emptied."""

import copy
import json
from typing import Any

from stakes.gateway.ledger.protocol import LedgerUnreachable, exchange
from stakes.gateway.ledger.shared import SharedLedger


class MemoryStore:
    """One ledger for all processes of a test. ``now`` moves only when the test moves it."""

    interval_s = 0.25

    def __init__(self, loss_s: float = 0.0) -> None:
        self.loss_s, self.now, self.exchanges = loss_s, 0.0, 0
        self.reachable = self.replies = True
        self.state: dict[str, Any] = {}
        self._writes: list[tuple[float, dict[str, Any]]] = []  # (when, the state before it)

    def clock(self) -> float:
        return self.now

    def exchange(self, report: dict[str, Any]) -> dict[str, Any]:
        if not self.reachable:
            raise LedgerUnreachable("cut off")
        self._writes = [one for one in self._writes if self.now - one[0] < self.loss_s]
        if self.loss_s:
            self._writes.append((self.now, copy.deepcopy(self.state)))
        self.exchanges += 1
        reply: dict[str, Any] = json.loads(json.dumps(exchange(self.state, report, self.now)))
        if not self.replies:
            raise LedgerUnreachable("the reply was lost")
        return reply

    def fail_over(self, writes: int) -> None:
        """Lose the last so many writes, as far as they can be lost."""
        recent = [before for at, before in self._writes if self.now - at < self.loss_s]
        if recent and writes:
            self.state = recent[-min(writes, len(recent))]
            del self._writes[-min(writes, len(recent)) :]

    def close(self) -> None:
        pass

    @property
    def credit(self) -> int:
        """Without a burst: deposited less withdrawn."""
        return int(self.state["all"]["deposited"] - self.state["all"]["withdrawn"])

    def ledger(self, burst: int, local: bool = False) -> SharedLedger:
        return SharedLedger(self, burst, local=local, background=False, clock=self.clock)

    def run(self, *ledgers: SharedLedger, seconds: float = 5.0) -> None:
        """Let time pass, with an exchange of every process each quarter of a second."""
        for _ in range(round(seconds / self.interval_s)):
            self.now += self.interval_s
            for ledger in ledgers:
                ledger.exchange()
