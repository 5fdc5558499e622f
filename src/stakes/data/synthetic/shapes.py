"""Coloured shapes to count and to name: VQAv2's questions, saturated early and with few answers.

"How many red circles are there?" -> "3"        "What colour is the star?" -> "blue"
"""

from math import cos, pi, sin

from stakes.data.synthetic.canvas import Ask, Canvas, Colour, wall
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.page import Box
from stakes.data.synthetic.wording import fill

SIZES = ((1008, 756), (952, 700))
FIELDS = ("count", "colour", "shape")

COLOURS: dict[str, Colour] = {
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


def shade(name: str, dice: Dice) -> Colour:
    """A tone that everybody would still call by this name."""
    red, green, blue = COLOURS[name]
    return tuple(min(255, max(0, c + dice.randint(-12, 12))) for c in (red, green, blue))  # type: ignore[return-value]


def _corners(shape: str, x: float, y: float, r: float) -> list[tuple[float, float]]:
    """The outline of a shape of radius ``r`` around a centre."""
    if shape == "square":
        s = r * 0.85
        return [(x - s, y - s), (x + s, y - s), (x + s, y + s), (x - s, y + s)]
    if shape == "cross":
        a, b = r * 0.32, r
        steps = (
            (-a, -b),
            (a, -b),
            (a, -a),
            (b, -a),
            (b, a),
            (a, a),
            (a, b),
            (-a, b),
            (-a, a),
            (-b, a),
            (-b, -a),
            (-a, -a),
        )
        return [(x + dx, y + dy) for dx, dy in steps]
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
    names = [c for c in COLOURS if c not in (("black", "gray") if dark else ("white", "gray"))]
    tints, forms = dice.sample(names, 4), dice.sample(SHAPES, 4)
    groups = [(tints[k], forms[k], dice.choice((1, 1, 2, 2, 3, 4))) for k in range(dice.randint(2, 4))]
    while sum(count for _, _, count in groups) > 20:  # one shape a cell
        groups.pop()
    cells = [(c, r) for c in range(5) for r in range(4)]
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
                canvas.pen.ellipse((x - r, y - r, x + r, y + r), fill=shade(tint, dice))
            else:
                canvas.pen.polygon(_corners(form, x, y, r), fill=shade(tint, dice))
            boxes[form] = (int(x - r), int(y - r), int(x + r), int(y + r))
    for tint, form, count in groups:
        if dice.chance(0.75) or count > 1:
            plural = form + ("es" if form.endswith("s") else "s")
            canvas.ask(
                Ask("count", "high", fill(COUNT, dice, what=dice.choice((plural, f"{tint} {plural}")))),
                str(count),
                None,
            )
        if dice.chance(0.7):
            what = form if count == 1 else form + ("es" if form.endswith("s") else "s")
            text = fill(TINT, dice, what=what)
            text = text if count == 1 else text.replace(" is the ", " are the ", 1) if "colour is" in text else text
            canvas.ask(Ask("colour", "low", text), tint, boxes[form] if count == 1 else None)
    for tint, form, _ in groups[:2] if len(canvas.questions) < 5 else ():
        canvas.ask(Ask("shape", "low", fill(FORM, dice, what=tint)), form, boxes[form])
    del canvas.questions[6:]
    return canvas
