"""Kinds of drawn pages that look like scans: borders, shadows, lids, staples, noise, JPEG, with print at the edges."""

import io

import numpy as np
from benchmarks.trim_page import Page
from PIL import Image, ImageDraw, ImageFont


def _strip(page: Page, side: int, deep: int) -> tuple[int, int, int, int]:
    """The strip along an edge: 0 left, 1 top, 2 right, 3 bottom."""
    wide, high = page.width, page.height
    return [(0, 0, deep, high), (0, 0, wide, deep), (wide - deep, 0, wide, high), (0, high - deep, wide, high)][side]


def _black_borders_on_some_sides(page: Page) -> None:
    page.text()
    for side in page.dice.choice(4, int(page.dice.integers(1, 5)), replace=False):
        page.draw.rectangle(_strip(page, side, int(page.dice.uniform(0.004, 0.05) * page.width)), (10, 10, 12))
    page.grain(10)


def _skewed_borders_with_print_beside(page: Page) -> None:
    page.text()
    near, far = (page.dice.uniform(0.01, 0.07, 2) * page.width).astype(int)
    page.draw.polygon([(0, 0), (near, 0), (far, page.height), (0, page.height)], (12, 12, 12))
    page.draw.polygon([(0, 0), (page.width, 0), (page.width, near), (0, far)], (12, 12, 12))
    y = int(page.dice.uniform(0.3, 0.8) * page.height)
    beside = (max(near, far) + 4, y)
    page.ink(lambda draw, fill: draw.text(beside, "No. 41", fill, ImageFont.load_default(14)))
    page.grain(6)


def _noisy(page: Page, sigma: float) -> None:
    page.text()
    values = np.asarray(page.image) + page.dice.normal(0, sigma, (*page.size[::-1], 1))
    page.image = Image.fromarray(values.clip(0, 255).astype(np.uint8))


def _light_noise(page: Page) -> None:
    _noisy(page, 5)


def _noise_at_the_tolerance(page: Page) -> None:
    _noisy(page, 14)


def _strong_noise(page: Page) -> None:
    _noisy(page, 45)


def _salt_and_pepper(page: Page) -> None:
    page.text()
    values = np.asarray(page.image).copy()
    values[page.dice.random(values.shape[:2]) < page.dice.choice([0.0002, 0.002, 0.02])] = 0
    page.image = Image.fromarray(values)


def _inverted_with_print_at_an_edge(page: Page) -> None:
    page.image.paste((14, 14, 18), (0, 0, *page.size))
    page.paper = (14, 14, 18)
    page.text((230, 230, 225))
    at = (int(page.dice.uniform(0.1, 0.6) * page.width), page.height - 18)
    page.ink(lambda draw, fill: draw.text(at, "Slide 12", fill, ImageFont.load_default(14)), (235, 235, 235))


def _colored_paper_with_print_at_an_edge(page: Page) -> None:
    page.paper = tuple(int(value) for value in page.dice.integers(150, 256, 3))  # type: ignore[assignment]
    page.image.paste(page.paper, (0, 0, *page.size))
    page.text((40, 40, 90))
    at = (3, int(page.dice.uniform(0.05, 0.9) * page.height))
    page.ink(lambda draw, fill: draw.text(at, "Copy 3", fill, ImageFont.load_default(13)), (120, 20, 20))
    page.grain(5)


def _shadow_towards_an_edge(page: Page) -> None:
    page.text()
    at = (int(page.dice.uniform(0.02, 0.05) * page.width), int(page.dice.uniform(0.2, 0.8) * page.height))
    page.ink(lambda draw, fill: draw.text(at, "p. 88", fill, ImageFont.load_default(13)))
    shade = np.ones(page.width)
    reach = int(page.dice.uniform(0.03, 0.15) * page.width)
    shade[:reach] = np.linspace(page.dice.uniform(0.1, 0.8), 1, reach)
    page.image = Image.fromarray((np.asarray(page.image) * shade[None, :, None]).astype(np.uint8))


def _gradient(page: Page) -> None:
    page.text()
    shade = np.linspace(1, page.dice.uniform(0.55, 0.95), page.height)
    page.image = Image.fromarray((np.asarray(page.image) * shade[:, None, None]).astype(np.uint8))
    page.paper = (255, 255, 255)  # what the ink is compared with


def _page_number_at_an_edge(page: Page) -> None:
    page.text()
    number, font = str(page.dice.integers(1, 400)), ImageFont.load_default(int(page.dice.choice([10, 12, 16])))
    across, down = int(page.dice.uniform(0.02, 0.9) * page.width), int(page.dice.uniform(0.02, 0.9) * page.height)
    edges = [(across, 1), (across, page.height - 18), (2, down), (page.width - 26, down)]
    at = edges[int(page.dice.integers(4))]
    page.ink(lambda draw, fill: draw.text(at, number, fill, font))


def _punch_holes_at_the_edge(page: Page) -> None:
    page.text()
    for y in (0.2, 0.5, 0.8):
        x, radius = 0.02 * page.width, 0.014 * page.height
        hole = (x - radius, y * page.height - radius, x + radius, y * page.height + radius)
        page.ink(lambda draw, fill, hole=hole: draw.ellipse(hole, fill), (30, 30, 30))  # type: ignore[misc]


def _staple(page: Page) -> None:
    page.text()
    x, y = page.dice.uniform(0.03, 0.08, 2) * page.width
    page.ink(lambda draw, fill: draw.line((x, y, x + 0.03 * page.width, y + 6), fill, 3), (60, 60, 60))


def _two_page_spread(page: Page) -> None:
    page.text()
    middle = page.width // 2
    page.draw.rectangle((middle - 4, 0, middle + 4, page.height), (30, 30, 30))
    right = (int(page.dice.uniform(0.6, 0.75) * page.width), int(page.dice.uniform(0.03, 0.9) * page.height))
    page.ink(lambda draw, fill: draw.text(right, "Chapter 2", fill, ImageFont.load_default(16)))
    page.draw.rectangle(_strip(page, 0, int(0.02 * page.width)), (10, 10, 10))


def _thin_frame(page: Page) -> None:
    page.text()
    off = int(page.dice.uniform(0.04, 0.08) * max(page.size))  # nearer to an edge, a line is taken for the scanner's
    frame = (off, off, page.width - off, page.height - off)
    page.ink(lambda draw, fill: draw.rectangle(frame, outline=fill, width=1), (90, 90, 90))


def _print_between_a_frame_and_the_edge(page: Page) -> None:
    page.text()
    off = int(0.022 * max(page.size))
    page.draw.rectangle((off, off, page.width - off, page.height - off), outline=(60, 60, 60), width=1)
    at = (int(page.dice.uniform(0.1, 0.7) * page.width), int(page.dice.choice([1, page.height - off + 2])))
    page.ink(lambda draw, fill: draw.text(at, "Form 1040", fill, ImageFont.load_default(10)))


def _faint_print_at_an_edge(page: Page) -> None:
    page.text()
    contrast = int(page.dice.integers(48, 110))
    at = (int(page.dice.uniform(0.02, 0.5) * page.width), page.height - int(page.dice.choice([12, 16, 24])))
    words, font = "Source: https://archive.example/docs/7731", ImageFont.load_default(11)
    page.ink(lambda draw, fill: draw.text(at, words, fill, font), (page.paper[0] - contrast,) * 3)


def _tiny_print_near_an_edge(page: Page) -> None:
    page.text()
    words = str(page.dice.choice(["can rescue no one", "1129", "82417 7504", "page 3", "-6-", "e.g."]))
    font, inset = ImageFont.load_default(int(page.dice.choice([7, 8, 9]))), int(page.dice.uniform(0, 20))
    across, down = int(page.dice.uniform(0.05, 0.7) * page.width), int(page.dice.uniform(0.05, 0.8) * page.height)
    edges = [(across, inset), (across, page.height - 10 - inset), (inset, down)]
    at = edges[int(page.dice.integers(3))]
    page.ink(lambda draw, fill: draw.text(at, words, fill, font))


def _jpeg_of_low_quality(page: Page) -> None:
    page.text()
    page.grain(4)
    out = io.BytesIO()
    page.image.save(out, "JPEG", quality=20)
    page.image = Image.open(io.BytesIO(out.getvalue())).convert("RGB")


def _tiny_print_in_a_jpeg_of_low_quality(page: Page) -> None:
    _tiny_print_near_an_edge(page)
    out = io.BytesIO()
    page.image.save(out, "JPEG", quality=20)
    page.image = Image.open(io.BytesIO(out.getvalue())).convert("RGB")


def _white_lid_around_gray_paper(page: Page) -> None:
    page.paper = (int(page.dice.integers(150, 205)),) * 3
    page.image.paste(page.paper, (0, 0, *page.size))
    page.text()
    for side in page.dice.choice(4, 2, replace=False):
        page.draw.rectangle(_strip(page, side, int(page.dice.uniform(0.01, 0.08) * page.width)), (255, 255, 255))
    page.grain(4)


def _print_in_a_white_strip_on_gray_paper(page: Page) -> None:
    page.paper = (int(page.dice.integers(150, 205)),) * 3
    page.image.paste(page.paper, (0, 0, *page.size))
    page.text()
    deep = int(0.06 * page.height)
    page.draw.rectangle(_strip(page, int(page.dice.choice([1, 3])), deep), (255, 255, 255))
    y = int(page.dice.choice([3, page.height - 20]))
    at = (int(page.dice.uniform(0.02, 0.7) * page.width), y)
    page.ink(lambda draw, fill: draw.text(at, "Scanned by 12", fill, ImageFont.load_default(13)))


def _broken_line_in_the_rim(page: Page) -> None:
    page.text()
    x, y = int(0.012 * page.width) + 1, 0
    while y < page.height:
        length = int(page.dice.uniform(0.01, 0.12) * page.height)
        page.draw.line((x, y, x, y + length), (50, 50, 50), 1)
        y += length + int(page.dice.uniform(0.005, 0.04) * page.height)
    page.grain(2)


def _photograph_with_a_dark_frame(page: Page) -> None:
    small = page.dice.integers(60, 256, (10, 10, 3), dtype=np.uint8)
    page.image = Image.fromarray(small).resize(page.size, Image.Resampling.BICUBIC)
    page.mask.paste(255, (0, 0, *page.size))
    edge = int(0.03 * page.width)
    for side in range(4):
        box = _strip(page, side, edge)
        page.image.paste((0, 0, 0), box)
        ImageDraw.Draw(page.mask).rectangle(box, 0)
    page.paper = (0, 0, 0)


def _dark_photograph_along_an_edge(page: Page) -> None:
    page.text()
    box = _strip(page, int(page.dice.integers(4)), int(page.dice.uniform(0.06, 0.1) * min(page.size)))
    small = page.dice.integers(0, 100, (10, 10, 3), dtype=np.uint8)
    size = box[2] - box[0], box[3] - box[1]
    page.image.paste(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC), box[:2])
    ImageDraw.Draw(page.mask).rectangle((box[0], box[1], box[2] - 1, box[3] - 1), 255)
    page.grain(4)


def _frame_in_the_rim_of_a_scan(page: Page) -> None:
    page.text()
    inset = 0.02 * min(page.size)
    frame = (inset, inset, page.width - inset, page.height - inset)
    page.ink(lambda draw, fill: draw.rectangle(frame, outline=fill, width=2))
    page.grain(4)


def _lone_one_at_an_edge(page: Page) -> None:
    page.text()
    near = 0.022 * max(page.size)
    x, y = [(0.5 * page.width, page.height - near), (0.5 * page.width, near), (near, 0.5 * page.height)][
        int(page.dice.integers(3))
    ]
    page.ink(lambda draw, fill: draw.text((x, y), "1", fill, ImageFont.load_default(13), anchor="mm"))
    page.grain(4)


def _dust(page: Page) -> None:
    page.text()
    for x, y in page.dice.uniform(0, 1, (page.width * page.height // 40_000, 2)) * page.size:
        page.draw.point([(x, y), (x + int(page.dice.integers(4, 9)), y + 3)], (30, 30, 30))
    page.grain(4)


SCANS = [
    _black_borders_on_some_sides, _skewed_borders_with_print_beside, _light_noise, _noise_at_the_tolerance,
    _strong_noise, _salt_and_pepper, _inverted_with_print_at_an_edge, _colored_paper_with_print_at_an_edge,
    _shadow_towards_an_edge, _gradient, _page_number_at_an_edge, _punch_holes_at_the_edge, _staple, _two_page_spread,
    _thin_frame, _print_between_a_frame_and_the_edge, _faint_print_at_an_edge, _tiny_print_near_an_edge,
    _jpeg_of_low_quality, _tiny_print_in_a_jpeg_of_low_quality, _white_lid_around_gray_paper,
    _print_in_a_white_strip_on_gray_paper, _broken_line_in_the_rim, _photograph_with_a_dark_frame,
    _dark_photograph_along_an_edge, _frame_in_the_rim_of_a_scan, _lone_one_at_an_edge, _dust,
]  # fmt: skip
