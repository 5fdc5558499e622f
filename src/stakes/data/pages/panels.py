"""What can a panel of an infographic show? Large numerals, bars with percentages, or a time line."""

from collections.abc import Callable

from stakes.data.pages import values as v
from stakes.data.pages.canvas import Colour
from stakes.data.pages.faces import face
from stakes.data.pages.poster import Poster
from stakes.data.pages.wording import about

FIGURE_LOUD = (
    "How many {what} are there?|What is the number of {what}?|What value is given for {what}?"
    "||What number is given for {what}?"
)
FIGURE_PLAIN = "What is given for {what}?|What does {what} have?||What is shown for {what}?"
NAME_PLAIN = "Which name has {value}?|What name goes with {value}?||What name has {value}?"
ROW_LOUD = "What percentage is {what}?|What is the value of {what}?|How much is {what}?||What percent is {what}?"
ROW_PLAIN = "What is {what}?|What share has {what}?||What is the share of {what}?"
ROW_NAME_PLAIN = "Which bar has {value}?|Which bar shows {value}?||What bar shows {value}?"
STEP_PLAIN = "What happened on {value}?|What is the event of {value}?||What took place on {value}?"
DAY_LOUD = "When was {what}?|What is the date of {what}?||When did {what} take place?"
DAY_PLAIN = "What day was {what}?|What is the day of {what}?"

Panel = Callable[[Poster, float, float, float, float, Colour], None]


def _icon(poster: Poster, x: float, y: float, s: float, colour: Colour) -> None:
    """A small picture: a person, a house, a coin, a leaf or a chart."""
    pen, kind = poster.canvas.pen, poster.dice.randrange(5)
    if kind == 0:
        pen.ellipse((x + s * 0.3, y, x + s * 0.7, y + s * 0.4), fill=colour)
        pen.pieslice((x + s * 0.1, y + s * 0.45, x + s * 0.9, y + s * 1.35), 180, 360, fill=colour)
    elif kind == 1:
        pen.polygon((x, y + s * 0.5, x + s / 2, y, x + s, y + s * 0.5), fill=colour)
        pen.rectangle((x + s * 0.15, y + s * 0.5, x + s * 0.85, y + s), fill=colour)
    elif kind == 2:
        pen.ellipse((x, y, x + s, y + s), outline=colour, width=max(2, int(s / 9)))
        pen.rectangle((x + s * 0.44, y + s * 0.22, x + s * 0.56, y + s * 0.78), fill=colour)
    elif kind == 3:
        pen.chord((x, y, x + s, y + s), 20, 250, fill=colour)
        pen.line((x, y + s, x + s * 0.7, y + s * 0.3), fill=colour, width=2)
    else:
        for k, tall in enumerate((0.4, 0.75, 1.0)):
            pen.rectangle((x + s * k * 0.36, y + s * (1 - tall), x + s * (k * 0.36 + 0.26), y + s), fill=colour)


def _figures(poster: Poster, x: float, y: float, width: float, height: float, ink: Colour) -> None:
    """Large numerals, each with a name and a line of text below it."""
    dice = poster.dice
    count = 2 if width < 400 else 3
    for k in range(count):
        left = x + width * k / count
        name, number = v.place(dice, dice.randint(4, 9)), dice.choice((v.count, v.percent))(dice)
        low = about("name", "low", "", NAME_PLAIN, dice, value=number)
        high = about("figure", "high", FIGURE_LOUD, FIGURE_PLAIN, dice, what=name)
        size = poster.base * dice.uniform(1.2, 2.2)
        while face(poster.bold_name, round(size)).width(number) > width / count - 12:
            size -= 1
        icon = min(height * 0.3, 46)
        _icon(poster, left, y, icon, dice.choice(poster.colours))
        second = size if dice.chance(0.5) else poster.base
        while face(poster.text_name, round(second)).width(name) > width / count - 12:
            second -= 1
        named = (left, y + icon + 8 + size * 1.2, name, second, False)
        poster.pair(named, (left, y + icon + 6, number, size, True), ink, low, high)
        poster.note(left, y + icon + 10 + size * 2.5, width / count - 10, height - icon - 10 - size * 2.5, ink)


def _rows(poster: Poster, x: float, y: float, width: float, height: float, ink: Colour) -> None:
    """Horizontal bars with names and percentages."""
    dice = poster.dice
    step = poster.base * dice.uniform(1.6, 2.1)
    colour = dice.choice(poster.colours)
    letters = face(poster.text_name, round(poster.base))
    names = [v.place(dice, dice.randint(4, 8)) for _ in range(min(8, int(height // step)))]
    close = dice.chance(0.6)  # numbers beside the names, or at the ends of the bars
    second = x + max((letters.width(name) for name in names), default=0) + 8  # where the numbers or the bars start
    first = second + (letters.width("000,000") + 8 if close else 0)
    for k, name in enumerate(names):
        share = dice.uniform(3, 99)
        number = f"{share:.1f}%" if dice.chance(0.5) else f"{share * 2971:,.0f}"
        low = about("row_name", "low", "", ROW_NAME_PLAIN, dice, value=number)
        high = about("row", "high", ROW_LOUD, ROW_PLAIN, dice, what=name)
        top = y + k * step
        end = first + (x + width - first - (0 if close else 70)) * share / 100
        poster.canvas.pen.rectangle((first, top + 2, end, top + poster.base * 1.1), fill=colour)
        numbered = (second if close else end + 6, top, number, poster.base, False)
        poster.pair((x, top, name, poster.base, False), numbered, ink, low, high)


def _steps(poster: Poster, x: float, y: float, _width: float, height: float, ink: Colour) -> None:
    """A time line: a dot, a day and what happened."""
    dice = poster.dice
    step = poster.base * dice.uniform(2.6, 3.4)
    count = min(5, int(height // step))
    pen = poster.canvas.pen
    pen.line((x + 6, y + 6, x + 6, y + step * max(0, count - 1) + 6), fill=ink, width=2)
    for k in range(count):
        day, event = v.date(dice), v.thing(dice, dice.randint(7, 11))
        low = about("step", "low", "", STEP_PLAIN, dice, value=day)
        high = about("step_day", "high", DAY_LOUD, DAY_PLAIN, dice, what=event)
        top = y + k * step
        pen.ellipse((x, top, x + 12, top + 12), fill=dice.choice(poster.colours))
        named = (x + 22, top + poster.base * 1.15, event, poster.base, False)
        poster.pair(named, (x + 22, top - 2, day, poster.base, True), ink, low, high)


PANELS: tuple[Panel, ...] = (_figures, _rows, _steps)
