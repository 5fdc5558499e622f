"""A canvas that records every printed character and every question, and the scanner effects applied to it.

    canvas = Canvas((756, 1008), dice)
    right = canvas.text(40, 60, "Total", face("Go-Regular", 14))
    canvas.answer(right + 8, 60, "$4,128.05", face("Go-Regular", 14), about("total", "high", ..., dice))
    canvas.image = scan(canvas.image, dice)
    page = canvas.finish("forms", "forms/train/000001")

A value gets its question when it is printed (``answer``), or later by the index of its text run (``run``, ``ask_run``).
"""

import random
from dataclasses import replace
from functools import cache

from PIL import Image, ImageChops, ImageColor, ImageDraw, ImageFilter

from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box, Glyph, Page, Question
from stakes.data.synthetic.typefaces import PAD, Face

Color = tuple[int, int, int]

BLACK: Color = (0, 0, 0)


def palette(text: str) -> tuple[Color, ...]:
    """Colors written as hexadecimal RGB, separated by spaces."""
    return tuple(ImageColor.getrgb(f"#{color}")[:3] for color in text.split())


class Canvas:
    """An image in progress, with its questions and text runs."""

    def __init__(self, size: tuple[int, int], dice: Dice, paper: Color = (255, 255, 255)) -> None:
        self.width, self.height = size
        self.dice = dice
        self.image = Image.new("RGB", size, paper)
        self.pen = ImageDraw.Draw(self.image)
        self.questions: list[Question] = []
        self._runs: list[tuple[float, float, str, Face, int]] = []  # x, middle of the line, text, face, question

    def text(self, x: float, y: float, text: str, face: Face, ink: Color | int = BLACK, question: int = -1) -> float:
        """Print text with the top of its line at ``y``; returns the x where it ends."""
        x, y = round(x), round(y)
        if not text:
            return x
        self.pen.bitmap((x - PAD, y), face.mask(text), fill=ink)
        self._runs.append((x, y + face.middle, text, face, question))
        return x + face.width(text)

    def answer(self, x: float, y: float, value: str, face: Face, question: Question, ink: Color = BLACK) -> float:
        """Print a value and add the question that it answers; returns the x where it ends."""
        if self._has(question):
            return self.text(x, y, value, face, ink)
        end = self.text(x, y, value, face, ink, len(self.questions))
        right, bottom = min(self.width, round(end)), min(self.height, round(y + face.size * 1.2))
        self.ask(question, value, (max(0, round(x)), max(0, round(y)), right, bottom))
        return end

    def run(self, x: float, y: float, text: str, face: Face, ink: Color = BLACK) -> int:
        """Print text that may get a question later; returns the index of the run."""
        self.text(x, y, text, face, ink)
        return len(self._runs) - 1

    def ask_run(self, number: int, question: Question) -> None:
        """Add a question that a printed run answers. A run answers one question only; a second one is ignored."""
        x, middle, text, face, taken = self._runs[number]
        if taken >= 0 or self._has(question):
            return
        top = middle - face.middle
        self._runs[number] = (x, middle, text, face, len(self.questions))
        self.ask(question, text, (int(x), int(top), int(x) + face.width(text), int(top + face.size * 1.2)))

    def ask(self, question: Question, value: str, box: Box | None) -> None:
        """Add a question whose answer is not a text run, or is printed already."""
        self.questions.append(replace(question, answers=(value,), box=box))

    def _has(self, question: Question) -> bool:
        """Whether the page has this wording already: the same words for two values would have two answers."""
        return any(question.text == other.text for other in self.questions)

    def finish(self, family: str, document: str) -> Page:
        """The page with the position of every character."""
        glyphs: list[Glyph] = []
        for x, y, text, letters, question in self._runs:
            for char in text:
                advance = letters.advances[char]
                if char != " ":
                    glyphs.append(Glyph(x + advance / 2, y, char, question))
                x += advance
        return Page(family, document, self.image, tuple(self.questions), tuple(glyphs))


TILE = 1640  # pixels of the noise tile's side: the largest canvas, and space to shift the crop


def _gray(raw: Image.Image, levels: list[int]) -> Image.Image:
    """A gray image with its levels mapped, as RGB."""
    mapped = raw.point(levels)
    return Image.merge("RGB", (mapped, mapped, mapped))


@cache
def _grain(strength: int) -> Image.Image:
    """Noise around 128, ``strength`` levels either way. Made once per process, so a page costs one addition."""
    raw = Image.frombytes("L", (TILE, TILE), random.Random(f"stakes grain {strength}").randbytes(TILE * TILE))
    return _gray(raw, [128 - strength + value * 2 * strength // 255 for value in range(256)])


def grain(image: Image.Image, dice: Dice, strength: int) -> Image.Image:
    """The image with noise of up to ``strength`` levels either way."""
    width, height = image.size
    left, top = dice.randrange(TILE - width), dice.randrange(TILE - height)
    return ImageChops.add(image, _grain(strength).crop((left, top, left + width, top + height)), 1, -128)


def scan(image: Image.Image, dice: Dice) -> Image.Image:
    """The page as a scanner delivers it: a third stays clean, the others are tinted, blurred or grainy."""
    if dice.chance(0.4):
        paper: Color = (dice.randint(236, 255), dice.randint(234, 252), dice.randint(222, 248))
        ink = dice.randint(0, 45)
        image = image.point([ink + value * (top - ink) // 255 for top in paper for value in range(256)])
    if dice.chance(0.12):
        image = image.filter(ImageFilter.Kernel((3, 3), (1, 3, 1, 3, 16, 3, 1, 3, 1)))
    if dice.chance(0.45):
        image = grain(image, dice, dice.choice((4, 8, 12)))
    return image


@cache
def _cloud(index: int) -> Image.Image:
    """Smooth blotches around 128, as RGB, of one of three sizes."""
    side = (9, 24, 60)[index % 3]
    raw = Image.frombytes("L", (side, side), random.Random(f"stakes cloud {index}").randbytes(side * side))
    return _gray(raw.resize((1024, 1024), Image.Resampling.BICUBIC), [96 + value // 4 for value in range(256)])


def wall(size: tuple[int, int], color: Color, dice: Dice) -> Image.Image:
    """A blotchy, grainy surface of about this color, the background of signs and shapes."""
    cloud = _cloud(dice.randrange(6)).crop((0, 0, *size))
    return grain(ImageChops.add(Image.new("RGB", size, color), cloud, 1, -128), dice, dice.choice((8, 12)))
