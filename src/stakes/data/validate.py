"""Validation of a samples file: every problem in it, by line, and what it holds. Nothing is repaired.

``read_samples`` refuses a file at its first bad line, which is right for a run; a person who repairs a file wants the
whole list. Every line that ``read_samples`` refuses has a problem here.

A problem is fatal where a run would have to stop or leave the sample out: a malformed line, an empty question, no
answer, an id used twice, an image that is missing or cannot be read. An image with fewer native tokens than the largest
budget is not fatal: the paper leaves such images out so that every budget is feasible without clamping, but a smaller
grid solves it too. A TIFF of several pages, of which only the first is ever read, is not fatal either.

    report = check("questions.jsonl", "qwen2.5-vl", largest_budget=576)
    report.usable, report.tiers, [(problem.line, problem.message) for problem in report.problems]
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median_low
from typing import Any

from stakes.data.images import image_source
from stakes.data.sample import KEYS, Sample, parse_object, read_box, read_history, read_lines, rename_hint, to_sample
from stakes.errors import BadInput, StakesError
from stakes.signals.base import Signal
from stakes.signals.keywords import KeywordRule
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.image.decode import Picture, open_image
from stakes.vision.image.trim import margins

Key = tuple[str, str]  # what makes two images the same one: their path, or their bytes


@dataclass(frozen=True)
class Problem:
    """One problem, on one line or (``line`` is None) with the file as a whole."""

    line: int | None
    kind: str  # malformed, id, duplicate, question, answers, image, native, pages, repeat, file, or a key
    message: str
    fatal: bool = True


@dataclass
class FileReport:
    """What a samples file holds, and every problem in it; counts are over the lines that are not malformed."""

    path: str
    largest_budget: int
    samples: int = 0
    problems: list[Problem] = field(default_factory=list)
    tiers: Counter[str] = field(default_factory=Counter)
    units: Counter[str] = field(default_factory=Counter)
    """By tier: groups, or documents without a group, which are what a certificate counts."""
    questions: int = 0  # distinct texts
    tiers_from: Counter[str] = field(default_factory=Counter)  # "file" or "signal"
    read_expensive: Counter[str] = field(
        default_factory=Counter
    )  # by tier: questions that the signal reads as high-cost
    read_otherwise: int = 0  # samples whose label in the file is not the tier that the signal reads
    documents: int = 0
    groups: int = 0
    images: Counter[Key] = field(default_factory=Counter)  # samples of each image
    native: dict[Key, int] = field(default_factory=dict)
    margins: dict[Key, float] = field(default_factory=dict)  # share of an image that trim would cut off; where decoded
    ignored_keys: Counter[str] = field(default_factory=Counter)

    @property
    def usable(self) -> bool:
        """Whether a run can use every sample of the file."""
        return not any(problem.fatal for problem in self.problems)

    @property
    def native_range(self) -> tuple[int, int, int] | None:
        """Least, median and most native tokens over the images that could be read."""
        counts = sorted(self.native.values())
        return (counts[0], median_low(counts), counts[-1]) if counts else None

    @property
    def mean_margin(self) -> float | None:
        """The mean share of an image that trim would cut off; None where no pixels were read."""
        return fmean(self.margins.values()) if self.margins else None

    def record(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        least, middle, most = self.native_range or (None, None, None)
        return {
            **vars(self),
            "usable": self.usable,
            "bad_lines": sorted({p.line for p in self.problems if p.fatal and p.line is not None}),
            "problems": [asdict(problem) for problem in self.problems],
            "kinds": Counter(problem.kind for problem in self.problems),
            "images": len(self.images),
            "most_questions_an_image": max(self.images.values(), default=0),
            "native": {"least": least, "median": middle, "most": most},
            "margins": self.mean_margin,
        }


def check(
    path: str | Path,
    family: str = "qwen2.5-vl",
    *,
    largest_budget: int = 576,
    decode: bool = True,
    signal: Signal | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> FileReport:
    """Check every line, and every image once; ``advance`` gets the bytes of each line that is done.

    With ``decode`` every pixel is read, which finds truncated images; without it, only their headers.
    """
    checker = _Checker(Path(path), named_family(family).name, largest_budget, decode, signal or KeywordRule())
    for number, line in read_lines(path):
        checker.check_line(number, line)
        advance(len(line))
    return checker.finish()


class _Checker:
    """The report so far, and what must be remembered from line to line."""

    def __init__(self, path: Path, family: str, largest_budget: int, decode: bool, signal: Signal) -> None:
        self.report = FileReport(str(path), largest_budget)
        self.folder, self.family, self.decode, self.signal = path.parent, family, decode, signal
        self.line_of: dict[str, int] = {}  # by id
        self.documents: set[str] = set()
        self.units: set[tuple[str, str]] = set()  # tier and group or document
        self.texts: set[str] = set()
        self.groups: Counter[str] = Counter()
        self.digests: dict[Key, str] = {}
        self.document_of: dict[str, tuple[str, int]] = {}  # by digest: document and line
        self.id_of: dict[tuple[str, str], tuple[str, int]] = {}  # by digest and question: id and line
        self.unreadable: dict[Key, str] = {}
        self.page_counts: dict[Key, int] = {}
        self.without_image: list[int] = []

    def check_line(self, number: int, line: bytes) -> None:
        try:
            record = parse_object(line)
        except BadInput as error:
            self._add(number, "malformed", str(error))
            return
        faults = dict(_faults(record))
        for kind, message in faults.items():
            self._add(number, kind, message)
        self.report.ignored_keys.update(key for key in record if key not in KEYS)
        readable = {key: value for key, value in record.items() if key not in faults}
        self._check_sample(number, to_sample(readable), faults)

    def finish(self) -> FileReport:
        report = self.report
        report.documents, ungrouped = len(self.documents), self.groups.pop("", 0)
        report.groups = len(self.groups)
        units = Counter(tier for tier, _ in self.units)
        report.units, report.questions = Counter({tier: units[tier] for tier in report.tiers}), len(self.texts)
        if self.groups and ungrouped:
            message = f"{ungrouped} of {report.samples} samples have no group; each of their documents counts as one"
            self._add(None, "group", message, fatal=False)
        if not report.samples and not report.problems:
            self._add(None, "file", "the file holds no samples; each line needs id, image, question and answers")
        if report.samples and len(self.without_image) == report.samples:
            self._add(None, "image", "no sample has an image: good for training a signal, not for a run", fatal=False)
        else:
            for number in self.without_image:
                self._add(number, "image", "the sample has no image, and others of this file have")
        if report.samples > 1 and len(report.tiers) == 1:
            only = next(iter(report.tiers))
            self._add(None, "tier", f"every sample is in the tier {only!r}: there is nothing to allocate", fatal=False)
        report.problems.sort(key=lambda problem: (problem.line or 0, problem.kind))
        return report

    def _add(self, line: int | None, kind: str, message: str, *, fatal: bool = True) -> None:
        self.report.problems.append(Problem(line, kind, message, fatal))

    def _check_sample(self, number: int, sample: Sample, faults: dict[str, str]) -> None:
        self.report.samples += 1
        if sample.id and (first := self.line_of.setdefault(sample.id, number)) != number:
            self._add(number, "duplicate", f"the id {sample.id!r} is that of line {first}; make ids unique")
        tier = self.signal(sample.prompt, sample.task).tier
        self.report.tiers[sample.tier or tier] += 1
        self.report.read_otherwise += sample.tier != tier and sample.tier in getattr(self.signal, "tiers", ())
        self.report.read_expensive[sample.tier or tier] += tier == self.signal.most_expensive
        self.report.tiers_from["file" if sample.tier else "signal"] += 1
        self.groups[sample.group] += 1
        self.units.add((sample.tier or tier, sample.group or sample.document or sample.image or sample.id))
        self.texts.add(" ".join(sample.question.split()))
        if sample.document:
            self.documents.add(sample.document)
        if sample.image is not None:
            digest = self._check_image(number, sample)
            if digest and not faults:
                known, first = self.id_of.setdefault((digest, " ".join(sample.question.split())), (sample.id, number))
                if known != sample.id:
                    message = f"{sample.id!r} asks the same about the same image as {known!r} on line {first}; keep one"
                    self._add(number, "repeat", message, fatal=False)
        elif "image" not in faults:
            self.without_image.append(number)

    def _check_image(self, number: int, sample: Sample) -> str | None:
        """The digest of the sample's image; None where the image cannot be found."""
        try:
            source = image_source(sample, self.folder)
        except StakesError as error:
            self._add(number, "image", str(error))
            return None
        if isinstance(source, bytes):
            key, name = ("bytes", hashlib.sha256(source).hexdigest()), "the embedded image"
        else:
            key, name = ("path", str(source.absolute())), f"the image {sample.image}"
        self.report.images[key] += 1
        if self.report.images[key] == 1:
            self._measure(key, source)
        if key in self.unreadable:
            self._add(number, "image", f"{name} is unreadable: {self.unreadable[key]}")
        elif (tokens := self.report.native[key]) < (budget := self.report.largest_budget):
            message = f"{name} has {tokens} native tokens, fewer than the largest budget {budget}"
            self._add(number, "native", message, fatal=False)
        if (count := self.page_counts.get(key, 1)) > 1:
            message = f"only the first of the {count} pages of {name} is read; split it"
            self._add(number, "pages", message, fatal=False)
        document, first = self.document_of.setdefault(self.digests[key], (sample.document, number))
        if document != sample.document:
            message = (
                f"{name} is of document {sample.document!r} here and of {document!r} on line {first}; "
                "documents that share an image count as one"
            )
            self._add(number, "document", message, fatal=False)
        return self.digests[key]

    def _measure(self, key: Key, source: Path | bytes) -> None:
        """Digest, native tokens and pages of an image; two files may hold the same bytes."""
        try:
            data = source if isinstance(source, bytes) else source.read_bytes()
            self.digests[key] = hashlib.sha256(data).hexdigest()
        except OSError:
            self.digests[key] = " ".join(key)
        try:
            picture = Picture(source, header_only=True)
            size = picture.size
            if self.decode:
                image = open_image(source)
                (left, top, right, bottom), size = margins(image), image.size
                self.report.margins[key] = 1 - (right - left) * (bottom - top) / (size[0] * size[1])
            self.report.native[key] = count_tokens(self.family, *size)
            self.page_counts[key] = picture.pages()
        except StakesError as error:
            self.unreadable[key] = str(error)


def _faults(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and message of everything that is wrong with a line's object, at most one of a kind."""
    for key in ("id", "question", "answers"):
        if key not in record:
            yield key, f"{key!r} is missing; the line has {_shorten(list(record))}{rename_hint(record, key)}"
    if "id" in record and not _is_id(record["id"]):
        yield "id", f"the id must be text or a whole number, not {_shorten(record['id'])}"
    if "question" in record and not _is_text(record["question"]):
        yield "question", f"the question must be text, not {_shorten(record['question'])}"
    if "answers" in record:
        answers = record["answers"]
        if not isinstance(answers, list) or not answers or not all(isinstance(a, str) for a in answers):
            yield "answers", f"answers must be a non-empty list of strings, not {_shorten(answers)}"
        elif not any(map(_is_text, answers)):
            yield "answers", "every answer is empty, so no prediction could be right"
    for key in ("image", "task", "tier", "document", "group", "system"):
        if record.get(key) is not None and not _is_text(record[key]):
            yield key, f"{key} must be text or left out, not {_shorten(record[key])}"
    if not isinstance(record.get("schema"), dict | list | None):
        yield "schema", f"schema must be a JSON schema or a list of field names, not {_shorten(record['schema'])}"
    for key, read in (("history", read_history), ("box", read_box)):
        try:
            read(record.get(key))
        except BadInput as error:
            yield key, str(error)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_id(value: object) -> bool:
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
