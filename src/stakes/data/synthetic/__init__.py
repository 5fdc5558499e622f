"""Synthetic documents: pages with questions, answers, places and tiers, the same from the same seed everywhere.

Six families after the paper's benchmarks: ``forms`` (DocVQA), ``charts`` (ChartQA), ``infographics``
(InfographicVQA), ``signs`` (TextVQA), ``shapes`` (VQAv2) and ``swatches`` (the cross-task diagnostic).

    page = pages.draw("forms", seed=7, split="test")
    page.image.size, page.questions[0].text, page.questions[0].answers

How legible they are against tokens, and how that was measured: docs/pages.md.
"""

from collections.abc import Callable, Iterator

from stakes.data.synthetic import charts, forms, infographics, shapes, signs, swatches
from stakes.data.synthetic.canvas import Canvas
from stakes.data.synthetic.dice import Dice, roll
from stakes.data.synthetic.page import SPLITS, Box, Glyph, Page, Question
from stakes.errors import BadInput

__all__ = ["FAMILIES", "FIELDS", "SIZES", "SPLITS", "Box", "Glyph", "Page", "Question", "draw", "samples"]

_PAINTERS: dict[str, Callable[[Dice, float], Canvas]] = {
    "forms": forms.paint,
    "charts": charts.paint,
    "infographics": infographics.paint,
    "signs": signs.paint,
    "shapes": shapes.paint,
    "swatches": swatches.paint,
}
FAMILIES = tuple(_PAINTERS)

# The canvases that each family uses; all sides are multiples of 28, so native tokens are width * height / 784.
SIZES: dict[str, tuple[tuple[int, int], ...]] = {
    "forms": forms.SIZES,
    "charts": charts.SIZES,
    "infographics": infographics.SIZES,
    "signs": signs.SIZES,
    "shapes": shapes.SIZES,
    "swatches": swatches.SIZES,
}

# What can be asked in each family: the values of ``Question.field``.
FIELDS: dict[str, tuple[str, ...]] = {
    "forms": forms.FIELDS,
    "charts": charts.FIELDS,
    "infographics": infographics.FIELDS,
    "signs": signs.FIELDS,
    "shapes": shapes.FIELDS,
    "swatches": swatches.FIELDS,
}


def draw(family: str, seed: int, split: str = "train", density: float = 1.0, *, plain: bool = False) -> Page:
    """The page of this family, split and seed; ``density`` above 1 prints smaller, below 1 larger.

    ``plain``: without what only training pages show.
    """
    if family not in _PAINTERS:
        raise BadInput(f"no page family is called {family!r}; there are {', '.join(FAMILIES)}")
    if split not in SPLITS:
        raise BadInput(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    if not 0.25 <= density <= 4:
        raise BadInput(f"density {density!r} is outside 0.25 to 4; 1 is the measured default")
    dice = roll(family, split, seed)
    dice.training &= not plain
    canvas = _PAINTERS[family](dice, density)
    return canvas.finish(family, f"{family}/{split}/{seed:06d}")


def samples(
    family: str, split: str, per_tier: int, *, per_page: int = 4, start: int = 0, density: float = 1.0
) -> Iterator[tuple[Page, Question]]:
    """Questions with their pages, ``per_tier`` of each tier, at most ``per_page`` of a tier from one page.

    Pages come in the order of their seeds from ``start``; which of a page's questions are taken is drawn from the
    same seed. A family without one of the tiers gives the other only.
    """
    wanted = {"low": per_tier} if family == "swatches" else {"high": per_tier, "low": per_tier}
    seed = start
    while any(wanted.values()):
        page = draw(family, seed, split, density)
        order = roll(f"samples/{family}", split, seed)
        for tier in wanted:
            asked = [q for q in page.questions if q.tier == tier]
            taken = order.sample(asked, min(len(asked), per_page, wanted[tier]))
            wanted[tier] -= len(taken)
            yield from ((page, question) for question in taken)
        seed += 1
