"""A sheet to print on that remembers every character and every question it was given.

    canvas = Canvas((756, 1008), dice)
    right = canvas.text(40, 60, "Total", face("Go-Regular", 14))
    canvas.answer(right + 8, 60, "$4,128.05", face("Go-Regular", 14), Ask("total", "high", "How much is the total?"))
    page = canvas.finish("forms", "forms/train/000001")

Every character is rendered once per face with Pillow's basic layout engine and then copied, without kerning: eight
times as fast as rendering each run (hinting costs 20 us a glyph), exact positions, and the same bytes with and
without libraqm.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from stakes.data.pages.dice import Dice
from stakes.data.pages.page import Box, Glyph, Page, Question

Colour = tuple[int, int, int]

FONTS = Path(__file__).parent / "fonts"
BLACK: Colour = (0, 0, 0)
PAD = 4  # pixels that a character may reach over either side of its advance
SMALLEST = 9  # pixels; below this a page is not legible even at its native size


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
    _cells: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    def width(self, text: str) -> int:
        """How far the text runs, in pixels."""
        advances = self.advances
        return sum([advances[c] for c in text])

    def _cell(self, char: str) -> npt.NDArray[np.uint8]:
        """The coverage of one character, (height, advance + 2 PAD)."""
        image = Image.new("L", (self.advances[char] + 2 * PAD, self.height))
        ImageDraw.Draw(image).text((PAD, 0), char, fill=255, font=self.font)
        cell = self._cells[char] = np.array(image)
        return cell

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
    """The typeface stored under this name, at this size in pixels; never smaller than can be read."""
    size = max(SMALLEST, size)
    path = next(FONTS.glob(f"{name}.?tf"))
    font = ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
    advances = {c: round(font.getlength(c)) for c in map(chr, range(32, 127))}
    ascent, descent = font.getmetrics()
    top = font.getbbox("x")[1]
    return Face(name, size, font, advances, ascent, ascent + descent + 1, (ascent + top) / 2)


@dataclass(frozen=True)
class Ask:
    """A question that is put on the page together with the value that answers it."""

    field: str
    tier: str
    text: str


class Canvas:
    """An image being drawn, with the questions and glyphs that it will carry."""

    def __init__(self, size: tuple[int, int], dice: Dice, paper: Colour = (255, 255, 255)) -> None:
        self.width, self.height = size
        self.dice = dice
        self.image = Image.new("RGB", size, paper)
        self.pen = ImageDraw.Draw(self.image)
        self.questions: list[Question] = []
        self._asked: set[str] = set()
        self._runs: list[tuple[float, float, str, Face, int]] = []

    def text(self, x: float, y: float, text: str, face: Face, ink: Colour = BLACK, question: int = -1) -> float:
        """Print text with the top of its line at ``y``; returns where it ends."""
        x, y = round(x), round(y)
        if not text:
            return x
        self.pen.bitmap((x - PAD, y), face.mask(text), fill=ink)
        self._runs.append((x, y + face.middle, text, face, question))
        return x + face.width(text)

    def answer(self, x: float, y: float, value: str, face: Face, ask: Ask, ink: Colour = BLACK) -> float:
        """Print a value and put the question that it answers."""
        if ask.text in self._asked:  # the same words for two values would have two answers
            return self.text(x, y, value, face, ink)
        end = self.text(x, y, value, face, ink, len(self.questions))
        box = (
            max(0, round(x)),
            max(0, round(y)),
            min(self.width, round(end)),
            min(self.height, round(y + face.size * 1.2)),
        )
        self.ask(ask, value, box)
        return end

    def run(self, x: float, y: float, text: str, face: Face, ink: Colour = BLACK) -> int:
        """Print text that may be asked for later; returns the number of the run."""
        self.text(x, y, text, face, ink)
        return len(self._runs) - 1

    def ask_run(self, number: int, ask: Ask) -> None:
        """Ask for a run that is printed already; a run answers one question only."""
        x, middle, text, face, question = self._runs[number]
        if question >= 0 or ask.text in self._asked:
            return
        top = middle - face.middle
        self._runs[number] = (x, middle, text, face, len(self.questions))
        self.ask(ask, text, (int(x), int(top), int(x) + face.width(text), int(top + face.size * 1.2)))

    def smaller(self, of: Face) -> Face:
        """The same typeface, one pixel smaller."""
        return face(of.name, of.size - 1)

    def ask(self, ask: Ask, value: str, box: Box | None) -> None:
        """Put a question whose answer is not a run of text, or is printed already."""
        self._asked.add(ask.text)
        self.questions.append(Question(ask.text, (value,), ask.tier, box, ask.field))

    def finish(self, family: str, document: str) -> Page:
        """The page as drawn."""
        glyphs: list[Glyph] = []
        add = glyphs.append
        for x, y, text, face, question in self._runs:
            advances = face.advances
            for char in text:
                advance = advances[char]
                if char != " ":
                    add(Glyph(x + advance / 2, y, char, question))
                x += advance
        return Page(family, document, self.image, tuple(self.questions), tuple(glyphs))
