"""Synthetic office documents as they were typed, copied and scanned in the second half of the 20th century.

Letters, memos, fax covers, forms, tables, reports, agendas and lists of people. Training pages are worn (``copier``);
calibration and test pages are scanned as the package's forms are.
"""

from collections.abc import Callable

from PIL import Image
from training.documents import copier, words
from training.documents.blanks import form
from training.documents.letters import fax, letter, memo
from training.documents.sheet import SIZES, Sheet, draw_look
from training.documents.tables import agenda, people, report, table_page
from training.documents.wording import FIELDS, Desk

from stakes.data.synthetic.canvas import Canvas, scan
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.values import digits

__all__ = ["FIELDS", "SIZES", "paint"]

KINDS: dict[Callable[[Sheet, Desk], None], float] = {
    letter: 2.5, memo: 1.7, fax: 0.8, form: 3.0, table_page: 2.0, report: 1.5, agenda: 0.8, people: 0.7,
}  # fmt: skip
WIDE = (table_page, form)  # kinds that are also typed across a sheet


def paint(dice: Dice, density: float) -> Canvas:
    """Draw a document."""
    kind = dice.weighted(tuple(KINDS), tuple(KINDS.values()))
    size = dice.weighted(SIZES, (4, 4, 1.5, 1.2 if kind in WIDE else 0.0))
    sheet, desk = Sheet(size, dice, draw_look(dice, density)), Desk(dice)
    _fax_line(sheet)
    kind(sheet, desk)
    _numbers(sheet, desk)
    if dice.training:
        sheet.image = copier.worn(sheet)
    else:
        white = Image.new("RGB", size, (255, 255, 255))
        sheet.image = scan(Image.composite(Image.new("RGB", size, sheet.look.ink), white, sheet.ink), dice)
    return sheet


def _fax_line(sheet: Sheet) -> None:
    """The line that a fax machine prints at the top of one page in twelve."""
    dice = sheet.dice
    if dice.chance(0.08):
        text = (
            f"{words.date(dice).upper()}  {words.clock(dice)}   {words.company(dice).upper()}   P.{dice.randint(1, 30)}"
        )
        letters = sheet.letters(0.75, name="VeraMono")
        if letters.width(text) < sheet.width - 20:
            sheet.put(12, 6, text, letters, (), "")


def _numbers(sheet: Sheet, desk: Desk) -> None:
    """A page number and an archive number below the text; the second sometimes runs up the edge."""
    dice = sheet.dice
    bottom = sheet.height * dice.uniform(0.945, 0.965)
    if dice.chance(0.4):
        number = str(dice.randint(1, 300))
        around = dice.choice(("", "", "-", "Page "))
        letters = sheet.letters(0.95)
        x = sheet.width * dice.choice((0.5, 0.5, 0.9))
        if around == "-":
            sheet.pieces(x - 20, bottom, [("- ", ()), (number, desk.ask("page")), (" -", ())], letters)
        else:
            sheet.pieces(x - 20, bottom, [(around, ()), (number, desk.ask("page"))], letters)
    if dice.chance(0.5):
        number = f"{digits(dice, 5)} {digits(dice, 4)}" if dice.chance(0.5) else digits(dice, dice.randint(7, 10))
        letters = sheet.letters(dice.uniform(0.8, 1.1), name=dice.choice(("LiberationSans-Bold", "VeraMono")))
        if dice.chance(0.35):
            mask = letters.mask(number).rotate(90, expand=True)
            at = (round(sheet.width * 0.965 - 8), round(sheet.height * dice.uniform(0.5, 0.8)))
            sheet.ink.paste(255, at, mask)
        else:
            x = sheet.width * 0.1 if dice.chance(0.3) else sheet.width * 0.95 - letters.width(number)
            sheet.put(x, sheet.height * 0.968, number, letters, desk.ask("stamp"), number)
