"""Lines of a receipt: cells of text at fractions of the paper's width, wrapped to it and printed from top to bottom.

A line that is too long is broken between words. Cells that would touch go to lines of their own.

    lines = [center(span("CORNER BAKERY")), rule("-"), pair((span("TOTAL"),), (span("4.20", question),))]
    print_lines(canvas, wrap(lines, look, paper.point, paper.width), look, paper)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from stakes.data.synthetic.page import Question
from stakes.data.synthetic.receipts.look import Look
from stakes.data.synthetic.receipts.paper import InkCanvas, Paper
from stakes.data.synthetic.typefaces import Face, face


@dataclass(frozen=True)
class Span:
    """Text and the questions that it answers. ``whole`` is the full answer where the text is only a part of it."""

    text: str
    questions: tuple[Question, ...] = ()
    whole: str = ""


@dataclass(frozen=True)
class Cell:
    """Spans next to each other, with the left end ("l"), center ("c") or right end ("r") at a fraction of the width."""

    at: float
    anchor: Literal["l", "c", "r"]
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        """The text of all spans."""
        return "".join(s.text for s in self.spans)


@dataclass(frozen=True)
class Line:
    """One line of text, or a rule, a gap or a barcode without cells."""

    cells: tuple[Cell, ...] = ()
    scale: float = 1.0
    bold: bool = False
    wide: bool = False  # in double-width letters
    broken: bool = False  # where too long, broken into lines of the same letters instead of printed smaller
    foreign: bool = False  # in another typeface than the till's: a logo, a note typed onto the image
    kind: Literal["text", "rule", "gap", "barcode"] = "text"
    fill: str = ""  # the characters that a rule repeats; a rule without is drawn
    height: float = 0.0  # of a gap, in lines


def span(text: str, *questions: Question) -> Span:
    """A span that is the whole answer of its questions."""
    return Span(text, questions, text)


def left(*spans: Span) -> Line:
    """A line at the left edge."""
    return Line((Cell(0.0, "l", spans),))


def center(*spans: Span) -> Line:
    """A centered line."""
    return Line((Cell(0.5, "c", spans),))


def pair(first: tuple[Span, ...], second: tuple[Span, ...], start: float = 0.0, end: float = 1.0) -> Line:
    """A label at the left and a value at the right."""
    return Line((Cell(start, "l", first), Cell(end, "r", second)))


def rule(fill: str) -> Line:
    """A rule across the paper."""
    return Line(kind="rule", fill=fill)


def gap(height: float = 1.0) -> Line:
    """Empty paper."""
    return Line(kind="gap", height=height)


def height(lines: list[Line], leading: float) -> float:
    """The height of lines in units of the type size."""
    return sum(
        leading * line.height if line.kind == "gap" else 3.0 if line.kind == "barcode" else leading * line.scale
        for line in lines
    )


def wrap(lines: list[Line], look: Look, size: float, width: float) -> list[Line]:
    """The lines as they fit the width: long cells are broken, and cells that would touch go to lines of their own."""
    out: list[Line] = []
    for line in lines:
        if line.kind != "text":
            out.append(line)
            continue
        letters = _face(look, line, size)
        if (line.scale > 1 or line.wide) and _too_long(line, letters, width):
            line = replace(line, scale=min(line.scale, 1.15), wide=False)
            letters = _face(look, line, size)
        for part in _separate(line, letters, width):
            if len(part.cells) == 1:
                out += [replace(part, cells=(c,)) for c in _break(part.cells[0], letters, width)]
            else:
                out.append(part)
    return out


def _too_long(line: Line, letters: Face, width: float) -> bool:
    """Whether a cell is too long for the width; where the line may be broken, whether a word is."""
    texts = [c.text for c in line.cells]
    parts = [word for text in texts for word in text.split()] if line.broken else texts
    return any(letters.width(part) > width for part in parts)


def _separate(line: Line, letters: Face, width: float) -> list[Line]:
    """The line, or two lines, or one per cell, so that no cells touch."""
    needed = sum(letters.width(c.text) for c in line.cells) + letters.size * 0.5 * (len(line.cells) - 1)
    if len(line.cells) == 1 or (needed <= width and not _overlap(line, letters, width)):
        return [line]
    first, rest = replace(line, cells=line.cells[:1]), replace(line, cells=line.cells[1:])
    if not _overlap(rest, letters, width):
        return [first, rest]
    return [replace(line, cells=(c,)) for c in line.cells]


def _overlap(line: Line, letters: Face, width: float) -> bool:
    """Whether two cells of a line would touch."""
    edges = [(_start(c, letters, width), letters.width(c.text)) for c in line.cells if c.text]
    return any(a + wide + letters.size * 0.3 > b for (a, wide), (b, _) in pairwise(edges))


def _start(cell: Cell, letters: Face, width: float) -> float:
    """Where a cell begins, from the left edge of the print."""
    wide = letters.width(cell.text)
    x = cell.at * width - {"l": 0.0, "c": wide / 2, "r": wide}[cell.anchor]
    return max(0.0, min(x, width - wide))


def _break(cell: Cell, letters: Face, width: float) -> Iterator[Cell]:
    """The cell in as many rows as it needs, broken between words."""
    rows: list[list[Span]] = [[]]
    used = 0.0
    for part in cell.spans:
        for i, piece in enumerate(_pieces(part, letters, width)):
            wide = letters.width(piece.text)
            if (used + wide > width and rows[-1]) or i:
                rows.append([])
                used = 0.0
            rows[-1].append(piece)
            used += wide
    for row in rows:
        yield replace(cell, spans=tuple(row))


def _pieces(part: Span, letters: Face, width: float) -> list[Span]:
    """A span in pieces that fit the width; a span without spaces stays whole."""
    if letters.width(part.text) <= width or " " not in part.text.strip():
        return [part]
    out, line = [], ""
    for word in part.text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and letters.width(longer) > width:
            out.append(line)
            longer = word
        line = longer
    return [replace(part, text=text) for text in [*out, line]]


def _face(look: Look, line: Line, size: float) -> Face:
    """The typeface of a line."""
    if line.foreign:
        return face(look.foreign, round(size * line.scale))
    return look.face(size * line.scale, line.bold, line.wide)


def print_lines(canvas: InkCanvas, lines: list[Line], look: Look, paper: Paper) -> None:
    """Print the lines from the paper's origin down."""
    start, y = paper.origin
    for line in lines:
        step = paper.point * height([line], look.leading)
        if line.kind == "rule":
            _print_rule(canvas, line.fill, look, paper, y)
        elif line.kind == "barcode":
            canvas.barcode((start + paper.width * 0.2, y + 2, start + paper.width * 0.8, y + step * 0.8))
        for cell in line.cells:
            letters = _face(look, line, paper.point)
            x = start + _start(cell, letters, paper.width)
            for part in cell.spans:
                x = canvas.put(x, y, part.text, letters, part.questions, part.whole)
        y += step


def _print_rule(canvas: InkCanvas, fill: str, look: Look, paper: Paper, y: float) -> None:
    """A rule of characters, or a drawn one."""
    x, size = paper.origin[0], paper.point
    letters = look.face(size, bold=False, wide=False)
    if fill:
        canvas.text(x, y, fill * int(paper.width // max(1, letters.width(fill))), letters)
    else:
        middle = y + size * 0.6
        canvas.pen.line((x, middle, x + paper.width, middle), fill=220, width=max(1, round(size / 14)))
