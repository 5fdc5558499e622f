"""One solid colour and its name: the family that no budget can hurt (the paper's cross-task diagnostic)."""

from stakes.data.synthetic.canvas import Ask, Canvas
from stakes.data.synthetic.dice import Dice
from stakes.data.synthetic.shapes import COLOURS, shade
from stakes.data.synthetic.wording import fill

SIZES = ((1008, 1008),)
FIELDS = ("colour",)

QUESTIONS = "What colour is this?|What is the colour?|Which colour is shown?|Name the colour.||What colour is shown?"


def paint(dice: Dice, _density: float) -> Canvas:
    """A swatch; density has nothing to act on."""
    name = dice.choice(tuple(COLOURS))
    canvas = Canvas(SIZES[0], dice, shade(name, dice))
    canvas.ask(Ask("colour", "low", fill(QUESTIONS, dice)), name, (0, 0, *SIZES[0]))
    return canvas
