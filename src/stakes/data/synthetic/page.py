"""The types of a synthetic document: an image, its questions, and the position of every printed character.

A page is a pure function of ``(family, split, seed, density)``: the same four give the same bytes on every machine.
Boxes are ``(left, top, right, bottom)`` in pixels of the page at its native size.
"""

from dataclasses import dataclass

from PIL import Image

Box = tuple[int, int, int, int]

SPLITS = ("train", "calibration", "test")


@dataclass(frozen=True)
class Question:
    """One question about a page. ``Canvas`` fills in ``answers`` and ``box`` when it prints the answer."""

    text: str
    answers: tuple[str, ...]
    tier: str  # "high" or "low": the page's own label, which a signal has to predict from the text
    box: Box | None  # where the answer is printed; None where it is not printed text (a color, a count of shapes)
    field: str  # what the question is about, e.g. "invoice_number"; one of the family's FIELDS


@dataclass(frozen=True)
class Glyph:
    """One printed character: its center, and the index of the question whose answer it belongs to (-1: none)."""

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
