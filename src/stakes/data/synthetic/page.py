"""What a synthetic document is: an image, the questions it answers, and where every printed character stands.

A page is a pure function of ``(family, split, seed, density)``: the same four give the same bytes on every machine.
Boxes are ``(left, top, right, bottom)`` in pixels of the page at its native size.
"""

from dataclasses import dataclass

from PIL import Image

Box = tuple[int, int, int, int]

SPLITS = ("train", "calibration", "test")


@dataclass(frozen=True)
class Question:
    """One question about a page, with the answer as printed and the place where it stands."""

    text: str
    answers: tuple[str, ...]
    tier: str  # "high" or "low": the page's own truth, which a signal has to guess from the text
    box: Box | None  # where the answer is printed; None where it is not printed text (a colour, a count of shapes)
    field: str  # what was asked, e.g. "invoice_number"; one of the family's FIELDS


@dataclass(frozen=True)
class Glyph:
    """One printed character: its centre, and the question whose answer it belongs to (-1: none)."""

    x: float
    y: float
    char: str
    question: int


@dataclass(frozen=True)
class Page:
    """A rendered document with its questions."""

    family: str
    document: str  # "forms/test/000017": unique over families, splits and seeds
    image: Image.Image  # RGB
    questions: tuple[Question, ...]
    glyphs: tuple[Glyph, ...]
