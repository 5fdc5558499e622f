"""The page families that the reader is trained on: those of the package and ``documents``.

On training pages of the package's families, 30 % of the amounts and dates are written as on receipts. Calibration and
test pages are those of ``stakes.data.synthetic``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stakes.data import synthetic
from stakes.data.synthetic.dice import Dice, Extras, roll
from stakes.data.synthetic.page import Page
from stakes.data.synthetic.values import MONTHS
from training import documents

FAMILIES = (*synthetic.FAMILIES, "documents")
SIZES = synthetic.SIZES | {"documents": documents.SIZES}


def draw(family: str, seed: int, split: str = "train", density: float = 1.0, *, plain: bool = False) -> Page:
    """The page of this family, split and seed; see ``stakes.data.synthetic.draw``."""
    if family in synthetic.FAMILIES:
        return synthetic.draw(family, seed, split, density, plain=plain, extras=_extras)
    dice = roll(family, split, seed)
    dice.training &= not plain
    dice.extras = _extras
    return documents.paint(dice, density).finish(family, f"{family}/{split}/{seed:06d}")


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


_extras = Extras(formats={"money": _small_amount, "date": _day_first})


def add_typefaces(folder: Path) -> int:
    """Let training receipts and documents use the font files of a folder (``typefaces.md``); returns how many.

    ``handwriting.txt`` in the folder names those that imitate handwriting. Call this before render workers fork.
    """
    global _extras
    listed = folder / "handwriting.txt"
    hands = set(listed.read_text().split()) if listed.exists() else set()
    names = sorted(file.stem for file in folder.glob("*.?tf"))
    paths = {name: str(folder.resolve() / name) for name in names}
    _extras = replace(
        _extras,
        typefaces=tuple(paths[name] for name in names if name not in hands),
        handwriting=tuple(paths[name] for name in names if name in hands),
    )
    return len(names)
