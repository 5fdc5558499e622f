"""A ledger in a file: the total goes on after a restart, after ``kill -9`` and after a power failure.

    ledger = FileLedger(Path("stakes-ledger.json"), burst=9728)
    ledger.withdraw(1216)                             # on disk before it is granted

The file holds two sums, of all tokens ever withdrawn and ever deposited, so ``credit = burst + deposited - withdrawn``
and another burst only shifts it. It is replaced whole and synced with every change: a withdrawal that is not on disk is
not granted. Changes are made under a lock of the operating system (``flock`` on the file beside it, ``.lock``), so
several processes of one host can share it. A process changes it once for many requests (``budgets.allowance``).
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from stakes.errors import BadInput
from stakes.files import write_whole

SCHEMA = 1


class FileLedger:
    """The credit of one host's gateways. Thread-safe."""

    def __init__(self, path: Path, burst: int) -> None:
        self.path, self.burst = path, burst
        self._threads = Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as (withdrawn, deposited):
            self._write(withdrawn, deposited)  # a file that cannot be written is an error at the start

    @property
    def credit(self) -> int:
        """Tokens that could still be withdrawn when this process last read the file."""
        return self.burst + self._deposited - self._withdrawn

    def withdraw(self, tokens: int) -> int:
        """Take up to so many tokens; they are on disk as spent when this returns."""
        with self._locked() as (withdrawn, deposited):
            taken = max(0, min(tokens, self.credit))
            if taken:
                self._write(withdrawn + taken, deposited)
        return taken

    def deposit(self, tokens: int) -> None:
        """Put tokens back."""
        with self._locked() as (withdrawn, deposited):
            self._write(withdrawn, deposited + tokens)

    @contextmanager
    def _locked(self) -> Iterator[tuple[int, int]]:
        """The sums of the file, while nobody else can change them."""
        try:
            import fcntl
        except ImportError:
            raise BadInput(
                "a ledger in a file needs locks that this system does not have; leave --ledger out"
            ) from None
        with self._threads, self._open_lock() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._withdrawn, self._deposited = self._read()
            yield self._withdrawn, self._deposited

    @contextmanager
    def _open_lock(self) -> Iterator[int]:
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield lock
        finally:
            os.close(lock)  # ends the lock, too

    def _read(self) -> tuple[int, int]:
        try:
            text = self.path.read_text("utf-8")
        except FileNotFoundError:
            return 0, 0
        try:
            record = json.loads(text)
            sums = record["withdrawn"], record["deposited"]
            valid = record["schema"] == SCHEMA and all(type(tokens) is int and tokens >= 0 for tokens in sums)
        except (ValueError, TypeError, KeyError, RecursionError):
            valid = False
        if not valid:
            raise BadInput(f"{self.path} is not a ledger; name another file, or remove it to begin a new total")
        return sums

    def _write(self, withdrawn: int, deposited: int) -> None:
        record = {"schema": SCHEMA, "withdrawn": withdrawn, "deposited": deposited}
        write_whole(self.path, json.dumps(record) + "\n")
        self._withdrawn, self._deposited = withdrawn, deposited
