"""One seeded random stream per page, which decides what a page of its split may show.

A page is novel when it shows something that no training page does: another typeface, another wording of questions,
other name pieces or another layout. 30 % of calibration and test pages are novel. Calibration is drawn like test, so
that what is measured on one holds on the other; their seeds never overlap. Training pages in turn show alternatives
of their own (``Pool.training``), so that the reader learns letters and does not memorize words.

    dice = roll("forms", "test", 7)
    dice.pick(pool("Tel.|Phone||Telephone"), "wording")    # "Telephone" only on a page with novel wording
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

ASPECTS = ("font", "words", "wording", "layout")
NOVEL_SHARE = 0.3


@dataclass(frozen=True)
class Pool(Generic[T]):
    """Alternatives: for every split, for novel pages only, and for training pages only."""

    seen: tuple[T, ...]
    unseen: tuple[T, ...] = ()
    training: tuple[T, ...] = ()


@cache
def pool(text: str) -> Pool[str]:
    """A pool written as ``"seen|seen||unseen|unseen||training"``."""
    return Pool(*(tuple(part.split("|")) if part else () for part in text.split("||")))


@dataclass(frozen=True)
class Extras:
    """What a trainer adds to training pages: typefaces that the package does not ship, and formats of values.

    A typeface is the path of its file without the suffix; receipts use them. ``formats`` may have other ways to draw
    "money" and "date": 30 % of these values have them.
    """

    typefaces: tuple[str, ...] = ()
    handwriting: tuple[str, ...] = ()  # typefaces that imitate it
    formats: Mapping[str, Callable[["Dice"], str]] = field(default_factory=dict)

    def named(self, starts: tuple[str, ...]) -> list[str]:
        """The typefaces whose file names start with one of these, after an "x-" if there is one."""
        return [one for one in self.typefaces if Path(one).name.removeprefix("x-").startswith(starts)]


class Dice(random.Random):
    """A random stream that knows in which aspects its page is novel, and what a trainer adds to it."""

    novel: frozenset[str] = frozenset()
    training: bool = False
    extras: Extras = Extras()

    def pick(self, choices: Pool[T], aspect: str) -> T:
        """One of the seen alternatives.

        On a page that is novel in this aspect, half of the picks are unseen ones. On a training page, half of the
        picks are training-only ones. Both apply only where the pool has such alternatives.
        """
        if choices.unseen and aspect in self.novel and self.random() < 0.5:
            return self.choice(choices.unseen)
        if choices.training and self.training and self.random() < 0.5:
            return self.choice(choices.training)
        return self.choice(choices.seen)

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def weighted(self, choices: Sequence[T], weights: Sequence[float]) -> T:
        """One of the choices, in proportion to its weight."""
        return self.choices(choices, weights)[0]


def roll(family: str, split: str, seed: int) -> Dice:
    """The stream of one page. A string seed goes through SHA-512, so it is the same in every process."""
    dice = Dice(f"stakes pages/{family}/{split}/{seed}")
    dice.training = split == "train"
    if split != "train" and dice.chance(NOVEL_SHARE):
        dice.novel = frozenset(a for a in ASPECTS if dice.chance(0.4)) or frozenset((dice.choice(ASPECTS),))
    return dice
