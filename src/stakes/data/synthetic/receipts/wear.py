"""Wear of a receipt between the till and the reader: worn print, marks on the paper, and the camera.

Print fades, breaks, bleeds, loses dots and is punched. Paper is tinted, shaded, folded, marked with a pen or a stamp,
and lies on a table. Cameras blur, scan at low resolution and compress. Only training pages are worn. Every step works
on whole planes with Pillow, about 20 ms a page, because render workers have to feed a GPU.
"""

import io
from functools import cache
from math import cos, pi, sin

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps

from stakes.data.synthetic.canvas import Color, grain
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box
from stakes.data.synthetic.receipts.paper import Size
from stakes.data.synthetic.typefaces import face
from stakes.data.synthetic.values import digits

SMALL = 12.5  # pixels: smaller print keeps its dots and strokes; worn, nobody can read it
TILE = 2100  # pixels: the tallest canvas, and space to shift the crop
PENS: tuple[Color, ...] = ((20, 30, 120), (10, 10, 20), (170, 30, 40), (30, 60, 160), (40, 40, 50), (20, 100, 60))
STAMPS = ("PAID", "RECEIVED", "COPY", "CASH", "VERIFIED", "APPROVED", "ENTERED", "CANCELLED", "CLAIMED")


def _noise(dice: Dice, columns: int, rows: int, low: float, high: float) -> npt.NDArray[np.uint8]:
    """A small plane of random levels."""
    rng = np.random.default_rng(dice.getrandbits(32))
    return rng.uniform(low, high, (rows, columns)).clip(0, 255).astype(np.uint8)


def plane(dice: Dice, size: Size, detail: int, low: float, high: float) -> Image.Image:
    """A smooth plane of levels between low and high, with ``detail`` blotches across."""
    rows = max(2, detail * size[1] // size[0])
    return Image.fromarray(_noise(dice, max(2, detail), rows, low, high)).resize(size, Image.Resampling.BILINEAR)


@cache
def _dots(period: int, kind: int) -> Image.Image:
    """A sheet of print dots: a matrix (kind 0), rows (1) or columns (2)."""
    y, x = np.mgrid[0:TILE, 0:1200]
    matrix = (np.sin(np.pi * x / period) ** 2 * np.sin(np.pi * y / period) ** 2) ** 0.5
    rows, columns = np.abs(np.sin(np.pi * y / period)), np.abs(np.sin(np.pi * x / period))
    chosen = (matrix, rows, columns)[kind]
    return Image.fromarray((255 * (0.25 + 0.75 * chosen).clip(0, 1)).astype(np.uint8))


@cache
def _specks(kind: int) -> Image.Image:
    """A sheet with small holes, as a worn print head or a dry ribbon leaves them."""
    rng = np.random.default_rng(kind)
    side = (1, 2, 3)[kind % 3]
    raw = Image.fromarray(rng.integers(0, 256, (TILE // side, 1200 // side), dtype=np.uint8))
    smooth = raw.filter(ImageFilter.BoxBlur(1 + kind // 3)).resize((1200, TILE), Image.Resampling.BILINEAR)
    return smooth.point([max(0, min(255, (v - 108) * 12)) for v in range(256)])


def _crop(dice: Dice, sheet: Image.Image, size: Size) -> Image.Image:
    """A random part of a sheet."""
    x, y = dice.randrange(max(1, sheet.width - size[0])), dice.randrange(max(1, sheet.height - size[1]))
    return sheet.crop((x, y, x + size[0], y + size[1]))


def _punch(dice: Dice, ink: Image.Image) -> None:
    """Remove ink in round holes and vertical streaks."""
    pen, (width, height) = ImageDraw.Draw(ink), ink.size
    for _ in range(dice.choice((1, 3, 8, 20))):
        x, y, r = dice.randrange(width), dice.randrange(height), dice.uniform(2, 11)
        pen.ellipse((x - r, y - r * dice.uniform(0.5, 1.2), x + r, y + r * dice.uniform(0.5, 1.2)), fill=0)
    if dice.chance(0.3):
        for _ in range(dice.randint(1, 4)):
            x = dice.randrange(width)
            pen.line((x, 0, x, height), fill=0, width=dice.choice((1, 1, 2)))


def strokes(dice: Dice, ink: Image.Image, size: float) -> Image.Image:
    """The ink of a worn printer; ``size`` is the type size in pixels."""
    if dice.chance(0.16):  # bleeding
        near = ImageChops.offset(ink, dice.choice((-1, 0, 1)), dice.choice((-1, 1)) if dice.chance(0.4) else 0)
        ink = ImageChops.lighter(ink, near)
    elif dice.chance(0.12) and size > 15:  # thin
        ink = Image.blend(ink, ImageChops.darker(ink, ImageChops.offset(ink, 1, 0)), dice.uniform(0.3, 0.8))
    small = size < SMALL
    if dice.chance(0.28) and not small:  # dot matrix and the rows of thermal heads
        period = max(2, round(size * dice.choice((0.11, 0.14, 0.17, 0.2))))
        ink = ImageChops.multiply(ink, _crop(dice, _dots(period, dice.choice((0, 0, 1, 1, 2))), ink.size))
    if dice.chance(0.28) and not small:  # broken strokes
        specks = _crop(dice, _specks(dice.randrange(6)), ink.size)
        ink = ImageChops.multiply(ink, ImageChops.lighter(specks, _level(dice, ink)))
    if dice.chance(0.3):  # fading
        low = dice.choice((40, 90, 140)) if not small else 160
        ink = ImageChops.multiply(ink, plane(dice, ink.size, dice.choice((2, 3, 5, 9)), low, 300))
    if dice.chance(0.25):
        _punch(dice, ink)
    return ink


def _level(dice: Dice, ink: Image.Image) -> Image.Image:
    """The least ink that a speck leaves: one level, or a smooth plane of levels."""
    if dice.chance(0.5):
        return plane(dice, ink.size, 4, 0, 330)
    return Image.new("L", ink.size, dice.choice((0, 60, 120, 170)))


def _tint(dice: Dice, low: int, high: int) -> Color:
    """The color of paper: white, gray, yellowish or bluish."""
    level = dice.randint(low, high)
    kind = dice.randrange(6)
    if kind <= 2:
        return (level, level, level)
    warm = dice.randint(0, 28)
    if kind <= 4:
        return (level, max(0, level - warm // 4), max(0, level - warm))
    return (max(0, level - warm // 2), max(0, level - warm // 3), level)


def surface(dice: Dice, size: Size, outline: list[tuple[float, float]]) -> Image.Image:
    """The empty paper on a table, shaded and folded."""
    paper = _tint(dice, 175, 255) if dice.chance(0.6) else _tint(dice, 235, 255)
    table = _tint(dice, 20, 250) if dice.chance(0.5) else _tint(dice, 150, 235)
    if dice.chance(0.08):
        table = (dice.randint(40, 160), dice.randint(40, 140), dice.randint(30, 120))
    ground = Image.new("RGB", size, table)
    ImageDraw.Draw(ground).polygon(outline, fill=paper, outline=tuple(max(0, v - dice.randint(0, 60)) for v in paper))
    if dice.chance(0.6):
        shade = plane(dice, size, dice.choice((2, 2, 3)), dice.choice((150, 185, 215)), 256)
        if dice.chance(0.35):
            _folds(dice, shade)
        ground = ImageChops.multiply(ground, Image.merge("RGB", (shade, shade, shade)))
    return ground


def _folds(dice: Dice, shade: Image.Image) -> None:
    """Draw dark creases across the shade."""
    pen, (width, height) = ImageDraw.Draw(shade), shade.size
    for _ in range(dice.randint(1, 5)):
        flat = dice.chance(0.7)
        a, b = dice.uniform(0, 1), dice.uniform(-0.06, 0.06)
        for offset in range(-3, 4):
            level = 255 - (4 - abs(offset)) * dice.choice((4, 8, 12))
            if flat:
                pen.line((0, a * height + offset, width, (a + b) * height + offset), fill=level)
            else:
                pen.line((a * width + offset, 0, (a + b) * width + offset, height), fill=level)


def _curve(dice: Dice) -> list[int]:
    """The tone curve of a scanner: other contrast and brightness, in 20 % nearly black and white."""
    if dice.chance(0.2):
        at, steep = dice.uniform(110, 200), dice.uniform(2, 6)
        return [round(max(0.0, min(255.0, (v - at) * steep + at))) for v in range(256)]
    gamma, gain, low = dice.uniform(0.6, 1.7), dice.uniform(0.85, 1.15), dice.uniform(0, 50)
    return [round(max(0.0, min(255.0, low + (255 - low) * (v / 255) ** gamma * gain))) for v in range(256)]


def capture(dice: Dice, image: Image.Image, size: float) -> Image.Image:
    """The page as a camera or scanner delivers it; small print is blurred less, so that it stays legible."""
    if dice.chance(0.35):
        image = image.point(_curve(dice) * 3)
    if dice.chance(0.25):  # a scan at low resolution
        most = max(1.0, min(1.9, size / 9.5))
        ratio = dice.uniform(1.0, most)
        small = (max(8, round(image.width / ratio)), max(8, round(image.height / ratio)))
        how = dice.choice((Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.BOX))
        image = image.resize(small, how).resize(image.size, Image.Resampling.BILINEAR)
    elif dice.chance(0.25):
        image = image.filter(ImageFilter.BoxBlur(dice.uniform(0.2, min(1.2, size / 18))))
    if dice.chance(0.4):
        image = grain(image, dice, dice.choice((4, 8, 12)))
    if dice.chance(0.45):
        packed = io.BytesIO()
        image.save(packed, "JPEG", quality=dice.randint(20 if size >= SMALL else 50, 80))
        image = Image.open(packed).convert("RGB")
    return image


def _scribble(dice: Dice, x: float, y: float, step: float, count: int) -> list[tuple[float, float]]:
    """The points of a scribble."""
    points, direction = [(x, y)], dice.uniform(0, 2 * pi)
    for _ in range(count):
        direction += dice.uniform(-1.3, 1.3)
        x, y = x + step * cos(direction) + step * 0.25, y + step * sin(direction) * 0.8
        points.append((x, y))
    return points


def _circle(dice: Dice, pen: ImageDraw.ImageDraw, box: tuple[float, float, float, float], ink: Color) -> None:
    """Draw an ellipse by hand, not quite closed."""
    left, top, right, bottom = box
    x, y, a, b = (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2
    first, turns, drift = dice.uniform(0, 2 * pi), dice.uniform(0.95, 1.25), dice.uniform(-0.08, 0.08)
    points = []
    for i in range(41):
        angle, grow = first + 2 * pi * turns * i / 40, 1 + drift * i / 40
        points.append((x + a * grow * cos(angle), y + b * grow * sin(angle)))
    pen.line(points, fill=ink, width=dice.choice((1, 2, 2, 3)), joint="curve")


def _write(dice: Dice, pen: ImageDraw.ImageDraw, at: tuple[float, float], size: int, ink: Color) -> None:
    """Write a number or a word by hand, or scribble."""
    hands = dice.extras.handwriting
    if hands and dice.chance(0.75):
        amount, number = f"{10 ** dice.uniform(0, 3):.2f}", digits(dice, dice.randint(2, 6))
        text = dice.choice((amount, number, dice.choice(STAMPS).title()))
        pen.bitmap((round(at[0]), round(at[1])), face(dice.choice(hands), size).mask(text), fill=ink)
    else:
        for _ in range(dice.randint(1, 3)):
            pen.line(_scribble(dice, at[0], at[1], size * 0.3, dice.randint(6, 20)), fill=ink, width=2, joint="curve")


def _stamp(dice: Dice, image: Image.Image) -> None:
    """Add a rubber stamp, rotated and faint."""
    letters = face("LiberationSans-Bold", dice.randint(22, 46)).mask(dice.choice(STAMPS))
    framed = ImageOps.expand(ImageOps.expand(letters, 6), 3, 255)
    rotated = framed.rotate(dice.uniform(-25, 25), expand=True, resample=Image.Resampling.BILINEAR)
    strength = dice.uniform(0.3, 0.7)
    mask = rotated.point([round(v * strength) for v in range(256)])
    at = (dice.randrange(-20, max(1, image.width - 80)), dice.randrange(image.height // 4, image.height))
    image.paste(dice.choice(PENS), at, mask)


def _dirt(dice: Dice, image: Image.Image) -> None:
    """Add the specks of a dirty scanner or copier."""
    pen, level = ImageDraw.Draw(image), dice.randint(0, 120)
    for _ in range(dice.randint(8, 70)):
        x, y, r = dice.uniform(0, image.width), dice.uniform(0, image.height), dice.uniform(0.4, 1.6)
        pen.ellipse((x - r, y - r, x + r, y + r), fill=(level, level, level))


def _free(dice: Dice, image: Image.Image, answers: list[Box], size: float) -> tuple[float, float]:
    """Where a mark hides none of the answers, if six attempts find such a point."""
    for _ in range(6):
        x, y = dice.uniform(0, image.width - 4 * size), dice.uniform(0, image.height - 2 * size)
        if not any(a < x + 5 * size and c > x - size and b < y + 3 * size and d > y - size for a, b, c, d in answers):
            break
    return x, y


def show_through(dice: Dice, ink: Image.Image) -> Image.Image:
    """The ink with faint, mirrored print of the other side."""
    strength = dice.uniform(0.04, 0.14)
    other = ImageOps.mirror(ImageChops.offset(ink, dice.randrange(60), dice.randrange(200)))
    return ImageChops.lighter(ink, other.point([round(v * strength) for v in range(256)]))


def add_marks(dice: Dice, image: Image.Image, size: float, answers: list[Box]) -> None:
    """Add a stamp and pen marks; ``answers`` are boxes that most marks leave free."""
    pen, ink = ImageDraw.Draw(image), dice.choice(PENS)
    if dice.chance(0.16):
        _stamp(dice, image)
    if dice.chance(0.12):
        _dirt(dice, image)
    for _ in range(dice.choice((0, 0, 0, 0, 1, 1, 2, 3))):
        hand = max(16, round(size * dice.uniform(1.3, 2.4)))
        x, y = _free(dice, image, answers, hand)
        style = dice.randrange(5)
        if style <= 1:
            _write(dice, pen, (x, y), hand, ink)
            if dice.chance(0.6):
                _circle(dice, pen, (x - hand * 0.5, y - hand * 0.4, x + hand * 2.8, y + hand * 1.5), ink)
        elif style == 2:
            tick = [(x, y), (x + hand * 0.3, y + hand * 0.5), (x + hand, y - hand * 0.4)]
            pen.line(tick, fill=ink, width=3, joint="curve")
        elif style == 3 and answers:
            left, top, right, bottom = dice.choice(answers)
            grow = dice.uniform(0.3, 0.8) * (bottom - top)
            _circle(dice, pen, (left - grow, top - grow, right + grow, bottom + grow), ink)
        else:
            points = _scribble(dice, x, y, hand * 0.5, dice.randint(4, 14))
            pen.line(points, fill=ink, width=dice.choice((1, 2, 3)), joint="curve")
