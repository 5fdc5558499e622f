"""Opens the ledger that ``--ledger`` names: none for memory, a file, or an address of Redis."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stakes.gateway.options import Option, Section, setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from stakes.gateway.accounts import CommonLedger


class LedgerOptions(Section):
    """How a gateway uses a ledger that it shares with others."""

    loss_s: float = setting(
        2.0,
        "Seconds of its last writes that a restart or failover of Redis may lose; a lease is used after as many.",
        Option("ledger_loss", least=0),
        ge=0,
        allow_inf_nan=False,
    )
    unreachable: Literal["hold", "local"] = setting(
        "hold",
        "While the ledger cannot be reached: hold uses up the lease in hand, then gives images at most the mean; local "
        "continues on a burst of its own, and the fleet may exceed its total.",
        Option("ledger_unreachable", kind=str),
    )


def is_redis(ledger: str) -> bool:
    """Whether this is an address and not a file."""
    return "://" in ledger


def shown(ledger: str) -> str:
    """The ledger without a password."""
    if not is_redis(ledger):
        return ledger
    from stakes.gateway.ledger.redis import RedisAddress

    return RedisAddress.parse(ledger).shown


def ledger_source(ledger: str | None, options: LedgerOptions) -> "Callable[[int], CommonLedger]":
    """Makes the ledger from the burst."""
    from stakes.gateway.accounts import LocalLedger

    if ledger is None:
        return LocalLedger
    return partial(_open, ledger, options)


def _open(ledger: str, options: LedgerOptions, burst: int) -> "CommonLedger":
    from stakes.gateway.ledger.shared import SharedLedger, Store

    store: Store
    if is_redis(ledger):
        from stakes.gateway.ledger.redis import RedisStore

        store = RedisStore(ledger, options.loss_s)
    else:
        from stakes.gateway.ledger.file import FileStore

        store = FileStore(Path(ledger))
    return SharedLedger(store, burst, local=options.unreachable == "local").common
