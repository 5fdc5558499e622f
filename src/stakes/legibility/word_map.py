"""A map of a page: every word with the smallest budget from which it is legible, as data and as an image.

    words = legibility_map(model, sample, BUDGETS)
    [word.text for word in words if word.legible_from is None or word.legible_from > 304]
    draw_map(open_image(sample.load()), words, BUDGETS).save("map.png")
    legible_shares(words, BUDGETS)                   # {64: 0.31, 96: 0.44, ...}: of the page's words

A word is legible from a budget when at that budget, and at all larger ones that were measured, it reads the same as at
native size. Each budget takes one full reading of the page, which is cached.

``small_print_height`` is the height of a page's small print. Keeping print of h pixels legible takes about
``native * (needed / h)^2`` tokens (``small_print_tokens``), which a budget by content can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PIL import Image, ImageColor, ImageDraw

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.legibility.answer_locations import read_at, word_locations
from stakes.legibility.engine import TextLine
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import Box

BUDGETS = (64, 96, 160, 224, 304, 448, 576)
SMALL_SHARE = 0.1  # of a page's characters that count as its small print
NEEDED = 11.0  # pixels of a line's box: 85 % of DocVQA's answers are legible there, 55 % at 8, none below 5

# ColorBrewer's RdYlBu, which color-blind readers can distinguish: blue words are legible from the smallest budget, red
# ones only from the largest, gray ones from none.
COLORS = ("#4575b4", "#74add1", "#abd9e9", "#fee090", "#fdae61", "#f46d43", "#d73027")
NEVER = "#7f7f7f"
TINT = 110  # opacity, of 255: text stays readable below it
KEY_HEIGHT = 28  # pixels of the color key


@dataclass(frozen=True)
class Word:
    """A word of the page: its box in native pixels, and the budget from which it is legible (None: none measured)."""

    text: str
    box: Box
    legible_from: int | None


def legibility_map(model: Legibility, sample: Sample, budgets: Sequence[int]) -> list[Word]:
    """Every word of a page, in reading order of its lines."""
    if not budgets:
        raise BadInput("a map needs at least one budget")
    locations = [location for line in model.native_lines(sample) for location in word_locations(line)]
    legible_from: list[int | None] = [None] * len(locations)
    still_legible = set(range(len(locations)))
    for budget in sorted(set(budgets), reverse=True):
        lines = model.lines_at(sample, budget)
        still_legible = {i for i in still_legible if read_at([locations[i]], lines).legible}
        for i in still_legible:
            legible_from[i] = budget
    return [Word(at.answer, at.boxes[0], budget) for at, budget in zip(locations, legible_from, strict=True)]


def small_print_height(lines: Sequence[TextLine]) -> float:
    """The height in pixels that the smallest tenth of a page's characters does not exceed; 0 without text."""
    heights = sorted(line.height for line in lines for _ in line.text)
    return heights[ceil(SMALL_SHARE * len(heights)) - 1] if heights else 0.0


def small_print_tokens(lines: Sequence[TextLine], native: int) -> float:
    """About how many tokens keep the page's small print legible; 1 for a page without text."""
    height = small_print_height(lines)
    return max(1.0, native * (NEEDED / height) ** 2) if height else 1.0


def draw_map(image: Image.Image, words: Sequence[Word], budgets: Sequence[int] = BUDGETS) -> Image.Image:
    """A copy of the page with its words tinted by budget, and a color key below it."""
    colors = budget_colors(budgets)
    tint = Image.new("RGBA", image.size)
    pen = ImageDraw.Draw(tint)
    for word in words:
        pen.rectangle(word.box, fill=(*ImageColor.getrgb(colors[word.legible_from])[:3], TINT))
    sheet = Image.new("RGB", (image.width, image.height + KEY_HEIGHT), "white")
    sheet.paste(Image.alpha_composite(image.convert("RGBA"), tint).convert("RGB"))
    pen = ImageDraw.Draw(sheet)
    for i, (budget, fill) in enumerate(colors.items()):
        left, top = i * (image.width // len(colors)), image.height + 6
        pen.rectangle((left + 4, top, left + 18, top + 14), fill=fill)
        pen.text((left + 22, top + 1), "none" if budget is None else f"from {budget}", fill="black")
    return sheet


def legible_shares(words: Sequence[Word], budgets: Sequence[int] = BUDGETS) -> dict[int, float]:
    """The share of a page's words that are legible at each budget and at all larger ones."""
    if not words:
        raise BadInput("the page has no words, so there is nothing to map")
    starts = [word.legible_from for word in words if word.legible_from is not None]
    return {budget: sum(start <= budget for start in starts) / len(words) for budget in sorted(budgets)}


def budget_colors(budgets: Sequence[int]) -> dict[int | None, str]:
    """A color for each budget, from the smallest, and for None."""
    rising = sorted(set(budgets))
    if not 1 <= len(rising) <= len(COLORS):
        raise BadInput(f"a map has colors for 1 to {len(COLORS)} budgets, not for {len(rising)}")
    last = max(len(rising) - 1, 1)
    spread = [COLORS[round(i * (len(COLORS) - 1) / last)] for i in range(len(rising))]
    return {**dict(zip(rising, spread, strict=True)), None: NEVER}
