"""The typefaces of pages: which faces each family uses, and how a face draws text.

A reader that is trained on a dozen typefaces memorizes them: on test forms in a thirteenth it misread 23 values in 100,
on those with nothing new 5. So half of the training pages use typefaces that no other page of their family has, and
half of all training pages distort theirs: narrower or wider, slanted, bolder or lighter.

Every character is rendered once per face with Pillow's basic layout engine and then copied, without kerning. That is
eight times as fast as rendering each run (hinting costs 20 us a glyph), gives exact positions, and the same bytes with
and without libraqm.

    typeface(dice, FORMS)                     # ("Go-Regular", "Go-Bold"), or in training ("Karla-Regular~2", ...)
    face("Go-Regular", 14).mask("Total")      # the coverage of a text run
    face("Go-Regular~2", 14)                  # the same face with the third distortion, slanted
    face("/fonts/x-hack", 14)                 # the typeface of another folder's x-hack.ttf or .otf
"""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from stakes.data.synthetic.dice import Dice, Pool

DISTORTED_SHARE = 0.5

# (width, slant, weight): relative width, pixels of slant per pixel of height, gain or loss of stroke weight
DISTORTIONS = ((0.87, 0, 0), (1.13, 0, 0), (1, 0.14, 0), (0.94, 0.22, 0), (1, 0, 0.6), (1.06, 0, -0.3))
# How receipt printers print: narrow, very narrow, wide, double width, bold, faint. Only receipts use these.
PRINTERS = ((0.74, 0, 0), (0.62, 0, 0.3), (1.3, 0, 0), (1.7, 0, 0.3), (0.82, 0, 0.6), (0.9, 0, -0.4))
CHARACTERS = (*map(chr, range(32, 127)), *"€£")  # the last two are printed, but never part of an answer

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

# The second part of each pool is never used in training.
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
    """Names for ``face`` from a family's pool; in training half of them with a distortion, written ``name~index``."""
    names = dice.pick(choices, "font")
    if not (dice.training and dice.chance(DISTORTED_SHARE)):
        return names
    index = dice.randrange(len(DISTORTIONS))
    return cast(Names, tuple(f"{name}~{index}" for name in names))


FONTS = Path(__file__).parent / "fonts"
PAD = 4  # pixels that a character may extend over either side of its advance
SMALLEST = 9  # pixels; below this a page is not legible even at its native size
OVERSAMPLING = 3  # a distorted character is drawn this many times as large, distorted there, and averaged down
MAX_SLANTED = 36  # pixels; larger characters are not slanted, as they would extend beyond PAD


@dataclass(frozen=True)
class Face:
    """One typeface at one size, with the advance of every printable character."""

    name: str
    size: int
    font: ImageFont.FreeTypeFont
    advances: dict[str, int]
    ascent: int
    height: int
    middle: float  # from the top of the line to the middle of the lower-case letters
    distortion: int | None = None
    _cells: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    def width(self, text: str) -> int:
        """The width of the text in pixels."""
        return sum([self.advances[c] for c in text])

    def mask(self, text: str) -> Image.Image:
        """The coverage of a text run, from PAD pixels before its start to PAD after its end."""
        run = np.zeros((self.height, self.width(text) + 2 * PAD), np.uint8)
        x = 0
        for char in text:
            if char != " ":
                cell = self._cells.get(char)
                if cell is None:
                    cell = self._cells[char] = np.array(self._draw(char))
                part = run[:, x : x + cell.shape[1]]
                np.maximum(part, cell, out=part)
            x += self.advances[char]
        return Image.frombuffer("L", run.shape[::-1], run, "raw", "L", 0, 1)

    def _draw(self, char: str) -> Image.Image:
        """The coverage of one character, (advance + 2 PAD, height)."""
        if self.distortion is not None:
            return self._distorted(char, *(DISTORTIONS + PRINTERS)[self.distortion])
        image = Image.new("L", (self.advances[char] + 2 * PAD, self.height))
        ImageDraw.Draw(image).text((PAD, 0), char, fill=255, font=self.font)
        return image

    def _distorted(self, char: str, width: float, slant: float, weight: float) -> Image.Image:
        """The same, distorted. ``font`` is OVERSAMPLING times as large; the slant is around half the ascent."""
        base, pad = OVERSAMPLING * self.ascent, OVERSAMPLING * PAD
        size = OVERSAMPLING * (self.advances[char] + 2 * PAD), OVERSAMPLING * self.height
        image = Image.new("L", (round(size[0] / width) + 2 * pad, size[1]))
        ImageDraw.Draw(image).text((pad, base), char, fill=255, font=self.font, anchor="ls")
        if weight:
            other = image.filter(ImageFilter.MaxFilter(3) if weight > 0 else ImageFilter.MinFilter(3))
            image = Image.blend(image, other, abs(weight))
        slant = slant if self.size <= MAX_SLANTED else 0.0
        matrix = (1 / width, slant / width, pad - pad / width - slant / width * base / 2, 0, 1, 0)
        return image.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR).reduce(OVERSAMPLING)


@lru_cache(maxsize=8192)
def face(name: str, size: int) -> Face:
    """The typeface of this name, distorted if it ends in ``~index``, at this size in pixels and at least SMALLEST.

    A name with a folder is a file of that folder, else one of the package. An index counts DISTORTIONS, then PRINTERS.
    """
    size = max(SMALLEST, size)
    file = FONTS / name
    stored, _, index = file.name.partition("~")
    path = str(next(file.parent.glob(f"{stored}.?tf")))
    font = ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
    ascent, descent = font.getmetrics()
    middle = (ascent + font.getbbox("x")[1]) / 2
    width = (DISTORTIONS + PRINTERS)[int(index)][0] if index else 1.0
    advances = {c: round(font.getlength(c) * width) for c in CHARACTERS}
    if index:
        font = ImageFont.truetype(path, OVERSAMPLING * size, layout_engine=ImageFont.Layout.BASIC)
    return Face(name, size, font, advances, ascent, ascent + descent + 1, middle, int(index) if index else None)
