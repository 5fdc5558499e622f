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
from typing import TYPE_CHECKING

from stakes.errors import BadInput
from stakes.legibility.answer_places import Place, place_of, read_at
from stakes.legibility.engine import Line
from stakes.legibility.model import Legibility, Posed
from stakes.legibility.page_cache import Box, as_pixels
from stakes.legibility.text_match import spelled
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

if TYPE_CHECKING:
    from PIL.Image import Image


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


# How does a legibility map look? The page, each word tinted by the budget from which on it reads, and a key below.
#
#     words = legibility_map(model, one, BUDGETS)
#     draw_map(open_image(one.load()), words, BUDGETS).save("map.png")
#     shares(words, BUDGETS)                          # {64: 0.31, 96: 0.44, …}: of the page's words that still read
#
# Words that die first are dark red, words that read at the smallest budget dark blue (colours of ColorBrewer's RdYlBu,
# which colour-blind people tell apart); grey words read at none of the budgets.


BUDGETS = (64, 96, 160, 224, 304, 448, 576)
COLOURS = ("#4575b4", "#74add1", "#abd9e9", "#fee090", "#fdae61", "#f46d43", "#d73027")
NEVER = "#7f7f7f"
TINT = 110  # of 255: print stays readable below it
KEY = 28  # pixels of a key's row


def draw_map(image: Image, words: Sequence[Word], budgets: Sequence[int] = BUDGETS) -> Image:
    """The page with its words tinted, and a key of the budgets below it; the image itself is left as it was."""
    from PIL import Image as Images
    from PIL import ImageColor, ImageDraw

    colour = colours(budgets)
    tint = Images.new("RGBA", image.size)
    pen = ImageDraw.Draw(tint)
    for word in words:
        pen.rectangle(word.box, fill=(*ImageColor.getrgb(colour[word.least])[:3], TINT))
    sheet = Images.new("RGB", (image.width, image.height + KEY), "white")
    sheet.paste(Images.alpha_composite(image.convert("RGBA"), tint).convert("RGB"))
    pen = ImageDraw.Draw(sheet)
    step = image.width // len(colour)
    for i, (budget, fill) in enumerate(colour.items()):
        left, top = i * step, image.height + 6
        pen.rectangle((left + 4, top, left + 18, top + 14), fill=fill)
        pen.text((left + 22, top + 1), "none" if budget is None else f"from {budget}", fill="black")
    return sheet


def shares(words: Sequence[Word], budgets: Sequence[int] = BUDGETS) -> dict[int, float]:
    """The share of a page's words that read at each budget and at all larger ones."""
    if not words:
        raise BadInput("the page has no words, so there is nothing to map")
    return {b: sum(word.least is not None and word.least <= b for word in words) / len(words) for b in sorted(budgets)}


def colours(budgets: Sequence[int]) -> dict[int | None, str]:
    """A colour for each budget, from the smallest, and for None."""
    rising = sorted(set(budgets))
    if not 1 <= len(rising) <= len(COLOURS):
        raise BadInput(f"a map tells {len(COLOURS)} budgets apart at most, not {len(rising)}")
    last = max(len(rising) - 1, 1)
    spread = [COLOURS[round(i * (len(COLOURS) - 1) / last)] for i in range(len(rising))]
    return {**dict(zip(rising, spread, strict=True)), None: NEVER}
