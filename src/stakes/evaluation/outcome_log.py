"""The outcome log: one JSON line for each sample answered at one budget by one mechanism, append-only.

Lines are fsynced before ``append`` returns, so a killed run loses at most the answer in flight. Its torn last line is
ignored when the log is read, and cut off before the next append. Blank lines are skipped; any other bad line is an
error that names it. A file that is not a log is refused and left untouched: an incomplete last line counts as torn only
after a complete outcome, or where it begins as an outcome does.

A log is read line by line, and outcomes share their repeated texts: a million lines take about 430 MB.
"""

import fcntl
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from stakes.errors import BadInput, StakesError
from stakes.evaluation.grading import is_correct
from stakes.files import is_torn


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer: its prediction, its visual tokens, and whether it was right."""

    sample: str
    document: str
    tier: str
    mechanism: str
    selector: str | None
    budget: int
    native: int
    realised: int
    prediction: str
    truncated: bool
    score: float
    correct: bool
    metric: str
    ms: float
    run: str
    layers: float | None = None
    """Visual tokens as the mean over decoder layers, where that is what the budget counts."""
    confidence: float | None = None
    """``Answer.confidence``, where the model gives one; logs of earlier versions have none."""

    @property
    def spent(self) -> float:
        """Tokens as the budget counts them."""
        return self.realised if self.layers is None else self.layers

    def record(self) -> dict[str, Any]:
        """A line of the log; ``layers`` and ``confidence`` only where there is one."""
        return {name: value for name, value in asdict(self).items() if value is not None or name not in OPTIONAL}


OPTIONAL = ("layers", "confidence")
NAMES = tuple(field.name for field in fields(Outcome) if field.name not in OPTIONAL)
_KINDS: dict[str, tuple[type, ...]] = {
    "selector": (str, type(None)),
    **dict.fromkeys(("budget", "native", "realised"), (int,)),
    **dict.fromkeys(("score", "ms"), (int, float)),
    **dict.fromkeys(("truncated", "correct"), (bool,)),
    **dict.fromkeys(OPTIONAL, (int, float, type(None))),
}
_REPEATED = ("sample", "document", "tier", "mechanism", "selector", "metric", "run")  # the same text in many lines


def read_outcomes(path: str | Path) -> list[Outcome]:
    """Every outcome of a log, in its order."""
    return [_outcome(number, record, path) for number, record in _records(Path(path))]


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    if not path.is_file():
        raise BadInput(f"there is no outcome log {path}; check the path")
    empty = True
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):  # a complete log ends in a newline: the writer was killed within this line
                if empty and not is_torn(line, NAMES):
                    raise BadInput(
                        f"{path} is not an outcome log: it holds one line, which does not begin as an outcome does; "
                        "it was not changed, so give another log"
                    )
                return
            if not line.strip():
                continue
            empty = False
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise BadInput(
                    f"line {number} of {path} is not JSON; it is no outcome log, or was damaged there"
                ) from None
            yield number, record


def _outcome(number: int, record: Any, path: Path | str) -> Outcome:
    if not isinstance(record, dict) or set(record) - set(OPTIONAL) != set(NAMES):
        raise BadInput(f"line {number} of {path} is not an outcome; it needs exactly {', '.join(NAMES)}")
    for name in record:
        kinds = _KINDS.get(name, (str,))
        if not isinstance(record[name], kinds) or (isinstance(record[name], bool) and bool not in kinds):
            raise BadInput(f"line {number} of {path}: {name} cannot be {record[name]!r}")
    if not 0 <= record["score"] <= 1:
        raise BadInput(f"line {number} of {path}: score must lie in [0, 1], not {record['score']}")
    if not math.isfinite(record.get("confidence") or 0):
        raise BadInput(f"line {number} of {path}: confidence is a number, not {record['confidence']}")
    if record["correct"] is not is_correct(record["score"]):
        raise BadInput(
            f"line {number} of {path}: correct is {json.dumps(record['correct'])}, but the score is "
            f"{record['score']}; repair or delete the line"
        )
    for name in ("budget", "native", "realised"):
        if record[name] < 1:
            raise BadInput(f"line {number} of {path}: {name} is at least one visual token, not {record[name]}")
    for name in _REPEATED:
        if record[name] is not None:
            record[name] = sys.intern(record[name])
    return Outcome(**record)


class OutcomeLog:
    """An append-only log, opened as a context manager; one process writes it at a time, and a second is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> Self:
        if self.path.exists() and not (self.path.is_file() or self.path.is_dir()):  # a device may never end
            raise BadInput(f"{self.path} is a device or a pipe, not a file; give the outcome log a path on a disk")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a failed write leaves in a buffer would be written again, torn, when the file closes.
            self._file = self.path.open("ab+", buffering=0)
        except OSError as error:
            raise BadInput(f"the outcome log {self.path} cannot be opened for writing ({error.strerror})") from None
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)  # a killed process releases it
            if not os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                raise OSError  # replaced in between by a process that wrote other tiers into it (``relabel``)
        except OSError:
            self._file.close()
            raise BadInput(f"another process is writing {self.path}; wait for it, or give another log") from None
        try:
            self._cut_torn_line()
        except BaseException:
            self._file.close()
            raise
        return self

    def _cut_torn_line(self) -> None:
        """Cut the torn line of a killed writer; a file that holds anything but outcomes before it is not touched."""
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            whole = sum(len(line) for line in file if line.endswith(b"\n"))
        for number, record in _records(self.path):
            _outcome(number, record, self.path)
            if whole == size:
                break  # nothing is cut, so one line shows whether this is a log; a resumed run reads the others
        if whole < size:
            os.ftruncate(self._file.fileno(), whole)

    def append(self, outcomes: Iterable[Outcome]) -> None:
        """Write outcomes and wait until they are on disk: all of them, or a named error and none."""
        left = memoryview("".join(json.dumps(o.record(), ensure_ascii=False) + "\n" for o in outcomes).encode())
        descriptor = self._file.fileno()
        whole = os.fstat(descriptor).st_size
        try:
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, whole)
            raise StakesError(
                f"the outcome log {self.path} cannot be written ({error.strerror}); what it holds is safe: free some "
                "space and start again, and the run resumes"
            ) from error

    def __exit__(self, *_: object) -> None:
        self._file.close()
