"""A ledger that many processes share: one process's leases, and the thread that exchanges its reports with the store.

    ledger = SharedLedger(FileStore(Path("ledger.json")), burst=9728).common
    ledger.withdraw(272)                              # from the lease in hand; waits for nothing

A busy process exchanges a report a few times a second, an idle one every IDLE_S. ``protocol`` has the rules and the
proof.

While the store cannot be reached, the lease in hand is used up. Then an image gets what it brings itself: the mean, and
as the controller saves when little is left, soon the smallest budgets. What cannot be brought down to that (native
sizes) is refused. With ``local`` the process continues on a burst of its own instead, which can exceed the total; what
it takes is reported later and paid back.
"""

import logging
import secrets
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any, Protocol

from stakes.budgets.allowance import MEMORY
from stakes.gateway.ledger.lease import Lease
from stakes.gateway.ledger.protocol import LedgerUnreachable
from stakes.gateway.monitoring.logs import Log

IDLE_S = 15.0  # between two exchanges of a process without traffic
SILENT_S = 60.0  # after which a process is forgotten
RETRY_S = 0.5
GAP_S = 0.05  # between two exchanges, at least


class Store(Protocol):
    """Where the ledger is: a file, or a Redis. ``loss_s``: how long an acknowledged write can still be lost."""

    loss_s: float
    interval_s: float

    def exchange(self, report: dict[str, Any]) -> dict[str, Any]:
        """``protocol.exchange`` on the ledger's state; ``LedgerUnreachable`` where it is not known to be done."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class SharedLedger:
    """All leases of one process. ``background``: whether a thread exchanges the reports, or the caller does."""

    def __init__(
        self,
        store: Store,
        burst: int,
        *,
        local: bool = False,
        background: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.burst, self.lock, self.reachable = burst, Lock(), True
        self._store, self.local, self._clock, self._log = store, local, clock, Log()
        self.overdrawn = self._exchanges = self._lost = 0
        self.common = Lease(self, "", None)
        self._leases = {"": self.common}
        self._name = self._ledger = ""  # under which it is registered, and in which ledger
        self._charge = False  # whether it must report what it took, because the ledger is another one
        self._unbroken, self._reported, self.processes = False, clock(), 1
        self._touched = self._busy = True
        self._failed_at, self._failure = 0.0, ""
        self._wake, self._ended = Event(), Event()
        self.exchange()  # a store that is none is an error at the start
        self._thread = Thread(target=self._run, daemon=True, name="stakes-ledger") if background else None
        if self._thread is not None:
            self._thread.start()

    def lease(self, name: str, share: float) -> Lease:
        """The lease of an account with a share of the burst."""
        with self.lock:
            return self._leases.setdefault(name, Lease(self, name, share))

    def touch(self, low: bool) -> None:
        """Note that there is traffic; ``low``: the lease in hand is nearly used up and the ledger has more."""
        self._touched = True
        if low or not self._busy:
            self._wake.set()

    def overdraw(self, tokens: int, most: int) -> bool:
        """Whether tokens may be taken that nobody granted, because the store cannot be reached. Hold ``lock``."""
        if self.reachable or not self.local or self.overdrawn + tokens > most:
            return False
        self.overdrawn += tokens
        return True

    def exchange(self, ends: bool = False) -> bool:
        """Report now, and take over the reply; whether it worked."""
        self._busy, self._touched = self._touched, False
        for _ in range(3):  # it registers first, and again where the ledger has forgotten this process
            leases = list(self._leases.values())
            for lease in leases:
                lease.collect()
            with self.lock:
                report = self._report(leases, ends)
            sent = self._clock()
            try:
                reply = self._store.exchange(report)
            except LedgerUnreachable as error:
                self._fail(error)
                return False
            self._succeed()
            if not reply["known"]:
                self._register_again(reply["ledger"])
            elif report["new"]:
                self._name, self._ledger, self._charge = report["process"], reply["ledger"], False
            else:
                self._take_over(reply, sent)
                return True
        return False

    def _report(self, leases: list[Lease], ends: bool) -> dict[str, Any]:
        now, registers = self._clock(), not self._name
        about = {
            "process": self._name or secrets.token_hex(8), "new": registers, "ends": ends and not registers,
            "ledger": secrets.token_hex(8), "burst": self.burst, "memory": MEMORY, "silent_s": SILENT_S,
        }  # fmt: skip
        if registers:
            begun = [lease.restart(self._charge) for lease in leases]
            return {**about, "accounts": begun if self._charge else []}
        elapsed, self._reported = now - self._reported, now
        lead = self._store.loss_s + 2 * self._store.interval_s
        return {**about, "accounts": [lease.report(elapsed, lead, self.processes, ends) for lease in leases]}

    def _take_over(self, reply: dict[str, Any], sent: float) -> None:
        received, loss_s, lost = self._clock(), self._store.loss_s, 0
        with self.lock:
            self.processes = reply["processes"]
            for answer in reply["accounts"]:
                lost += self._leases[answer["name"]].learn(answer, sent, received, loss_s, self._unbroken)
            self._unbroken = True
            self._lost += lost
            self._busy |= any(lease.hand.pending for lease in self._leases.values())
        for answer in reply["accounts"]:
            self._leases[answer["name"]].adopt(answer)
        if lost:
            event = f"the ledger lost more than the last {loss_s:g} s of writes, so that the total may be exceeded"
            self._log.write(f"{event}; see stakes doctor --ledger", logging.ERROR, tokens=lost)

    def _register_again(self, ledger: str) -> None:
        self._name, self._charge = "", ledger != self._ledger
        if self._charge:
            event = "the ledger was emptied or is another one: its total begins anew, less what this process has taken"
            self._log.write(event, logging.ERROR)
        else:
            self._log.write("the ledger had forgotten this process, which was silent for long; it registers again")

    def _fail(self, error: Exception) -> None:
        self._unbroken = False
        if not self.reachable:
            return
        self._failed_at = self._clock()
        with self.lock:
            for lease in self._leases.values():
                lease.cut_off()
            self.reachable = False
        then = "then images get at most the mean, and soon the smallest budgets"
        if self.local:
            then = "then this gateway continues on a burst of its own, and THE FLEET MAY EXCEED ITS TOTAL"
        held = sum(lease.hand.tokens for lease in self._leases.values())
        event = f"the ledger cannot be reached; the {held} tokens in hand are used up, {then}"
        self._log.write(event, logging.ERROR if self.local else logging.WARNING, reason=str(error))
        self._failure = f"{event} ({error})"

    def _succeed(self) -> None:
        self._exchanges += 1
        if self.reachable:
            return
        seconds = round(self._clock() - self._failed_at, 1)
        self._log.write("the ledger can be reached again", seconds=seconds, overdrawn=self.overdrawn or None)
        self.reachable, self.overdrawn = True, 0

    def _run(self) -> None:
        while not self._ended.is_set():
            began = self._clock()
            self._wake.wait(self._store.interval_s if self._busy else IDLE_S)
            self._ended.wait(max(0.0, (GAP_S if self.reachable else RETRY_S) - (self._clock() - began)))
            self._wake.clear()
            if not self._ended.is_set():
                try:
                    self.exchange()
                except Exception as error:  # a file that somebody damaged, or a fault of ours: the lease is used up
                    self._fail(error)
                    self._log.write("an exchange with the ledger failed", logging.ERROR, failure=error)

    def close(self) -> None:
        """Put back everything that this process holds, and end its leases."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5)
        self.exchange(ends=True)
        self._store.close()

    def state(self) -> dict[str, float]:
        """For the metrics: what this process knows of the ledger."""
        leases = list(self._leases.values())
        return {
            "ledger_reachable": self.reachable, "ledger_processes": self.processes,
            "ledger_held": sum(lease.hand.tokens for lease in leases),
            "ledger_waiting": sum(lease.waiting for lease in leases), "ledger_credit": self.common.available,
            "ledger_exchanges": self._exchanges, "ledger_overdrawn": self.overdrawn, "ledger_lost": self._lost,
        }  # fmt: skip

    def warnings(self) -> list[str]:
        """What operators must know now."""
        lost = f"THE LEDGER LOST {self._lost} TOKENS IN USE; see stakes doctor --ledger"
        return [*([] if self.reachable else [self._failure]), *([lost] if self._lost else [])]
