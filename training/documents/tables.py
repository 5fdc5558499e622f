"""Tables, reports with a table, agendas and lists of people."""

from collections.abc import Callable

from training.documents import words
from training.documents.letters import body, plain
from training.documents.sheet import Piece, Sheet
from training.documents.values import KINDS
from training.documents.wording import Desk

from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.typefaces import Face
from stakes.data.synthetic.values import letters as capitals

ROWS: dict[str, Callable[[Dice], str]] = {
    "State": words.city,
    "City": words.city,
    "Product": words.word,
    "Name": words.person,
    "Material": lambda dice: f"{dice.pick(words.THINGS, 'words').title()} {capitals(dice, 1)}",
    "Department": lambda dice: f"{words.word(dice)} {dice.choice(('Office', 'Plant', 'Lab'))}",
    "Company": words.company,
    "Item": lambda dice: dice.pick(words.TOPICS, "words").title(),
}
COLUMNS = {
    "Amount": "money", "Cost": "money", "Sales": "money", "Budget": "money", "Units": "count", "Cases": "count",
    "Number": "count", "Share": "percent", "Rate": "percent", "Change": "percent", "Code": "code", "Date": "date",
    "Weight": "count", "Price": "money", "Quantity": "count",
}  # fmt: skip
SUMMED = ("Units", "Cases", "Number", "Quantity", "Weight")


def heading(sheet: Sheet, desk: Desk, scale: float = 1.3) -> None:
    """The title of a page."""
    dice = sheet.dice
    text = words.shaped(dice, words.topic(dice))
    letters = sheet.letters(dice.uniform(1.0, scale), dice.chance(0.6), sheet.look.head)
    sheet.line((text, desk.ask("title")), letters=letters, align=dice.choice(("c", "c", "l")))
    if dice.chance(0.5):
        sheet.line((words.date(dice), desk.ask("date")), align=dice.choice(("c", "l", "r")))
    sheet.skip()


def _cells(dice: Dice, heads: list[str], yearly: bool, number: int) -> list[list[str]]:
    """The values of a table, row by row."""
    if not yearly:
        return [[KINDS[COLUMNS[head]](dice) for head in heads] for _ in range(number)]
    scale, places = dice.uniform(0.5, 4.5), dice.choice((0, 0, 1, 2))
    return [[f"{10 ** dice.uniform(scale, scale + 1.3):,.{places}f}" for _ in heads] for _ in range(number)]


def table(sheet: Sheet, desk: Desk, most: int) -> None:
    """A table of up to ``most`` rows, by columns of different kinds or by years, sometimes with a total."""
    dice = sheet.dice
    rowhead = dice.choice(tuple(ROWS))
    yearly = dice.chance(0.4)
    first = dice.randint(1955, 1998)
    heads = (
        [str(first + i) for i in range(dice.randint(2, 5))]
        if yearly
        else dice.sample(tuple(COLUMNS), dice.randint(2, 4))
    )
    number = dice.randint(3, most)
    names = list(dict.fromkeys(ROWS[rowhead](dice)[:26].strip() for _ in range(number)))
    cells = _cells(dice, heads, yearly, len(names))
    letters, head = sheet.letters(dice.uniform(0.85, 1.0)), sheet.letters(0.95, dice.chance(0.5))
    stops = _stops(sheet, letters, [rowhead, *names], heads, cells)
    if stops is None:
        return
    if dice.chance(0.6):
        caption = f"{rowhead} {dice.choice(('Summary', 'Report', 'Statistics', 'Comparison', 'Data'))} {_mark(dice)}"
        lead = f"Table {dice.randint(1, 30)}. " if dice.chance(0.5) else ""
        sheet.line(plain(lead), (words.shaped(dice, caption), desk.ask("caption")), align=dice.choice(("l", "c")))
    grid, ruled, top = dice.chance(0.35), dice.chance(0.6), sheet.y
    _row(sheet, [(rowhead if dice.chance(0.6) else "", ()), *map(plain, heads)], stops, head)
    if ruled or grid:
        sheet.rule(y=sheet.y)
    step = dice.uniform(1.05, 1.6)
    ask = 0.9 if len(names) * len(heads) < 12 else 0.35
    for name, row in zip(names, cells, strict=True):
        if sheet.full:
            break
        pieces: list[Piece] = [(name, _by_value(desk, rowhead, heads, row, cells))]
        for where, (text, value) in enumerate(zip(heads, row, strict=True)):
            asked = (
                desk.ask("yearly" if yearly else "cell", name, text if yearly else text.lower())
                if dice.chance(ask)
                else ()
            )
            pieces.append((value, asked if where < 8 else ()))
        _row(sheet, pieces, stops, letters)
        sheet.skip(step - 1)
        if grid:
            sheet.rule(y=sheet.y)
    _total(sheet, desk, heads, cells, stops, letters, yearly)
    if grid:
        sheet.frame((stops[0] - 6, top - 3, sheet.right + 6, sheet.y))
    sheet.skip()


def _mark(dice: Dice) -> str:
    """A year or a letter that tells tables apart."""
    return dice.choice((str(dice.randint(1955, 2003)), capitals(dice, 1), words.word(dice)))


def _by_value(
    desk: Desk, rowhead: str, heads: list[str], row: list[str], cells: list[list[str]]
) -> tuple[Question, ...]:
    """A question for the name of a row by one of its values, where no other row has that value."""
    at = desk.dice.randrange(len(row))
    unique = sum(row[at] in other for other in cells) == 1
    if not unique or not desk.dice.chance(0.3):
        return ()
    return desk.ask("row", rowhead.lower(), heads[at].lower(), row[at])


def _stops(
    sheet: Sheet, letters: Face, names: list[str], heads: list[str], cells: list[list[str]]
) -> list[float] | None:
    """The left edge of the names and the right edges of all columns; None where they do not fit."""
    wide = [max(letters.width(t) for t in (head, *(row[i] for row in cells))) for i, head in enumerate(heads)]
    start = sheet.left + max(letters.width(n) for n in names)
    space = sheet.right - start - sum(wide)
    gap = space / len(heads)
    if gap < 14:
        return None
    gap = min(gap, sheet.dice.uniform(30, 140))
    stops = [sheet.left]
    for width in wide:
        start += gap + width
        stops.append(start)
    return stops


def _row(sheet: Sheet, pieces: list[Piece], stops: list[float], letters: Face) -> None:
    """Print a row: the name at the left, values at the right edges of their columns."""
    for index, (text, questions) in enumerate(pieces):
        x = stops[0] if index == 0 else stops[index] - letters.width(text)
        sheet.put(x, sheet.y, text, letters, questions, text)
    sheet.y += max(sheet.step, letters.size * 1.15)


def _total(
    sheet: Sheet, desk: Desk, heads: list[str], cells: list[list[str]], stops: list[float], letters: Face, yearly: bool
) -> None:
    """The row of sums, where all columns can be added."""
    dice = sheet.dice
    if sheet.full or not dice.chance(0.5) or not (yearly or all(h in SUMMED for h in heads)):
        return
    places = len(cells[0][0].partition(".")[2])
    sums = [f"{sum(float(row[i].replace(',', '')) for row in cells):,.{places}f}" for i in range(len(heads))]
    sheet.rule(y=sheet.y)
    sheet.skip(0.2)
    pieces = [(text, desk.ask("sum", f"in {h}" if yearly else h.lower())) for h, text in zip(heads, sums, strict=True)]
    _row(sheet, [plain(dice.choice(("Total", "TOTAL", "Totals"))), *pieces], stops, letters)


def table_page(sheet: Sheet, desk: Desk) -> None:
    """A page that is one or two tables."""
    heading(sheet, desk, 1.5)
    table(sheet, desk, 34)
    if sheet.dice.chance(0.4) and sheet.y < 0.6 * sheet.bottom:
        table(sheet, desk, 12)
    if not sheet.full and sheet.dice.chance(0.5):
        sheet.line(plain("Source: " + words.company(sheet.dice)), letters=sheet.letters(0.8))


def report(sheet: Sheet, desk: Desk) -> None:
    """A page of a report: text, sections and a table."""
    dice = sheet.dice
    heading(sheet, desk)
    body(sheet, dice.randint(1, 3), dice.randint(1, 4))
    for _ in range(dice.randint(1, 4)):
        if sheet.y < 0.75 * sheet.bottom:
            number = dice.choice(("1. ", "II. ", "A. ", "", "3.2 "))
            sheet.line(
                plain(number + words.shaped(dice, words.topic(dice))), letters=sheet.letters(1.0, dice.chance(0.6))
            )
            if dice.chance(0.6) and sheet.y < 0.6 * sheet.bottom:
                table(sheet, desk, 9)
            body(sheet, dice.randint(1, 2), dice.randint(0, 2))


def agenda(sheet: Sheet, desk: Desk) -> None:
    """The program of a meeting: times, topics and speakers."""
    dice = sheet.dice
    heading(sheet, desk, 1.5)
    if dice.chance(0.7):
        sheet.line(
            (f"{words.word(dice)} {dice.choice(('Hotel', 'Hall', 'Center', 'Room', 'Inn'))}", desk.ask("place")),
            align="c",
        )
        sheet.skip()
    hour, minute, used = dice.randint(7, 9), dice.choice((0, 30)), set()
    for _ in range(dice.randint(5, 12)):
        if sheet.y + 2 * sheet.step > sheet.bottom:
            return
        text = f"{(hour - 1) % 12 + 1}:{minute:02d} {'a.m.' if hour < 12 else 'p.m.'}"
        minute += dice.choice((15, 30, 45, 60, 90))
        hour, minute = hour + minute // 60, minute % 60
        item, who = words.topic(dice), words.person(dice)
        if item in used:
            continue
        used.add(item)
        y = sheet.y
        sheet.line((text, desk.ask("time", item) if dice.chance(0.5) else ()))
        sheet.y = y
        sheet.line((item, desk.ask("event", text) if dice.chance(0.5) else ()), at=0.2)
        if dice.chance(0.6):
            sheet.line((who, desk.ask("speaker", item)), at=dice.choice((0.2, 0.26)))
        sheet.skip(dice.choice((0.0, 0.6)))


def people(sheet: Sheet, desk: Desk) -> None:
    """A list of people with their positions, or a directory with phone numbers."""
    dice = sheet.dice
    heading(sheet, desk, 1.4)
    phones, lead = dice.chance(0.5), dice.choice(("", "", "dots"))
    roles = dice.sample(words.ROLES.seen, dice.randint(6, 16))
    middle = sheet.left + 0.55 * (sheet.right - sheet.left)
    for role in roles:
        if sheet.full:
            return
        who = words.person(dice)
        asked = desk.ask("holder", role.lower() if dice.chance(0.5) else role) if dice.chance(0.6) else ()
        end = sheet.put(sheet.left, sheet.y, who, sheet.letters(), asked, who)
        sheet.put(
            max(middle, end + 20), sheet.y, role, sheet.letters(), desk.ask("role", who) if not asked else (), role
        )
        sheet.skip()
        if phones:
            number = words.phone(dice)
            sheet.line((number, desk.ask("label", f"phone of {who}", high=True)), at=0.04)
        if lead:
            sheet.skip(0.4)
