"""A form while it is being filled: its look, the room left on it, and the fields still to be placed.

Sizes are a spread, as on real pages: every block takes the page's base size times its own factor, so that one
page has values from about 10 to 30 pixels. The distribution is set by measurement (docs/pages.md).
"""

from dataclasses import dataclass
from math import exp, log

from stakes.data.synthetic.canvas import BLACK, Ask, Canvas, Colour
from stakes.data.synthetic.forms.fields import THEMES, Field
from stakes.data.synthetic.typefaces import FORMS, SMALLEST, Face, face, typeface

BASE = (8.5, 18.5)  # pixels, log-uniform over pages
FACTORS = (0.75, 0.85, 0.95, 1.0, 1.1, 1.25, 1.5)
MOST_QUESTIONS = 30

ACCENTS: tuple[Colour, ...] = ((30, 60, 120), (120, 30, 40), (20, 90, 70), (70, 70, 80), (0, 0, 0), (90, 50, 110))


@dataclass(frozen=True)
class Item:
    """A field drawn for this page: what is printed and what is asked."""

    field: Field
    label: str
    value: str
    ask: Ask


class Sheet:
    """The free room of a form, from top to bottom, in one column or two."""

    def __init__(self, canvas: Canvas, theme: str, density: float) -> None:
        dice = canvas.dice
        self.canvas, self.dice, self.theme = canvas, dice, theme
        self.base = exp(dice.uniform(log(BASE[0]), log(BASE[1]))) / density
        self.text_name, self.bold_name = typeface(dice, FORMS)
        self.ink: Colour = dice.choice((BLACK, BLACK, (20, 20, 24), (36, 36, 44), (24, 28, 60)))
        self.faint: Colour = dice.choice((self.ink, self.ink, (70, 70, 70), (95, 95, 95)))
        self.accent = dice.choice(ACCENTS)
        self.colon = dice.choice((":", ":", ""))
        margin = dice.randint(28, 64)
        self.left, self.right = margin, canvas.width - margin
        self.top, self.bottom = dice.randint(24, 52), canvas.height - dice.randint(44, 60)
        self.y: float = self.top
        self._columns: list[tuple[int, int]] = []
        self.most = MOST_QUESTIONS
        high = [f for f in THEMES[theme] if f.tier == "high"]
        low = [f for f in THEMES[theme] if f.tier == "low"]
        dice.shuffle(high)
        dice.shuffle(low)
        # tiers take turns, so that every block holds both; a shorter list just ends earlier
        turns = [f for pair in zip(high, low, strict=False) for f in (pair if dice.chance(0.5) else pair[::-1])]
        self._queue = turns[::-1]

    @property
    def width(self) -> float:
        """Pixels between the margins of the current column."""
        return self.right - self.left

    @property
    def room(self) -> float:
        """Pixels left in the current column."""
        return self.bottom - self.y

    @property
    def full(self) -> bool:
        """Whether the column has as many questions as it may."""
        return len(self.canvas.questions) >= self.most

    @property
    def may_ask(self) -> int:
        """How many more questions the column may put."""
        return max(0, self.most - len(self.canvas.questions))

    def size(self, factor: float) -> int:
        """A type size in pixels."""
        return max(SMALLEST, round(self.base * factor))

    def any_size(self) -> int:
        """A type size for one block."""
        return self.size(self.dice.choice(FACTORS))

    def text(self, size: int) -> Face:
        """The page's text face."""
        return face(self.text_name, size)

    def bold(self, size: int) -> Face:
        """The page's bold face."""
        return face(self.bold_name, size)

    def split(self) -> None:
        """Go on in two columns from here."""
        gutter = self.dice.randint(20, 34)
        middle = (self.left + self.right) // 2
        self._columns = [(middle + gutter // 2, self.right)]
        self.most = MOST_QUESTIONS * 6 // 10  # the second column wants some too
        self.right, self.top = middle - gutter // 2, int(self.y)

    def next_column(self) -> bool:
        """Move on to the next column, where there is one."""
        if not self._columns:
            return False
        self.left, self.right = self._columns.pop()
        self.most = MOST_QUESTIONS
        self.y = self.top
        return True

    def take(self, count: int) -> list[Item]:
        """The next fields of this page's theme, with values drawn."""
        count = min(count, len(self._queue), self.may_ask)
        return [self._item(self._queue.pop()) for _ in range(count)]

    def take_tier(self, tier: str) -> list[Item]:
        """The next field of one tier, if any is left."""
        for index in range(len(self._queue) - 1, -1, -1):
            if self._queue[index].tier == tier and not self.full:
                return [self._item(self._queue.pop(index))]
        return []

    def _item(self, field: Field) -> Item:
        return Item(field, field.label(self.dice), field.draw(self.dice), field.ask(self.dice))

    def put(self, x: float, y: float, item: Item, face: Face, ink: Colour | None = None) -> float:
        """Print an item's value and ask for it."""
        return self.canvas.answer(x, y, item.value, face, item.ask, ink or self.ink)

    def rule(self, gap: float = 6, ink: Colour = (130, 130, 130), width: int = 1) -> None:
        """A line across the column."""
        self.canvas.pen.line((self.left, self.y + gap / 2, self.right, self.y + gap / 2), fill=ink, width=width)
        self.y += gap


def printable(text: str, face: Face, width: float) -> str:
    """The text cut at a word so that it fits; nothing that is asked for goes through here."""
    while face.width(text) > width and " " in text:
        text = text.rpartition(" ")[0]
    return text if face.width(text) <= width else ""
