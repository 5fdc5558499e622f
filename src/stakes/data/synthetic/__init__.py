"""Synthetic documents: drawn pages with questions, answers, answer boxes and tiers, identical for the same seed.

Six families after the paper's benchmarks: ``forms`` (DocVQA), ``charts`` (ChartQA), ``infographics``
(InfographicVQA), ``signs`` (TextVQA), ``shapes`` (VQAv2) and ``swatches`` (the cross-task diagnostic). The seventh,
``receipts``, is like the real receipts of SROIE.

    page = draw("forms", seed=7, split="test")
    page.image.size, page.questions[0].text, page.questions[0].answers

A new family is a module with ``paint``, ``SIZES`` and ``FIELDS``, and one line in ``_FAMILIES``. How legible the pages
are at each number of tokens, and how that was measured: docs/dev/pages.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stakes.data.synthetic import charts, forms, infographics, receipts, shapes, signs
from stakes.data.synthetic.canvas import Canvas
from stakes.data.synthetic.dice import Dice, Extras, roll
from stakes.data.synthetic.page import SPLITS, Box, Glyph, Page, Question
from stakes.errors import BadInput

__all__ = ["FAMILIES", "FIELDS", "SIZES", "SPLITS", "Box", "Glyph", "Page", "Question", "draw", "samples"]


@dataclass(frozen=True)
class _Family:
    paint: Callable[[Dice, float], Canvas]  # (dice, density)
    sizes: tuple[tuple[int, int], ...]  # all sides are multiples of 28, so native tokens are width * height / 784
    fields: tuple[str, ...]
    tiers: tuple[str, ...] = ("high", "low")


_FAMILIES = {
    "forms": _Family(forms.paint, forms.SIZES, forms.FIELDS),
    "charts": _Family(charts.paint, charts.SIZES, charts.FIELDS),
    "infographics": _Family(infographics.paint, infographics.SIZES, infographics.FIELDS),
    "signs": _Family(signs.paint, signs.SIZES, signs.FIELDS),
    "shapes": _Family(shapes.paint, shapes.SIZES, shapes.FIELDS),
    "swatches": _Family(shapes.paint_swatch, shapes.SWATCH_SIZES, ("colour",), tiers=("low",)),
    "receipts": _Family(receipts.paint, receipts.SIZES, receipts.FIELDS),
}
FAMILIES = tuple(_FAMILIES)
SIZES = {name: family.sizes for name, family in _FAMILIES.items()}
"""The canvas sizes of each family, (width, height)."""
FIELDS = {name: family.fields for name, family in _FAMILIES.items()}
"""What questions of each family are about: the values of ``Question.field``."""


def _family(name: str) -> _Family:
    if name not in _FAMILIES:
        raise BadInput(f"there is no page family {name!r}; choose one of {', '.join(FAMILIES)}")
    return _FAMILIES[name]


def draw(
    family: str,
    seed: int,
    split: str = "train",
    density: float = 1.0,
    *,
    plain: bool = False,
    extras: Extras | None = None,
) -> Page:
    """The page of this family, split and seed; ``density`` above 1 prints smaller, below 1 larger.

    ``plain``: without the alternatives that only training pages show. ``extras``: more of them, from a trainer.
    """
    painter = _family(family)
    if split not in SPLITS:
        raise BadInput(f"there is no split {split!r}; choose one of {', '.join(SPLITS)}")
    if not 0.25 <= density <= 4:
        raise BadInput(f"density {density!r} is outside 0.25 to 4; the default is 1")
    dice = roll(family, split, seed)
    dice.training &= not plain
    dice.extras = extras or dice.extras
    return painter.paint(dice, density).finish(family, f"{family}/{split}/{seed:06d}")


def samples(
    family: str, split: str, per_tier: int, *, per_page: int = 4, start: int = 0, density: float = 1.0
) -> Iterator[tuple[Page, Question]]:
    """Questions with their pages, ``per_tier`` of each tier of the family, at most ``per_page`` of a tier per page.

    Pages come in the order of their seeds from ``start``. Which questions of a page are used is drawn from the same
    seed.
    """
    missing = dict.fromkeys(_family(family).tiers, per_tier)
    seed = start
    while any(missing.values()):
        page = draw(family, seed, split, density)
        order = roll(f"samples/{family}", split, seed)
        for tier in missing:
            questions = [q for q in page.questions if q.tier == tier]
            chosen = order.sample(questions, min(len(questions), per_page, missing[tier]))
            missing[tier] -= len(chosen)
            yield from ((page, question) for question in chosen)
        seed += 1
