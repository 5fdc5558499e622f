"""Infographics: tall colored pages of panels with icons, large numerals and much small text (after InfographicVQA).

Text is small for the canvas, so these pages lose more than forms at the same budget (the paper's density gradient).
"""

from collections.abc import Callable

from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Canvas, Color, scan
from stakes.data.synthetic.charts import PALETTES
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Question
from stakes.data.synthetic.typefaces import POSTERS, face, typeface
from stakes.data.synthetic.wording import about, sentence

SIZES = ((728, 1400), (672, 1512))
FIELDS = ("title", "figure", "name", "row", "row_name", "step", "step_day", "publisher", "hotline")

BASE = (9.5, 13.0)  # pixels of the base type size
MAX_QUESTIONS = 24


Run = tuple[float, float, str, float, bool]  # x, y, text, size, bold


class Poster:
    """An infographic in progress: its style, and the text runs that may get a question."""

    def __init__(self, canvas: Canvas, density: float) -> None:
        dice = canvas.dice
        self.canvas, self.dice = canvas, dice
        self.text_name, self.bold_name = typeface(dice, POSTERS)
        self.base = dice.uniform(*BASE) / density
        self.colors = [*dice.pick(PALETTES, "layout")]
        dice.shuffle(self.colors)
        self.candidates: dict[str, list[tuple[int, Question]]] = {"high": [], "low": []}

    def show(self, run: Run, ink: Color, question: Question | None) -> float:
        """Print a run, as a candidate for a question where one is given; returns the x where it ends."""
        x, y, text, size, bold = run
        letters = face(self.bold_name if bold else self.text_name, round(size))
        index = self.canvas.run(x, y, text, letters, ink)
        if question is not None:
            self.candidates[question.tier].append((index, question))
        return round(x) + letters.width(text)

    def pair(self, name: Run, number: Run, ink: Color, low: Question, high: Question) -> None:
        """Print a name and its number. Only one gets a question, because the question quotes the other."""
        # a percentage is a keyword, so fewer low-tier questions quote one
        asks_name = self.dice.chance(0.25 if "%" in number[2] else 0.65)
        self.show(name, ink, low if asks_name else None)
        self.show(number, ink, None if asks_name else high)

    def note(self, x: float, y: float, width: float, height: float, ink: Color) -> None:
        """Small print that fills the given area."""
        letters = face(self.text_name, round(self.base * 0.85))
        line, bottom = "", y + height
        words = " ".join(sentence(self.dice) for _ in range(1 + int(width * height / 9000))).split(" ")
        for word in words:
            if letters.width(line + word) > width:
                if y + letters.size * 1.25 > bottom:
                    return
                self.canvas.text(x, y, line.rstrip(), letters, ink)
                y += letters.size * 1.3
                line = ""
            line += word + " "

    def ask(self) -> None:
        """Add the questions: as many of each tier, from all over the page."""
        share = self.dice.randint(MAX_QUESTIONS // 2 - 5, MAX_QUESTIONS // 2)
        for candidates in self.candidates.values():
            for run, question in self.dice.sample(candidates, min(share, len(candidates))):
                self.canvas.ask_run(run, question)


FIGURE_KEYWORD = (
    "How many {what} are there?|What is the number of {what}?|What value is given for {what}?"
    "||What number is given for {what}?"
)
FIGURE_PLAIN = "What is given for {what}?|What does {what} have?||What is shown for {what}?"
NAME_PLAIN = "Which name has {value}?|What name goes with {value}?||What name has {value}?"
ROW_KEYWORD = "What percentage is {what}?|What is the value of {what}?|How much is {what}?||What percent is {what}?"
ROW_PLAIN = "What is {what}?|What share has {what}?||What is the share of {what}?"
ROW_NAME_PLAIN = "Which bar has {value}?|Which bar shows {value}?||What bar shows {value}?"
STEP_PLAIN = "What happened on {value}?|What is the event of {value}?||What took place on {value}?"
DAY_KEYWORD = "When was {what}?|What is the date of {what}?||When did {what} take place?"
DAY_PLAIN = "What day was {what}?|What is the day of {what}?"

Panel = Callable[[Poster, float, float, float, float, Color], None]


def _icon(poster: Poster, x: float, y: float, s: float, color: Color) -> None:
    """A small picture: a person, a house, a coin, a leaf or a chart."""
    pen, kind = poster.canvas.pen, poster.dice.randrange(5)
    if kind == 0:
        pen.ellipse((x + s * 0.3, y, x + s * 0.7, y + s * 0.4), fill=color)
        pen.pieslice((x + s * 0.1, y + s * 0.45, x + s * 0.9, y + s * 1.35), 180, 360, fill=color)
    elif kind == 1:
        pen.polygon((x, y + s * 0.5, x + s / 2, y, x + s, y + s * 0.5), fill=color)
        pen.rectangle((x + s * 0.15, y + s * 0.5, x + s * 0.85, y + s), fill=color)
    elif kind == 2:
        pen.ellipse((x, y, x + s, y + s), outline=color, width=max(2, int(s / 9)))
        pen.rectangle((x + s * 0.44, y + s * 0.22, x + s * 0.56, y + s * 0.78), fill=color)
    elif kind == 3:
        pen.chord((x, y, x + s, y + s), 20, 250, fill=color)
        pen.line((x, y + s, x + s * 0.7, y + s * 0.3), fill=color, width=2)
    else:
        for k, tall in enumerate((0.4, 0.75, 1.0)):
            pen.rectangle((x + s * k * 0.36, y + s * (1 - tall), x + s * (k * 0.36 + 0.26), y + s), fill=color)


def _figures(poster: Poster, x: float, y: float, width: float, height: float, ink: Color) -> None:
    """Large numerals, each with a name and a line of text below it."""
    dice = poster.dice
    count = 2 if width < 400 else 3
    for k in range(count):
        left = x + width * k / count
        name, number = v.word(dice, dice.randint(4, 9)), dice.choice((v.count, v.percent))(dice)
        low = about("name", "low", "", NAME_PLAIN, dice, value=number)
        high = about("figure", "high", FIGURE_KEYWORD, FIGURE_PLAIN, dice, what=name)
        size = poster.base * dice.uniform(1.2, 2.2)
        while face(poster.bold_name, round(size)).width(number) > width / count - 12:
            size -= 1
        icon = min(height * 0.3, 46)
        _icon(poster, left, y, icon, dice.choice(poster.colors))
        second = size if dice.chance(0.5) else poster.base
        while face(poster.text_name, round(second)).width(name) > width / count - 12:
            second -= 1
        named = (left, y + icon + 8 + size * 1.2, name, second, False)
        poster.pair(named, (left, y + icon + 6, number, size, True), ink, low, high)
        poster.note(left, y + icon + 10 + size * 2.5, width / count - 10, height - icon - 10 - size * 2.5, ink)


def _rows(poster: Poster, x: float, y: float, width: float, height: float, ink: Color) -> None:
    """Horizontal bars with names and percentages."""
    dice = poster.dice
    step = poster.base * dice.uniform(1.6, 2.1)
    color = dice.choice(poster.colors)
    letters = face(poster.text_name, round(poster.base))
    names = [v.word(dice, dice.randint(4, 8)) for _ in range(min(8, int(height // step)))]
    close = dice.chance(0.6)  # numbers beside the names, or at the ends of the bars
    second = x + max((letters.width(name) for name in names), default=0) + 8  # where the numbers or the bars start
    first = second + (letters.width("000,000") + 8 if close else 0)
    for k, name in enumerate(names):
        share = dice.uniform(3, 99)
        number = f"{share:.1f}%" if dice.chance(0.5) else f"{share * 2971:,.0f}"
        low = about("row_name", "low", "", ROW_NAME_PLAIN, dice, value=number)
        high = about("row", "high", ROW_KEYWORD, ROW_PLAIN, dice, what=name)
        top = y + k * step
        end = first + (x + width - first - (0 if close else 70)) * share / 100
        poster.canvas.pen.rectangle((first, top + 2, end, top + poster.base * 1.1), fill=color)
        numbered = (second if close else end + 6, top, number, poster.base, False)
        poster.pair((x, top, name, poster.base, False), numbered, ink, low, high)


def _steps(poster: Poster, x: float, y: float, _width: float, height: float, ink: Color) -> None:
    """A time line: a dot, a day and what happened."""
    dice = poster.dice
    step = poster.base * dice.uniform(2.6, 3.4)
    count = min(5, int(height // step))
    pen = poster.canvas.pen
    pen.line((x + 6, y + 6, x + 6, y + step * max(0, count - 1) + 6), fill=ink, width=2)
    for k in range(count):
        day, event = v.date(dice), v.thing(dice, dice.randint(7, 11))
        low = about("step", "low", "", STEP_PLAIN, dice, value=day)
        high = about("step_day", "high", DAY_KEYWORD, DAY_PLAIN, dice, what=event)
        top = y + k * step
        pen.ellipse((x, top, x + 12, top + 12), fill=dice.choice(poster.colors))
        named = (x + 22, top + poster.base * 1.15, event, poster.base, False)
        poster.pair(named, (x + 22, top - 2, day, poster.base, True), ink, low, high)


TITLE = "What is the title?|What is the main title?|What is this page about?||What is the title at the top?"
PUBLISHER = "Who is the publisher?|Who published this?|What is the publisher?||Name the publisher."
HOTLINE_KEYWORD = "What is the phone number?|Which phone number is given?||What phone number is printed?"
HOTLINE_PLAIN = "What is the hotline?|What is the telephone?"


def paint(dice: Dice, density: float) -> Canvas:
    """A title band, five or six panels in one or two columns, and a foot."""
    size = dice.choice(SIZES)
    ground: Color = dice.choice(
        ((245, 240, 228), (228, 238, 244), (255, 255, 255), (240, 232, 240), (36, 48, 66), (230, 240, 226))
    )
    canvas = Canvas(size, dice, ground)
    poster = Poster(canvas, density)
    ink: Color = (245, 245, 240) if sum(ground) < 300 else (30, 32, 40)
    band = poster.colors[0]
    tall = poster.base * 5
    canvas.pen.rectangle((0, 0, size[0], tall), fill=band)
    light: Color = (255, 255, 255) if sum(band) < 480 else (20, 20, 20)
    title = v.thing(dice, dice.randint(7, 14))
    large = poster.base * dice.uniform(1.8, 2.6)
    poster.show((24, tall * 0.18, title, large, True), light, about("title", "low", "", TITLE, dice))
    poster.note(24, tall * 0.22 + large * 1.3, size[0] - 48, poster.base * 1.4, light)
    y, foot = tall + 14, size[1] - poster.base * 3
    panels: list[Panel] = [_figures, _rows, _steps] * 4
    dice.shuffle(panels)
    while y < foot - 110 and panels:
        two = dice.chance(0.55)
        height = min(dice.uniform(150, 235), foot - y - 8)
        for k in range(min(len(panels), 2 if two else 1)):
            left = 16 + k * size[0] / 2
            wide = size[0] / 2 - 24 if two else size[0] - 32
            _panel(poster, panels.pop(), (left, y, wide, height), ground, ink)
        y += height + 12
    canvas.pen.rectangle((0, foot + 4, size[0], size[1]), fill=band)
    small, line = face(poster.text_name, round(poster.base)), foot + poster.base
    end = canvas.text(20, line, "Publisher:", small, light)
    publisher = (end + 6, line, v.company(dice, dice.randint(8, 13)), poster.base, False)
    end = poster.show(publisher, light, about("publisher", "low", "", PUBLISHER, dice))
    end = canvas.text(end + 40, line, "Hotline:", small, light)
    hotline = about("hotline", "high", HOTLINE_KEYWORD, HOTLINE_PLAIN, dice)
    poster.show((end + 6, line, v.phone(dice), poster.base, False), light, hotline)
    poster.ask()
    canvas.image = scan(canvas.image, dice)
    return canvas


def _panel(poster: Poster, draw: Panel, box: tuple[float, float, float, float], ground: Color, ink: Color) -> None:
    """One panel: a card or open ground, a heading, and what it shows."""
    dice, (x, y, width, height) = poster.dice, box
    if dice.chance(0.6):
        lift = 22 if sum(ground) < 300 else -14
        card = tuple(min(255, max(0, level + lift)) for level in ground)
        poster.canvas.pen.rounded_rectangle((x, y, x + width, y + height), 8, fill=card)
    heading = face(poster.bold_name, round(poster.base * 1.15))
    color = dice.choice(poster.colors) if dice.chance(0.5) else ink
    poster.canvas.pen.rectangle((x + 10, y + 10, x + 15, y + 10 + heading.size), fill=color)
    poster.canvas.text(x + 22, y + 8, v.thing(dice, dice.randint(8, 14)), heading, ink)
    top = y + heading.size * 2
    draw(poster, x + 12, top, width - 24, height - heading.size * 2 - 6, ink)
