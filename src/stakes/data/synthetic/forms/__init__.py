"""Forms: invoices, letters, memos, reports, application forms, certificates, receipts, statements (DocVQA).

A kind of document is the order of its blocks; the rest of the page is filled with further blocks until it is full.
Two kinds are kept out of training.
"""

from collections.abc import Callable

from stakes.data.synthetic.canvas import Canvas, scan
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.forms import tables
from stakes.data.synthetic.forms.blocks import pairs, prose, totals
from stakes.data.synthetic.forms.fields import FIELDS as FORM_FIELDS
from stakes.data.synthetic.forms.furniture import checks, footer, heading, letterhead, section, signature, stamp
from stakes.data.synthetic.forms.sheet import Sheet
from stakes.data.synthetic.forms.tables import table

SIZES = ((756, 1008), (700, 980), (1008, 756))
FIELDS = (*FORM_FIELDS, "company", "signer", "page", *tables.FIELDS)

Block = Callable[[Sheet], None]


def _pairs(low: int, high: int, columns: int, style: str | None = None) -> Block:
    return lambda sheet: pairs(sheet, sheet.dice.randint(low, high), columns, style)


def _prose(sentences: int, embedded: int) -> Block:
    return lambda sheet: prose(sheet, sentences, embedded)


def _table(most: int) -> Block:
    return lambda sheet: table(sheet, most)


def _totals(sheet: Sheet) -> None:
    totals(sheet, sheet.dice.randint(2, 4))


def _centred(sheet: Sheet) -> None:
    heading(sheet, centred=True)


def _border(sheet: Sheet) -> None:
    """A double frame, as certificates have."""
    for inset, width in ((10, 3), (16, 1)):
        box = (inset, inset, sheet.canvas.width - inset, sheet.canvas.height - inset)
        sheet.canvas.pen.rectangle(box, outline=sheet.accent, width=width)


def _frame(sheet: Sheet) -> None:
    """A thick bar at the left, as on fax covers."""
    sheet.canvas.pen.rectangle((0, 0, 14, sheet.canvas.height), fill=sheet.accent)


# theme, whether to break into columns after the opening blocks, opening, body
Kind = tuple[str, bool, tuple[Block, ...], tuple[Block, ...]]

INVOICE: Kind = (
    "i", False, (letterhead, heading), (_pairs(6, 8, 2), _table(4), _totals, _prose(2, 1), _pairs(4, 6, 3), signature),
)  # fmt: skip
ORDER: Kind = (
    "i",
    False,
    (heading,),
    (_pairs(6, 9, 3, "grid"), _table(4), _pairs(4, 6, 2), _totals, stamp, _prose(3, 1)),
)
RECEIPT: Kind = (
    "i",
    False,
    (letterhead,),
    (_pairs(5, 8, 1, "right"), _table(2), _totals, _pairs(4, 6, 1), _prose(2, 0)),
)
LETTER: Kind = (
    "l", False, (letterhead,), (_pairs(4, 6, 2), _prose(3, 2), _prose(2, 2), _prose(3, 2), _pairs(4, 5, 2), signature),
)  # fmt: skip
MEMO: Kind = (
    "l",
    False,
    (heading,),
    (_pairs(6, 8, 1, "tab"), _prose(3, 2), _table(4), _prose(3, 1), _pairs(3, 5, 2), stamp),
)
REPORT: Kind = (
    "r",
    False,
    (_centred,),
    (_pairs(5, 8, 2), section, _prose(4, 1), _table(4), section, _prose(3, 2), _pairs(4, 6, 3)),
)
MINUTES: Kind = (
    "r",
    True,
    (letterhead, heading),
    (_pairs(6, 8, 1), _prose(3, 1), _table(4), section, _prose(3, 2), signature),
)
APPLICATION: Kind = (
    "a", False, (heading,),
    (section, _pairs(6, 9, 3, "grid"), checks, section, _pairs(6, 8, 2, "line"), _table(2), signature),
)  # fmt: skip
CERTIFICATE: Kind = (
    "c",
    False,
    (_border, _centred),
    (_prose(2, 2), _pairs(6, 8, 2), _table(2), _pairs(4, 6, 2, "above"), signature),
)
STATEMENT: Kind = (
    "l",
    False,
    (letterhead, heading),
    (_pairs(5, 7, 2, "grid"), _table(4), _totals, _prose(2, 1), _table(2)),
)
FAX: Kind = (
    "l",
    False,
    (_frame, heading),
    (_pairs(6, 8, 2, "above"), _prose(3, 2), _pairs(4, 6, 1, "tab"), _table(2), signature),
)
BULLETIN: Kind = (
    "r",
    True,
    (_centred,),
    (section, _pairs(5, 7, 1), stamp, _prose(4, 2), section, _table(4), _prose(3, 1)),
)

# What fills the rest of a page, with and without questions.
MORE = (_pairs(4, 6, 2), _table(2), _prose(4, 0), _prose(3, 2))
QUIET = (_prose(6, 0), _prose(4, 0), _table(0))

KINDS: Pool[Kind] = Pool(
    (INVOICE, ORDER, RECEIPT, LETTER, MEMO, REPORT, MINUTES, APPLICATION, CERTIFICATE, STATEMENT), (FAX, BULLETIN)
)


def paint(dice: Dice, density: float) -> Canvas:
    """A form."""
    size = dice.weighted(SIZES, (0.6, 0.25, 0.15))
    canvas = Canvas(size, dice)
    theme, columns, opening, body = dice.pick(KINDS, "layout")
    sheet = Sheet(canvas, theme, density)
    for block in opening:
        block(sheet)
    if columns or size[0] > size[1]:
        sheet.split()
    blocks = list(body)
    for _ in range(40):
        if sheet.room < 40 and not sheet.next_column():
            break
        if not blocks:
            blocks = [dice.choice(QUIET if sheet.full else MORE)]
        blocks.pop(0)(sheet)
        if dice.chance(0.15) and sheet.room > 60:
            sheet.rule(10)
    footer(sheet)
    canvas.image = scan(canvas.image, dice)
    return canvas
