"""Charts: bars, lines and pies with printed values, legends, axes and titles (after ChartQA).

Numbers are the high-tier answers. Names of categories, series and axes, titles and sources are the low-tier ones, drawn
to the same lengths. Values are printed at their marks, so that a question needs reading and not measuring.
"""

from stakes.data.synthetic import plots
from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Canvas, Color, palette, scan
from stakes.data.synthetic.dice import Dice, Pool
from stakes.data.synthetic.plots import ChartData, Plot
from stakes.data.synthetic.typefaces import FORMS, face, typeface
from stakes.data.synthetic.wording import about

SIZES = ((1008, 756), (952, 700))
FIELDS = ("mark", "category", "extreme", "title", "series", "axis", "source", "total", "sample", "survey_date")

KINDS = ("column", "bar", "pie", "grouped", "line")
SHARES = (0.3, 0.3, 0.2, 0.1, 0.1)
TRAINING_SHARES = (0.2, 0.15, 0.15, 0.3, 0.2)  # charts of several series are the hardest to learn

# The second part is never used in training.
PALETTES: Pool[tuple[Color, ...]] = Pool(
    (
        palette("4272c4 ed7d31 969696 f0be14 5a9bd5 70ad47 9e480e 643c8c"),
        palette("284b63 d25046 6ea082 e6b45a 786496 3c8caa aa785a 5a5a5a"),
        palette("1e78b4 32a050 d73232 fa963c 8c64b4 8c5a4b e178be 1ebec8"),
    ),
    (palette("143c50 f05a6e 3cb496 fad26e 6e5aaa 5a823c c88c3c 466ec8"),),
)

MARK_KEYWORD = (
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
TOTAL_KEYWORD = "What is the total?|How much is the total?|What is the total value?||Give the total."
SAMPLE_KEYWORD = "How many were asked?|What number were asked?|How many are in the sample?"
SAMPLE_PLAIN = "What is the sample?|What is the sample size?"
DATE_KEYWORD = "What is the survey date?|When was the survey?|What is the date of the survey?"
DATE_PLAIN = "What day was the survey?|What is the survey day?"


def _data(dice: Dice, kind: str) -> ChartData:
    """Random data in which all printed values differ."""
    several = kind in ("grouped", "line")
    count = dice.randint(4, 7 if several else 8)
    series = [v.word(dice, dice.randint(4, 7)) for _ in range(dice.randint(2, 3) if several else 1)]
    years = kind != "pie" and dice.chance(0.4)
    first = dice.randint(1950, 2012)
    head = "year" if years else dice.choice(("country", "brand", "group", "region", "sector"))
    names = [str(first + k) if years else v.word(dice, dice.randint(4, 8)) for k in range(count)]
    size = dice.uniform(1.2, 4.3)
    style = "percent" if kind == "pie" else dice.choice(("percent", "plain", "grouped", "decimal"))
    marks: dict[str, float] = {}
    while len(marks) < len(series) * count:
        number = dice.uniform(2, 100) if style == "percent" else dice.uniform(0.06, 1) * 10 ** (size + 1)
        if style == "percent":
            text = f"{number:.{1 + (kind != 'pie' and size > 3)}f}%"
        elif style == "decimal":
            text = f"{number:,.2f}" if number < 1000 else f"{number:,.1f}"
        else:
            text = f"{number * 10:,.0f}" if style == "grouped" else f"{number * 10:.0f}"
        marks.setdefault(text, number)
    rows = [slice(s * count, (s + 1) * count) for s in range(len(series))]
    texts, numbers = list(marks), list(marks.values())
    return ChartData(head, names, series, [texts[row] for row in rows], [numbers[row] for row in rows])


def _ask(canvas: Canvas, plot: Plot) -> None:
    """Questions about marks and names: about as many names as numbers, each text run once."""
    data, dice = plot.data, canvas.dice
    several = len(data.series) > 1
    marks = [(s, c) for s in range(len(data.series)) for c in range(len(data.names))]
    dice.shuffle(marks)
    count = 2 if several else dice.randint(2, 4)
    for s, c in marks[:count]:
        what = f"{data.series[s]} in {data.names[c]}" if several else data.names[c]
        canvas.ask_run(plot.marks[s, c], about("mark", "high", MARK_KEYWORD, MARK_PLAIN, dice, what=what))
    left = list(range(len(data.names)))
    dice.shuffle(left)
    if not several:
        numbers = data.numbers[0]
        order = sorted(left, key=lambda c: numbers[c])
        rank, at, next_to = dice.choice((("largest", order[-1], order[-2]), ("smallest", order[0], order[1])))
        if abs(numbers[at] - numbers[next_to]) > 0.06 * numbers[order[-1]]:
            left.remove(at)
            canvas.ask_run(plot.names[at], about("extreme", "low", "", EXTREME_PLAIN, dice, head=data.head, rank=rank))
    for c in left[: max(1, count - 2)]:
        text = data.texts[dice.randrange(len(data.series))][c]
        canvas.ask_run(plot.names[c], about("category", "low", "", CATEGORY_PLAIN, dice, head=data.head, value=text))
    if several:
        (s,) = dice.sample(range(len(data.series)), 1)
        text = data.texts[s][dice.randrange(len(data.names))]
        canvas.ask_run(plot.series[s], about("series", "low", "", SERIES_PLAIN, dice, value=text))


def paint(dice: Dice, density: float) -> Canvas:
    """A chart with its title above and its source below."""
    size = dice.choice(SIZES)
    ground: Color = dice.choice(((255, 255, 255), (255, 255, 255), (248, 248, 244), (238, 243, 248)))
    canvas = Canvas(size, dice, ground)
    text, bold = typeface(dice, FORMS)
    base = dice.uniform(14, 21) / density
    colors = dice.pick(PALETTES, "layout")
    ink: Color = dice.choice(((0, 0, 0), (40, 40, 40), (30, 40, 70)))
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
        canvas.answer(edge, y, total, large, about("total", "high", TOTAL_KEYWORD, "", dice), ink)
    y += large.size * 1.5
    dated = dice.chance(0.5)
    high, low = v.date(dice) if dated else v.count(dice), v.company(dice, dice.randint(5, 9))
    foot = size[1] - small.size * 1.5 - 12
    end = canvas.text(margin, foot, dice.choice(("Source:", "Source:", "Data:")), small, ink)
    end = canvas.answer(end + 6, foot, low, small, about("source", "low", "", SOURCE, dice), ink)
    end = canvas.text(end + 40, foot, "Survey date:" if dated else "Sample:", small, ink)
    keyword, plain = (DATE_KEYWORD, DATE_PLAIN) if dated else (SAMPLE_KEYWORD, SAMPLE_PLAIN)
    question = about("survey_date" if dated else "sample", "high", keyword, plain, dice)
    canvas.answer(end + 6, foot, high, small, question, ink)
    marks = face(bold if dice.chance(0.3) else text, round(base * dice.uniform(0.8, 1.1)))
    axis = v.thing(dice, dice.randint(5, 10)) if kind != "pie" else ""
    plot = Plot(canvas, data, margin, y + 4, size[0] - margin, foot - 10, colors, marks, ink)
    plots.DRAW[kind](plot)
    if axis and kind != "bar":
        canvas.answer(margin, y, axis, small, about("axis", "low", "", AXIS, dice), ink)
    _ask(canvas, plot)
    canvas.image = scan(canvas.image, dice)
    return canvas
