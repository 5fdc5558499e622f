"""Synthetic receipts of shops, restaurants and stations of many countries: long, narrow, small print, many numbers.

A receipt is a bill whose numbers add up, written as blocks of lines, wrapped to its paper and printed. Training pages
are worn (``wear``); calibration and test pages are scanned as forms are. Amounts, dates and identifiers are the
high-tier answers; names, addresses and times the low-tier ones.

    countries.py, shops.py, wording.py    formats, names and words
    bill.py, blocks.py                    the amounts, and the blocks of lines that print them
    look.py, lines.py, paper.py           typefaces, line breaking, the canvas and its bend
    wear.py                               what makes training pages hard to read
"""

from dataclasses import replace

from PIL import Image

from stakes.data.synthetic.canvas import Canvas, scan
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.receipts import wear
from stakes.data.synthetic.receipts.bill import Bill, card_slip, sums
from stakes.data.synthetic.receipts.blocks import articles, closing, document, merchant, tax_table
from stakes.data.synthetic.receipts.lines import Line, center, gap, height, print_lines, span, wrap
from stakes.data.synthetic.receipts.look import LARGE, SIZES, Look, canvas_size, draw_look
from stakes.data.synthetic.receipts.paper import InkCanvas, Paper, Rectangle, Size, Warp
from stakes.data.synthetic.receipts.wording import IMPORTANT, QUESTIONS, Till

__all__ = ["FIELDS", "SIZES", "paint"]

FIELDS = tuple(QUESTIONS)
LEGIBLE = 0.3  # the share of an answer's ink that must be left
NARROWEST, PALEST = 4.5, 60  # of small print: mean width of a letter in pixels, level of the ink


def paint(dice: Dice, density: float) -> Canvas:
    """Draw a receipt."""
    till, look = Till.draw(dice), draw_look(dice, density)
    bill = Bill.draw(dice, till.country)
    lines = _lines(till, bill)
    size = canvas_size(dice, _aspect(look, lines))
    paper = None
    if dice.training and dice.chance(0.15):
        size = dice.choice(LARGE)
        paper = _small_paper(dice, look, lines, size)
    paper = paper or _paper(dice, look, lines, size)
    canvas = InkCanvas(size, dice)
    print_lines(canvas, wrap(lines, look, paper.point, paper.width), look, paper)
    if dice.training:
        canvas.image = _worn(canvas, look, paper)
    else:
        white = Image.new("RGB", size, (255, 255, 255))
        canvas.image = scan(Image.composite(Image.new("RGB", size, look.ink), white, canvas.ink), dice)
    return canvas


def _aspect(look: Look, lines: list[Line]) -> float:
    """Height over width of the canvas that a receipt needs, about: all lines in plain type at 20 pixels."""
    plain = [replace(line, scale=1.0, bold=False, wide=False) for line in lines]
    return 0.92 * (1.05 * height(wrap(plain, look, 20, look.line_width * 20), look.leading)) / look.line_width


def _lines(till: Till, bill: Bill) -> list[Line]:
    """All lines of a receipt, the blocks mostly in the usual order."""
    dice = till.dice
    head, title, data = merchant(till), _title(till), document(till)
    goods = [till.rule(), *articles(till, bill), till.rule()]
    money = sums(till, bill)
    if dice.chance(0.05):
        goods, money = money, goods
    tail = [gap(0.5), *tax_table(till, bill)] if bill.rate and dice.chance(0.35) else []
    tail += [gap(0.5), *card_slip(till, bill)] if not bill.cash and dice.chance(0.35) else []
    order = dice.weighted(("usual", "last", "top"), (7, 2.2, 0.4))
    if order == "last":
        blocks = [head, title, goods, money, [till.rule(), *data], tail]
    elif order == "top":
        blocks = [data, head, title, goods, money, tail]
    else:
        blocks = [head, title, data, goods, money, tail]
    lines: list[Line] = []
    for block in blocks:
        lines += block
        if dice.chance(0.3):
            lines.append(gap(dice.uniform(0.3, 1.2)))
    return [*lines, gap(0.5), *closing(till)]


def _title(till: Till) -> list[Line]:
    """The kind of document, on half of the receipts."""
    dice = till.dice
    if not dice.chance(0.55):
        return []
    line = center(span(till.label("title")))
    line = replace(line, bold=dice.chance(0.4), scale=dice.choice((1.0, 1.0, 1.2)))
    return [gap(0.4), line, gap(0.4)]


def _paper(dice: Dice, look: Look, lines: list[Line], size: Size) -> Paper:
    """The position of the paper on the canvas and the size of its print."""
    width, tall = size
    shares = (dice.uniform(0.86, 1.0), dice.uniform(0.6, 0.86), dice.uniform(0.4, 0.6), 1.06)
    share = dice.weighted(shares, (6, 1.2, 0.5, 4)) if dice.training else 1.06  # of the canvas; 1.06: no edge in view
    inner = width * min(1.0, share) * dice.uniform(0.78, 0.97)
    point = inner / look.line_width
    for _ in range(3):
        needed = height(wrap(lines, look, point, inner), look.leading)
        if needed * point <= tall * 0.97 or point <= 9:
            break
        point *= max(0.7, min(0.97, tall * 0.97 / (needed * point)))
        inner = min(inner, point * look.line_width)
    point = max(9.0, point)
    left = (width - inner) * (0.5 if dice.chance(0.7) else dice.uniform(0.15, 0.85))
    used = min(tall * 1.0, needed * point)
    top = dice.uniform(0.01, 0.05) * tall if dice.chance(0.7) else dice.uniform(0.0, 1.0) * (tall - used)
    top = max(2.0, min(top, tall - used))
    margin = width * share - inner
    edge = (left - margin / 2, top - dice.uniform(5, 40), left + inner + margin / 2, top + used + dice.uniform(5, 90))
    return Paper(point, (left, top), inner, edge if share < 1.05 else _out_of_view(size))


def _small_paper(dice: Dice, look: Look, lines: list[Line], size: Size) -> Paper | None:
    """The position of a receipt in small print somewhere on a large page; None where it is too tall or too pale."""
    width, tall = size
    point = max(dice.choice((9.0, 9.5, dice.uniform(9, 13))), NARROWEST / look.letter_width)
    inner = min(width * 0.95, point * look.chars * look.letter_width)
    used = point * height(wrap(lines, look, point, inner), look.leading)
    if used > tall * 0.97 or look.ink[0] > PALEST:
        return None
    left, top = dice.uniform(0.02, 0.98) * (width - inner), dice.uniform(0, 0.7) * (tall - used) + 2
    sides, below = dice.uniform(4, 40), dice.uniform(5, 90)
    edge = (left - sides, top - dice.uniform(5, 40), left + inner + sides, top + used + below)
    return Paper(point, (left, top), inner, edge if dice.chance(0.4) else _out_of_view(size))


def _out_of_view(size: Size) -> Rectangle:
    """Edges of a paper that covers the canvas, bent or not."""
    return -90.0, -90.0, size[0] + 90.0, size[1] + 90.0


def _worn(canvas: InkCanvas, look: Look, paper: Paper) -> Image.Image:
    """The picture of a worn receipt. Boxes and glyphs follow the bend of the paper."""
    dice, size = canvas.dice, (canvas.width, canvas.height)
    printed = canvas.ink.copy()
    canvas.ink = wear.strokes(dice, canvas.ink, paper.point)
    canvas.drop_faded(printed, LEGIBLE)
    ink = wear.show_through(dice, canvas.ink) if dice.chance(0.06) else canvas.ink
    left, top, right, bottom = paper.edge
    outline = [(left, top), (left, bottom), (right, bottom), (right, top)]
    if dice.chance(0.8):
        warp = Warp.draw(dice, size)
        canvas.bend(warp)
        ink, outline = warp.apply(ink), warp.outline(paper.edge)
    ground = wear.surface(dice, size, outline)
    image = Image.composite(Image.new("RGB", size, look.ink), ground, ink)
    answers = [q.box for q in canvas.questions if q.field in IMPORTANT and q.box]
    wear.add_marks(dice, image, paper.point, answers)
    return wear.capture(dice, image, paper.point)
