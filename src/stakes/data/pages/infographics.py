"""Infographics: tall coloured pages of several panels with icons, large numerals and much small text (InfographicVQA).

Text is small for the canvas, so these lose more than forms do at the same budget (the paper's density gradient).
"""

from stakes.data.pages import values as v
from stakes.data.pages.canvas import Canvas, Colour
from stakes.data.pages.dice import Dice
from stakes.data.pages.faces import face
from stakes.data.pages.panels import PANELS, Panel
from stakes.data.pages.paper import scan
from stakes.data.pages.poster import Poster
from stakes.data.pages.wording import about

SIZES = ((728, 1400), (672, 1512))
FIELDS = ("title", "figure", "name", "row", "row_name", "step", "step_day", "publisher", "hotline")

TITLE = "What is the title?|What is the main title?|What is this page about?||What is the title at the top?"
PUBLISHER = "Who is the publisher?|Who published this?|What is the publisher?||Name the publisher."
HOTLINE_LOUD = "What is the phone number?|Which phone number is given?||What phone number is printed?"
HOTLINE_PLAIN = "What is the hotline?|What is the telephone?"


def paint(dice: Dice, density: float) -> Canvas:
    """A title band, five or six panels in one or two columns, and a foot."""
    size = dice.choice(SIZES)
    ground: Colour = dice.choice(
        ((245, 240, 228), (228, 238, 244), (255, 255, 255), (240, 232, 240), (36, 48, 66), (230, 240, 226))
    )
    canvas = Canvas(size, dice, ground)
    poster = Poster(canvas, density)
    ink: Colour = (245, 245, 240) if sum(ground) < 300 else (30, 32, 40)
    band = poster.colours[0]
    tall = poster.base * 5
    canvas.pen.rectangle((0, 0, size[0], tall), fill=band)
    light: Colour = (255, 255, 255) if sum(band) < 480 else (20, 20, 20)
    title = v.thing(dice, dice.randint(7, 14))
    large = poster.base * dice.uniform(1.8, 2.6)
    poster.show(24, tall * 0.18, title, large, light, about("title", "low", "", TITLE, dice), bold=True)
    poster.note(24, tall * 0.22 + large * 1.3, size[0] - 48, poster.base * 1.4, light)
    y, foot = tall + 14, size[1] - poster.base * 3
    panels = list(PANELS) * 4
    dice.shuffle(panels)
    while y < foot - 110 and panels:
        two = dice.chance(0.55)
        height = min(dice.uniform(150, 235), foot - y - 8)
        for k in range(2 if two else 1):
            left = 16 + k * size[0] / 2
            wide = size[0] / 2 - 24 if two else size[0] - 32
            if not panels:
                break
            _panel(poster, panels.pop(), (left, y, wide, height), ground, ink)
        y += height + 12
    canvas.pen.rectangle((0, foot + 4, size[0], size[1]), fill=band)
    small, line = face(poster.text_name, round(poster.base)), foot + poster.base
    end = canvas.text(20, line, "Publisher:", small, light)
    publisher = v.company(dice, dice.randint(8, 13))
    end = poster.show(end + 6, line, publisher, poster.base, light, about("publisher", "low", "", PUBLISHER, dice))
    end = canvas.text(end + 40, line, "Hotline:", small, light)
    hotline = about("hotline", "high", HOTLINE_LOUD, HOTLINE_PLAIN, dice)
    poster.show(end + 6, line, v.phone(dice), poster.base, light, hotline)
    poster.ask()
    canvas.image = scan(canvas.image, dice)
    return canvas


def _panel(poster: Poster, draw: Panel, box: tuple[float, float, float, float], ground: Colour, ink: Colour) -> None:
    """One panel: a card or open ground, a heading, and what it shows."""
    dice, (x, y, width, height) = poster.dice, box
    if dice.chance(0.6):
        lift = 22 if sum(ground) < 300 else -14
        card = (
            min(255, max(0, ground[0] + lift)),
            min(255, max(0, ground[1] + lift)),
            min(255, max(0, ground[2] + lift)),
        )
        poster.canvas.pen.rounded_rectangle((x, y, x + width, y + height), 8, fill=card)
    heading = face(poster.bold_name, round(poster.base * 1.15))
    colour = dice.choice(poster.colours) if dice.chance(0.5) else ink
    poster.canvas.pen.rectangle((x + 10, y + 10, x + 15, y + 10 + heading.size), fill=colour)
    poster.canvas.text(x + 22, y + 8, v.thing(dice, dice.randint(8, 14)), heading, ink)
    top = y + heading.size * 2
    draw(poster, x + 12, top, width - 24, height - heading.size * 2 - 6, ink)
