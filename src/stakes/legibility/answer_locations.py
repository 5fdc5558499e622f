"""Find where an answer is printed on a page, and read what is there at a budget.

At native size every line is read, and the locations of an answer are searched in four steps; the first that finds any
is used:

1. whole words within one line, all occurrences of all acceptable answers;
2. the same over several lines, continuing to the right or below;
3. and 4. the same two with a fuzzy match: a similarity of 0.85 with the same digits (an OCR error in a long name).

At a budget, the characters within a location, widened by a third of a character, are what is read there. A "3"
elsewhere does not count, even in the same line. The answer is legible when they match the native reading.

    locations = find_locations(lines, ["$4,500"])
    read_at(locations, lines_at_budget)          # OcrReading(text='$4,500', legible=True)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stakes.legibility.engine import TextLine
from stakes.legibility.page_cache import Box
from stakes.legibility.text_match import digits, normalize

SIMILARITY = 0.85
FUZZY_FROM = 6  # characters of a key from which a fuzzy match is allowed
LOST_SPACES_FROM = 4  # characters of a key from which it may be found where a space was lost
MAX_LINES = 6  # of one answer
MARGINS = (0.3, 1.0)  # of a character's width, by which a location is widened; the second for text that shifted


@dataclass(frozen=True)
class AnswerLocation:
    """Where an answer is printed: one box in native pixels, and one character width, for each line.

    ``key``: the text as read at native size. ``fuzzy``: it is not exactly the answer's.
    """

    answer: str
    key: str
    boxes: tuple[Box, ...]
    widths: tuple[float, ...]
    fuzzy: bool

    @property
    def height(self) -> float:
        """The height of the smallest line, in native pixels."""
        return min(bottom - top for _, top, _, bottom in self.boxes)

    def widened(self, margin: float) -> Iterator[Box]:
        """The boxes, wider by ``margin`` characters on both sides."""
        for (left, top, right, bottom), width in zip(self.boxes, self.widths, strict=True):
            yield left - margin * width, top, right + margin * width, bottom


@dataclass(frozen=True)
class OcrReading:
    """What is read at an answer's locations: the answer itself where it is legible, else the most similar text."""

    text: str
    legible: bool


class _Chain:
    """Lines that an answer may run over, and their joined text."""

    def __init__(self, *lines: TextLine) -> None:
        self.lines = lines
        self.text = normalize(" ".join(line.text for line in lines))

    def matches(self, key: str, fuzzy: bool) -> Iterator[tuple[float, int, int]]:
        """(similarity, start, stop) of the spans that match a key and use every line.

        A span that does not use every line is found in a shorter chain.
        """
        exact = self.text.find(key, lost_spaces=len(key) >= LOST_SPACES_FROM)
        spans = [self.text.nearest(key)] if fuzzy else [(1.0, *span) for span in exact]
        for similarity, start, stop in spans:
            if similarity < SIMILARITY or (fuzzy and digits(self.text.key[start:stop]) != digits(key)):
                continue
            first, last = self.text.source[start], self.text.source[stop - 1]
            if first < len(self.lines[0].text) and last >= len(self.text.text) - len(self.lines[-1].text):
                yield similarity, start, stop

    def location(self, start: int, stop: int, answer: str, fuzzy: bool) -> AnswerLocation:
        """The location of a span."""
        first, last = self.text.source[start], self.text.source[stop - 1]
        boxes, widths, offset = [], [], 0
        for line in self.lines:
            left, right = max(first - offset, 0), min(last - offset, len(line.text) - 1)
            if left <= right:
                box = _box(line, left, right)
                boxes.append(box)
                widths.append((box[2] - box[0]) / (right - left + 1))
            offset += len(line.text) + 1  # the space between
        return AnswerLocation(answer, self.text.key[start:stop], tuple(boxes), tuple(widths), fuzzy)


def find_locations(lines: Sequence[TextLine], answers: Sequence[str]) -> list[AnswerLocation]:
    """Every location of any acceptable answer; empty where there is none."""
    keys = {key: answer for answer in reversed(answers) if (key := normalize(answer).key)}
    single = [_Chain(line) for line in lines]
    for fuzzy in (False, True):
        for several_lines in (False, True):
            found = [
                (similarity, chain.location(start, stop, answer, fuzzy))
                for key, answer in keys.items()
                if not fuzzy or len(key) >= FUZZY_FROM
                for chain in (_longer_chains(single, key, fuzzy) if several_lines else single)
                for similarity, start, stop in chain.matches(key, fuzzy)
            ]
            if found:
                best = max(similarity for similarity, _ in found)
                return list({at.boxes: at for similarity, at in found if similarity == best}.values())
    return []


def read_at(locations: Sequence[AnswerLocation], lines: Sequence[TextLine]) -> OcrReading:
    """What is read at the locations; ``lines`` are in native pixels, whatever the size they were read at."""
    best, nearest = -1.0, ""
    for location in locations:
        keys = {location.key, normalize(location.answer).key}
        for margin in MARGINS:
            here = normalize(_text_within(location.widened(margin), lines))
            if any(here.find(key, lost_spaces=True) for key in keys):
                return OcrReading(location.answer, legible=True)
            for key in keys:
                similarity, start, stop = here.nearest(key)
                if similarity > best:
                    best, nearest = similarity, here.raw(start, stop) or here.text
    return OcrReading(nearest.strip(), legible=False)


def word_locations(line: TextLine) -> list[AnswerLocation]:
    """The location of each word of a line; a vertical line counts as one word."""
    found, start = [], 0
    for word in line.text.split(" ") if line.positions else [line.text]:
        if key := normalize(word).key:
            box = _box(line, start, start + len(word) - 1)
            width = (box[2] - box[0]) / len(word)
            found.append(AnswerLocation(word, key, (box,), (width,), fuzzy=False))
        start += len(word) + 1
    return found


def _text_within(boxes: Iterable[Box], lines: Sequence[TextLine]) -> str:
    """The characters whose centers are in the boxes, box by box, each from left to right."""
    words: list[str] = []
    for left, top, right, bottom in boxes:
        parts = []
        for line in lines:
            points = [line.point(at) for at in line.positions] or [line.point(0.5)] * len(line.text)
            inside = [left <= x <= right and top <= y <= bottom for x, y in points]
            text = "".join(char for char, is_in in zip(line.text, inside, strict=True) if is_in)
            if text.strip():
                parts.append((points[inside.index(True)][0], text))
        words += [text for _, text in sorted(parts)]
    return " ".join(words)


def _box(line: TextLine, start: int, stop: int) -> Box:
    """The box of characters start to stop, inclusive: half way to their neighbors, and as high as the line."""
    if not line.positions:
        xs, ys = ([p[axis] for p in line.quad] for axis in (0, 1))
        return min(xs), min(ys), max(xs), max(ys)
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(line.positions)), 1.0]
    (x0, y0), (x1, y1) = line.point(edges[start]), line.point(edges[stop + 1])
    half = line.height / 2
    return x0, min(y0, y1) - half, x1, max(y0, y1) + half


def _longer_chains(single: Sequence[_Chain], key: str, fuzzy: bool) -> Iterator[_Chain]:
    """Chains of two or more lines that may contain the key; for an exact match, the first line ends in its start."""
    length = round(len(key) / SIMILARITY) if fuzzy else len(key)
    lines = [chain.lines[0] for chain in single]
    following = [_next_lines(lines, i) for i in range(len(lines))]

    def grow(chain: tuple[int, ...], inner: int) -> Iterator[_Chain]:
        """``inner``: characters of the lines between the first and the last, which the answer must contain."""
        if len(chain) > 1:
            yield _Chain(*(lines[i] for i in chain))
            inner += len(single[chain[-1]].text.key)
        if len(chain) < MAX_LINES and inner < length:
            for i in following[chain[-1]]:
                if i not in chain:
                    yield from grow((*chain, i), inner)

    for i, chain in enumerate(single):
        text = chain.text
        starts = (at for at in range(len(text.key)) if text.is_boundary(at, lost_spaces=True))
        if fuzzy or any(key.startswith(text.key[at:]) for at in starts):
            yield from grow((i,), 0)


def _next_lines(lines: Sequence[TextLine], i: int) -> list[int]:
    """The line to the right of this one and the one below it, where they exist."""
    here = lines[i]
    left, right = here.point(0.0), here.point(1.0)
    beside, below = [], []
    for j, other in enumerate(lines):
        if j == i or not other.positions or not here.positions:
            continue
        start, stop = other.point(0.0), other.point(1.0)
        if abs(start[1] - right[1]) < 0.5 * min(here.height, other.height) and start[0] > right[0] - here.height:
            beside.append((start[0], j))
        overlap = min(right[0], stop[0]) - max(left[0], start[0])
        drop = other.point(0.5)[1] - here.point(0.5)[1]
        if overlap > 0 and 0.5 * here.height < drop < 3 * here.height:
            below.append((drop, j))
    return [min(side)[1] for side in (beside, below) if side]
