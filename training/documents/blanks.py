"""Forms as offices use them: printed labels, blanks and boxes, values typed or written by hand."""

from training.documents.letters import letterhead, plain, written
from training.documents.sheet import Sheet
from training.documents.values import HIGH, entries
from training.documents.wording import Desk

from stakes.data.synthetic.dice import pool
from stakes.data.synthetic.page import Question

TITLES = pool(
    "Information Sheet|Purchase Order|Expense Report|Request Form|Routing Slip|Travel Request|Contract Approval Form"
    "|Sample Request|Application Form|Project Authorization|Personnel Record|Shipping Order|Check Request|Change Notice"
    "|Study Summary|Registration Form|Delivery Receipt|Job Assignment|Research Proposal|Questionnaire|Work Order"
    "||Claim Form|Budget Transfer"
)
SECTIONS = (
    "GENERAL INFORMATION",
    "PART A",
    "PART B",
    "DETAILS",
    "FOR OFFICE USE ONLY",
    "SECTION 1",
    "SECTION 2",
    "OTHER",
)


def _questions(desk: Desk, label: str, kind: str) -> tuple[Question, ...]:
    """Questions about a blank: by its label, and for persons also by role."""
    bare = label.rstrip(".")
    if kind == "person" and desk.dice.chance(0.5) and label not in ("Name", "Contact"):
        return desk.ask("person", bare)
    return desk.ask("label", label if desk.dice.chance(0.7) else bare.lower(), high=kind in HIGH)


def form(sheet: Sheet, desk: Desk) -> None:
    """A form of 8 to 32 entries in one of three layouts."""
    dice = sheet.dice
    if dice.chance(0.4):
        letterhead(sheet, desk, asked=False)
    title = dice.pick(TITLES, "words")
    letters = sheet.letters(dice.uniform(1.1, 1.6), dice.chance(0.7), sheet.look.printed)
    asked = desk.ask(dice.choice(("title", "kind")))
    sheet.line(
        (title.upper() if dice.chance(0.5) else title, asked), letters=letters, align=dice.choice(("c", "c", "l"))
    )
    sheet.skip()
    wanted = entries(dice, dice.choice((8, 12, 16, 20, 26, 32)))
    layout = dice.choice((_lines, _lines, _boxes, _columns))
    layout(sheet, desk, wanted)
    if dice.chance(0.4) and sheet.y + 3 * sheet.step < sheet.bottom:
        sheet.skip(1.5)
        for label in dice.sample(("Signature", "Approved", "Date", "Initials"), 2):
            y = sheet.y
            sheet.line(plain(f"{label}:"), letters=sheet.letters(0.9, name=sheet.look.printed))
            sheet.rule(y=y + sheet.step, start=sheet.left + 110, end=sheet.left + 330)


def _blank(sheet: Sheet, start: float, end: float, y: float, dotted: bool) -> None:
    """The rule or the dots that a value is written on."""
    if dotted:
        letters = sheet.letters(0.9, name=sheet.look.printed)
        dots = "." * max(0, int((end - start) // letters.width(".")))
        sheet.pen.bitmap((round(start), round(y)), letters.mask(dots), fill=200)
    else:
        sheet.pen.line((start, y + sheet.look.point * 1.12, end, y + sheet.look.point * 1.12), fill=220, width=1)


def _lines(sheet: Sheet, desk: Desk, wanted: list[tuple[str, str, str]]) -> None:
    """One or two entries on a line, with blanks."""
    dice, dotted, colon = sheet.dice, sheet.dice.chance(0.35), sheet.dice.choice((":", ":", ""))
    printed, ruled = sheet.letters(dice.uniform(0.85, 1.05), name=sheet.look.printed), dice.chance(0.75)
    aligned, tight = dice.chance(0.3), dice.choice((1.2, 1.5, 1.9))
    column = max(printed.width(label + colon) for label, _, _ in wanted) + 14
    for index, (label, kind, value) in enumerate(wanted):
        if sheet.full:
            return
        if dice.chance(0.1) and index:
            sheet.line(plain(dice.choice(SECTIONS)), letters=sheet.letters(1.0, True, sheet.look.printed))
        halves = 2 if len(value) < 18 and dice.chance(0.4) else 1
        middle = sheet.left + (sheet.right - sheet.left) * 0.52
        end = middle - 12 if halves == 2 else sheet.right
        x = sheet.put(sheet.left, sheet.y, label + colon, printed, (), "")
        x = sheet.left + column if aligned else x + 8
        if ruled:
            _blank(sheet, x, end, sheet.y, dotted)
        written(sheet, x + 3, sheet.y, (value, _questions(desk, label, kind)))
        if halves == 2:  # an empty entry beside it
            x = sheet.put(middle, sheet.y, dice.choice(("Code:", "Ext.", "No.", "Remarks:", "By:")), printed, (), "")
            _blank(sheet, x + 6, sheet.right, sheet.y, dotted)
        sheet.skip(tight)


def _boxes(sheet: Sheet, desk: Desk, wanted: list[tuple[str, str, str]]) -> None:
    """A grid of boxes with small labels in their corners."""
    dice = sheet.dice
    small = sheet.letters(0.75, name=sheet.look.printed)
    tall = small.size + sheet.look.point * (2.2 if sheet.look.hand else 1.7)
    index = 0
    while index < len(wanted) and sheet.y + tall < sheet.bottom:
        number = min(dice.choice((1, 2, 2, 3)), len(wanted) - index)
        edges = [sheet.left + (sheet.right - sheet.left) * i / number for i in range(number + 1)]
        for (label, kind, value), start, end in zip(wanted[index : index + number], edges, edges[1:], strict=False):
            sheet.frame((start, sheet.y, end, sheet.y + tall))
            shown = label.upper() if dice.chance(0.5) else label
            sheet.put(start + 4, sheet.y + 2, shown, small, (), "")
            fits = sheet.letters().width(value) < end - start - 10
            if fits and dice.chance(0.92):
                written(sheet, start + 8, sheet.y + small.size + 4, (value, _questions(desk, label, kind)))
        sheet.y += tall
        index += number
    sheet.skip(0.5)


def _columns(sheet: Sheet, desk: Desk, wanted: list[tuple[str, str, str]]) -> None:
    """A table of two columns: labels at the left, values at the right."""
    dice = sheet.dice
    printed = sheet.letters(1.0, dice.chance(0.5), sheet.look.printed)
    middle = sheet.left + max(printed.width(label) for label, _, _ in wanted) + 30
    top, capital = sheet.y, dice.chance(0.5)
    for label, kind, value in wanted:
        if sheet.full:
            break
        sheet.rule()
        sheet.put(sheet.left + 6, sheet.y + 3, label.upper() if capital else label, printed, (), "")
        written(sheet, middle + 8, sheet.y + 3, (value, _questions(desk, label, kind)))
        sheet.skip(dice.choice((1.4, 1.4, 2.3)))
    sheet.frame((sheet.left, top, sheet.right, sheet.y))
    sheet.pen.line((middle, top, middle, sheet.y), fill=235, width=1)
    sheet.skip(0.5)
