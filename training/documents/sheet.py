"""A sheet of paper that is typed on from top to bottom, and the look of its type.

    sheet = Sheet((784, 1008), dice, draw_look(dice, 1.0))
    sheet.line(("SUBJECT: ", ()), ("Annual Budget", questions))
    sheet.paragraph([("The meeting is on ", ()), ("May 4, 1971", questions), (".", ())])

A piece is a text with the questions that it answers. Pieces that are broken over lines stay one answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stakes.data.synthetic.canvas import Color
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.receipts.look import HEAVY
from stakes.data.synthetic.receipts.paper import InkCanvas, Size
from stakes.data.synthetic.typefaces import SMALLEST, Face, face

Piece = tuple[str, tuple[Question, ...]]

SIZES: tuple[Size, ...] = ((784, 1008), (756, 1008), (728, 1008), (1008, 784))

# The second part of a pool is for novel test pages, the third for training pages only.
FACES = {
    "typewriter": Pool(
        ("CourierPrime-Regular", "LiberationMono-Regular"), (), ("LibertinusMono-Regular", "IBMPlexMono-Regular")
    ),
    "printer": Pool(("VeraMono", "Go-Mono"), (), ("LeagueMono-Regular", "mononoki-Regular")),
    "serif": Pool(
        ("LiberationSerif-Regular", "LibreCaslonText-Regular", "VeraSe"),
        ("Caladea-Regular",),
        ("LibreBaskerville-Regular", "IBMPlexSerif-Regular", "Bitter-Regular"),
    ),
    "sans": Pool(
        ("LiberationSans-Regular", "Vera", "OpenSans-Regular"),
        ("Oxygen-Sans",),
        ("Go-Regular", "LibreFranklin-Regular", "IBMPlexSansCondensed-Regular", "Cantarell-Regular"),
    ),
}  # fmt: skip
# Of the folder of further typefaces (``training/typefaces.md``), by the start of the name.
FURTHER = {
    "typewriter": ("courier", "cutive", "special-elite", "FreeMono", "NimbusMono", "Tlwg", "lmmono", "cousine"),
    "printer": ("OCRB", "3270", "vt323", "dotgothic", "unifont", "share-tech-mono", "DejaVuSansMono", "doto"),
    "serif": ("NimbusRoman", "tinos"),
    "sans": ("arimo", "FreeSans", "NimbusSans", "archivo", "roboto-c", "roboto.", "source-sans", "work-sans", "hind"),
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The typefaces of a document, its type size in pixels, its leading and its ink."""

    body: str
    head: str  # of letterheads and titles
    printed: str  # of the printed parts of a form
    hand: str  # "": nothing is written by hand
    point: float
    leading: float
    ink: Color


def _name(dice: Dice, kind: str) -> str:
    further = dice.extras.named(FURTHER[kind]) if dice.training else []
    if further and dice.chance(0.5):
        return dice.choice(further)
    return dice.pick(FACES[kind], "font")


def draw_look(dice: Dice, density: float) -> Look:
    """A random look; ``density`` above 1 types smaller."""
    kind = dice.weighted(("typewriter", "serif", "sans", "printer"), (5, 2.5, 2.5, 1))
    body = _name(dice, kind)
    head = body if dice.chance(0.4) else _name(dice, dice.choice(("serif", "sans")))
    printed = _name(dice, dice.choice(("sans", "sans", "serif")))
    hands = dice.extras.handwriting if dice.training else ()
    hand = dice.choice(hands) if hands and dice.chance(0.35) else ""
    size = dice.uniform(12.5, 16.5) if kind in ("typewriter", "printer") else dice.uniform(12, 17)
    if dice.training and dice.chance(0.25):
        size = dice.uniform(9.5, 12.5)
    dark = dice.choice((0, 0, 0, 30, 60))
    return Look(body, head, printed, hand, max(SMALLEST, size / density), dice.uniform(1.1, 1.45), (dark, dark, dark))


class Sheet(InkCanvas):
    """A canvas with margins and a cursor ``y``; ``full`` when the next line would leave the page."""

    def __init__(self, size: Size, dice: Dice, look: Look) -> None:
        super().__init__(size, dice)
        self.look = look
        self.left = dice.uniform(0.07, 0.13) * self.width
        self.right = self.width - dice.uniform(0.06, 0.12) * self.width
        self.y = dice.uniform(0.04, 0.1) * self.height
        self.bottom = self.height * 0.93

    @property
    def step(self) -> float:
        """The height of a line of the body."""
        return self.look.point * self.look.leading

    @property
    def full(self) -> bool:
        """Whether less than one line is left."""
        return self.y + self.step > self.bottom

    def letters(self, scale: float = 1.0, bold: bool = False, name: str = "") -> Face:
        """A typeface of this document, by default of the body."""
        return face((name or self.look.body) + (HEAVY if bold else ""), round(self.look.point * scale))

    def pieces(self, x: float, y: float, pieces: Sequence[Piece], letters: Face) -> float:
        """Print pieces next to each other; returns where they end."""
        for text, questions in pieces:
            x = self.put(x, y, text, letters, questions, text)
        return x

    def line(self, *pieces: Piece, at: float = 0.0, letters: Face | None = None, align: str = "l") -> None:
        """Print a line at a fraction of the width, centered ("c") or at the right edge ("r"), and go on below it."""
        letters = letters or self.letters()
        wide = letters.width("".join(text for text, _ in pieces))
        space = self.right - self.left
        x = self.left + {"l": at * space, "c": (space - wide) / 2, "r": space - wide}[align]
        if self.y + letters.size < self.bottom + self.step:
            self.pieces(max(4.0, x), self.y, pieces, letters)
        self.y += max(self.step, letters.size * self.look.leading)

    def skip(self, lines: float = 1.0) -> None:
        """Leave lines empty."""
        self.y += lines * self.step

    def rule(
        self, width: int = 1, start: float | None = None, end: float | None = None, y: float | None = None
    ) -> None:
        """Draw a horizontal rule."""
        at = self.y if y is None else y
        self.pen.line((start or self.left, at, end or self.right, at), fill=235, width=width)

    def frame(self, box: tuple[float, float, float, float], width: int = 1) -> None:
        """Draw a rectangle."""
        self.pen.rectangle(tuple(round(v) for v in box), outline=235, width=width)

    def paragraph(self, pieces: Sequence[Piece], indent: float = 0.0) -> None:
        """Print pieces as running text between the margins, unless they do not fit on the page."""
        letters, edge = self.letters(), self.left
        space, long = letters.width(" "), sum(letters.width(text) for text, _ in pieces)
        if self.y + self.step * (2 + 1.1 * (long + indent) // (self.right - edge)) > self.bottom:
            return
        x = edge + indent
        for text, questions in pieces:
            x -= space if text[:1] in ".,;:" else 0
            row: list[str] = []
            row_x = x
            for item in text.split():
                wide = letters.width(item)
                if x + wide > self.right and x > edge:
                    self._put_row(row_x, row, questions, text, letters)
                    row, row_x, x, self.y = [], edge, edge, self.y + self.step
                row.append(item)
                x += wide + space
            self._put_row(row_x, row, questions, text, letters)
        self.y += self.step

    def _put_row(self, x: float, row: list[str], questions: tuple[Question, ...], whole: str, letters: Face) -> None:
        """Print the part of a piece that is on one line."""
        if row:
            self.put(x, self.y, " ".join(row), letters, questions, whole)
