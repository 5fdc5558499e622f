"""Where chance comes from: one seeded stream per page, and which things only calibration and test pages may show.

Training pages show more than the others do, so that letters are read and not remembered: ``Pool.training``.

A page is novel when it shows something that no training page does: another typeface, another way to ask, other
pieces of names or another layout. Three in ten calibration and test pages are. Calibration is drawn like test, so
that what is measured on the one holds on the other; their seeds never meet.

    dice = roll("forms", "test", 7)
    dice.pick(pool("Tel.|Phone||Telephone"), "wording")    # "Telephone" only on a page with novel wording
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

T = TypeVar("T")

ASPECTS = ("font", "words", "wording", "layout")
NOVEL_SHARE = 0.3


@dataclass(frozen=True)
class Pool(Generic[T]):
    """Alternatives of which some are kept out of training, and some are shown in training only."""

    seen: tuple[T, ...]
    unseen: tuple[T, ...] = ()
    training: tuple[T, ...] = ()


@cache
def pool(text: str) -> Pool[str]:
    """Alternatives written as ``"seen|seen||unseen|unseen||training"``."""
    return Pool(*(tuple(part.split("|")) if part else () for part in text.split("||")))


class Dice(random.Random):
    """A random stream that knows which aspects of its page may be unseen in training."""

    novel: frozenset[str] = frozenset()
    training: bool = False

    def pick(self, choices: Pool[T], aspect: str) -> T:
        """One of the seen alternatives; half of the time an unseen one on a page novel in this aspect, and where there
        are some for training only, one of those on a training page."""
        if choices.unseen and aspect in self.novel and self.random() < 0.5:
            return self.choice(choices.unseen)
        if choices.training and self.training and self.random() < 0.5:
            return self.choice(choices.training)
        return self.choice(choices.seen)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.random() < probability

    def weighted(self, choices: Sequence[T], weights: Sequence[float]) -> T:
        """One of the choices, in proportion to its weight."""
        return self.choices(choices, weights)[0]


def roll(family: str, split: str, seed: int) -> Dice:
    """The stream of one page: a string seed goes through SHA-512, so it is the same in every process."""
    dice = Dice(f"stakes pages/{family}/{split}/{seed}")
    dice.training = split == "train"
    if split != "train" and dice.chance(NOVEL_SHARE):
        dice.novel = frozenset(a for a in ASPECTS if dice.chance(0.4)) or frozenset((dice.choice(ASPECTS),))
    return dice
