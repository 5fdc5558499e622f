"""How does a character look? A typeface at a size, straight or bent, each character rendered once and then copied.

Every character is rendered once per face with Pillow's basic layout engine and then copied, without kerning: eight
times as fast as rendering each run (hinting costs 20 us a glyph), exact positions, and the same bytes with and
without libraqm.

    face("Go-Regular", 14).mask("Total")      # the coverage of a run of text
    face("Go-Regular~2", 14)                  # the same, slanted: the third of ``typefaces.BENDS``
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from stakes.data.pages.typefaces import BENDS

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
