"""Two families without text: colored shapes to count and name (after VQAv2), and solid color swatches.

"How many red circles are there?" -> "3"        "What colour is the star?" -> "blue"

Shapes saturate at small budgets and have few distinct answers. A swatch is one color, which no budget can hurt: the
paper's cross-task diagnostic.
"""

from dataclasses import replace
from math import cos, pi, sin

from stakes.data.synthetic.canvas import Canvas, Color, wall
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box
from stakes.data.synthetic.wording import about

SIZES = ((1008, 756), (952, 700))
SWATCH_SIZES = ((1008, 1008),)
FIELDS = ("count", "colour", "shape")

COLORS: dict[str, Color] = {
    "red": (208, 32, 36),
    "green": (40, 150, 60),
    "blue": (36, 72, 200),
    "yellow": (245, 215, 40),
    "orange": (245, 140, 24),
    "purple": (130, 50, 160),
    "pink": (245, 150, 190),
    "brown": (125, 75, 40),
    "black": (20, 20, 20),
    "white": (252, 252, 252),
    "gray": (128, 128, 128),
}
SHAPES = ("circle", "square", "triangle", "star", "diamond", "hexagon", "cross")

COUNT = (
    "How many {what} are there?|How many {what} are there?|How many {what} do you see?|What is the number of {what}?"
    "||How many {what} are shown?"
)
TINT = (
    "What colour is the {what}?|What is the colour of the {what}?|Which colour is the {what}?"
    "||Name the colour of the {what}."
)
FORM = "What shape is {what}?|Which shape is {what}?|What is the {what} shape?||Name the shape that is {what}."
SWATCH = "What colour is this?|What is the colour?|Which colour is shown?|Name the colour.||What colour is shown?"


def _shade(name: str, dice: Dice) -> Color:
    """A tone that everybody would still call by this name."""
    red, green, blue = (min(255, max(0, level + dice.randint(-12, 12))) for level in COLORS[name])
    return red, green, blue


def _corners(shape: str, x: float, y: float, r: float) -> list[tuple[float, float]]:
    """The outline of a shape of radius ``r`` around a center."""
    if shape == "square":
        s = r * 0.85
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    if shape == "cross":
        a, b = r * 0.32, r
        dxs = (-a, a, a, b, b, a, a, -a, -a, -b, -b, -a)
        dys = (-b, -b, -a, -a, a, a, b, b, a, a, -a, -a)
        return [(x + dx, y + dy) for dx, dy in zip(dxs, dys, strict=True)]
    points, inner = {"triangle": (3, 1.0), "diamond": (4, 1.0), "hexagon": (6, 1.0), "star": (10, 0.42)}[shape]
    radii = [r if k % 2 == 0 else r * inner for k in range(points)]
    return [(x + q * sin(2 * pi * k / points), y - q * cos(2 * pi * k / points)) for k, q in enumerate(radii)]


def paint(dice: Dice, density: float) -> Canvas:
    """Two to four groups of equal shapes, scattered over a grid; ``density`` shrinks them."""
    size = dice.choice(SIZES)
    ground = dice.choice(((232, 232, 226), (214, 226, 238), (238, 226, 208), (205, 222, 205), (60, 66, 78)))
    canvas = Canvas(size, dice)
    canvas.image.paste(wall(size, ground, dice))
    dark = sum(ground) < 300
    names = [c for c in COLORS if c not in (("black", "gray") if dark else ("white", "gray"))]
    tints, forms = dice.sample(names, 4), dice.sample(SHAPES, 4)
    groups = [(tints[k], forms[k], dice.choice((1, 1, 2, 2, 3, 4))) for k in range(dice.randint(2, 4))]
    cells = [(c, r) for c in range(5) for r in range(4)]  # one shape per cell
    dice.shuffle(cells)
    boxes: dict[str, Box] = {}
    for tint, form, count in groups:
        for _ in range(count):
            column, row = cells.pop()
            reach = min(size[0] / 10, size[1] / 8)
            r = reach * dice.uniform(0.55, 0.85) / max(1.0, density)
            x = (column + 0.5) * size[0] / 5 + dice.uniform(-1, 1) * (reach - r)
            y = (row + 0.5) * size[1] / 4 + dice.uniform(-1, 1) * (reach - r)
            if form == "circle":
                canvas.pen.ellipse((x - r, y - r, x + r, y + r), fill=_shade(tint, dice))
            else:
                canvas.pen.polygon(_corners(form, x, y, r), fill=_shade(tint, dice))
            boxes[form] = (int(x - r), int(y - r), int(x + r), int(y + r))
    _ask(canvas, groups, boxes)
    return canvas


def _ask(canvas: Canvas, groups: list[tuple[str, str, int]], boxes: dict[str, Box]) -> None:
    """Up to six questions about the groups, (color, shape, count) each."""
    dice = canvas.dice
    for tint, form, count in groups:
        plural = form + ("es" if form.endswith("s") else "s")
        if dice.chance(0.75) or count > 1:
            what = dice.choice((plural, f"{tint} {plural}"))
            canvas.ask(about("count", "high", COUNT, "", dice, what=what), str(count), None)
        if dice.chance(0.7):
            question = about("colour", "low", "", TINT, dice, what=form if count == 1 else plural)
            if count > 1 and "colour is" in question.text:
                question = replace(question, text=question.text.replace(" is the ", " are the ", 1))
            canvas.ask(question, tint, boxes[form] if count == 1 else None)
    for tint, form, _ in groups[:2] if len(canvas.questions) < 5 else ():
        canvas.ask(about("shape", "low", "", FORM, dice, what=tint), form, boxes[form])
    del canvas.questions[6:]


def paint_swatch(dice: Dice, _density: float) -> Canvas:
    """One solid color; density has nothing to act on."""
    name = dice.choice(tuple(COLORS))
    canvas = Canvas(SWATCH_SIZES[0], dice, _shade(name, dice))
    canvas.ask(about("colour", "low", "", SWATCH, dice), name, (0, 0, *SWATCH_SIZES[0]))
    return canvas
