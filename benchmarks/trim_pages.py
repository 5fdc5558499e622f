"""Drawn pages that are hard to trim, and what of them is ink: borders, photographs, noise, stamps, specks, dark paper.

make(KINDS[0], seed=3).lost(box)      # pixels of ink outside of the box
"""

from collections.abc import Callable

import numpy as np
from benchmarks.trim_digital import DIGITAL
from benchmarks.trim_page import Page, Paint
from benchmarks.trim_scans import SCANS
from PIL import Image, ImageDraw, ImageFont


def _plain(page: Page) -> None:
    page.text()
    page.grain(8)


def _black_borders(page: Page) -> None:
    page.text()
    for side in page.dice.choice(4, 3, replace=False):
        deep = int(page.dice.uniform(0.005, 0.09) * min(page.size))
        boxes = [(0, 0, deep, 9999), (0, 0, 9999, deep)]
        boxes += [(page.width - deep, 0, 9999, 9999), (0, page.height - deep, 9999, 9999)]
        page.draw.rectangle(boxes[side], (8, 8, 8))
    page.grain(6)


def _skewed_border(page: Page) -> None:
    page.text()
    deep = page.dice.uniform(0, 0.08, 2) * page.width
    page.draw.polygon([(0, 0), (deep[0], 0), (deep[1], page.height), (0, page.height)], (15, 15, 15))
    page.grain(6)


def _border_with_ink_beside_it(page: Page) -> None:
    page.text()
    deep = int(0.04 * page.width)
    page.draw.rectangle((0, 0, deep, page.height), (5, 5, 5))
    y = int(page.dice.uniform(0.1, 0.8) * page.height)
    page.ink(lambda draw, fill: draw.text((deep + 5, y), "No. 7", fill, ImageFont.load_default(16)))


def _photograph(page: Page) -> None:
    small = page.dice.integers(0, 256, (12, 9, 3), dtype=np.uint8)
    page.image = Image.fromarray(small).resize(page.size, Image.Resampling.BICUBIC)
    page.mask.paste(255, (0, 0, *page.size))


def _photograph_with_white_sky(page: Page) -> None:
    _photograph(page)
    page.image.paste((255, 255, 255), (0, 0, page.width, page.height // 3))


def _noise(page: Page) -> None:
    page.image = Image.fromarray(page.dice.integers(0, 256, (*page.size[::-1], 3), dtype=np.uint8))
    page.mask.paste(255, (0, 0, *page.size))


def _inverted(page: Page) -> None:
    page.text((235, 235, 230))
    page.grain(8)


def _stamp_at_the_edge(page: Page) -> None:
    page.text()
    at = page.dice.uniform(0, 1, 2) * page.size
    at[page.dice.integers(2)] *= page.dice.integers(2)  # onto an edge
    radius = page.dice.uniform(0.04, 0.1) * page.width
    where = (at[0] - radius, at[1] - radius, at[0] + radius, at[1] + radius)
    page.ink(lambda draw, fill: draw.ellipse(where, outline=fill, width=3), (190, 40, 60))


def _thin_rules_in_the_margin(page: Page) -> None:
    page.text()
    off = int(page.dice.uniform(0.035, 0.09) * max(page.size))  # nearer to an edge, a line is taken for the scanner's
    tilt = int(page.dice.integers(-2, 3))
    rules = [(off, 0, off + tilt, page.height), (0, off, page.width, off + tilt)]
    for rule in rules:
        page.ink(lambda draw, fill, rule=rule: draw.line(rule, fill, 1), (120, 120, 120))  # type: ignore[misc]
    page.grain(4)


def _punch_holes(page: Page) -> None:
    page.text()
    x, radius = 0.04 * page.width, 0.012 * page.height
    for y in (0.3 * page.height, 0.6 * page.height):
        page.ink(lambda draw, fill, y=y: draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill))  # type: ignore[misc]


def _line_in_the_rim(page: Page) -> None:
    page.text()
    off, tilt = 1 + int(page.dice.uniform(0, 0.02) * page.width), int(page.dice.integers(-2, 3))
    page.draw.line((off, 0, max(0, off + tilt), page.height), (40, 40, 40), 1)
    page.draw.line((0, page.height - off, page.width, page.height - off), (40, 40, 40), 1)
    page.grain(2)  # a scanner's line is not found on a page without noise


def _specks(page: Page) -> None:
    page.text()
    for _ in range(6):
        x, y = page.dice.uniform(0, 1, 2) * page.size
        page.draw.rectangle((x, y, x + 1, y + 1), (60, 60, 60))


def _white_on_black_header(page: Page) -> None:
    page.text()
    page.draw.rectangle((0, 0, page.width, int(0.07 * page.height)), (10, 10, 10))
    font, x = ImageFont.load_default(18), int(page.dice.uniform(0.01, 0.5) * page.width)
    words = Image.new("L", page.size)
    ImageDraw.Draw(words).text((x, int(0.015 * page.height)), "Invoice 2931", 255, font)
    page.image.paste((255, 255, 255), mask=words)
    page.words = words.getbbox()


def _one_glyph_in_a_corner(page: Page) -> None:
    page.text()
    x, y = page.dice.choice([0.012, 0.96], 2) * page.size
    page.ink(lambda draw, fill: draw.text((x, y), str(page.dice.integers(1, 9)), fill, ImageFont.load_default(14)))


def _colored_ink_of_the_paper_s_brightness(page: Page) -> None:
    page.text((250, 150, 150))  # as gray: 180, the paper 181
    page.grain(4)


def _print_in_the_outermost_pixels(page: Page) -> None:
    font = ImageFont.load_default(16)
    page.ink(lambda draw, fill: draw.text((0, -3), "Page 12 of 30 Copy", fill, font))
    page.ink(lambda draw, fill: draw.text((page.width - 60, page.height - 16), "82417 7504", fill, font))


def _edge_dirt(page: Page) -> None:
    page.text()
    for x in page.dice.uniform(0, 1, 5) * page.width:
        page.draw.rectangle((x, 0, x + 9, 0.001 * page.height), (50, 50, 50))
    page.grain(2)


def _colored_paper(page: Page) -> None:
    page.text((60, 40, 120))
    page.grain(6)


def _faint_text(page: Page) -> None:
    page.text()
    note, x = (page.paper[0] - 60,) * 3, int(page.dice.uniform(0.7, 0.85) * page.width)
    page.ink(lambda draw, fill: draw.text((x, 0.05 * page.height), "Copy", fill, ImageFont.load_default(16)), note)


def _text_touching_a_black_border(page: Page) -> None:
    page.text()
    deep, y = int(0.04 * page.width), int(page.dice.uniform(0.1, 0.8) * page.height)
    page.draw.rectangle((0, 0, deep, page.height), (5, 5, 5))
    page.ink(lambda draw, fill: draw.text((deep - 2, y), "No. 7 B", fill, ImageFont.load_default(20)))
    ImageDraw.Draw(page.mask).rectangle((0, 0, deep, page.height), 0)


def _text_at_a_line_in_the_rim(page: Page) -> None:
    page.text()
    x, y = int(0.015 * page.width), int(page.dice.uniform(0.1, 0.8) * page.height)
    page.draw.line((x, 0, x, page.height), (30, 30, 30), 2)
    left = x - 12 if page.dice.integers(2) else x  # across the line, or beginning at it
    page.ink(lambda draw, fill: draw.text((left, y), "No. 77", fill, ImageFont.load_default(20)))
    ImageDraw.Draw(page.mask).line((x, 0, x, page.height), 0, 2)


def _table_up_to_the_rim(page: Page) -> None:
    left, right = int(0.012 * page.width), int(0.988 * page.width)
    rows = np.linspace(0.02 * page.height, 0.97 * page.height, 14).astype(int)
    for y in rows:
        page.draw.line((left, y, right, y), (20, 20, 20), 1)
    for x in (left, right):
        page.draw.line((x, rows[0], x, rows[-1]), (20, 20, 20), 1)
    for y in rows[:-1]:
        words = str(page.dice.integers(10**6, 10**7))
        page.ink(lambda draw, fill, y=y, words=words: draw.text((left + 4, y + 3), words, fill))  # type: ignore[misc]


def _photograph_on_a_page(page: Page) -> None:
    page.text()
    small = Image.fromarray(page.dice.integers(0, 150, (6, 8, 3), dtype=np.uint8))
    size = int(0.3 * page.width), int(0.2 * page.height)
    at = [int(page.dice.uniform(0, 1) * (whole - part)) for whole, part in zip(page.size, size, strict=True)]
    page.image.paste(small.resize(size, Image.Resampling.BICUBIC), (at[0], at[1]))
    page.mask.paste(255, (at[0], at[1], at[0] + size[0], at[1] + size[1]))


def _white_paper_on_a_dark_table(page: Page) -> None:
    page.text()
    edge = int(page.dice.uniform(0.01, 0.2) * page.width)
    for box in ((0, 0, edge, 9999), (page.width - edge, 0, 9999, 9999), (0, 0, 9999, edge)):
        page.draw.rectangle(box, (70, 50, 40))
        page.mask.paste(0, (box[0], box[1], min(box[2], page.width), min(box[3], page.height)))
    page.grain(10)


def _small_print_along_an_edge(page: Page) -> None:
    page.text()
    words = "Source: the archive of the department, sheet 12, https://archive.example/docs/x 1129"
    below = page.height - int(page.dice.choice([9, 14, 30]))
    page.ink(lambda draw, fill: draw.text((0.1 * page.width, below), words, fill, ImageFont.load_default(9)))


def _number_stamped_upright_at_the_side(page: Page) -> None:
    page.text()
    stamp = Image.new("L", (80, 18))
    ImageDraw.Draw(stamp).text((2, 0), "52412 7731", 255, ImageFont.load_default(14))
    stamp = stamp.rotate(90, expand=True)
    at = int(page.width - page.dice.uniform(19, 60)), int(page.dice.uniform(0.1, 0.8) * page.height)
    page.image.paste((20, 20, 20), at, stamp)
    page.mask.paste(255, at, stamp.point(lambda value: 255 * (value > 60)))


def _dotted_leader_and_a_page_number(page: Page) -> None:
    page.text()
    y, dots = int(0.93 * page.height), " ".join("." * 60)
    page.ink(lambda draw, fill: draw.text((4, y), dots[: page.width // 9], fill, ImageFont.load_default(12)))


def _tilted(page: Page) -> None:
    page.text()
    angle = page.dice.uniform(-3, 3)
    page.image = page.image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=page.paper)
    page.mask = page.mask.rotate(angle)


PAPERS: dict[Callable[[Page], None], Paint] = {
    _inverted: (12, 12, 20),
    _colored_ink_of_the_paper_s_brightness: (120, 210, 190),
    _colored_paper: (250, 222, 150),
}
KINDS = [
    _plain, _black_borders, _skewed_border, _border_with_ink_beside_it, _photograph, _photograph_with_white_sky, _noise,
    _inverted, _stamp_at_the_edge, _thin_rules_in_the_margin, _line_in_the_rim, _punch_holes, _specks,
    _white_on_black_header,
    _one_glyph_in_a_corner, _colored_ink_of_the_paper_s_brightness, _print_in_the_outermost_pixels, _edge_dirt,
    _colored_paper,
    _faint_text, _text_touching_a_black_border, _text_at_a_line_in_the_rim, _table_up_to_the_rim, _photograph_on_a_page,
    _white_paper_on_a_dark_table, _small_print_along_an_edge,
    _number_stamped_upright_at_the_side, _dotted_leader_and_a_page_number, _tilted, *SCANS, *DIGITAL,
]  # fmt: skip
WHOLE = {"photograph", "photograph_with_white_sky", "noise"}
TRIMMED = {"plain", "black_borders", "skewed_border", "specks", "inverted", "colored_paper", "line_in_the_rim"}
TRIMMED |= {"edge_dirt", "stamp_at_the_edge", "black_borders_on_some_sides", "white_lid_around_gray_paper"}
TRIMMED |= {"broken_line_in_the_rim", "jpeg_of_low_quality", "light_noise", "dust"}


def make(kind: Callable[[Page], None], seed: int) -> Page:
    """The page of a kind and a seed."""
    page = Page(seed, PAPERS.get(kind))
    kind(page)
    return page


def name_of(kind: Callable[[Page], None]) -> str:
    """How a kind is called."""
    return kind.__name__.strip("_")
