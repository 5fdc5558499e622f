"""Signs: a few large words on a textured scene: a shop front, a street sign, a bus, a poster (after TextVQA)."""

from stakes.data.synthetic import values as v
from stakes.data.synthetic.canvas import Canvas, Color, palette, wall
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.typefaces import SIGNS, Face, face, typeface
from stakes.data.synthetic.wording import about

# ruff: noqa: E501  (a table of one row per line)

SIZES = ((1008, 756), (952, 700))
FIELDS = ("shop", "street", "destination", "headline", "price", "phone", "route", "number", "day", "hours", "town")

WALLS = palette("966e5a 78828c aaa596 64785f 465064 b9afa0")
BOARDS: tuple[tuple[Color, Color], ...] = (
    ((20, 70, 50), (250, 245, 225)),
    ((245, 240, 225), (30, 30, 40)),
    ((150, 25, 30), (255, 250, 235)),
    ((20, 45, 110), (255, 255, 255)),
    ((250, 205, 50), (25, 25, 25)),
    ((25, 25, 30), (245, 225, 150)),
    ((255, 255, 255), (150, 20, 40)),
)

# field: (tier, value, questions with a keyword, questions without)
LINES: dict[str, tuple[str, v.Value, str, str]] = {
    "shop": ("low", v.fair(v.company, 14, 1), "", "What is the name of the shop?|Which shop is this?||Name the shop."),
    "street": ("low", v.fair(v.road, 14, 1), "", "What street is this?|What is the name of the street?||Which street is this?"),
    "destination": ("low", v.fair(v.word, 14, 1), "", "Where does the bus go?|What is the destination?||Where is the bus going?"),
    "headline": ("low", v.fair(v.thing, 14, 1), "", "What is the poster about?|What is the title of the poster?||What is the poster for?"),
    "town": ("low", v.fair(v.word, 14, 1), "", "What town is named?|Which town is on the sign?||What town is on the sign?"),
    "hours": ("low", v.fair(v.hour, 14, 1), "What time is on the sign?|When does it open?", "What hour is on the sign?"),
    "price": ("high", v.price, "What is the price?|How much is it?||How much is the price?", "What does it sell for?"),
    "phone": ("high", v.phone, "What is the phone number?|Which phone number is given?", "What is the telephone?|What is the tel.?"),
    "route": ("high", v.ident, "What is the number of the bus?|What is the bus number?", "Which bus is this?|What bus is this?"),
    "number": ("high", v.ident, "What is the number on the sign?|What number is on the sign?", "What stands on the sign after No?"),
    "day": ("high", v.date, "What is the date?|When is it?||What date is given?", "What day is it on?|Which day is it on?"),
}  # fmt: skip
LEADS = {"phone": "Tel.", "hours": "Open", "town": "City of", "number": "No.", "route": "Line", "destination": "to"}
SCENES = {
    "shop": (("shop",), ("phone", "hours", "price")),
    "street": (("street",), ("town", "number")),
    "bus": (("destination", "route"), ("phone",)),
    "poster": (("headline",), ("day", "price", "phone", "town")),
}


def _largest(name: str, text: str, width: float, height: float) -> Face:
    """The largest size at which the text fits."""
    size = int(height)
    while size > 16 and face(name, size).width(text) > width:
        size -= 4
    return face(name, size - size % 2)


def paint(dice: Dice, density: float) -> Canvas:
    """A board with two to four lines on a wall."""
    size = dice.choice(SIZES)
    canvas = Canvas(size, dice)
    canvas.image.paste(wall(size, dice.choice(WALLS), dice))
    pen = canvas.pen
    scene = dice.choice(tuple(SCENES))
    first, others = SCENES[scene]
    lines = [*first, *dice.sample(others, min(len(others), dice.randint(1, 3)))]
    if scene == "poster":
        dice.shuffle(lines)
    board, ink = dice.choice(BOARDS)
    width, height = size[0] * dice.uniform(0.62, 0.92), size[1] * dice.uniform(0.5, 0.85)
    left, top = dice.uniform(8, size[0] - width - 8), dice.uniform(8, size[1] - height - 8)
    for _ in range(dice.randint(0, 5)):  # things in the street
        x, y, s = dice.uniform(0, size[0]), dice.uniform(0, size[1]), dice.uniform(30, 160)
        tone = dice.randint(40, 200)
        pen.rectangle((x, y, x + s, y + s * dice.uniform(0.5, 2)), fill=(tone, tone, min(255, tone + 20)))
    pen.rounded_rectangle((left + 7, top + 8, left + width + 7, top + height + 8), 12, fill=(40, 40, 40))
    radius, outline = dice.choice((0, 6, 18)), dice.choice((0, 3, 6))
    pen.rounded_rectangle((left, top, left + width, top + height), radius, fill=board, outline=ink, width=outline)
    (name,) = typeface(dice, SIGNS)
    row = (height - 24) / len(lines)
    for index, field in enumerate(lines):
        tier, draw, keyword, plain = LINES[field]
        value = draw(dice)
        if dice.chance(0.25) and tier == "low":
            value = value.upper()
        lead = LEADS[field] + " " if field in LEADS else ""
        tall = min(row * 0.72, 110) * dice.uniform(0.7, 1.0) / density
        letters = _largest(name, lead + value, (width - 40) / max(1.0, density), tall)
        x = left + (width - letters.width(lead + value)) / 2
        y = top + 12 + row * index + (row - letters.size) / 2
        x = canvas.text(x, y, lead, letters, ink)
        canvas.answer(x, y, value, letters, about(field, tier, keyword, plain, dice), ink)
    return canvas
