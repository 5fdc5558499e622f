"""How does a legibility map look? The page, each word tinted by the budget from which on it reads, and a key below.

    words = legibility_map(model, one, BUDGETS)
    draw_map(open_image(one.load()), words, BUDGETS).save("map.png")
    shares(words, BUDGETS)                          # {64: 0.31, 96: 0.44, …}: of the page's words that still read

Words that die first are dark red, words that read at the smallest budget dark blue (colours of ColorBrewer's RdYlBu,
which colour-blind people tell apart); grey words read at none of the budgets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stakes.errors import BadInput
from stakes.models.ocr_map import Word

if TYPE_CHECKING:
    from PIL.Image import Image

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
