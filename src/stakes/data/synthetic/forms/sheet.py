"""The state of a form while it is laid out: its style, the space left on it, and the fields not printed yet.

Type sizes vary as on real pages: every block uses the page's base size times its own factor, so that one page has
values from about 10 to 30 pixels. The distribution is set by measurement (docs/dev/pages.md).
"""

from dataclasses import dataclass
from math import exp, log

from stakes.data.synthetic.canvas import BLACK, Canvas, Color
from stakes.data.synthetic.forms.fields import THEMES, Field
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.typefaces import FORMS, SMALLEST, Face, face, typeface

BASE = (8.5, 18.5)  # pixels, log-uniform over pages
FACTORS = (0.75, 0.85, 0.95, 1.0, 1.1, 1.25, 1.5)
MAX_QUESTIONS = 30

ACCENTS: tuple[Color, ...] = ((30, 60, 120), (120, 30, 40), (20, 90, 70), (70, 70, 80), (0, 0, 0), (90, 50, 110))


@dataclass(frozen=True)
class FilledField:
    """A field with the label, value and question drawn for this page."""

    field: Field
    label: str
    value: str
    question: Question


class Sheet:
    """The free space of a form, from top to bottom, in one column or two."""

    def __init__(self, canvas: Canvas, theme: str, density: float) -> None:
        dice = canvas.dice
        self.canvas, self.dice, self.theme = canvas, dice, theme
        self.base = exp(dice.uniform(log(BASE[0]), log(BASE[1]))) / density
        self.text_name, self.bold_name = typeface(dice, FORMS)
        self.ink: Color = dice.choice((BLACK, BLACK, (20, 20, 24), (36, 36, 44), (24, 28, 60)))
        self.faint: Color = dice.choice((self.ink, self.ink, (70, 70, 70), (95, 95, 95)))
        self.accent = dice.choice(ACCENTS)
        self.colon = dice.choice((":", ":", ""))
        margin = dice.randint(28, 64)
        self.left, self.right = margin, canvas.width - margin
        self.top, self.bottom = dice.randint(24, 52), canvas.height - dice.randint(44, 60)
        self.y: float = self.top
        self._columns: list[tuple[int, int]] = []
        self.max_questions = MAX_QUESTIONS
        high = [f for f in THEMES[theme] if f.tier == "high"]
        low = [f for f in THEMES[theme] if f.tier == "low"]
        dice.shuffle(high)
        dice.shuffle(low)
        # tiers alternate, so that every block has both; the queue ends with the shorter of the two
        self._queue = [f for pair in zip(high, low, strict=False) for f in (pair if dice.chance(0.5) else pair[::-1])]

    @property
    def width(self) -> float:
        """Pixels between the margins of the current column."""
        return self.right - self.left

    @property
    def free(self) -> float:
        """Pixels of height left in the current column."""
        return self.bottom - self.y

    @property
    def questions_left(self) -> int:
        """The number of questions that this column may still add."""
        return max(0, self.max_questions - len(self.canvas.questions))

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
        """Continue in two columns from here."""
        gutter = self.dice.randint(20, 34)
        middle = (self.left + self.right) // 2
        self._columns = [(middle + gutter // 2, self.right)]
        self.max_questions = MAX_QUESTIONS * 6 // 10  # leave some for the second column
        self.right, self.top = middle - gutter // 2, int(self.y)

    def next_column(self) -> bool:
        """Continue in the next column; False where there is none."""
        if not self._columns:
            return False
        self.left, self.right = self._columns.pop()
        self.max_questions = MAX_QUESTIONS
        self.y = self.top
        return True

    def next_fields(self, count: int, tier: str | None = None) -> list[FilledField]:
        """The next fields of this page's theme, or of one tier of it; fewer where fields or questions run out."""
        chosen = [field for field in self._queue if tier in (None, field.tier)][: min(count, self.questions_left)]
        self._queue = [field for field in self._queue if field not in chosen]
        return [FilledField(f, f.label(self.dice), f.value(self.dice), f.question(self.dice)) for f in chosen]

    def answer(self, x: float, y: float, filled: FilledField, face: Face, ink: Color | None = None) -> float:
        """Print a field's value with its question."""
        return self.canvas.answer(x, y, filled.value, face, filled.question, ink or self.ink)

    def rule(self, gap: float = 6, ink: Color = (130, 130, 130), width: int = 1) -> None:
        """A line across the column."""
        self.canvas.pen.line((self.left, self.y + gap / 2, self.right, self.y + gap / 2), fill=ink, width=width)
        self.y += gap
