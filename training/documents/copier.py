"""What happens to an office document before it is read: copiers, fax machines, hole punches, stamps and scanners.

Only training pages are worn. Print and paper wear as those of receipts do (``stakes.data.synthetic.receipts.wear``),
but less, and most scans are nearly black and white.
"""

from dataclasses import replace

from PIL import Image, ImageChops, ImageDraw, ImageFilter
from training.documents.sheet import Sheet

from stakes.data.synthetic.canvas import grain
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.receipts import wear
from stakes.data.synthetic.receipts.paper import Warp

LEGIBLE = 0.5  # the share of an answer's ink that must be left


def worn(sheet: Sheet) -> Image.Image:
    """The picture of a copied and scanned sheet."""
    dice, size = sheet.dice, (sheet.width, sheet.height)
    printed = sheet.ink.copy()
    sheet.ink = _print(dice, sheet.ink, sheet.look.point)
    sheet.drop_faded(printed, LEGIBLE)
    ink = sheet.ink
    if dice.chance(0.7):
        warp = _skew(Warp.draw(dice, size))
        sheet.bend(warp)
        ink = warp.apply(ink)
    paper = dice.randint(225, 255)
    ground = Image.new("RGB", size, (paper, paper, max(0, paper - dice.choice((0, 0, 0, 12, 25)))))
    image = Image.composite(Image.new("RGB", size, sheet.look.ink), ground, ink)
    if dice.chance(0.35):
        wear.add_marks(dice, image, sheet.look.point, [q.box for q in sheet.questions if q.box])
    _scanner(dice, image)
    return _capture(dice, image, sheet.look.point)


def _print(dice: Dice, ink: Image.Image, size: float) -> Image.Image:
    """The ink after the ribbon and the copier: thicker, thinner or broken."""
    style = dice.randrange(8)
    if style == 0 and size > 13:
        ink = ImageChops.lighter(ink, ImageChops.offset(ink, 1, 0))
    elif style == 1 and size > 13:
        ink = Image.blend(ink, ImageChops.darker(ink, ImageChops.offset(ink, 1, 0)), dice.uniform(0.3, 0.7))
    elif style == 2 and size > 11.5:
        ink = wear.strokes(dice, ink, size)
    elif style == 3:  # an uneven ribbon
        ink = ImageChops.multiply(ink, wear.plane(dice, ink.size, dice.choice((9, 30, 60)), 120, 300))
    if dice.chance(0.5) and size > 11.5:  # copied with a hard threshold: edges become rough
        rough = ink.filter(ImageFilter.BoxBlur(dice.uniform(0.2, 0.5)))
        noise = wear.plane(dice, ink.size, ink.width // 2, 20, dice.choice((70, 100, 130)))
        hard = ImageChops.subtract(rough, noise).point([255 if v else 0 for v in range(256)])
        ink = Image.blend(ink, hard, dice.uniform(0.4, 1.0))
    return ink


def _skew(warp: Warp) -> Warp:
    """A flat sheet on glass: hardly any perspective, mostly a degree of rotation."""
    return replace(
        warp, angle=warp.angle * 0.5, keystone=(0.0, 0.0), shear=0.0, curl=(0.0, 1.0, 0.0), sway=(0.0, 1.0, 0.0)
    )


def _scanner(dice: Dice, image: Image.Image) -> None:
    """Draw what copiers add: dark borders, punched holes, streaks and specks."""
    pen, (width, height) = ImageDraw.Draw(image), image.size
    if dice.chance(0.3):
        for _ in range(dice.randint(1, 2)):
            thick = dice.randint(3, 14)
            side = dice.randrange(4)
            box = (
                (0, 0, thick, height),
                (width - thick, 0, width, height),
                (0, 0, width, thick),
                (0, height - thick, width, height),
            )
            pen.rectangle(box[side], fill=(dice.randint(0, 60),) * 3)
    if dice.chance(0.2):
        x, r = dice.uniform(0.015, 0.04) * width, dice.uniform(5, 10)
        for part in dice.choice(((0.12, 0.5, 0.88), (0.3, 0.7))):
            pen.ellipse((x - r, part * height - r, x + r, part * height + r), fill=(dice.randint(0, 90),) * 3)
    if dice.chance(0.1):
        x = dice.randrange(width)
        pen.line((x, 0, x + dice.randint(-6, 6), height), fill=(dice.randint(60, 170),) * 3)
    if dice.chance(0.4):
        for _ in range(dice.randint(10, 120)):
            x, y, r = dice.uniform(0, width), dice.uniform(0, height), dice.uniform(0.3, 1.3)
            pen.ellipse((x - r, y - r, x + r, y + r), fill=(dice.randint(0, 120),) * 3)


def _capture(dice: Dice, image: Image.Image, size: float) -> Image.Image:
    """Nearly black and white, softened by a later reduction; or as a receipt is scanned."""
    if dice.chance(0.6):
        at, steep = dice.uniform(120, 200), dice.uniform(2, 8)
        image = image.point([round(max(0.0, min(255.0, (v - at) * steep + at))) for v in range(256)] * 3)
        if dice.chance(0.6):
            image = image.filter(ImageFilter.BoxBlur(dice.uniform(0.2, min(0.7, size / 22))))
        return grain(image, dice, 4) if dice.chance(0.2) else image
    return wear.capture(dice, image, size)
