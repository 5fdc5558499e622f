"""Tables whose cells are asked for by row and column: goods, staff, payments, schedules, figures by year.

"What is the price of Korva Pump?" -> "412.80"        "Which region has 4,213 in 1998?" -> "Stolari"
"""

from stakes.data.pages import values as v
from stakes.data.pages.canvas import Ask, Colour
from stakes.data.pages.columns import KINDS, THEMES
from stakes.data.pages.dice import Dice
from stakes.data.pages.sheet import Sheet
from stakes.data.pages.wording import about

COLUMNS = tuple(dict.fromkeys(c.field for _, _, columns in KINDS.values() for c in columns))
FIELDS = (*COLUMNS, "cell_year", "row_year")

YEAR_LOUD = (
    "What is the value of {row} in {column}?|What is the figure for {row} in {column}?"
    "||What number has {row} in {column}?"
)
YEAR_PLAIN = "What is {row} in {column}?|What did {row} reach in {column}?"
ROW_LOUD = "Which {head} has the value {value}?|Which {head} has the figure {value}?"
ROW_PLAIN = "Which {head} has {value}?|What {head} has {value} in {column}?||Which {head} reached {value}?"

Cell = tuple[str, Ask | None]


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
        asks = [about(c.field, c.tier, c.loud, c.plain, dice, row=name) for c in chosen]
        body.append([(name, None), *((c.draw(dice), a) for c, a in zip(chosen, asks, strict=True))])
    return [dice.choice(heads), *(c.heading for c in chosen)], body


def _by_years(rows: int, columns: int, dice: Dice) -> tuple[list[str], list[list[Cell]]]:
    """Figures by year; the row's name is asked for by one of its figures."""
    head = dice.choice(("Plant", "Area", "Market", "Group", "State"))
    first = dice.randint(1950, 2018)
    years = [str(first + k) for k in range(columns)]
    figure = dice.choice((v.count, v.count, v.percent, v.price))
    body: list[list[Cell]] = []
    for _ in range(rows):
        name = v.place(dice, dice.randint(4, 9))
        cells = [figure(dice) for _ in years]
        ask = [about("cell_year", "high", YEAR_LOUD, YEAR_PLAIN, dice, row=name, column=y) for y in years]
        at = dice.randrange(columns)
        row = about("row_year", "low", ROW_LOUD, ROW_PLAIN, dice, head=head.lower(), value=cells[at], column=years[at])
        body.append([(name, row), *zip(cells, ask, strict=True)])
    return [head, *years], body


def table(sheet: Sheet, most: int) -> None:
    """A table of this page's theme, up to ``most`` of whose cells are asked for, as many of each tier as it has."""
    dice, canvas = sheet.dice, sheet.canvas
    size = sheet.size(dice.choice((0.75, 0.8, 0.9, 1.0, 1.1)))
    leading = size * dice.uniform(1.6, 2.3)
    rows = min(dice.randint(4, 9), int((sheet.room - leading) // leading))
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
    lefts, x = [], float(sheet.left)
    for width in widths:
        lefts.append(x)
        x += width + spare
    asked = _chosen(body, min(most, sheet.may_ask), dice)
    top, grid = sheet.y, dice.choice(("none", "rows", "full", "full", "bands"))
    shade: Colour = dice.choice(((228, 228, 228), (212, 222, 236), (236, 230, 214)))
    if dice.chance(0.6):
        canvas.pen.rectangle((sheet.left, top, sheet.right, top + leading), fill=shade)
    lift = (leading - size) * 0.35
    numeric = [
        k > 0 and sum(row[k][0][-1].isdigit() or row[k][0][-1] == "%" for row in body) > rows / 2
        for k in range(len(heads))
    ]
    align = dice.chance(0.6)
    for k, head in enumerate(heads):
        shift = widths[k] + spare - bold.width(head) - size * 0.4 if numeric[k] and align else size * 0.4
        canvas.text(lefts[k] + shift, top + lift, head, bold, sheet.ink)
    for r, row in enumerate(body):
        y = top + (r + 1) * leading
        if grid == "bands" and r % 2 == 1:
            canvas.pen.rectangle((sheet.left, y, sheet.right, y + leading), fill=(240, 240, 240))
        for k, (value, ask) in enumerate(row):
            shift = widths[k] + spare - text.width(value) - size * 0.4 if numeric[k] and align else size * 0.4
            if ask is not None and (r, k) in asked:
                canvas.answer(lefts[k] + shift, y + lift, value, text, ask, sheet.ink)
            else:
                canvas.text(lefts[k] + shift, y + lift, value, text, sheet.ink)
    bottom = top + (rows + 1) * leading
    lines = range(rows + 2) if grid in ("rows", "full") else (0, 1, rows + 1)
    for r in lines:
        canvas.pen.line((sheet.left, top + r * leading, sheet.right, top + r * leading), fill=(130, 130, 130))
    if grid == "full":
        for x in (*lefts, sheet.right):
            canvas.pen.line((x, top, x, bottom), fill=(150, 150, 150))
    sheet.y = bottom + size * dice.uniform(0.5, 1.0)


def _chosen(body: list[list[Cell]], most: int, dice: Dice) -> set[tuple[int, int]]:
    """Which cells are asked for: both tiers alike, never one question twice."""
    tiers: dict[str, list[tuple[int, int]]] = {"high": [], "low": []}
    texts: list[str] = [value for row in body for value, _ in row]
    for r, row in enumerate(body):
        for k, (value, ask) in enumerate(row):
            if ask is not None and texts.count(value) == 1:
                tiers[ask.tier].append((r, k))
    count = min(most // 2, *(len(cells) for cells in tiers.values()))
    return {cell for cells in tiers.values() for cell in dice.sample(cells, count)}
