"""Where on the page does an answer stand, and what is read there now?

At native size every line is read, and an answer's places are looked for in four steps, the first that finds any wins:

1. as whole words within one line, all occurrences of all acceptable answers;
2. running on over lines, to the right or below;
3. and 4. the same for a reading that is 85 % alike with the same digits (the engine's own slip in a long name).

At a budget the characters that stand at a place, to a third of a character's width, are what is read there; a "3"
elsewhere, even in the same line, is none of them. The answer is legible when they say the same as at native size.

    places = find_places(lines, ["$4,500"])
    read_at(places, lines_at_budget)          # Reading(text='$4,500', same=True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stakes.legibility.engine import Line
from stakes.legibility.page_cache import Box
from stakes.legibility.text_match import GLUED_FROM, Spelled, digits, spelled

ALIKE = 0.85
ALIKE_FROM = 6  # characters of an answer that may be found by likeness
MOST_LINES = 6  # that an answer may run over
MARGINS = (0.3, 1.0)  # of a character's width, by which a place is widened: nearest first, then for print that shifted


@dataclass(frozen=True)
class Place:
    """Boxes in native pixels, one for each line that the answer runs over, and what it says there.

    ``key``: as read at native size. ``slip``: found by likeness, so the key is not quite the answer's.
    """

    answer: str
    key: str
    boxes: tuple[Box, ...]
    widths: tuple[float, ...]
    slip: bool

    @property
    def height(self) -> float:
        """Of the smallest line, in native pixels."""
        return min(bottom - top for _, top, _, bottom in self.boxes)


@dataclass(frozen=True)
class Reading:
    """What is read at an answer's places now: the answer itself where it is the same, else the nearest to it."""

    text: str
    same: bool


def find_places(lines: Sequence[Line], answers: Sequence[str]) -> list[Place]:
    """Every place of any acceptable answer; empty where there is none."""
    wanted = {key: answer for answer in reversed(answers) if (key := spelled(answer).key)}
    if not wanted:
        return []
    texts = [spelled(line.text) for line in lines]
    alone = [((i,), texts[i]) for i in range(len(lines))]
    for chains in (alone, None):
        found = [
            _place(lines, chain, text, span, answer, slip=False)
            for key, answer in wanted.items()
            for chain, text in (chains or _chains(lines, texts, key))
            for span in text.find(key, glued=len(key) >= GLUED_FROM)
            if _whole(lines, chain, text, span)
        ]
        if found:
            return _distinct(found)
    for chains in (alone, None):
        best: list[tuple[float, Place]] = []
        for key, answer in wanted.items():
            if len(key) < ALIKE_FROM:
                continue
            for chain, text in chains or _chains(lines, texts, None, len(key)):
                like, *span = text.nearest(key)
                start, stop = span
                if like >= ALIKE and digits(text.key[start:stop]) == digits(key) and _whole(lines, chain, text, span):
                    best.append((like, _place(lines, chain, text, (start, stop), answer, slip=True)))
        if best:
            most = max(like for like, _ in best)
            return _distinct([place for like, place in best if like == most])
    return []


def read_at(places: Sequence[Place], lines: Sequence[Line]) -> Reading:
    """What is read at the places; ``lines`` are in native pixels, whatever the size they were read at."""
    best, text = -1.0, ""
    for place in places:
        keys = {place.key, spelled(place.answer).key}
        for margin in MARGINS:
            here = spelled(_cut(place, lines, margin))
            if any(here.find(key, glued=True) for key in keys):
                return Reading(place.answer, same=True)
            for key in keys:
                like, start, stop = here.nearest(key)
                if like > best:
                    best, text = like, here.raw(start, stop) or here.text
    return Reading(text.strip(), same=False)


def place_of(line: Line, start: int, stop: int) -> Place:
    """The place of characters start to stop, both within, of one line."""
    text = line.text[start : stop + 1]
    box = _box(line, start, stop)
    return Place(text, spelled(text).key, (box,), ((box[2] - box[0]) / len(text),), slip=False)


def _cut(place: Place, lines: Sequence[Line], margin: float) -> str:
    """The characters that stand in the place's boxes, box by box, each from left to right."""
    words = []
    for (left, top, right, bottom), width in zip(place.boxes, place.widths, strict=True):
        room = margin * width
        parts = []
        for line in lines:
            at = [line.point(f) for f in line.at] or [line.point(0.5)] * len(line.text)
            inside = [left - room <= x <= right + room and top <= y <= bottom for x, y in at]
            text = "".join(char for char, is_in in zip(line.text, inside, strict=True) if is_in)
            if text.strip():
                parts.append((at[inside.index(True)][0], text))
        words += [text for _, text in sorted(parts)]
    return " ".join(words)


def _place(
    lines: Sequence[Line], chain: tuple[int, ...], text: Spelled, span: Sequence[int], answer: str, *, slip: bool
) -> Place:
    """The boxes of the characters that a span of the chain's joined text stands for."""
    first, last = text.source[span[0]], text.source[span[1] - 1]
    boxes, widths, at = [], [], 0
    for i in chain:
        start, stop = max(first - at, 0), min(last - at, len(lines[i].text) - 1)
        if start <= stop:
            box = _box(lines[i], start, stop)
            boxes.append(box)
            widths.append((box[2] - box[0]) / (stop - start + 1))
        at += len(lines[i].text) + 1  # the space between
    return Place(answer, text.key[span[0] : span[1]], tuple(boxes), tuple(widths), slip)


def _box(line: Line, start: int, stop: int) -> Box:
    """Characters start to stop, both within: half way to their neighbours, and as high as the line."""
    if not line.at:
        xs, ys = ([p[axis] for p in line.quad] for axis in (0, 1))
        return min(xs), min(ys), max(xs), max(ys)
    left = (line.at[start - 1] + line.at[start]) / 2 if start else 0.0
    right = (line.at[stop] + line.at[stop + 1]) / 2 if stop + 1 < len(line.at) else 1.0
    (x0, y0), (x1, y1) = line.point(left), line.point(right)
    half = line.height / 2
    return x0, min(y0, y1) - half, x1, max(y0, y1) + half


def _whole(lines: Sequence[Line], chain: tuple[int, ...], text: Spelled, span: Sequence[int]) -> bool:
    """Whether a span uses every line of its chain: one that does not is found with a shorter chain."""
    if span[1] <= span[0]:
        return False
    first, last = text.source[span[0]], text.source[span[1] - 1]
    return first < len(lines[chain[0]].text) and last >= len(text.text) - len(lines[chain[-1]].text)


def _chains(
    lines: Sequence[Line], texts: Sequence[Spelled], wanted: str | None, length: int = 0
) -> Iterator[tuple[tuple[int, ...], Spelled]]:
    """Two lines or more that an answer may run over; for a ``wanted`` key only those that can hold it."""
    ways = {i: _next(lines, i) for i in range(len(lines))}
    length = len(wanted) if wanted is not None else round(length / ALIKE)

    def grow(chain: tuple[int, ...], inner: int) -> Iterator[tuple[tuple[int, ...], Spelled]]:
        if len(chain) > 1:
            yield chain, spelled(" ".join(lines[i].text for i in chain))
            inner += len(texts[chain[-1]].key)  # it lies between, if the chain goes on
        if len(chain) < MOST_LINES and inner < length:
            for i in ways[chain[-1]]:
                if i not in chain:
                    yield from grow((*chain, i), inner)

    for i, text in enumerate(texts):
        if wanted is None or any(
            wanted.startswith(text.key[at:]) for at in range(len(text.key)) if text.opens(at, glued=True)
        ):
            yield from grow((i,), 0)


def _next(lines: Sequence[Line], i: int) -> list[int]:
    """The line to the right of this one and the one below it, where there are any."""
    here, found = lines[i], []
    left, right = here.point(0.0), here.point(1.0)
    beside, below = [], []
    for j, other in enumerate(lines):
        if j == i or not other.at or not here.at:
            continue
        start, stop = other.point(0.0), other.point(1.0)
        if abs(start[1] - right[1]) < 0.5 * min(here.height, other.height) and start[0] > right[0] - here.height:
            beside.append((start[0], j))
        overlap = min(right[0], stop[0]) - max(left[0], start[0])
        fall = other.point(0.5)[1] - here.point(0.5)[1]
        if overlap > 0 and 0.5 * here.height < fall < 3 * here.height:
            below.append((fall, j))
    for side in (beside, below):
        found += [min(side)[1]] if side else []
    return found


def _distinct(places: Sequence[Place]) -> list[Place]:
    """Each set of boxes once, in the order found."""
    return list({place.boxes: place for place in places}.values())
