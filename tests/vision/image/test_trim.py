"""Trimming: margins and scanner borders go, ink never does, and coordinates lead back to the original."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageDraw, ImageFont

from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import GAP, fit
from stakes.vision.image.trim import TOLERANCE, margins

SIZES = [(640, 880), (880, 640), (300, 420), (1100, 1500)]
Paint = tuple[int, int, int]


class Page:
    """A drawn page that knows where its ink is; specks and scanner borders are drawn without being ink."""

    def __init__(self, seed: int, paper: Paint | None = None) -> None:
        self.dice = np.random.default_rng(seed)
        self.size = self.width, self.height = SIZES[seed % len(SIZES)]
        self.paper: Paint = paper or ((int(self.dice.integers(225, 256)),) * 3)
        self.image = Image.new("RGB", self.size, self.paper)
        self.draw = ImageDraw.Draw(self.image)
        self.mask = Image.new("L", self.size)

    def ink(self, paint: Callable[[ImageDraw.ImageDraw, Paint], object], color: Paint = (20, 20, 30)) -> None:
        """Draw into the page and into the mask of its ink."""
        paint(self.draw, color)
        layer = Image.new("RGB", self.size)
        paint(ImageDraw.Draw(layer), (255, 255, 255))
        self.mask.paste(255, mask=layer.convert("L").point(lambda value: 255 * (value > 0)))

    def text(self, color: Paint = (20, 20, 30)) -> None:
        """Lines of text somewhere in the page."""
        font, x = ImageFont.load_default(14), int(self.dice.uniform(0.1, 0.4) * self.width)
        for y in range(int(self.dice.uniform(0.1, 0.5) * self.height), int(0.85 * self.height), 22):
            words = "".join(self.dice.choice(list("abcdefghij klmnop 0123456789"), 18))
            self.ink(lambda draw, fill, y=y, words=words: draw.text((x, y), words, fill, font), color)  # type: ignore[misc]

    def grain(self, most: int) -> None:
        """Noise of paper, up to so many values."""
        values = np.asarray(self.image).astype(np.int16) + self.dice.integers(-most, most + 1, (*self.size[::-1], 1))
        self.image = Image.fromarray(values.clip(0, 255).astype(np.uint8))

    def lost(self, box: tuple[int, int, int, int]) -> int:
        """Pixels of ink outside of the box that differ from the paper by more than the tolerance."""
        differs = (np.abs(np.asarray(self.image).astype(int) - np.array(self.paper)) > TOLERANCE + 8).any(axis=2)
        ink = differs & (np.asarray(self.mask) > 0)
        inside = np.zeros_like(ink)
        inside[box[1] : box[3], box[0] : box[2]] = True
        return int((ink & ~inside).sum())


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
    off = 3 + int(page.dice.uniform(0, 0.06) * page.width)
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
    page.header = words  # type: ignore[attr-defined]


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


PAPERS: dict[Callable[[Page], None], Paint] = {
    _inverted: (12, 12, 20),
    _colored_ink_of_the_paper_s_brightness: (120, 210, 190),
}
KINDS = [
    _plain, _black_borders, _skewed_border, _border_with_ink_beside_it, _photograph, _photograph_with_white_sky, _noise,
    _inverted, _stamp_at_the_edge, _thin_rules_in_the_margin, _punch_holes, _specks, _white_on_black_header,
    _one_glyph_in_a_corner, _colored_ink_of_the_paper_s_brightness, _print_in_the_outermost_pixels,
]  # fmt: skip
WHOLE = {_photograph, _photograph_with_white_sky, _noise}


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_no_ink_is_lost(kind: Callable[[Page], None], seed: int) -> None:
    page = Page(seed, PAPERS.get(kind))
    kind(page)
    box = margins(page.image)
    assert page.lost(box) == 0
    assert 0 <= box[0] < box[2] <= page.width
    assert 0 <= box[1] < box[3] <= page.height
    if kind in WHOLE:
        assert box == (0, 0, *page.size)
    if kind is _white_on_black_header:
        words = page.header.getbbox()  # type: ignore[attr-defined]
        assert (min(box[0], words[0]), min(box[1], words[1])) == box[:2]
        assert (max(box[2], words[2]), max(box[3], words[3])) == box[2:]


@pytest.mark.parametrize("kind", [_plain, _black_borders, _skewed_border, _specks, _inverted])
def test_margins_borders_and_specks_are_trimmed(kind: Callable[[Page], None]) -> None:
    for seed in (0, 1, 3, 4, 7):
        page = Page(seed, PAPERS.get(kind))
        kind(page)
        x0, y0, x1, y1 = margins(page.image)
        ink = page.mask.getbbox()
        assert ink is not None
        area = (ink[2] - ink[0]) * (ink[3] - ink[1]) / page.width / page.height
        left = (x1 - x0) * (y1 - y0) / page.width / page.height
        assert left < max(0.5 + area / 2, 0.3), (seed, left, area)


def _psnr(one: Image.Image, other: Image.Image) -> float:
    error = np.mean((np.asarray(one, dtype=float) - np.asarray(other, dtype=float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def _page() -> Page:
    page = Page(3)
    for y in range(400, 1000, 30):
        page.ink(lambda draw, fill, y=y: draw.text((300, y), "Total 1,204.50", fill, ImageFont.load_default(20)))  # type: ignore[misc]
    return page


def test_without_trim_the_box_is_the_whole_image_and_a_photograph_is_fitted_alike() -> None:
    page = _page()
    assert fit(page.image, 300).box == (0, 0, 1100, 1500)
    _photograph(page)
    trimmed, plain = fit(page.image, 300, trim=True), fit(page.image, 300)
    assert trimmed == plain


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_box_and_scale_lead_back_to_the_upright_original(orientation: int, form: str) -> None:
    page, exif, out = _page(), Image.Exif(), io.BytesIO()
    page.image = page.image.resize((2200, 3000)) if form == "JPEG" else page.image  # decoded at a half of its sides
    exif[ExifTags.Base.Orientation] = orientation
    page.image.save(out, form, exif=exif)
    whole = open_image(out.getvalue())
    fitted, plain = fit(out.getvalue(), 120, trim=True), fit(out.getvalue(), 120)
    x0, y0, x1, y1 = fitted.box
    assert (x1 - x0) * (y1 - y0) < 0.4 * whole.width * whole.height
    assert fitted.scale == (fitted.image.width / (x1 - x0), fitted.image.height / (y1 - y0))
    assert fitted.tokens <= 120
    assert fitted.native == plain.native
    assert max(fitted.scale) > 1.4 * max(plain.scale)
    expected = whole.crop(fitted.box).resize(fitted.image.size, Image.Resampling.BICUBIC)
    assert _psnr(fitted.image, expected) > 36
    # A point of the fitted image goes back to the same ink.
    dark = np.argwhere(np.asarray(fitted.image.convert("L")) < 120)
    for y, x in dark[:: len(dark) // 10]:
        at_x, at_y = x0 + (x + 0.5) / fitted.scale[0], y0 + (y + 0.5) / fitted.scale[1]
        reach = 2 / min(fitted.scale)
        around = whole.convert("L").crop((int(at_x - reach), int(at_y - reach), int(at_x + reach), int(at_y + reach)))
        assert around.getextrema()[0] < 120  # type: ignore[operator]


def test_a_trimmed_jpeg_is_decoded_at_three_times_its_target() -> None:
    page, out = _page(), io.BytesIO()
    page.image.resize((3300, 4500)).save(out, "JPEG")
    fitted = fit(out.getvalue(), 200, trim=True)
    with Image.open(io.BytesIO(out.getvalue())) as image:
        exact = image.resize(fitted.image.size, Image.Resampling.BICUBIC, box=fitted.box)
    assert fitted.scale[0] < 1 / GAP
    assert _psnr(fitted.image, exact.convert("RGB")) > 40


@pytest.mark.parametrize("size", [(1, 1), (2, 300), (40, 7000), (513, 60), (29, 31)])
def test_blank_thin_and_tiny_images_stay_whole(size: tuple[int, int]) -> None:
    assert margins(Image.new("L", size, 255)) == (0, 0, *size)
    assert fit(Image.new("RGB", size, "white"), 16384, upscale=True, stretch=99, trim=True).box == (0, 0, *size)


def test_what_is_cut_off_real_pages_is_mostly_paper(real_data: Path) -> None:
    files = sorted(real_data.glob("*/images/*.jp*g"))[::8]
    for file in files:
        image = open_image(file)
        x0, y0, x1, y1 = margins(image)
        dark = np.asarray(image.convert("L")) < 100
        across, down = np.ones(image.width, dtype=bool), np.ones(image.height, dtype=bool)
        across[x0:x1], down[y0:y1] = False, False
        outside = dark & (across[None, :] | down[:, None])
        assert outside.sum() <= 0.1 * max(1, outside.size - (x1 - x0) * (y1 - y0)), file.name
