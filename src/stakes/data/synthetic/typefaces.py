"""Which letters does a page have? A family's own pool, and in training many more, some of them bent.

A reader that is trained on a dozen typefaces learns them by heart: on test forms in a thirteenth it misread 23 values
in 100, on those with nothing new 5. So half of the training pages are set in typefaces that no other page has, and half
of all training pages have theirs bent: narrower or wider, slanted, bolder or lighter.

    typeface(dice, FORMS)     # ("Go-Regular", "Go-Bold"), or in training ("Karla-Regular~2", "Karla-Bold~2")
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from stakes.data.synthetic.dice import Dice, Pool

BENT = 0.5

# (width, slant, weight): how wide, how far a letter leans per pixel of height, how much its strokes gain or lose
BENDS = ((0.87, 0.0, 0.0), (1.13, 0.0, 0.0), (1.0, 0.14, 0.0), (0.94, 0.22, 0.0), (1.0, 0.0, 0.6), (1.06, 0.0, -0.3))

# (text, bold) pairs for training only
TRAINING = (
    ("Karla-Regular", "Karla-Bold"),
    ("Quicksand-Medium", "Quicksand-Bold"),
    ("Cantarell-Regular", "Cantarell-Bold"),
    ("Sora-Regular", "Karla-Bold"),
    ("Manrope-Regular", "Cantarell-Bold"),
    ("AveriaSansGWF-Regular", "Karla-Bold"),
    ("AveriaSerifGWF-Regular", "AveriaSerifGWF-Regular"),
    ("GFSDidot", "LiberationSerif-Bold"),
    ("Prociono", "LiberationSans-Bold"),
    ("LeagueMono-Regular", "Karla-Bold"),
    ("mononoki-Regular", "Quicksand-Bold"),
    ("OpenSans-Regular", "VeraBd"),
    ("LibreFranklin-Regular", "LibreFranklin-Bold"),
    ("Chivo-Regular", "LibreFranklin-Bold"),
    ("QuattrocentoSans-Regular", "LibreFranklin-Bold"),
    ("IBMPlexSansCondensed-Regular", "LibreFranklin-Bold"),
    ("Vera", "VeraBd"),
    ("VeraSe", "VeraSeBd"),
    ("IBMPlexSerif-Regular", "VeraSeBd"),
    ("LibreCaslonText-Regular", "VeraSeBd"),
    ("LibreBaskerville-Regular", "LiberationSerif-Bold"),
    ("IbarraRealNova-Regular", "Bitter-Bold"),
    ("Bitter-Regular", "Bitter-Bold"),
    ("VeraMono", "VeraBd"),
    ("IBMPlexMono-Regular", "IBMPlexMono-Regular"),
    ("LibertinusMono-Regular", "VeraSeBd"),
)

# In each pool the second part is kept out of training.
FORMS = Pool(  # and charts
    (
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("LiberationSerif-Regular", "LiberationSerif-Bold"),
        ("LiberationSerif-Regular", "LiberationSerif-Bold"),
        ("LiberationSerif-Regular", "LiberationSans-Bold"),
        ("LiberationMono-Regular", "LiberationMono-Regular"),
        ("Go-Regular", "Go-Bold"),
        ("Go-Mono", "Go-Bold"),
        ("RobotoSlab-Regular", "RobotoSlab-Bold"),
        ("Cabin-Regular", "Go-Bold"),
        ("CourierPrime-Regular", "CourierPrime-Regular"),
    ),
    (("Caladea-Regular", "Caladea-Regular"), ("Oxygen-Sans", "Oxygen-Sans")),
    TRAINING,
)
POSTERS = Pool(  # infographics
    (
        ("LiberationSans-Regular", "LiberationSans-Bold"),
        ("Go-Regular", "Go-Bold"),
        ("RobotoSlab-Regular", "RobotoSlab-Bold"),
        ("Cabin-Regular", "Go-Bold"),
        ("LiberationSans-Regular", "YanoneKaffeesatz-Bold"),
        ("LiberationSerif-Regular", "LiberationSans-Bold"),
    ),
    (("Oxygen-Sans", "Oxygen-Sans"), ("Caladea-Regular", "Caladea-Regular")),
    TRAINING,
)
SIGNS = Pool(
    (
        ("LiberationSans-Bold",),
        ("LiberationSerif-Bold",),
        ("Go-Bold",),
        ("RobotoSlab-Bold",),
        ("YanoneKaffeesatz-Bold",),
        ("LiberationSans-Regular",),
    ),
    (("Caladea-Regular",), ("Oxygen-Sans",)),
    tuple((name,) for name in dict.fromkeys(name for pair in TRAINING for name in pair)),
)


Names = TypeVar("Names", bound=tuple[str, ...])


def typeface(dice: Dice, choices: Pool[Names]) -> Names:
    """Names for ``face``: of this family's pool, or in training also others, each with its bend behind a ``~``."""
    names = dice.pick(choices, "font")
    if not (dice.training and dice.chance(BENT)):
        return names
    bend = dice.randrange(len(BENDS))
    return cast(Names, tuple(f"{name}~{bend}" for name in names))


# How does a character look? A typeface at a size, straight or bent, each character rendered once and then copied.
#
# Every character is rendered once per face with Pillow's basic layout engine and then copied, without kerning: eight
# times as fast as rendering each run (hinting costs 20 us a glyph), exact positions, and the same bytes with and
# without libraqm.
#
#     face("Go-Regular", 14).mask("Total")      # the coverage of a run of text
#     face("Go-Regular~2", 14)                  # the same, slanted: the third of ``typefaces.BENDS``


FONTS = Path(__file__).parent / "fonts"
PAD = 4  # pixels that a character may reach over either side of its advance
SMALLEST = 9  # pixels; below this a page is not legible even at its native size
FINER = 3  # a bent character is drawn so many times as large, bent there, and averaged down
LEANING = 36  # pixels; larger characters are not slanted, as they would reach over PAD


@dataclass(frozen=True)
class Face:
    """One typeface at one size, with the advance of every printable character."""

    name: str
    size: int
    font: ImageFont.FreeTypeFont
    advances: dict[str, int]
    ascent: int
    height: int
    middle: float  # from the top of the line to the middle of the small letters
    bend: int | None = None
    _cells: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    def width(self, text: str) -> int:
        """How far the text runs, in pixels."""
        advances = self.advances
        return sum([advances[c] for c in text])

    def _cell(self, char: str) -> npt.NDArray[np.uint8]:
        """The coverage of one character, (height, advance + 2 PAD)."""
        if self.bend is None:
            image = Image.new("L", (self.advances[char] + 2 * PAD, self.height))
            ImageDraw.Draw(image).text((PAD, 0), char, fill=255, font=self.font)
        else:
            image = self._bent(char, *BENDS[self.bend])
        cell = self._cells[char] = np.array(image)
        return cell

    def _bent(self, char: str, width: float, slant: float, weight: float) -> Image.Image:
        """The same of a bent character: ``font`` is FINER times as large, and the lean is around half the ascent."""
        base, pad = FINER * self.ascent, FINER * PAD
        size = FINER * (self.advances[char] + 2 * PAD), FINER * self.height
        image = Image.new("L", (round(size[0] / width) + 2 * pad, size[1]))
        ImageDraw.Draw(image).text((pad, base), char, fill=255, font=self.font, anchor="ls")
        if weight:
            other = image.filter(ImageFilter.MaxFilter(3) if weight > 0 else ImageFilter.MinFilter(3))
            image = Image.blend(image, other, abs(weight))
        lean = slant if self.size <= LEANING else 0.0
        shift = pad - pad / width - lean / width * base / 2
        return image.transform(
            size, Image.Transform.AFFINE, (1 / width, lean / width, shift, 0, 1, 0), Image.Resampling.BILINEAR
        ).reduce(FINER)

    def mask(self, text: str) -> Image.Image:
        """The coverage of a run of text, from PAD pixels before its start to PAD after its end."""
        run = np.zeros((self.height, self.width(text) + 2 * PAD), np.uint8)
        x, cells = 0, self._cells
        for char in text:
            if char != " ":
                cell = cells.get(char)
                if cell is None:
                    cell = self._cell(char)
                part = run[:, x : x + cell.shape[1]]
                np.maximum(part, cell, out=part)
            x += self.advances[char]
        return Image.frombuffer("L", run.shape[::-1], run, "raw", "L", 0, 1)


@cache
def face(name: str, size: int) -> Face:
    """The typeface of this name, bent if it ends in ``~n``, at this size in pixels; never too small to read."""
    size = max(SMALLEST, size)
    stored, _, bend = name.partition("~")
    path = str(next(FONTS.glob(f"{stored}.?tf")))
    font = ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
    ascent, descent = font.getmetrics()
    middle = (ascent + font.getbbox("x")[1]) / 2
    wide = BENDS[int(bend)][0] if bend else 1.0
    advances = {c: round(font.getlength(c) * wide) for c in map(chr, range(32, 127))}
    if bend:
        font = ImageFont.truetype(path, FINER * size, layout_engine=ImageFont.Layout.BASIC)
    return Face(name, size, font, advances, ascent, ascent + descent + 1, middle, int(bend) if bend else None)
