"""Accounts of clients: a key with a share of the burst draws on the common ledger through a limited one of its own.

    accounts = Accounts(policy, ledger)
    accounts.of("team-b", share=0.25).grant("high", [1520])

Its controller follows the mix of its own requests, so that a client that names ``high`` in every request changes the
budgets of nobody else. The total is still the ledger's: over all accounts, the first ``n`` images take at most
``mean n + burst`` tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Protocol

from stakes.budgets.allowance import Ledger, MemoryLedger, Traffic
from stakes.budgets.controller import Controller
from stakes.budgets.policy import Policy

ADDED_STATES = {
    "images", "images_outstanding", "images_kept", "tokens_granted", "tokens_spent", "solutions", "ledger_held",
    "ledger_waiting", "ledger_exchanges", "ledger_overdrawn", "ledger_lost",
}  # fmt: skip
TOTALS = ("images", "tokens_granted", "tokens_spent")  # of a process that has ended


class PartLedger(Ledger, Protocol):
    """A ledger with a share of another one's burst, which may be changed."""

    share: float


class CommonLedger(Ledger, Protocol):
    """The ledger of a whole gateway, which may be shared with other processes."""

    @property
    def processes(self) -> int:
        """How many processes share it, as far as this one knows."""
        ...

    def part(self, name: str, share: float) -> PartLedger:
        """The ledger of an account: it withdraws, net of what it deposits, at most ``share`` of the burst."""
        ...

    def close(self) -> None:
        """Return everything, at the end of the process."""
        ...

    def state(self) -> dict[str, float]:
        """For the metrics."""
        ...

    def warnings(self) -> list[str]:
        """What operators must know now."""
        ...


class LocalLedger(MemoryLedger):
    """The ledger of a gateway of one process, which ends with it."""

    processes = 1

    def part(self, name: str, share: float) -> "ShareLedger":  # noqa: ARG002 - names matter between processes
        """A part of this ledger."""
        return ShareLedger(self, share)

    def close(self) -> None:
        """It ends with the process."""

    def state(self) -> dict[str, float]:
        """There is nothing but the controller's."""
        return {}

    def warnings(self) -> list[str]:
        """Nothing can fail."""
        return []


class ShareLedger:
    """A part of another ledger: what is withdrawn here and not deposited again is at most ``share`` of its burst."""

    def __init__(self, common: Ledger, share: float) -> None:
        self.share = share
        self._common, self._withdrawn, self._lock = common, 0, Lock()

    @property
    def burst(self) -> int:
        """The part of the burst."""
        return int(self.share * self._common.burst)

    @burst.setter
    def burst(self, tokens: int) -> None:
        """It follows the common ledger's, which a new policy sets."""

    @property
    def credit(self) -> int:
        """Tokens that can still be withdrawn here."""
        return min(self._common.credit, self.burst - self._withdrawn)

    def withdraw(self, tokens: int) -> int:
        """Take up to so many tokens."""
        with self._lock:
            taken = self._common.withdraw(max(0, min(tokens, self.burst - self._withdrawn)))
            self._withdrawn += taken
            return taken

    def deposit(self, tokens: int) -> None:
        """Put tokens back."""
        with self._lock:
            self._withdrawn -= tokens
            self._common.deposit(tokens)

    def follow(self, traffic: "Traffic") -> None:
        """There is no other process."""


class Accounts:
    """The controllers of keys with shares, by name; made when a key is first used. Used by one thread at a time."""

    def __init__(self, policy: Policy, ledger: CommonLedger, after: "Accounts | None" = None) -> None:
        self._policy, self.ledger = policy, ledger
        before = {} if after is None else dict(after._made)
        self._made: dict[str, tuple[Controller, PartLedger]] = {
            name: (Controller.from_policy(policy, after=controller), part)
            for name, (controller, part) in before.items()
        }

    def of(self, name: str, share: float) -> Controller:
        """The controller of a key; a changed share holds from now on."""
        if name not in self._made:
            part = self.ledger.part(name, share)
            self._made[name] = Controller.from_policy(self._policy, ledger=lambda _: part), part
        controller, part = self._made[name]
        part.share = share
        return controller

    def all(self) -> list[Controller]:
        """Every account."""
        return [controller for controller, _ in list(self._made.values())]


def merge_controllers(
    states: Sequence[Mapping[str, float]], ended: Iterable[Mapping[str, float]] = ()
) -> dict[str, float]:
    """One state of the controllers: sums of what they counted, the first one's view of everything else."""
    merged = dict(states[0])
    for name in ADDED_STATES & set(merged):
        merged[name] = sum(state.get(name, 0) for state in states)
    if "ledger_reachable" in merged:
        merged["ledger_reachable"] = min(state["ledger_reachable"] for state in states)
    spent = sum(state["mean"] * state["images"] for state in states)  # and still reserved
    for state in ended:
        spent += state["tokens_spent"]
        for name in TOTALS:
            merged[name] += state[name]
    merged["mean"] = spent / merged["images"] if merged["images"] else 0.0
    return merged
