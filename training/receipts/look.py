"""The look of a receipt: typeface, line length, ink and canvas size.

The second part of each pool is held out of training. ``add_typefaces`` lets training receipts use a folder of further
typefaces (``typefaces.md``).

    look = draw_look(dice, density=1.0)
    look.face(18, bold=True, wide=False).mask("TOTAL")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log
from pathlib import Path
from zlib import crc32

from PIL import Image, ImageFont

from stakes.data.synthetic import typefaces
from stakes.data.synthetic.canvas import Color
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.typefaces import OVERSAMPLING, SMALLEST, Face

Size = tuple[int, int]

SIZES: tuple[Size, ...] = (
    (560, 1176), (448, 1120), (504, 1288), (616, 1596), (644, 1176), (728, 1120), (700, 1316), (448, 1568), (812, 1148),
    (924, 1036), (1036, 924),
)  # fmt: skip
LARGE = tuple(size for size in SIZES if size[0] >= 700)

MONO = Pool(
    (
        *("LiberationMono-Regular", "VeraMono", "IBMPlexMono-Regular", "Go-Mono", "LeagueMono-Regular"),
        "CourierPrime-Regular",
    ),
    (),
    ("LibertinusMono-Regular", "mononoki-Regular"),
)
SANS = Pool(
    ("LiberationSans-Regular", "Vera", "Go-Regular", "IBMPlexSansCondensed-Regular", "OpenSans-Regular"),
    ("Oxygen-Sans",),
    ("Karla-Regular", "Cabin-Regular", "LibreFranklin-Regular", "Chivo-Regular", "LiberationSerif-Regular"),
)
BOLD = {
    "LiberationSans-Regular": "LiberationSans-Bold",
    "Vera": "VeraBd",
    "Go-Regular": "Go-Bold",
    "Karla-Regular": "Karla-Bold",
}
LOGOS = ("LiberationSans-Bold", "LiberationSans-Bold", "LiberationSerif-Bold", "Go-Bold", "RobotoSlab-Bold", "VeraBd")

# The package's distortions, and how receipt printers print: narrow, very narrow, wide, double width, bold, faint.
DISTORTIONS = (
    *typefaces.DISTORTIONS,
    *((0.74, 0, 0), (0.62, 0, 0.3), (1.3, 0, 0), (1.7, 0, 0.3), (0.82, 0, 0.6), (0.9, 0, -0.4)),
)
NARROW = ("", "~0", "~6", "~7", "~10", "~11", "~1", "~8", "~4", "~5")
HEAVY, WIDE = "~4", "~9"
CHARACTERS = (*map(chr, range(32, 127)), *"€£")  # no reader's vocabulary has the last two: printed, never an answer

DOTTED = ("bitcount", "doto", "dotgothic", "handjet", "jersey", "pixelify", "unifont", "vt323")

FOLDERS = [typefaces.FONTS]
MORE: list[str] = []  # further typefaces of training receipts
HANDWRITING: list[str] = []


def add_typefaces(folder: Path) -> int:
    """Let training receipts use the font files of a folder; returns how many there are.

    ``handwriting.txt`` in the folder names those that imitate handwriting. Call this before render workers fork.
    """
    listed = folder / "handwriting.txt"
    hands = set(listed.read_text().split()) if listed.exists() else set()
    names = sorted(file.stem for file in folder.glob("*.?tf"))
    FOLDERS.append(folder)
    HANDWRITING.extend(n for n in names if n in hands)
    MORE.extend(n for n in names if n not in hands)
    return len(names)


class _PrinterFace(Face):
    """A face whose distortions are those of receipts."""

    def _draw(self, char: str) -> Image.Image:
        return super()._draw(char) if self.distortion is None else self._distorted(char, *DISTORTIONS[self.distortion])


@lru_cache(maxsize=8192)
def face(name: str, size: int) -> Face:
    """As ``typefaces.face``, with the typefaces and distortions of receipts and two currency signs."""
    size = max(SMALLEST, size)
    stored, _, index = name.partition("~")
    path = str(next(file for folder in FOLDERS for file in folder.glob(f"{stored}.?tf")))
    font = ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
    ascent, descent = font.getmetrics()
    middle = (ascent + font.getbbox("x")[1]) / 2
    width = DISTORTIONS[int(index)][0] if index else 1.0
    advances = {c: round(font.getlength(c) * width) for c in CHARACTERS}
    if index:
        font = ImageFont.truetype(path, OVERSAMPLING * size, layout_engine=ImageFont.Layout.BASIC)
    number = int(index) if index else None
    return _PrinterFace(name, size, font, advances, ascent, ascent + descent + 1, middle, number)


@dataclass(frozen=True)
class Look:
    """Typefaces, leading and ink of one receipt; ``chars`` is how many letters fill a line."""

    name: str
    bold: str
    wide: str
    chars: int
    leading: float
    ink: Color
    foreign: str  # of a logo or a note

    def face(self, size: float, bold: bool, wide: bool) -> Face:
        """The typeface of a line."""
        return face(self.wide if wide else self.bold if bold else self.name, max(SMALLEST, round(size)))

    @property
    def letter_width(self) -> float:
        """The mean width of a letter in units of the type size."""
        return face(self.name, 20).width("ABCDEFGHIJKLMNOP 0123456789") / 27 / 20


def draw_look(dice: Dice, density: float) -> Look:
    """A random look; ``density`` above 1 prints smaller."""
    dotted = [n for n in MORE if n.removeprefix("x-").startswith(DOTTED)] if dice.training else []
    if dotted and dice.chance(0.12):
        name = dice.choice(dotted)
    elif dice.training and MORE and dice.chance(0.5):
        name = dice.choice(MORE)
    else:
        name = dice.pick(MONO if dice.chance(0.6) else SANS, "font")
    distortion = dice.choice(_distortions(name)) if dice.training else ""
    bold = BOLD[name] + distortion if name in BOLD else name + HEAVY
    chars = round(exp(dice.uniform(log(28), log(56))) * max(density, 1.0))
    return Look(name + distortion, bold, name + WIDE, chars, dice.uniform(1.05, 1.45), _ink(dice), dice.choice(LOGOS))


def _distortions(name: str) -> Sequence[str]:
    """No distortion and three others, always the same for a typeface: a render worker then reuses drawn letters."""
    return ("", *(NARROW[(crc32(name.encode()) + 3 * i) % len(NARROW)] for i in range(3)))


def _ink(dice: Dice) -> Color:
    """Black, gray, or the blue and violet of thermal paper and ribbons, on training pages often pale."""
    if dice.training and dice.chance(0.1):
        pale = dice.randint(60, 165)
        return (pale + dice.randint(-10, 15), pale, min(255, pale + dice.randint(60, 100)))
    dark = dice.choice((0, 0, 20, 40, 60, 90))
    if dice.chance(0.2):
        return (dark + 20, dark + 20, min(255, dark + dice.randint(60, 130)))
    return (dark, dark, dark)


def canvas_size(dice: Dice, aspect: float) -> Size:
    """A canvas about as tall as the receipt needs; 10 % of the time any."""
    if dice.chance(0.1):
        return dice.choice(SIZES)
    return dice.weighted(SIZES, [exp(-8 * abs(log(h / w / aspect))) + 0.002 for w, h in SIZES])
