"""Can this samples file be used? Everything that is wrong with it, by line, and what it holds; nothing is mended.

A problem is fatal where a run would have to stop or leave the sample out: a malformed line, no answer, an id used
twice, an image that is missing or cannot be read. An image with fewer native tokens than the largest budget is not:
the paper leaves such images out so that every budget is feasible without clamping, and a smaller grid also will do.
Nor is a TIFF of several pages, of which only the first is ever read.

    found = check("questions.jsonl", native_tokens("qwen2.5-vl"), largest_budget=576, pages=page_count)
    found.usable, found.tiers, [(p.line, p.message) for p in found.problems]

``native`` and ``pages`` are ``native_tokens(family)`` and ``page_count`` of ``stakes.data.sight``: this room may not
import that one.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median_low
from typing import Any

from stakes.data.images import image_source
from stakes.data.sample import Sample
from stakes.data.validate_lines import Line, read_lines
from stakes.errors import StakesError
from stakes.signals import KeywordRule
from stakes.signals.base import Signal

Key = tuple[str, str]  # what makes two images the same one: their path, or their bytes


@dataclass(frozen=True)
class Problem:
    """One thing wrong, on one line or (``line`` is None) with the file as a whole."""

    line: int | None
    kind: str  # malformed, id, duplicate, question, answers, image, native, pages, tier, task, document, repeat, file
    message: str
    fatal: bool = True


@dataclass
class Findings:
    """What a samples file holds, and every problem in it; counts are over the lines that are not malformed."""

    path: str
    largest_budget: int
    samples: int = 0
    problems: list[Problem] = field(default_factory=list)
    tiers: Counter[str] = field(default_factory=Counter)
    tiers_from: Counter[str] = field(default_factory=Counter)  # "file" or "signal"
    read_otherwise: int = 0  # samples whose label in the file is not the tier that the signal reads
    documents: int = 0
    images: Counter[Key] = field(default_factory=Counter)  # how many samples ask about each
    native: dict[Key, int] = field(default_factory=dict)
    ignored_keys: Counter[str] = field(default_factory=Counter)

    @property
    def usable(self) -> bool:
        """Whether a run can take every sample of the file."""
        return not any(problem.fatal for problem in self.problems)

    @property
    def native_range(self) -> tuple[int, int, int] | None:
        """Least, median and most native tokens over the images that could be read."""
        counts = sorted(self.native.values())
        return (counts[0], median_low(counts), counts[-1]) if counts else None

    def record(self) -> dict[str, Any]:
        """The same for machines."""
        least, middle, most = self.native_range or (None, None, None)
        return {
            "path": self.path,
            "usable": self.usable,
            "samples": self.samples,
            "bad_lines": sorted({p.line for p in self.problems if p.fatal and p.line is not None}),
            "problems": [asdict(problem) for problem in self.problems],
            "kinds": dict(Counter(problem.kind for problem in self.problems)),
            "tiers": dict(self.tiers),
            "tiers_from": dict(self.tiers_from),
            "read_otherwise": self.read_otherwise,
            "documents": self.documents,
            "images": len(self.images),
            "most_questions_an_image": max(self.images.values(), default=0),
            "largest_budget": self.largest_budget,
            "native": {"least": least, "median": middle, "most": most},
            "ignored_keys": dict(self.ignored_keys),
        }


def check(
    path: str | Path,
    native: Callable[[Path | bytes], int],
    *,
    largest_budget: int = 576,
    signal: Signal | None = None,
    pages: Callable[[Path | bytes], int] = lambda _: 1,
    advance: Callable[[int], None] = lambda _: None,
) -> Findings:
    """Look at every line, and at every image once; ``advance`` is told the bytes of each line when it is done."""
    found = Findings(str(path), largest_budget)
    looker = _Looker(found, Path(path).parent, native, pages, signal or KeywordRule())
    for line in read_lines(path):
        looker.look(line)
        advance(line.bytes)
    looker.finish()
    return found


class _Looker:
    """What must be remembered from line to line."""

    def __init__(
        self,
        found: Findings,
        base: Path,
        native: Callable[[Path | bytes], int],
        pages: Callable[[Path | bytes], int],
        signal: Signal,
    ) -> None:
        self.found, self.base, self.native, self.pages, self.signal = found, base, native, pages, signal
        self.ids: dict[str, int] = {}
        self.documents: set[str] = set()
        self.contents: dict[Key, str] = {}
        self.document_of: dict[str, tuple[str | None, int]] = {}
        self.asked_of: dict[tuple[str, str], tuple[str, int]] = {}
        self.unreadable: dict[Key, str] = {}
        self.page_counts: dict[Key, int] = {}
        self.without_image: list[int] = []

    def look(self, line: Line) -> None:
        for fault in line.faults:
            self._problem(line.number, fault.kind, fault.message)
        self.found.ignored_keys.update(line.ignored)
        if (sample := line.sample) is None:
            return
        self.found.samples += 1
        if sample.id in self.ids:
            first = self.ids[sample.id]
            self._problem(line.number, "duplicate", f"the id {sample.id!r} is that of line {first}; make ids unique")
        elif sample.id:
            self.ids[sample.id] = line.number
        read = self.signal(sample.question, sample.task).tier
        self.found.tiers[sample.tier or read] += 1
        self.found.read_otherwise += sample.tier not in (None, read)
        self.found.tiers_from["file" if sample.tier else "signal"] += 1
        if sample.document is not None:
            self.documents.add(sample.document)
        if sample.image is not None:
            content = self._image(line.number, sample)
            if content and not line.faults:
                self._repeat(line.number, sample, content)
        elif not any(fault.kind == "image" for fault in line.faults):
            self.without_image.append(line.number)

    def finish(self) -> None:
        found = self.found
        found.documents = len(self.documents)
        if not found.samples and not found.problems:
            self._problem(None, "file", "the file holds no samples; each line needs id, image, question and answers")
        if found.samples and len(self.without_image) == found.samples:
            self._problem(None, "image", "no sample has an image: good for training a signal, not for a run", False)
        else:
            for number in self.without_image:
                self._problem(number, "image", "the sample has no image, and others of this file have")
        if found.samples > 1 and len(found.tiers) == 1:
            only = next(iter(found.tiers))
            self._problem(None, "tier", f"every sample is in the tier {only!r}: there is nothing to allocate", False)
        found.problems.sort(key=lambda problem: (problem.line or 0, problem.kind))

    def _problem(self, line: int | None, kind: str, message: str, fatal: bool = True) -> None:
        self.found.problems.append(Problem(line, kind, message, fatal))

    def _image(self, number: int, sample: Sample) -> str | None:
        """Look at the sample's image; a name for its bytes, None where there are none."""
        try:
            source = image_source(sample, self.base)
        except StakesError as error:
            self._problem(number, "image", str(error))
            return None
        if isinstance(source, bytes):
            key, name = ("bytes", hashlib.sha256(source).hexdigest()), "the embedded image"
        else:
            key, name = ("path", str(source.absolute())), f"the image {sample.image}"
        self.found.images[key] += 1
        self._measure(key, source)
        if key in self.unreadable:
            self._problem(number, "image", f"{name} is unreadable: {self.unreadable[key]}")
        elif (tokens := self.found.native[key]) < (budget := self.found.largest_budget):
            message = f"{name} has {tokens} native tokens, fewer than the largest budget {budget}"
            self._problem(number, "native", message, fatal=False)
        if (count := self.page_counts.get(key, 1)) > 1:
            message = f"only the first of the {count} pages of {name} is read; split it"
            self._problem(number, "pages", message, fatal=False)
        content = self._content(key, source)
        document, first = self.document_of.setdefault(content, (sample.document, number))
        if document != sample.document:
            message = (
                f"{name} is of document {sample.document!r} here and of {document!r} on line {first}; "
                "documents that share an image count as one"
            )
            self._problem(number, "document", message, fatal=False)
        return content

    def _repeat(self, number: int, sample: Sample, content: str) -> None:
        known, first = self.asked_of.setdefault((content, " ".join(sample.question.split())), (sample.id, number))
        if known != sample.id:
            message = f"{sample.id!r} asks of the same image what {known!r} asks on line {first}; leave one of them out"
            self._problem(number, "repeat", message, fatal=False)

    def _content(self, key: Key, source: Path | bytes) -> str:
        """A name for the image's bytes; two files may hold the same page. One that cannot be read is only itself."""
        if key not in self.contents:
            try:
                data = source if isinstance(source, bytes) else source.read_bytes()
                self.contents[key] = hashlib.sha256(data).hexdigest()
            except OSError:
                self.contents[key] = " ".join(key)
        return self.contents[key]

    def _measure(self, key: Key, source: Path | bytes) -> None:
        if key in self.found.native or key in self.unreadable:
            return
        try:
            self.found.native[key] = self.native(source)
            self.page_counts[key] = self.pages(source)
        except StakesError as error:
            self.unreadable[key] = str(error)
