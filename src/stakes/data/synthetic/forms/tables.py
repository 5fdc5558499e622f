"""Tables on forms, whose cells are asked for by row and column: goods, staff, payments, schedules, figures by year.

"What is the price of Korva Pump?" -> "412.80"        "Which region has 4,213 in 1998?" -> "Stolari"

No column heading is also the label of a field, so that "What is the town?" never means a column.
"""

from dataclasses import dataclass
from itertools import accumulate

from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Color
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.forms.sheet import Sheet
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.typefaces import Face
from stakes.data.synthetic.wording import about

# ruff: noqa: E501  (a table of one column per line)

MAX_CELL = 13  # characters


@dataclass(frozen=True)
class Column:
    """One column of a table; ``keyword`` and ``plain`` are question templates that name the cell's {row}."""

    field: str
    heading: str
    tier: str
    value: v.Value
    keyword: str
    plain: str


def _high(field: str, heading: str, value: v.Value, keyword: str, plain: str = "") -> Column:
    return Column("cell_" + field, heading, "high", value, keyword, plain)


def _low(field: str, heading: str, build: v.Sized, plain: str, keyword: str = "") -> Column:
    return Column("cell_" + field, heading, "low", v.fair(build, MAX_CELL), keyword, plain)


# fmt: off
PRICE = _high("price", "Price", v.price, "What is the price of {row}?|How much is one {row}?", "What does {row} sell for?||What is charged for {row}?")
AMOUNT = _high("amount", "Amount", v.money, "What is the amount for {row}?|How much is {row}?", "What was paid for {row}?|What is paid for {row}?")
QTY = _high("qty", "Qty", v.count, "What is the quantity of {row}?|How many {row}?", "What is the qty of {row}?")
PART = _high("part", "Part No.", v.ident, "What is the part number of {row}?|What is the part no. of {row}?||Give the part number of {row}.", "What is the part # of {row}?")
ORIGIN = _low("origin", "Origin", v.word, "What is the origin of {row}?|Where is {row} from?||Give the origin of {row}.")
MAKER = _low("maker", "Maker", v.company, "Who is the maker of {row}?|Who made {row}?||Which maker made {row}?")
TEL = _high("tel", "Tel.", v.phone, "What is the phone number of {row}?|What is the phone of {row}?", "What is the tel. of {row}?")
SALARY = _high("salary", "Salary", v.money, "How much is the salary of {row}?|What amount is paid to {row}?", "What is the salary of {row}?||What salary has {row}?")
HIRED = _high("hired", "Hired", v.date, "When was {row} hired?|What is the hire date of {row}?", "What day was {row} hired?")
TEAM = _low("team", "Team", v.thing, "What is the team of {row}?|Which team is {row} in?||What team is {row} in?")
PLACE = _low("place", "Place", v.word, "What is the place of {row}?|Which place is {row} in?||What place is {row} in?")
BOSS = _low("boss", "Reports To", v.person, "Who does {row} report to?|Who is the boss of {row}?")
PAID = _high("paid", "Date", v.date, "What is the date of {row}?|When was {row} paid?", "What day was {row} paid?")
CHECK = _high("check", "Check No.", v.ident, "What is the check number of {row}?|What is the check no. of {row}?", "What is the check # of {row}?")
PURPOSE = _low("purpose", "Purpose", v.thing, "What is the purpose of {row}?|What was {row} for?||Give the purpose of {row}.")
AGENT = _low("agent", "Agent", v.person, "Who is the agent of {row}?|Who is the agent for {row}?||Who acts for {row}?")
SPEAKER = _low("speaker", "Speaker", v.person, "Who is the speaker on {row}?|Who speaks on {row}?||Name the speaker on {row}.")
HALL = _low("hall", "Room", v.locator, "Which room is {row} in?|What is the room of {row}?", "What is the room number of {row}?")
CLOCK = _low("clock", "Time", v.hour, "What hour is {row}?", "What is the time of {row}?|When is {row}?")
SEATS = _high("seats", "Seats", v.count, "How many seats has {row}?|What is the number of seats of {row}?", "What are the seats of {row}?")
COST = _high("cost", "Cost", v.money, "What is the cost of {row}?|How much is {row}?", "What was spent on {row}?")
FILE = _high("file", "File No.", v.ident, "What is the file number of {row}?|What is the file no. of {row}?", "What is the file # of {row}?")
# fmt: on

# name: (heading of the rows, how rows are named, columns to choose from)
KINDS: dict[str, tuple[tuple[str, ...], v.Sized, tuple[Column, ...]]] = {
    "goods": (("Item", "Description", "Article"), v.thing, (PRICE, AMOUNT, QTY, PART, ORIGIN, MAKER)),
    "staff": (("Name", "Employee", "Member"), v.person, (TEL, SALARY, HIRED, TEAM, PLACE, BOSS)),
    "payments": (("Payee", "Creditor", "Firm"), v.company, (AMOUNT, PAID, CHECK, PURPOSE, AGENT, PLACE)),
    "schedule": (("Session", "Talk", "Lecture"), v.thing, (CLOCK, SPEAKER, HALL, SEATS, COST, FILE)),
}
THEMES = {
    "i": ("goods", "goods", "payments"),
    "l": ("schedule", "staff", "payments", "years"),
    "r": ("years", "schedule", "staff"),
    "a": ("staff", "payments"),
    "c": ("payments", "goods", "years"),
}

COLUMNS = tuple(dict.fromkeys(c.field for _, _, columns in KINDS.values() for c in columns))
FIELDS = (*COLUMNS, "cell_year", "row_year")

YEAR_KEYWORD = (
    "What is the value of {row} in {column}?|What is the figure for {row} in {column}?"
    "||What number has {row} in {column}?"
)
YEAR_PLAIN = "What is {row} in {column}?|What did {row} reach in {column}?"
ROW_KEYWORD = "Which {head} has the value {value}?|Which {head} has the figure {value}?"
ROW_PLAIN = "Which {head} has {value}?|What {head} has {value} in {column}?||Which {head} reached {value}?"

Cell = tuple[str, Question | None]


def _by_columns(kind: str, rows: int, columns: int, dice: Dice) -> tuple[list[str], list[list[Cell]]]:
    """Headings and cells of a table that is read by row name and column heading."""
    heads, naming, choices = KINDS[kind]
    names = [naming(dice, dice.randint(7, 12)) for _ in range(rows)]
    high = [c for c in choices if c.tier == "high"]
    low = [c for c in choices if c.tier == "low"]
    chosen = dice.sample(high, (columns + 1) // 2) + dice.sample(low, columns // 2)
    dice.shuffle(chosen)
    body: list[list[Cell]] = []
    for name in names:
        questions = [about(c.field, c.tier, c.keyword, c.plain, dice, row=name) for c in chosen]
        body.append([(name, None), *((c.value(dice), q) for c, q in zip(chosen, questions, strict=True))])
    return [dice.choice(heads), *(c.heading for c in chosen)], body


def _by_years(rows: int, columns: int, dice: Dice) -> tuple[list[str], list[list[Cell]]]:
    """Figures by year; the row's name is asked for by one of its figures."""
    head = dice.choice(("Plant", "Area", "Market", "Group", "State"))
    first = dice.randint(1950, 2018)
    years = [str(first + k) for k in range(columns)]
    figure = dice.choice((v.count, v.count, v.percent, v.price))
    body: list[list[Cell]] = []
    for _ in range(rows):
        name = v.word(dice, dice.randint(4, 9))
        cells = [figure(dice) for _ in years]
        questions = [about("cell_year", "high", YEAR_KEYWORD, YEAR_PLAIN, dice, row=name, column=y) for y in years]
        at = dice.randrange(columns)
        row = about(
            "row_year", "low", ROW_KEYWORD, ROW_PLAIN, dice, head=head.lower(), value=cells[at], column=years[at]
        )
        body.append([(name, row), *zip(cells, questions, strict=True)])
    return [head, *years], body


def table(sheet: Sheet, most: int) -> None:
    """A table of this page's theme with at most ``most`` questions about its cells, as many of each tier."""
    dice, canvas = sheet.dice, sheet.canvas
    size = sheet.size(dice.choice((0.75, 0.8, 0.9, 1.0, 1.1)))
    leading = size * dice.uniform(1.6, 2.3)
    rows = min(dice.randint(4, 9), int((sheet.free - leading) // leading))
    columns = dice.choice((2, 3, 3, 4))
    if rows < 2:
        return
    kind = dice.choice(THEMES[sheet.theme])
    heads, body = _by_years(rows, columns, dice) if kind == "years" else _by_columns(kind, rows, columns, dice)
    text, bold = sheet.text(size), sheet.bold(size)
    while True:
        widths = [max(bold.width(heads[k]), *(text.width(row[k][0]) for row in body)) + size for k in range(len(heads))]
        if sum(widths) <= sheet.width:
            break
        if size > 10:
            size -= 1
            text, bold = sheet.text(size), sheet.bold(size)
        elif len(heads) > 2:
            heads, body = heads[:-1], [row[:-1] for row in body]
        else:
            return
    spare = (sheet.width - sum(widths)) / len(widths)
    *lefts, _ = accumulate((width + spare for width in widths), initial=float(sheet.left))
    chosen = _chosen(body, min(most, sheet.questions_left), dice)
    top, grid = sheet.y, dice.choice(("none", "rows", "full", "full", "bands"))
    shade: Color = dice.choice(((228, 228, 228), (212, 222, 236), (236, 230, 214)))
    if dice.chance(0.6):
        canvas.pen.rectangle((sheet.left, top, sheet.right, top + leading), fill=shade)
    lift = (leading - size) * 0.35
    align = dice.chance(0.6)
    to_right = [align and k > 0 and _mostly_numbers([row[k][0] for row in body]) for k in range(len(heads))]

    def start(k: int, text: str, letters: Face) -> float:
        margin = size * 0.4
        return lefts[k] + (widths[k] + spare - letters.width(text) - margin if to_right[k] else margin)

    for k, head in enumerate(heads):
        canvas.text(start(k, head, bold), top + lift, head, bold, sheet.ink)
    for r, row in enumerate(body):
        y = top + (r + 1) * leading
        if grid == "bands" and r % 2 == 1:
            canvas.pen.rectangle((sheet.left, y, sheet.right, y + leading), fill=(240, 240, 240))
        for k, (value, question) in enumerate(row):
            if question is not None and (r, k) in chosen:
                canvas.answer(start(k, value, text), y + lift, value, text, question, sheet.ink)
            else:
                canvas.text(start(k, value, text), y + lift, value, text, sheet.ink)
    bottom = top + (rows + 1) * leading
    for r in range(rows + 2) if grid in ("rows", "full") else (0, 1, rows + 1):
        canvas.pen.line((sheet.left, top + r * leading, sheet.right, top + r * leading), fill=(130, 130, 130))
    if grid == "full":
        for x in (*lefts, sheet.right):
            canvas.pen.line((x, top, x, bottom), fill=(150, 150, 150))
    sheet.y = bottom + size * dice.uniform(0.5, 1.0)


def _mostly_numbers(cells: list[str]) -> bool:
    """Whether more than half of the cells end in a digit or a percent sign."""
    return sum(cell[-1].isdigit() or cell[-1] == "%" for cell in cells) > len(cells) / 2


def _chosen(body: list[list[Cell]], most: int, dice: Dice) -> set[tuple[int, int]]:
    """The (row, column) of cells that get a question: as many of each tier, and only values that occur once."""
    tiers: dict[str, list[tuple[int, int]]] = {"high": [], "low": []}
    texts = [value for row in body for value, _ in row]
    for r, row in enumerate(body):
        for k, (value, question) in enumerate(row):
            if question is not None and texts.count(value) == 1:
                tiers[question.tier].append((r, k))
    count = min(most // 2, *(len(cells) for cells in tiers.values()))
    return {cell for cells in tiers.values() for cell in dice.sample(cells, count)}
