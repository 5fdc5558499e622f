"""Which questions of a benchmark are asked? The paper's protocol, over rows from the hub or from local parquet.

Paper, "Datasets and disjoint sampling". Rows are scanned from an absolute offset until every tier has its number.
An image is scaled, up or down, so that its longer side is 1008; one that still has fewer than 640 native tokens is
skipped and counted, so that every budget of the grid is feasible without clamping. InfographicVQA's extreme aspect
ratios may go on to 1512, in steps of 28, as far as 640 tokens need. The tier is read off the question alone, by the
keyword rule; in the mixed workload off the task (``TaskIdentity({"vqav2": "low"})``).

    confirmatory = scan("docvqa", sight("qwen2.5-vl"), per_tier=300, start=257, apart_from=[pilot.selection])
    for item in confirmatory:
        item.sample.question, item.paint().size
    confirmatory.selection, confirmatory.small     # what was looked at; how many images had too few tokens

``sight`` is ``stakes.data.sight.sight``. The solid colours of the cross-task diagnostic are ``swatches`` of
``stakes.data.synthetic``.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from stakes.data.export import Item, export
from stakes.data.hub.rows import Row, rows
from stakes.data.hub.specs import Source, find_source
from stakes.data.images import Sight
from stakes.errors import BadInput, StakesError
from stakes.files import write_whole
from stakes.signals import KeywordRule
from stakes.signals.base import Signal

# Which rows has a set looked at? Ranges of absolute row numbers, so that pilot and confirmation never share one.
#
# The paper draws its pilot from the first 257 rows of DocVQA validation, its confirmatory set after them and the
# DocVQA part of the mixed workload after row 1184. Its "skips the first 257 and scans 1184" is read as "up to row
# 1184":
# counted from row 257 on, the scan would end at 1441 and overlap the mixed set.
#
#     pilot, confirmatory = Selection("docvqa", "validation", 0, 257), Selection("docvqa", "validation", 257, 927)
#     require_disjoint([pilot, confirmatory])
#     confirmatory.stop                             # 1184: where a later set may start


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


MIN_NATIVE = 640
STEP = 28  # a token's side in Qwen2.5-VL; 1008 and 1512 are multiples of it


def scan(
    name: str,
    sight: Sight,
    *,
    per_tier: int,
    start: int = 0,
    signal: Signal | None = None,
    apart_from: Sequence[Selection] = (),
    parquet: Path | None = None,
    min_native: int = MIN_NATIVE,
) -> "Scan":
    """A scan of a benchmark by name: ``docvqa``, ``chartqa``, ``infographicvqa``, ``textvqa`` or ``vqav2``."""
    source = find_source(name)
    found = rows(source, parquet=parquet, start=start)
    return Scan(source, found, sight, per_tier, start, signal or KeywordRule(), apart_from, min_native)


def write(found: "Scan", folder: Path, *, done: Callable[[], None] = lambda: None) -> None:
    """Carry a scan out into a folder: images, what was scanned (``selection.json``), and last ``samples.jsonl``."""

    def items() -> Iterator[Item]:
        yield from found
        write_whole(folder / FILE, json.dumps(found.record(), indent=1) + "\n")

    export(items(), folder, done=done)


class Scan:
    """Items until every tier is full, in the order of the split; what was passed over is counted as it goes.

    It can be walked through once. ``small``: images with too few native tokens. ``surplus``: questions of a tier that
    was already full. ``taken``: items by tier.
    """

    def __init__(
        self,
        source: Source,
        found: Iterable[Row],
        sight: Sight,
        per_tier: int,
        start: int = 0,
        signal: Signal | None = None,
        apart_from: Sequence[Selection] = (),
        min_native: int = MIN_NATIVE,
    ) -> None:
        if per_tier < 1:
            raise BadInput(f"a scan takes at least one question a tier, not {per_tier}")
        self.source, self.sight, self.min_native = source, sight, min_native
        self.signal: Signal = signal or KeywordRule()
        self.per_tier, self.apart_from = per_tier, tuple(apart_from)
        self.selection = Selection(source.name, source.split, start, 0)
        self.small, self.surplus = 0, 0
        self.taken: Counter[str] = Counter(dict.fromkeys(self.signal.tiers, 0))
        self._rows = found

    def __iter__(self) -> Iterator[Item]:
        if self.full:
            return
        self._require_free(self.selection.start)  # before anything is read
        for index, row in enumerate(self._rows, start=self.selection.stop):
            self._require_free(index)
            self.selection = replace(self.selection, scanned=index + 1 - self.selection.start)
            item = self._item(index, row)
            if item is not None:
                yield item
            if self.full:
                return
        raise BadInput(
            f"{self.source.name} {self.source.split} ended at row {self.selection.stop} with "
            f"{_counts(self.taken, self.per_tier)}; ask for fewer a tier, or start earlier"
        )

    @property
    def full(self) -> bool:
        """Whether every tier has its number."""
        return all(n >= self.per_tier for n in self.taken.values())

    def record(self) -> dict[str, Any]:
        """What a set must say of itself: which rows it looked at, and what it passed over."""
        return {
            "dataset": self.selection.dataset,
            "split": self.selection.split,
            "repo": self.source.repo,
            "config": self.source.config,
            "start": self.selection.start,
            "scanned": self.selection.scanned,
            "stop": self.selection.stop,
            "taken": dict(self.taken),
            "small": self.small,
            "surplus": self.surplus,
            "side": self.source.side,
            "most_side": self.source.most_side,
            "min_native": self.min_native,
            "family": self.sight.family,
        }

    def _require_free(self, index: int) -> None:
        row = replace(self.selection, start=index, scanned=1)
        for other in self.apart_from:
            if row.shared(other):
                raise BadInput(
                    f"the scan from row {self.selection.start} came to row {index}, which another set has looked at "
                    f"({other}), with {_counts(self.taken, self.per_tier)}; start it at row {other.stop} or after"
                )

    def _item(self, index: int, row: Row) -> Item | None:
        data = (row["image"] or {}).get("bytes")
        if not data:
            raise BadInput(f"row {index} of {self.source.name} has no image bytes; download a copy with images in it")
        sample = self.source.sample(index, row)
        try:
            size = scaled_size(*self.sight.size(data), self.source, self.sight, self.min_native)
        except StakesError as error:
            raise BadInput(f"row {index} of {self.source.name}: {error}") from None
        if size is None:
            self.small += 1
            return None
        tier = self.signal(sample.question, sample.task).tier
        if self.taken[tier] >= self.per_tier:
            self.surplus += 1
            return None
        self.taken[tier] += 1
        digest = hashlib.sha256(data).hexdigest()[:20]
        return Item(
            sample=replace(sample, tier=tier, document=sample.document or digest),
            stem=digest,
            suffix=".jpg" if data.startswith(b"\xff\xd8") else ".png",
            paint=partial(self.sight.resized, data, *size),
        )


def scaled_size(width: int, height: int, source: Source, sight: Sight, least: int) -> tuple[int, int] | None:
    """Width and height once the longer side is 1008 (or as far beyond as permitted); None: still too few tokens."""
    for side in range(source.side, source.most_side + 1, STEP):
        scale = side / max(width, height)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        if sight.native(*size) >= least:
            return size
    return None


def _counts(taken: Mapping[str, int], wanted: int) -> str:
    return ", ".join(f"{n} of {wanted} {tier}" for tier, n in taken.items())
