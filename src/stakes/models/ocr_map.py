"""Which regions of a page die first as tokens fall? Every word, with the smallest budget from which on it still reads.

    words = legibility_map(model, one, (64, 96, 160, 224, 304, 448, 576))
    [word.text for word in words if word.least is None or word.least > 304]

A word counts from the smallest budget at which it, and at all larger budgets measured, says the same at its place as at
native size. Each budget is one full reading of the page, kept like any other.

``print_height`` is the other thing that a page's lines tell: how high its small print is. A page whose small print is h
pixels high takes about ``native · (needed / h)²`` tokens to keep it legible, which is what a budget by content can go
by (``print_tokens``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stakes.errors import BadInput
from stakes.models.ocr import Legibility, Posed
from stakes.models.ocr_engine import Line
from stakes.models.ocr_pages import Box, as_pixels
from stakes.models.ocr_places import Place, place_of, read_at
from stakes.models.ocr_spelling import spelled
from stakes.vision.decode import open_image
from stakes.vision.resize import fit

SMALL_SHARE = 0.1  # of a page's characters that count as its small print
NEEDED = 11.0  # pixels of a line's box: of DocVQA's answers 85 % read there, 55 % at 8, none below 5


@dataclass(frozen=True)
class Word:
    """A word of the page: its box in native pixels, and the budget from which on it reads; None: from none measured."""

    text: str
    box: Box
    least: int | None


def legibility_map(model: Legibility, one: Posed, budgets: Sequence[int]) -> list[Word]:
    """Every word of a page, in reading order of its lines."""
    if not budgets:
        raise BadInput("a map needs at least one budget")
    image = open_image(one.load())
    native = model.native_lines(one)
    places = [place for line in native for place in _words(line)]
    reads: dict[int, list[bool]] = {}
    for budget in sorted(set(budgets)):
        small = fit(image, budget, model.family)
        x, y = small.scale
        lines = model.pages.lines(one.digest, small.image.size, lambda small=small: as_pixels(small.image))  # type: ignore[misc]
        here = [line.scaled(1 / x, 1 / y) for line in lines]
        reads[budget] = [read_at([place], here).same for place in places]
    words = []
    for i, place in enumerate(places):
        least = None
        for budget in sorted(reads, reverse=True):
            if not reads[budget][i]:
                break
            least = budget
        words.append(Word(place.answer, place.boxes[0], least))
    return words


def print_height(lines: Sequence[Line], share: float = SMALL_SHARE) -> float:
    """The height in pixels that the smallest ``share`` of a page's characters does not exceed; 0 with no print."""
    if not 0 <= share <= 1:
        raise BadInput(f"a share lies between 0 and 1, not {share!r}")
    heights = sorted((line.height, len(line.text)) for line in lines)
    left = share * sum(count for _, count in heights)
    for height, count in heights:
        left -= count
        if left <= 0:
            return height
    return 0.0


def print_tokens(lines: Sequence[Line], native: int, share: float = SMALL_SHARE) -> float:
    """About how many tokens keep the page's small print legible; 1 for a page with no print."""
    height = print_height(lines, share)
    return max(1.0, native * (NEEDED / height) ** 2) if height else 1.0


def _words(line: Line) -> list[Place]:
    """A place for each word; a line that stands on its side is one word."""
    found, start = [], 0
    parts = line.text.split(" ") if line.at else [line.text]
    for part in parts:
        if spelled(part).key:
            found.append(place_of(line, start, start + len(part) - 1))
        start += len(part) + 1
    return found
