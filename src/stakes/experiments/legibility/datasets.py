"""Which real pages is legibility measured on? DocVQA, ChartQA and SROIE, each scaled to a longer side of 1008 pixels.

A folder holds ``docvqa/``, ``chartqa/`` and ``sroie/``, each with ``questions.jsonl`` and the images that it names.
Pages that are not of that size are resampled when their turn comes (ChartQA's charts are enlarged, receipts shrunk), so
that all sets see the same budgets; those with fewer than 640 native tokens are left out by name, as in the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from stakes.budgets.curve import PAPER_GRID, PAPER_MEAN, Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import Change, change_ratios, sweep
from stakes.calibration.holdout import HalfResult, HeldOut, held_out, split_half
from stakes.data.sample import read_samples
from stakes.errors import BadInput
from stakes.evaluation.answerable import Apart
from stakes.evaluation.items import Asked, Load, ask, digest
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key
from stakes.evaluation.slopes import SlopeTest, slope_test
from stakes.experiments.legibility.arms import RealArms, real_arms
from stakes.experiments.study import Study
from stakes.legibility.model import Legibility
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import Picture
from stakes.vision.image.resize import fitted_size, resample

if TYPE_CHECKING:
    from PIL.Image import Image


SETS = ("docvqa", "chartqa", "sroie")
SIDE = 1008
LEAST_TOKENS = 640
QUESTIONS = "questions.jsonl"


@dataclass(frozen=True)
class RealSet:
    """The questions of one data set; ``small`` names those whose page has too few tokens for every budget."""

    name: str
    asked: tuple[Asked, ...]
    small: tuple[str, ...]


def real_set(folder: Path, name: str, *, family: str = "qwen2.5-vl", side: int = SIDE) -> RealSet:
    """The questions of ``folder/name``, tiers as labelled, pages scaled."""
    path = folder / name / QUESTIONS
    if not path.is_file():
        raise BadInput(f"there is no {path}; give --data a folder with {', '.join(SETS)}, each with {QUESTIONS}")
    asked = [scaled(one, side) for one in ask(read_samples(path), path.parent)]
    small = tuple(one.id for one in asked if count_tokens(family, *one.size) < LEAST_TOKENS)
    return RealSet(name, tuple(one for one in asked if one.id not in small), small)


def scaled(one: Asked, side: int) -> Asked:
    """The sample on a page whose longer side has so many pixels."""
    width, height = one.size
    longer = max(width, height)
    size = max(1, round(width * side / longer)), max(1, round(height * side / longer))
    if size == one.size:
        return one
    name = digest(f"{one.digest} at {size[0]}x{size[1]}".encode())
    return replace(one, size=size, digest=name, load=partial(_load, one.load, size))


def by_task(sets: Sequence[RealSet], tiers: Callable[[str], str], each: int) -> list[Asked]:
    """The first ``each`` questions of every set, whose tier is now their task's."""
    return [replace(one, tier=tiers(found.name)) for found in sets for one in found.asked[:each]]


def _load(source: Load, size: tuple[int, int]) -> Image:
    return resample(Picture(source()), *size)


# What does legibility say of one set of real pages? Curves, slopes, arms, frontier, split half and held-out choice.
#
# Every figure is of the questions whose answer was found at native size; how many were not stands beside it, and so
# does
# the error if those counted as lost, which is the nearer figure to a VLM's.


TIERS = ("high", "low")
COSTS = {"high": 5.0, "low": 1.0}
ARM_BUDGETS = {"high": 512, "low": 96}
TOTAL = 2 * PAPER_MEAN
SCARCE_MEAN = 224


@dataclass(frozen=True)
class SetResult:
    """Everything measured on one set; ``outcomes`` are the grid's, for the mixed workload."""

    name: str
    documents: int
    counts: Mapping[str, int]
    apart: Mapping[str, int]
    too_small: int
    one_place: Mapping[str, int]
    """Questions whose answer stands at one place only."""
    length: Mapping[str, float]
    """Characters of an answer, the median."""
    curves: Mapping[str, Curve]
    one_place_curves: Mapping[str, Curve]
    by_height: Mapping[int, tuple[int, float]]
    """Answers of one place, by the whole pixels of their line's box at a budget: (how many, share legible)."""
    slopes: SlopeTest
    arms: RealArms
    optimum: Mapping[float, tuple[int, int]]
    """By cost ratio, the best pair of budgets that add up to 608."""
    changes: Sequence[Change]
    halves: Mapping[float, HalfResult]
    held_out: HeldOut
    scarce: HeldOut
    """The same at a mean of 224: the published VLM needs about 1.4 times the tokens that print needs."""
    kept: Sequence[Asked]
    outcomes: Sequence[Outcome]

    def with_apart(self, tier: str, budget: int) -> float:
        """The error if every question set apart counted as lost."""
        n, apart = self.counts[tier], self.apart.get(tier, 0)
        return (self.curves[tier].error(budget) * n + apart) / (n + apart)

    def record(self) -> dict[str, object]:
        """As JSON; no text of a page, question or answer."""
        plain = ("name", "documents", "counts", "apart", "too_small", "one_place", "length", "optimum", "changes")
        return {
            **{key: _plain(getattr(self, key)) for key in plain},
            "curves": {tier: asdict(curve) for tier, curve in self.curves.items()},
            "if_apart_were_lost": {
                tier: [self.with_apart(tier, budget) for budget in curve.budgets] for tier, curve in self.curves.items()
            },
            "one_place_curves": {tier: asdict(curve) for tier, curve in self.one_place_curves.items()},
            "legible_by_height": {height: list(row) for height, row in self.by_height.items()},
            "slopes": asdict(self.slopes),
            "arms": self.arms.record(),
            "held_out": asdict(self.held_out),
            "scarce": asdict(self.scarce),
            "split_half": {ratio: asdict(half) for ratio, half in self.halves.items()},
        }


def measure_set(
    study: Study, model: Legibility, name: str, kept: Sequence[Asked], apart: Apart, too_small: int
) -> SetResult:
    """Read every page at the paper's 13 budgets and at the arms', and work everything out."""
    grid = study.answers(name, kept, [[budget] * len(kept) for budget in PAPER_GRID])
    outcomes = list(grid.values())
    curves = curves_from_outcomes(outcomes)
    alone = {one.id for one in kept if len(model.places[one.id]) == 1}
    right = {
        tier: [[grid[one.id, b].correct for b in PAPER_GRID] for one in kept if one.tier == tier] for tier in TIERS
    }
    pages = {tier: [one.document for one in kept if one.tier == tier] for tier in TIERS}
    best = sweep(curves["high"], curves["low"], TOTAL)
    return SetResult(
        name=name,
        documents=len({one.document for one in kept}),
        counts={tier: len(right[tier]) for tier in TIERS},
        apart=apart.by_tier,
        too_small=too_small,
        length={tier: median(len(one.answers[0]) for one in kept if one.tier == tier) for tier in TIERS},
        one_place=dict(sorted(Counter(o.tier for o in kept if o.id in alone).items())),
        curves={tier: curves[tier] for tier in TIERS},
        one_place_curves=curves_from_outcomes([outcome for outcome in outcomes if outcome.sample in alone]),
        by_height=legible_by_height(model, [one for one in kept if one.id in alone], grid),
        slopes=slope_test(right, pages, PAPER_GRID),
        arms=real_arms(study, model, name, kept, ARM_BUDGETS, COSTS),
        optimum={ratio: (found.budgets["high"], found.budgets["low"]) for ratio, found in best.items()},
        changes=change_ratios(curves["high"], curves["low"], TOTAL),
        halves=split_half(right, PAPER_GRID, TOTAL),
        held_out=held_out(outcomes, COSTS, PAPER_MEAN),
        scarce=held_out(outcomes, COSTS, SCARCE_MEAN),
        kept=kept,
        outcomes=outcomes,
    )


def legible_by_height(
    model: Legibility, asked: Sequence[Asked], grid: Mapping[Key, Outcome]
) -> dict[int, tuple[int, float]]:
    """How high must print be? Over all budgets together; the last row is of everything from 20 pixels on."""
    seen: dict[int, list[bool]] = {}
    for one in asked:
        (place,) = model.places[one.id]
        for budget in PAPER_GRID:
            size = fitted_size(*one.size, budget, model.family)
            height = min(int(place.height * size.height / one.size[1]), 20)
            seen.setdefault(height, []).append(grid[one.id, budget].correct)
    return {height: (len(rows), sum(rows) / len(rows)) for height, rows in sorted(seen.items())}


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value  # type: ignore[call-overload]
