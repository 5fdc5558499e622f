"""Trimming: margins and scanner borders go, ink never does, and coordinates lead back to the original."""

import io
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.trim_page import Page
from benchmarks.trim_pages import KINDS, TRIMMED, WHOLE, make, name_of
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageDraw, ImageFont

from stakes.vision.image import resize, scanned_paper
from stakes.vision.image.decode import Picture, open_image
from stakes.vision.image.modes import Pixels, gray_values
from stakes.vision.image.resize import GAP, fit
from stakes.vision.image.trim import margins


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_no_ink_is_lost(kind: Callable[[Page], None]) -> None:
    for seed in (2, 3, 4, 7):
        page = make(kind, seed)
        box = margins(page.image)
        assert page.lost(box) == 0, (seed, box)
        assert 0 <= box[0] < box[2] <= page.width
        assert 0 <= box[1] < box[3] <= page.height
        if name_of(kind) in WHOLE:
            assert box == (0, 0, *page.size)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if name_of(kind) in TRIMMED], ids=name_of)
def test_margins_borders_lines_and_specks_are_trimmed(kind: Callable[[Page], None]) -> None:
    for seed in (0, 1, 3, 4, 7):
        page = make(kind, seed)
        x0, y0, x1, y1 = margins(page.image)
        ink = page.mask.getbbox()
        assert ink is not None
        area = (ink[2] - ink[0]) * (ink[3] - ink[1]) / page.width / page.height
        left = (x1 - x0) * (y1 - y0) / page.width / page.height
        assert left < max(0.5 + area / 2, 0.3), (seed, left, area)


@pytest.mark.parametrize("kind", KINDS[::3], ids=name_of)
def test_packed_and_resized_pixels_have_the_margins_of_the_image(kind: Callable[[Page], None]) -> None:
    """The fourth byte of Pillow's RGB is 255 in a decoded image and 0 in a resized one."""
    image = make(kind, 5).image.resize((700, 900), Image.Resampling.BICUBIC)
    decoded = Image.frombytes("RGB", image.size, image.tobytes())
    assert margins(image) == margins(decoded) == margins(Pixels(image.tobytes(), image.size))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_the_margins_of_any_small_image_lie_within_it(mode: str) -> None:
    dice = np.random.default_rng(0)
    for width in range(1, 25):
        for height in range(1, 25):
            values = np.full((height, width), 255, dtype=np.uint8)
            values[dice.random(values.shape) < 0.2] = 0
            values[-1] = 0
            x0, y0, x1, y1 = margins(Image.fromarray(values).convert(mode))
            assert 0 <= x0 < x1 <= width
            assert 0 <= y0 < y1 <= height
    assert fit(Image.new(mode, (4, 3), "white"), 6, trim=True).box == (0, 0, 4, 3)


@pytest.mark.parametrize(("dots", "kept"), [(2, False), (3, True)])
def test_two_specks_in_a_line_go_and_three_dots_stay(dots: int, kept: bool) -> None:
    dice = np.random.default_rng(0)
    values = np.clip(dice.normal(235, 2, (1000, 800)), 0, 255).astype(np.uint8)  # paper as a scanner sees it
    values[300:500, 200:600] = 20
    for x in range(200, 200 + 60 * dots, 60):
        values[800:803, x : x + 3] = 20
    assert (margins(Image.fromarray(values))[3] > 803) == kept


def test_a_sparse_page_is_no_scan_of_one_bit() -> None:
    """Its samples see two values, as those of such a scan do; the edges of its print have values between."""
    page = Image.new("L", (1000, 1400), 255)
    draw = ImageDraw.Draw(page)
    draw.rectangle((500, 300, 510, 310), 0)
    draw.text((500, 1375), "836", 0, ImageFont.load_default(13), anchor="mm")
    scan = page.point(lambda value: 255 * (value > 128))
    assert [set(np.unique(scanned_paper.ScannedPaper(one, 32).grid)) for one in (page, scan)] == [{0, 255}] * 2
    assert [scanned_paper.ScannedPaper(one, 32).is_clean((0, 0, 0, 0)) for one in (page, scan)] == [True, False]
    assert margins(page)[3] > 1380


def test_small_print_of_a_large_page_is_larger_than_a_speck() -> None:
    page = Image.new("L", (3000, 4000), 235)
    draw = ImageDraw.Draw(page)
    draw.rectangle((900, 1200, 2100, 2600), 20)
    draw.text((1500, 3500), "8", 20, ImageFont.load_default(14))
    assert margins(page)[3] > 3510


def test_gray_values_are_those_of_the_image() -> None:
    image = make(KINDS[0], 5).image.convert("L")
    before = image.tobytes()
    values = gray_values(image)
    assert np.array_equal(values, np.asarray(image))
    values[:] = 0
    assert image.tobytes() == before


@pytest.mark.parametrize("paper", [255, 200], ids=["white", "darker"])
@pytest.mark.parametrize("side", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_squares_hold_ink_where_a_pixel_does(mode: str, side: int, paper: int) -> None:
    """Also in parts of fewer rows or columns than a square has."""
    dice = np.random.default_rng(side)
    shape = (90, 70) if mode == "L" else (90, 70, 3)
    values = np.where(dice.random(shape) < 0.002, dice.integers(0, 256, shape), paper).astype(np.uint8)
    seen = scanned_paper.ScannedPaper(Image.fromarray(values), 32)
    ink = (np.abs(values.astype(int) - paper) > 32).reshape(*shape[:2], -1).any(axis=2)
    for width, height in ((70, 90), (33, 1), (1, 33), (3, 3), (64, 64)):
        wanted = np.zeros((-(-height // side), -(-width // side)), dtype=bool)
        for y, x in np.argwhere(ink[:height, :width]):
            wanted[y // side, x // side] = True
        assert np.array_equal(seen.differs(seen.part((0, 0, width, height)), side), wanted)


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
    page = next(make(kind, 3) for kind in KINDS if name_of(kind) == "photograph")
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


@pytest.mark.parametrize("upright", [False, True])
def test_a_long_image_with_a_dark_strip_along_its_long_edge_is_trimmed(upright: bool) -> None:
    values = np.full((129, 1025), 255, dtype=np.uint8)
    values[:12], values[50:90, 300:700] = 0, 0  # 8 : 1, where the rim is deeper than the deepest strip
    x0, y0, x1, y1 = margins(Image.fromarray(values.T if upright else values))
    left, top, right, bottom = (y0, x0, y1, x1) if upright else (x0, y0, x1, y1)
    assert 250 < left <= 300 < 700 <= right < 750
    assert 12 < top <= 50 < 90 <= bottom < 129


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


def test_what_is_left_too_thin_for_the_budget_is_shown_whole() -> None:
    line = Image.new("RGB", (1000, 100), "white")
    line.paste("black", (20, 48, 980, 53))
    assert fit(line, 32, trim=True) == fit(line, 32)
    assert fit(line, 64, trim=True).box[3] < 100


def test_an_image_that_keeps_its_margins_is_not_held_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway reserves the memory of one decoding."""
    page, out, opened = Image.new("RGBA", (600, 800), "white"), io.BytesIO(), list[weakref.ref[Picture]]()
    page.paste("black", (200, 300, 400, 500))
    page.save(out, "PNG")

    def alone(*source: Any, **options: Any) -> Picture:
        assert not any(one() is not None for one in opened)
        made = Picture(*source, **options)
        opened.append(weakref.ref(made))
        return made

    monkeypatch.setattr(resize, "Picture", alone)
    assert fit(out.getvalue(), 64, trim=600).box == (0, 0, 600, 800)
    assert len(opened) == 2


def test_a_jpeg_that_is_decoded_again_is_not_held_decoded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the page is enlarged, so its pixels at a reduced size are not enough."""
    page, out, decoded = Image.new("L", (3000, 4000), 250), io.BytesIO(), list[weakref.ref[Image.Image]]()
    page.paste(0, (1000, 1300, 2000, 2700))
    page.save(out, "JPEG")
    decode = Picture.pixels

    def alone(self: Picture, **options: Any) -> Any:
        assert not any(one() is not None for one in decoded)
        made = decode(self, **options)
        decoded.append(weakref.ref(made[0]))
        return made

    monkeypatch.setattr(Picture, "pixels", alone)
    assert fit(out.getvalue(), 304, trim=True).box != (0, 0, 3000, 4000)
    assert len(decoded) == 2


def test_a_large_sparse_page_is_looked_at_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it at once would take 13 bytes a pixel beside the image."""
    page = Image.new("RGB", (2400, 3000), "white")
    page.paste("black", (1000, 1200, 1300, 1206))
    boxes, part = list[scanned_paper.Bounds](), scanned_paper.ScannedPaper.part

    def seen(self: scanned_paper.ScannedPaper, box: scanned_paper.Bounds) -> NDArray[np.uint8]:
        boxes.append(box)
        return part(self, box)

    monkeypatch.setattr(scanned_paper.ScannedPaper, "part", seen)
    box = margins(page)
    assert box != (0, 0, *page.size)
    assert sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes) >= 2400 * 3000
    assert max((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes) < 2400 * 3000 / 8
