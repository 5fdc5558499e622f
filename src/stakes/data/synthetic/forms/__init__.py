"""Forms: invoices, letters, memos, reports, application forms, certificates, receipts, statements (after DocVQA).

A kind of document is a sequence of blocks; further blocks fill the rest of the page. Two kinds are never used in
training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stakes.data.synthetic.canvas import Canvas, scan
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.forms import tables
from stakes.data.synthetic.forms.blocks import PAIR_STYLES, pairs, prose, totals
from stakes.data.synthetic.forms.fields import FIELDS as FORM_FIELDS
from stakes.data.synthetic.forms.furniture import checks, footer, heading, letterhead, section, signature, stamp
from stakes.data.synthetic.forms.sheet import Sheet
from stakes.data.synthetic.forms.tables import table

SIZES = ((756, 1008), (700, 980), (1008, 756))
FIELDS = (*FORM_FIELDS, "company", "signer", "page", *tables.FIELDS)

Block = Callable[[Sheet], None]


def _pairs(low: int, high: int, columns: int, style: str | None = None) -> Block:
    """Pairs of ``low`` to ``high`` fields; without a style, in any."""

    def block(sheet: Sheet) -> None:
        items = sheet.next_fields(sheet.dice.randint(low, high))
        pairs(sheet, items, columns, style or sheet.dice.choice(PAIR_STYLES), sheet.any_size())

    return block


def _prose(sentences: int, embedded: int) -> Block:
    return lambda sheet: prose(sheet, sentences, embedded)


def _table(most: int) -> Block:
    return lambda sheet: table(sheet, most)


def _border(sheet: Sheet) -> None:
    """A double frame, as certificates have."""
    for inset, width in ((10, 3), (16, 1)):
        box = (inset, inset, sheet.canvas.width - inset, sheet.canvas.height - inset)
        sheet.canvas.pen.rectangle(box, outline=sheet.accent, width=width)


def _frame(sheet: Sheet) -> None:
    """A thick bar at the left, as on fax covers."""
    sheet.canvas.pen.rectangle((0, 0, 14, sheet.canvas.height), fill=sheet.accent)


CENTERED_HEADING = partial(heading, centered=True)


@dataclass(frozen=True)
class Kind:
    """A kind of document; ``columns``: whether the body is set in two columns."""

    theme: str
    opening: tuple[Block, ...]
    body: tuple[Block, ...]
    columns: bool = False


INVOICE = Kind(
    "i", (letterhead, heading), (_pairs(6, 8, 2), _table(4), totals, _prose(2, 1), _pairs(4, 6, 3), signature)
)
ORDER = Kind("i", (heading,), (_pairs(6, 9, 3, "grid"), _table(4), _pairs(4, 6, 2), totals, stamp, _prose(3, 1)))
RECEIPT = Kind("i", (letterhead,), (_pairs(5, 8, 1, "right"), _table(2), totals, _pairs(4, 6, 1), _prose(2, 0)))
LETTER = Kind(
    "l", (letterhead,), (_pairs(4, 6, 2), _prose(3, 2), _prose(2, 2), _prose(3, 2), _pairs(4, 5, 2), signature)
)
MEMO = Kind("l", (heading,), (_pairs(6, 8, 1, "tab"), _prose(3, 2), _table(4), _prose(3, 1), _pairs(3, 5, 2), stamp))
REPORT = Kind(
    "r",
    (CENTERED_HEADING,),
    (_pairs(5, 8, 2), section, _prose(4, 1), _table(4), section, _prose(3, 2), _pairs(4, 6, 3)),
)
MINUTES = Kind(
    "r",
    (letterhead, heading),
    (_pairs(6, 8, 1), _prose(3, 1), _table(4), section, _prose(3, 2), signature),
    columns=True,
)
APPLICATION = Kind(
    "a", (heading,), (section, _pairs(6, 9, 3, "grid"), checks, section, _pairs(6, 8, 2, "line"), _table(2), signature)
)
CERTIFICATE = Kind(
    "c", (_border, CENTERED_HEADING), (_prose(2, 2), _pairs(6, 8, 2), _table(2), _pairs(4, 6, 2, "above"), signature)
)
STATEMENT = Kind("l", (letterhead, heading), (_pairs(5, 7, 2, "grid"), _table(4), totals, _prose(2, 1), _table(2)))
FAX = Kind(
    "l", (_frame, heading), (_pairs(6, 8, 2, "above"), _prose(3, 2), _pairs(4, 6, 1, "tab"), _table(2), signature)
)
BULLETIN = Kind(
    "r",
    (CENTERED_HEADING,),
    (section, _pairs(5, 7, 1), stamp, _prose(4, 2), section, _table(4), _prose(3, 1)),
    columns=True,
)

# Blocks that fill the rest of a page, with and without questions.
MORE = (_pairs(4, 6, 2), _table(2), _prose(4, 0), _prose(3, 2))
QUIET = (_prose(6, 0), _prose(4, 0), _table(0))

KINDS: Pool[Kind] = Pool(
    (INVOICE, ORDER, RECEIPT, LETTER, MEMO, REPORT, MINUTES, APPLICATION, CERTIFICATE, STATEMENT), (FAX, BULLETIN)
)


def paint(dice: Dice, density: float) -> Canvas:
    """A form."""
    size = dice.weighted(SIZES, (0.6, 0.25, 0.15))
    canvas = Canvas(size, dice)
    kind = dice.pick(KINDS, "layout")
    sheet = Sheet(canvas, kind.theme, density)
    for block in kind.opening:
        block(sheet)
    if kind.columns or size[0] > size[1]:
        sheet.split()
    blocks = list(kind.body)
    for _ in range(40):
        if sheet.free < 40 and not sheet.next_column():
            break
        if not blocks:
            blocks = [dice.choice(MORE if sheet.questions_left else QUIET)]
        blocks.pop(0)(sheet)
        if dice.chance(0.15) and sheet.free > 60:
            sheet.rule(10)
    footer(sheet)
    canvas.image = scan(canvas.image, dice)
    return canvas
