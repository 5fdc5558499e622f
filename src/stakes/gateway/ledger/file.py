"""A ledger in a file: the total goes on after a restart, after ``kill -9`` and after a power failure.

    ledger = SharedLedger(FileStore(Path("stakes-ledger.json")), burst=9728).common

The file holds the state of ``protocol`` as JSON. It is replaced whole and synced with every exchange: a lease that is
not on disk is not granted. Exchanges are made under a lock of the operating system (``flock`` on the file beside it,
``.lock``), so several processes of one host can share it.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stakes.errors import BadInput
from stakes.files import write_whole
from stakes.gateway.ledger.protocol import SCHEMA, LedgerUnreachable, exchange


class FileStore:
    """The ledger of one host's gateways. What it acknowledges is on disk."""

    loss_s, interval_s = 0.0, 0.5

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def exchange(self, report: dict[str, Any]) -> dict[str, Any]:
        """Change the file, and reply when it is on disk."""
        try:
            with self._locked():
                state = self._read()
                reply = exchange(state, report, time.time())
                write_whole(self.path, json.dumps(state) + "\n")
                return reply
        except OSError as error:
            raise LedgerUnreachable(f"{self.path} cannot be written ({error.strerror})") from None

    def close(self) -> None:
        """Nothing is open between two exchanges."""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            import fcntl
        except ImportError:
            raise BadInput(
                "a ledger in a file needs locks that this system does not have; leave --ledger out"
            ) from None
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)  # ends the lock, too

    def _read(self) -> dict[str, Any]:
        try:
            state = json.loads(self.path.read_text("utf-8"))
            valid = state["schema"] == SCHEMA and {"ledger", "all", "accounts", "processes"} <= set(state)
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError, RecursionError):
            valid = False
        if not valid:
            raise BadInput(f"{self.path} is not a ledger; name another file, or remove it to begin a new total")
        return dict(state)
