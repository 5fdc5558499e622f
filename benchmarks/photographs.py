"""What does a 12-megapixel photograph of a page look like? Made here, so that speed can be measured without anyone's.

    photograph(0)                            # a page drawn here
    photograph(0, Image.open("page.png"))    # a page of one's own

A page (text in several sizes, a table, paper grain) lies a little turned on a table top, seen in perspective, lit from
one side with a vignette, through a lens that is not quite sharp. The sensor adds shot noise, which demosaicing
smears over neighbouring pixels, colour more than brightness; the phone sharpens and saves JPEG with halved colour
planes, as phones do, with the exposure in its EXIF. Seeds differ in print, angle, light, noise and quality (85 to 95).
"""

from __future__ import annotations

import io
import random

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageDraw, ImageFilter, ImageFont

Array = NDArray[np.float32]

PIXELS = (3000, 4000)  # upright, as a phone stores 12 megapixels
PAGE = (2480, 3508)  # A4 at 300 dpi
LETTERS = "abcdefghijklmnopqrstuvwxyz" * 4 + "0123456789$.,"


def photograph(seed: int, page: Image.Image | None = None) -> bytes:
    """A 3000 x 4000 JPEG. A lens as sharp as ``GaussianBlur(0.3)`` leaves 2 to 4 dB less than those drawn here."""
    dice = random.Random(seed)
    sheet = page.convert("RGB").resize(PAGE, Image.Resampling.LANCZOS) if page else drawn(dice)
    seen = _on_the_table(sheet, dice)
    light = np.square(np.asarray(seen, dtype=np.float32) / 255)  # about linear, as the sensor counts
    light *= _light(dice)[..., None]
    light += _sensor(light, dice.uniform(0.0004, 0.0025), seed)
    image = Image.fromarray((255 * np.sqrt(light.clip(0, 1))).round().astype(np.uint8))
    image = image.filter(ImageFilter.UnsharpMask(radius=1.2, percent=60, threshold=2))
    out = io.BytesIO()
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ExposureTime] = dice.choice([1 / 30, 1 / 60, 1 / 120])
    image.save(out, "JPEG", quality=dice.choice([85, 90, 92, 95]), subsampling="4:2:0", exif=exif)
    return out.getvalue()


def drawn(dice: random.Random) -> Image.Image:
    """A page of print: lines of text in several sizes, and a ruled table of numbers."""
    image = Image.new("RGB", PAGE, (250, 249, 245))
    draw, y = ImageDraw.Draw(image), 180
    while y < PAGE[1] - 240:
        ink = (dice.randint(10, 70),) * 3
        if dice.random() < 0.06 and y < PAGE[1] - 900:
            y = _table(draw, dice, y + 40) + 60
            continue
        size = dice.choice([30, 34, 34, 38, 42, 42, 50, 64, 96])
        words = " ".join("".join(dice.choices(LETTERS, k=dice.randint(2, 10))) for _ in range(40))
        draw.text((180, y), words[: int(2050 / size / 0.55)], ink, ImageFont.load_default(size))
        y += int(size * dice.choice([1.35, 1.35, 1.35, 2.2]))
    return image


def _table(draw: ImageDraw.ImageDraw, dice: random.Random, top: int) -> int:
    rows, columns, height = dice.randint(5, 9), dice.randint(3, 5), 72
    width = 2100 // columns
    for row in range(rows + 1):
        y = top + row * height
        draw.line((180, y, 180 + width * columns, y), (90, 90, 90), 3)
        for column in range(columns):
            if row < rows:
                number = f"{dice.randint(1, 99_999):,}.{dice.randint(0, 99):02d}"
                draw.text((200 + column * width, y + 16), number, (30, 30, 30), ImageFont.load_default(38))
    return top + rows * height


def _on_the_table(sheet: Image.Image, dice: random.Random) -> Image.Image:
    """The page in perspective, on wood-like stripes, blurred as by a lens."""
    width, height = PIXELS
    rng = np.random.default_rng(dice.randrange(2**32))
    grain = np.asarray(sheet, dtype=np.float32) + rng.normal(0, 2.0, (PAGE[1], PAGE[0], 1)).astype(np.float32)
    sheet = Image.fromarray(grain.clip(0, 255).round().astype(np.uint8))

    def corner(x: float, y: float) -> tuple[float, float]:
        return x * width + dice.uniform(-0.05, 0.05) * width, y * height + dice.uniform(-0.03, 0.03) * height

    corners = [corner(0.10, 0.07), corner(0.90, 0.07), corner(0.95, 0.94), corner(0.05, 0.94)]
    into = _perspective(corners, [(0, 0), (PAGE[0], 0), PAGE, (0, PAGE[1])])
    laid = sheet.transform(PIXELS, Image.Transform.PERSPECTIVE, into, Image.Resampling.BICUBIC)
    mask = Image.new("L", PAGE, 255).transform(PIXELS, Image.Transform.PERSPECTIVE, into, Image.Resampling.BILINEAR)
    stripes = Image.fromarray(rng.integers(60, 120, (8, 500), dtype=np.uint8)).resize(PIXELS, Image.Resampling.BICUBIC)
    table = Image.merge("RGB", [stripes.point([int(v * part) for v in range(256)]) for part in (1.25, 0.9, 0.65)])
    table.paste(laid, mask=mask)
    return table.filter(ImageFilter.GaussianBlur(dice.uniform(0.8, 1.6)))


def _perspective(source: list[tuple[float, float]], target: list[tuple[float, float]]) -> list[float]:
    """Eight numbers that take the four points of ``source`` to those of ``target``."""
    rows, right = [], []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return [float(n) for n in np.linalg.solve(np.array(rows), np.array(right))]


def _light(dice: random.Random) -> Array:
    """[height, width]: brighter on one side, darker in the corners."""
    width, height = PIXELS
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    slant = 1 + dice.uniform(-0.3, 0.3) * x + dice.uniform(-0.25, 0.25) * y
    return np.asarray(dice.uniform(0.6, 0.85) * slant * (1 - 0.12 * (x**2 + y**2)), dtype=np.float32)


def _sensor(light: Array, strength: float, seed: int) -> Array:
    """[height, width, 3] noise, its variance in proportion to the light; that of colours is in squares of 2 pixels."""
    rng = np.random.default_rng(seed)
    height, width, _ = light.shape
    bright = rng.standard_normal((height, width), dtype=np.float32)
    for axis in (0, 1):
        bright += np.float32(0.5) * np.roll(bright, 1, axis)
    colour = rng.standard_normal((height // 2, width // 2, 3), dtype=np.float32)
    colour = colour.repeat(2, axis=0).repeat(2, axis=1)
    return np.asarray((0.44 * bright[..., None] + 0.3 * colour) * np.sqrt(strength * light), dtype=np.float32)
