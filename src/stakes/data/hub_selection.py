"""Which rows has a set looked at? Ranges of absolute row numbers, so that pilot and confirmation never share one.

The paper draws its pilot from the first 257 rows of DocVQA validation, its confirmatory set after them and the
DocVQA part of the mixed workload after row 1184. Its "skips the first 257 and scans 1184" is read as "up to row 1184":
counted from row 257 on, the scan would end at 1441 and overlap the mixed set.

    pilot, confirmatory = Selection("docvqa", "validation", 0, 257), Selection("docvqa", "validation", 257, 927)
    require_disjoint([pilot, confirmatory])
    confirmatory.stop                             # 1184: where a later set may start
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from stakes.errors import BadInput

FILE = "selection.json"


@dataclass(frozen=True)
class Selection:
    """The rows ``start`` to ``stop - 1`` of a split, whether taken or passed over."""

    dataset: str
    split: str
    start: int
    scanned: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.scanned < 0:
            raise BadInput(f"a selection has no rows before 0, and {self.start} + {self.scanned} has")

    def __str__(self) -> str:
        rows = f"rows {self.start} to {self.stop - 1}" if self.scanned else f"no rows from {self.start}"
        return f"{rows} of {self.dataset} {self.split}"

    @property
    def stop(self) -> int:
        """The first row after it."""
        return self.start + self.scanned

    def shared(self, other: "Selection") -> int:
        """How many rows both have looked at."""
        if (self.dataset, self.split) != (other.dataset, other.split):
            return 0
        return max(0, min(self.stop, other.stop) - max(self.start, other.start))

    @classmethod
    def load(cls, place: Path) -> "Selection":
        """What an exported folder (or its ``selection.json``) says of itself."""
        file = place / FILE if place.is_dir() else place
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            dataset, split, start, scanned = (record[key] for key in ("dataset", "split", "start", "scanned"))
        except FileNotFoundError:
            raise BadInput(
                f"there is no {file}, so its rows are unknown; name a folder that data fetch wrote"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise BadInput(f"{file} does not say which rows it has looked at; fetch that set again") from None
        if [type(value) for value in (dataset, split, start, scanned)] != [str, str, int, int]:
            raise BadInput(f"{file} does not say which rows it has looked at; fetch that set again")
        return cls(dataset, split, start, scanned)


def disjoint(selections: Iterable[Selection]) -> bool:
    """Whether no row was looked at by two of them."""
    return not any(one.shared(other) for one, other in combinations(selections, 2))


def require_disjoint(selections: Iterable[Selection]) -> None:
    """Refuse sets that overlap, naming both and where the later one may start."""
    for one, other in combinations(selections, 2):
        if shared := one.shared(other):
            first = min(one, other, key=lambda selection: selection.start)
            raise BadInput(f"{one} and {other} overlap by {shared}; start the later set at row {first.stop} or after")
