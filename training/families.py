"""The page families that the reader is trained on: the six of the package, ``receipts`` and ``documents``.

On training pages of the package's families, 30 % of the amounts and dates are written as on receipts. Calibration and
test pages are those of ``stakes.data.synthetic``.
"""

from __future__ import annotations

from stakes.data import synthetic
from stakes.data.synthetic.dice import Dice, roll
from stakes.data.synthetic.page import Page
from stakes.data.synthetic.values import MONTHS, TRAINING_FORMATS
from training import documents, receipts

_PAINTERS = {"receipts": receipts.paint, "documents": documents.paint}
FAMILIES = (*synthetic.FAMILIES, *_PAINTERS)
SIZES = synthetic.SIZES | {"receipts": receipts.SIZES, "documents": documents.SIZES}


def draw(family: str, seed: int, split: str = "train", density: float = 1.0, *, plain: bool = False) -> Page:
    """The page of this family, split and seed; see ``stakes.data.synthetic.draw``."""
    if family in _PAINTERS:
        dice = roll(family, split, seed)
        dice.training &= not plain
        return _PAINTERS[family](dice, density).finish(family, f"{family}/{split}/{seed:06d}")
    TRAINING_FORMATS.update(money=_small_amount, date=_day_first)
    try:
        return synthetic.draw(family, seed, split, density, plain=plain)
    finally:
        TRAINING_FORMATS.clear()


def _small_amount(dice: Dice) -> str:
    """An amount between 0.15 and 800, with a decimal comma in 15 %."""
    text = f"{10 ** dice.uniform(-0.8, 2.9):.2f}"
    currency = dice.choice(("", "", "$", "$", "Rs.", "R$", "CHF "))
    return currency + (text.replace(".", ",") if dice.chance(0.15) else text)


def _day_first(dice: Dice) -> str:
    """A date with the month in the middle."""
    year, month, day = dice.randint(1990, 2030), dice.randint(1, 12), dice.randint(1, 31)
    mark, short = dice.choice("//-."), MONTHS[month - 1]
    if dice.chance(0.2):
        return f"{day:02d}{mark}{short.upper() if dice.chance(0.5) else short}{mark}{year}"
    return f"{day:02d}{mark}{month:02d}{mark}{year if dice.chance(0.7) else f'{year % 100:02d}'}"
