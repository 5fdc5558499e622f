"""Accounts of clients: a key with a share of the burst draws on the common ledger through a limited one of its own.

    accounts = Accounts(policy, ledger)
    accounts.of("team-b", share=0.25).grant("high", [1520])

Its controller follows the mix of its own requests, so that a client that names ``high`` in every request changes the
budgets of nobody else. The total is still the ledger's: over all accounts, the first ``n`` images take at most
``mean n + burst`` tokens.
"""

from collections.abc import Iterable
from threading import Lock

from stakes.budgets.allowance import Ledger
from stakes.budgets.controller import Controller
from stakes.budgets.policy import Policy

_SUMS = ("images", "images_outstanding", "images_kept", "tokens_granted", "tokens_spent")


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


class Accounts:
    """The controllers of keys with shares, by name; made when a key is first used. Used by one thread at a time."""

    def __init__(self, policy: Policy, ledger: Ledger, after: "Accounts | None" = None) -> None:
        self._policy, self.ledger = policy, ledger
        before = {} if after is None else dict(after._made)
        self._made: dict[str, tuple[Controller, ShareLedger]] = {
            name: (Controller.from_policy(policy, after=controller), part)
            for name, (controller, part) in before.items()
        }

    def of(self, name: str, share: float) -> Controller:
        """The controller of a key; a changed share holds from now on."""
        if name not in self._made:
            part = ShareLedger(self.ledger, share)
            self._made[name] = Controller.from_policy(self._policy, ledger=lambda _: part), part
        controller, part = self._made[name]
        part.share = share
        return controller

    def all(self) -> list[Controller]:
        """Every account."""
        return [controller for controller, _ in list(self._made.values())]


def total_state(controller: Controller, accounts: Iterable[Controller]) -> dict[str, float]:
    """The state of the common controller, with the sums and the mean of all accounts."""
    state, others = controller.state(), [one.state() for one in accounts]
    if others:
        reserved = sum(one["mean"] * one["images"] for one in (state, *others))  # spent and still reserved
        state |= {name: sum(one[name] for one in (state, *others)) for name in _SUMS}
        state["mean"] = reserved / state["images"] if state["images"] else 0.0
    return state
