"""A sheet to print on that remembers every character and every question it was given.

canvas = Canvas((756, 1008), dice)
right = canvas.text(40, 60, "Total", face("Go-Regular", 14))
canvas.answer(right + 8, 60, "$4,128.05", face("Go-Regular", 14), Ask("total", "high", "How much is the total?"))
page = canvas.finish("forms", "forms/train/000001")
"""

from dataclasses import dataclass

from PIL import Image, ImageDraw

from stakes.data.pages.dice import Dice
from stakes.data.pages.faces import PAD, Face, face
from stakes.data.pages.page import Box, Glyph, Page, Question

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
