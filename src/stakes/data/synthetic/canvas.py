"""A sheet to print on that remembers every character and every question it was given.

canvas = Canvas((756, 1008), dice)
right = canvas.text(40, 60, "Total", face("Go-Regular", 14))
canvas.answer(right + 8, 60, "$4,128.05", face("Go-Regular", 14), Ask("total", "high", "How much is the total?"))
page = canvas.finish("forms", "forms/train/000001")
"""

import random
from dataclasses import dataclass
from functools import cache

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box, Glyph, Page, Question
from stakes.data.synthetic.typefaces import PAD, Face, face

Colour = tuple[int, int, int]

BLACK: Colour = (0, 0, 0)


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
        for x, y, text, letters, question in self._runs:
            advances = letters.advances
            for char in text:
                advance = advances[char]
                if char != " ":
                    add(Glyph(x + advance / 2, y, char, question))
                x += advance
        return Page(family, document, self.image, tuple(self.questions), tuple(glyphs))


# What scanning does to a page: tint, grain, a little unsharpness; and the walls that signs hang on.
#
# Grain is cut from one noise tile made once per process from a fixed seed, so a page pays for an addition only.


TILE = 1640  # the largest canvas plus room to shift the cut


@cache
def _grain(strength: int) -> Image.Image:
    """Noise around 128, ``strength`` levels wide, as RGB."""
    source = random.Random(f"stakes grain {strength}")
    raw = Image.frombytes("L", (TILE, TILE), source.randbytes(TILE * TILE))
    low = 128 - strength
    soft = raw.point([low + value * 2 * strength // 255 for value in range(256)])
    return Image.merge("RGB", (soft, soft, soft))


def grain(image: Image.Image, dice: Dice, strength: int) -> Image.Image:
    """The image with noise of up to ``strength`` levels either way."""
    width, height = image.size
    left, top = dice.randrange(TILE - width), dice.randrange(TILE - height)
    return ImageChops.add(image, _grain(strength).crop((left, top, left + width, top + height)), 1, -128)


def scan(image: Image.Image, dice: Dice) -> Image.Image:
    """The page as a scanner would deliver it: half of the pages clean, the others tinted, grainy or soft."""
    if dice.chance(0.4):
        paper: Colour = (dice.randint(236, 255), dice.randint(234, 252), dice.randint(222, 248))
        ink = dice.randint(0, 45)
        ramps = [[ink + value * (top - ink) // 255 for value in range(256)] for top in paper]
        image = image.point(ramps[0] + ramps[1] + ramps[2])
    if dice.chance(0.12):
        image = image.filter(ImageFilter.Kernel((3, 3), (1, 3, 1, 3, 16, 3, 1, 3, 1)))
    if dice.chance(0.45):
        image = grain(image, dice, dice.choice((4, 8, 12)))
    return image


@cache
def _cloud(index: int) -> Image.Image:
    """Soft blotches around 128, as RGB, one of a few."""
    source = random.Random(f"stakes cloud {index}")
    side = (9, 24, 60)[index % 3]
    raw = Image.frombytes("L", (side, side), source.randbytes(side * side))
    soft = raw.resize((1024, 1024), Image.Resampling.BICUBIC).point([96 + value // 4 for value in range(256)])
    return Image.merge("RGB", (soft, soft, soft))


def wall(size: tuple[int, int], colour: Colour, dice: Dice) -> Image.Image:
    """A blotchy, grainy surface of about this colour."""
    cloud = _cloud(dice.randrange(6)).crop((0, 0, *size))
    plain = Image.new("RGB", size, colour)
    return grain(ImageChops.add(plain, cloud, 1, -128), dice, dice.choice((8, 12)))
