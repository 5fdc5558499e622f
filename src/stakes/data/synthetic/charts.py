"""Charts: bars, lines and pies with printed values, legends, axes and titles (ChartQA).

Numbers are the high-stakes answers; names of categories, series, axes and titles the low-stakes ones, drawn to the
same lengths. Values are printed at their marks, so that a question asks for reading and not for measuring.
"""

from dataclasses import dataclass

from stakes.data.synthetic import plots
from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Canvas, Colour, scan
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.plots import Plot
from stakes.data.synthetic.typefaces import FORMS, face, typeface
from stakes.data.synthetic.wording import about

SIZES = ((1008, 756), (952, 700))
FIELDS = ("mark", "category", "extreme", "title", "series", "axis", "source", "total", "sample", "survey_date")

KINDS = ("column", "bar", "pie", "grouped", "line")
SHARES = (0.3, 0.3, 0.2, 0.1, 0.1)
TRAINING_SHARES = (0.2, 0.15, 0.15, 0.3, 0.2)  # several series, told apart by a legend's colours, are learnt last

# The last palette is kept out of training.
PALETTES: Pool[tuple[Colour, ...]] = Pool(
    (
        (
            (66, 114, 196),
            (237, 125, 49),
            (150, 150, 150),
            (240, 190, 20),
            (90, 155, 213),
            (112, 173, 71),
            (158, 72, 14),
            (100, 60, 140),
        ),
        (
            (40, 75, 99),
            (210, 80, 70),
            (110, 160, 130),
            (230, 180, 90),
            (120, 100, 150),
            (60, 140, 170),
            (170, 120, 90),
            (90, 90, 90),
        ),
        (
            (30, 120, 180),
            (50, 160, 80),
            (215, 50, 50),
            (250, 150, 60),
            (140, 100, 180),
            (140, 90, 75),
            (225, 120, 190),
            (30, 190, 200),
        ),
    ),
    (
        (
            (20, 60, 80),
            (240, 90, 110),
            (60, 180, 150),
            (250, 210, 110),
            (110, 90, 170),
            (90, 130, 60),
            (200, 140, 60),
            (70, 110, 200),
        ),
    ),
)

MARK_LOUD = (
    "What is the value of {what}?|What is the value for {what}?|What figure has {what}?||Give the value of {what}."
)
MARK_PLAIN = "What is {what}?|What does {what} show?|What share has {what}?||What is shown for {what}?"
CATEGORY_PLAIN = (
    "Which {head} has {value}?|Which {head} shows {value}?|What {head} has {value}?||What {head} shows {value}?"
)
EXTREME_PLAIN = "Which {head} is the {rank}?|What is the {rank} {head}?||Name the {rank} {head}."
TITLE = "What is the title?|What is the chart about?|What is the title of the chart?||What is this chart about?"
SOURCE = "What is the source?|Who is the source?|Which source is given?||Name the source."
AXIS = (
    "What is on the vertical axis?|What does the vertical axis show?|What is the axis label?"
    "||What is the vertical axis?"
)
SERIES_PLAIN = "Which series shows {value}?|What series has {value}?||Which series has {value}?"
TOTAL_LOUD = "What is the total?|How much is the total?|What is the total value?||Give the total."
SAMPLE_LOUD = "How many were asked?|What number were asked?|How many are in the sample?"
SAMPLE_PLAIN = "What is the sample?|What is the sample size?"
DATE_LOUD = "What is the survey date?|When was the survey?|What is the date of the survey?"
DATE_PLAIN = "What day was the survey?|What is the survey day?"


@dataclass(frozen=True)
class Data:
    """What a chart shows: categories, series, and one printed text and one number for each mark."""

    head: str
    names: list[str]
    series: list[str]
    texts: list[list[str]]  # (series, category)
    numbers: list[list[float]]


def _data(dice: Dice, kind: str) -> Data:
    """Random data with values that are all different."""
    count = dice.randint(4, 7) if kind in ("grouped", "line") else dice.randint(4, 8)
    series = [
        v.place(dice, dice.randint(4, 7)) for _ in range(dice.randint(2, 3) if kind in ("grouped", "line") else 1)
    ]
    years = kind != "pie" and dice.chance(0.4)
    first = dice.randint(1950, 2012)
    head = "year" if years else dice.choice(("country", "brand", "group", "region", "sector"))
    names = (
        [str(first + k) for k in range(count)] if years else [v.place(dice, dice.randint(4, 8)) for _ in range(count)]
    )
    size = dice.uniform(1.2, 4.3)
    style = "percent" if kind == "pie" else dice.choice(("percent", "plain", "grouped", "decimal"))
    numbers: list[list[float]] = []
    texts: list[list[str]] = []
    used: set[str] = set()
    for _ in series:
        row: list[float] = []
        printed: list[str] = []
        while len(row) < count:
            number = dice.uniform(2, 100) if style == "percent" else dice.uniform(0.06, 1) * 10 ** (size + 1)
            if style == "percent":
                text = f"{number:.{1 + (kind != 'pie' and size > 3)}f}%"
            elif style == "decimal":
                text = f"{number:,.2f}" if number < 1000 else f"{number:,.1f}"
            else:
                text = f"{number * 10:,.0f}" if style == "grouped" else f"{number * 10:.0f}"
            if text not in used:
                used.add(text)
                row.append(number)
                printed.append(text)
        numbers.append(row)
        texts.append(printed)
    return Data(head, names, series, texts, numbers)


def _ask(canvas: Canvas, plot: Plot, data: Data, dice: Dice) -> None:
    """Questions about the marks and their names: as many names as numbers, each thing once."""
    several = len(data.series) > 1
    marks = [(s, c) for s in range(len(data.series)) for c in range(len(data.names))]
    dice.shuffle(marks)
    wanted = 2 if several else dice.randint(2, 4)
    for s, c in marks[:wanted]:
        what = f"{data.series[s]} in {data.names[c]}" if several else data.names[c]
        plot.ask_mark(canvas, s, c, about("mark", "high", MARK_LOUD, MARK_PLAIN, dice, what=what))
    left = list(range(len(data.names)))
    dice.shuffle(left)
    if not several:
        order = sorted(left, key=lambda c: data.numbers[0][c])
        rank, at = dice.choice((("largest", order[-1]), ("smallest", order[0])))
        gap = abs(data.numbers[0][order[-1]] - data.numbers[0][order[-2]]) if rank == "largest" else abs(
            data.numbers[0][order[0]] - data.numbers[0][order[1]]
        )  # fmt: skip
        if gap > 0.06 * data.numbers[0][order[-1]]:
            left.remove(at)
            plot.ask_name(canvas, at, about("extreme", "low", "", EXTREME_PLAIN, dice, head=data.head, rank=rank))
    for c in left[: max(1, wanted - 2)]:
        s = dice.randrange(len(data.series))
        text = data.texts[s][c]
        plot.ask_name(canvas, c, about("category", "low", "", CATEGORY_PLAIN, dice, head=data.head, value=text))
    if several:
        for s in dice.sample(range(len(data.series)), 1):
            c = dice.randrange(len(data.names))
            plot.ask_series(canvas, s, about("series", "low", "", SERIES_PLAIN, dice, value=data.texts[s][c]))


def paint(dice: Dice, density: float) -> Canvas:
    """A chart with its title above and its source below."""
    size = dice.choice(SIZES)
    ground: Colour = dice.choice(((255, 255, 255), (255, 255, 255), (248, 248, 244), (238, 243, 248)))
    canvas = Canvas(size, dice, ground)
    text, bold = typeface(dice, FORMS)
    base = dice.uniform(14, 21) / density
    colours = dice.pick(PALETTES, "layout")
    ink: Colour = dice.choice(((0, 0, 0), (40, 40, 40), (30, 40, 70)))
    kind = dice.weighted(KINDS, TRAINING_SHARES if dice.training else SHARES)
    data = _data(dice, kind)
    large, small = face(bold, round(base * dice.uniform(1.1, 1.5))), face(text, round(base * dice.uniform(0.75, 1.0)))
    margin = dice.randint(24, 50)
    title = v.thing(dice, dice.randint(6, 12))
    x = margin if dice.chance(0.5) else (size[0] - large.width(title)) / 2.4
    y: float = dice.randint(14, 30)
    canvas.answer(x, y, title, large, about("title", "low", "", TITLE, dice), ink)
    if dice.chance(0.6):
        total = f"{dice.randrange(10_000, 9_999_999):,}"
        edge = size[0] - margin - large.width(total)
        canvas.text(edge - large.width("Total ") - 4, y, "Total", large, ink)
        canvas.answer(edge, y, total, large, about("total", "high", TOTAL_LOUD, "", dice), ink)
    y += large.size * 1.5
    dated = dice.chance(0.5)
    high, low = v.date(dice) if dated else v.count(dice), v.company(dice, dice.randint(5, 9))
    label = "Survey date:" if dated else "Sample:"
    foot = size[1] - small.size * 1.5 - 12
    end = canvas.text(margin, foot, dice.choice(("Source:", "Source:", "Data:")), small, ink)
    end = canvas.answer(end + 6, foot, low, small, about("source", "low", "", SOURCE, dice), ink)
    end = canvas.text(end + 40, foot, label, small, ink)
    loud, plain = (DATE_LOUD, DATE_PLAIN) if dated else (SAMPLE_LOUD, SAMPLE_PLAIN)
    canvas.answer(
        end + 6, foot, high, small, about("survey_date" if dated else "sample", "high", loud, plain, dice), ink
    )
    marks = face(bold if dice.chance(0.3) else text, round(base * dice.uniform(0.8, 1.1)))
    frame = (margin, y + 4, size[0] - margin, foot - 10)
    axis = v.thing(dice, dice.randint(5, 10)) if kind != "pie" else ""
    plot = plots.DRAW[kind](canvas, frame, data.names, data.series, data.texts, data.numbers, colours, marks, ink)
    if axis and kind != "bar":
        canvas.answer(margin, y, axis, small, about("axis", "low", "", AXIS, dice), ink)
    _ask(canvas, plot, data, dice)
    canvas.image = scan(canvas.image, dice)
    return canvas
