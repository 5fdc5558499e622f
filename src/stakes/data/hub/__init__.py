"""Samples of a benchmark by the paper's protocol, from the hub or from local parquet files.

Paper, "Datasets and disjoint sampling". Rows are scanned from an absolute offset until every tier has its number.
An image is scaled, up or down, so that its longer side is 1008; one that still has fewer than 640 native tokens is
skipped and counted, so that every budget of the grid is feasible without clamping. InfographicVQA's extreme aspect
ratios may go on to 1512, in steps of 28, as far as 640 tokens need. The tier is read off the question alone, by the
keyword rule; in the mixed workload off the task (``TaskIdentity({"vqav2": "low"})``).

    confirmatory = scan("docvqa", "qwen2.5-vl", per_tier=300, start=257, exclude=[pilot.rows])
    for sample in confirmatory:
        sample.question, sample.load().size
    confirmatory.rows, confirmatory.small     # which rows were scanned; how many images had too few tokens

The solid colors of the cross-task diagnostic are ``swatches`` of ``stakes.data.synthetic``.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stakes.data.export import export
from stakes.data.hub.rows import Row, read_rows
from stakes.data.hub.sources import Source, find_source
from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.files import write_whole
from stakes.signals.base import Signal
from stakes.signals.keywords import KeywordRule
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.image.decode import Picture, probe
from stakes.vision.image.resize import resample

FILE = "selection.json"
MIN_NATIVE = 640
STEP = 28  # a token's side in Qwen2.5-VL; 1008 and 1512 are multiples of it


@dataclass(frozen=True)
class RowRange:
    """The rows ``start`` to ``stop - 1`` of a split, numbered from its beginning, whether taken or skipped.

    Pilot and confirmatory sets must not share a row. The paper draws its pilot from the first 257 rows of DocVQA
    validation, its confirmatory set after them, and the DocVQA part of the mixed workload after row 1184. Its "skips
    the first 257 and scans 1184" is read as "up to row 1184": counted from row 257 on, the scan would end at 1441 and
    overlap the mixed set.
    """

    dataset: str
    split: str
    start: int
    scanned: int

    def __str__(self) -> str:
        rows = f"rows {self.start} to {self.stop - 1}" if self.scanned else f"no rows from {self.start}"
        return f"{rows} of {self.dataset} {self.split}"

    @property
    def stop(self) -> int:
        """The first row after it."""
        return self.start + self.scanned

    def shared(self, other: "RowRange") -> int:
        """How many rows are in both."""
        if (self.dataset, self.split) != (other.dataset, other.split):
            return 0
        return max(0, min(self.stop, other.stop) - max(self.start, other.start))

    @classmethod
    def load(cls, path: Path) -> "RowRange":
        """The rows of an exported folder, by its ``selection.json``."""
        file = path / FILE if path.is_dir() else path
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            values = [record[key] for key in ("dataset", "split", "start", "scanned")]
            if [type(value) for value in values] != [str, str, int, int] or min(values[2:]) < 0:
                raise ValueError
        except FileNotFoundError:
            raise BadInput(f"there is no {file}, so its rows are unknown; name a folder of data fetch") from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            raise BadInput(f"{file} does not say which rows were scanned; fetch that set again") from None
        return cls(*values)


@dataclass
class Scan:
    """Samples until every tier is full, in the order of the split. It can be iterated over once.

    ``rows``: those scanned so far. ``taken``: samples by tier. ``small``: images with too few native tokens.
    ``surplus``: questions of a tier that was already full.
    """

    source: Source
    table: Iterable[Row]
    family: str
    per_tier: int
    start: int = 0
    signal: Signal = field(default_factory=KeywordRule)
    exclude: Sequence[RowRange] = ()
    min_native: int = MIN_NATIVE

    def __post_init__(self) -> None:
        if self.per_tier < 1:
            raise BadInput(f"a scan takes at least one question per tier, not {self.per_tier}")
        named_family(self.family)  # an unknown family is an error now, not at the first image
        self.rows = RowRange(self.source.name, self.source.split, self.start, 0)
        self.small = self.surplus = 0
        self.taken: Counter[str] = Counter(dict.fromkeys(self.signal.tiers, 0))

    def __iter__(self) -> Iterator[Sample]:
        if self.full:
            return
        self._require_free(self.rows.start)  # before anything is read
        for index, row in enumerate(self.table, start=self.rows.stop):
            self._require_free(index)
            self.rows = replace(self.rows, scanned=index + 1 - self.rows.start)
            sample = self._sample(index, row)
            if sample is not None:
                yield sample
            if self.full:
                return
        raise BadInput(
            f"{self.source.name} {self.source.split} ended at row {self.rows.stop} with "
            f"{_counts(self.taken, self.per_tier)}; ask for fewer per tier, or start earlier"
        )

    @property
    def full(self) -> bool:
        """Whether every tier has its number."""
        return all(n >= self.per_tier for n in self.taken.values())

    def record(self) -> dict[str, Any]:
        """What ``selection.json`` holds: which rows were scanned, and what was skipped."""
        return {
            **asdict(self.rows),
            "repo": self.source.repo,
            "config": self.source.config,
            "stop": self.rows.stop,
            "taken": dict(self.taken),
            "small": self.small,
            "surplus": self.surplus,
            "side": self.source.side,
            "most_side": self.source.most_side,
            "min_native": self.min_native,
            "family": self.family,
        }

    def _require_free(self, index: int) -> None:
        row = replace(self.rows, start=index, scanned=1)
        for other in self.exclude:
            if row.shared(other):
                raise BadInput(
                    f"the scan from row {self.rows.start} reached row {index}, which is excluded ({other}), with "
                    f"{_counts(self.taken, self.per_tier)}; start it at row {other.stop} or after"
                )

    def _sample(self, index: int, row: Row) -> Sample | None:
        data = (row["image"] or {}).get("bytes")
        if not data:
            raise BadInput(f"row {index} of {self.source.name} has no image bytes; download a copy with images in it")
        sample = self.source.sample(index, row)
        try:
            _, width, height = probe(data)
            size = scaled_size(width, height, self.source, self.family, self.min_native)
        except StakesError as error:
            raise BadInput(f"row {index} of {self.source.name}: {error}") from None
        if size is None:
            self.small += 1
            return None
        tier = self.signal(sample.prompt, sample.task).tier
        if self.taken[tier] >= self.per_tier:
            self.surplus += 1
            return None
        self.taken[tier] += 1
        digest, suffix = hashlib.sha256(data).hexdigest()[:20], ".jpg" if data.startswith(b"\xff\xd8") else ".png"
        return replace(
            sample,
            image=f"images/{digest}{suffix}",
            tier=tier,
            document=sample.document or digest,
            load=lambda: resample(Picture(data), *size),
        )


def scan(
    name: str,
    family: str = "qwen2.5-vl",
    *,
    per_tier: int,
    start: int = 0,
    signal: Signal | None = None,
    exclude: Sequence[RowRange] = (),
    parquet: Path | None = None,
) -> Scan:
    """A scan of a benchmark by name: ``docvqa``, ``chartqa``, ``infographicvqa``, ``textvqa`` or ``vqav2``.

    ``signal``: the keyword rule by default. ``exclude``: rows of other sets. ``parquet``: a local copy, not the hub.
    """
    source = find_source(name)
    table = read_rows(source, parquet=parquet, start=start)
    return Scan(source, table, family, per_tier, start, signal or KeywordRule(), exclude)


def write(scanned: Scan, folder: Path, *, done: Callable[[], None] = lambda: None) -> None:
    """Run a scan and write a folder: images, which rows were scanned (``selection.json``), last ``samples.jsonl``."""

    def samples() -> Iterator[Sample]:
        yield from scanned
        write_whole(folder / FILE, json.dumps(scanned.record(), indent=1) + "\n")

    export(samples(), folder, done=done)


def scaled_size(width: int, height: int, source: Source, family: str, least: int) -> tuple[int, int] | None:
    """Width and height once the longer side is 1008 (or as far beyond as permitted); None: still too few tokens."""
    for side in range(source.side, source.most_side + 1, STEP):
        scale = side / max(width, height)
        size = max(1, round(width * scale)), max(1, round(height * scale))
        if count_tokens(family, *size) >= least:
            return size
    return None


def _counts(taken: Mapping[str, int], per_tier: int) -> str:
    return ", ".join(f"{n} of {per_tier} {tier}" for tier, n in taken.items())
