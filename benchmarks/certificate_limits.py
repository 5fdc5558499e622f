"""The tables of ``certificates.py`` on harm limits: how often one is passed that does not hold, and how many ship.

The first table tests fixed budgets whose true rise lies just above the limit, so that every pass is false. The second
chooses and certifies as a calibration does, with limits just below the rise of the best budgets and well above that of
useful ones, and counts what ships.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from benchmarks.certificate_bounds import PAGES
from benchmarks.certificate_worlds import LEVEL, MEAN, Floats, Ints, answer, lognormal_sizes, mark
from benchmarks.scenarios import halved, published, unequal
from numpy.typing import NDArray

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import UnevenDocuments, check_even, p_mean_at_most_zero, typical
from stakes.calibration.certify.no_harm import (
    choosing_limits,
    lost_cost,
    more_wrong,
    saved_by_document,
)
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import DEFAULT, Terms, fit

SMALL = 224  # the budget whose rise over MEAN is tested
ABOVE = 1e-4  # how much the true rise lies above the limit
GRID = (SMALL, MEAN)
SIZES = (75, 150, 300, 600, 1000)


class Rise(NamedTuple):
    """Questions of one tier: ``draw`` gives unit and errors at both budgets of each, ``rise`` is the true rise."""

    name: str
    rise: float
    draw: Callable[[np.random.Generator], tuple[Ints, Floats]]
    likeness: float = 0.0
    limit: int | None = None
    """How many questions of a document count."""


def paged(small: float, even: float, size: int, per_page: int, likeness: float) -> Rise:
    """``size`` questions, so many on a page, all with the same errors."""

    def draw(_: np.random.Generator) -> tuple[Ints, Floats]:
        return np.arange(size) // per_page, np.tile([small, even], (size, 1))

    name = f"errors {even:g} to {small:g}, {size} questions, {per_page} a page"
    return Rise(name, small - even, draw, likeness)


def grouped(groups: int, documents: int) -> Rise:
    """Half of the groups rise by 0.3, the others not at all; the unit is the group."""

    def draw(rng: np.random.Generator) -> tuple[Ints, Floats]:
        unit = np.repeat(np.arange(groups), 2 * documents)
        rises = 0.3 * rng.integers(0, 2, groups)[unit]
        return unit, np.stack([0.35 + rises, np.full(len(unit), 0.35)], axis=1)

    return Rise(f"groups that rise by 0.3 or 0, {groups} x {documents} documents", 0.15, draw, 0.3)


def uneven(documents: int, limit: int) -> Rise:
    """Log-normal sizes, ``limit`` of a document count; documents of five and more rise by 0.3, the others by 0.05."""
    sizes = lognormal_sizes(np.random.default_rng(0), 400_000)
    counted, large = np.minimum(sizes, limit), sizes >= 5
    rise = float((counted * np.where(large, 0.3, 0.05)).sum() / counted.sum())

    def draw(rng: np.random.Generator) -> tuple[Ints, Floats]:
        own = lognormal_sizes(rng, documents)
        unit = np.repeat(np.arange(documents), np.minimum(own, limit))
        rises = np.where(own >= 5, 0.3, 0.05)[unit]
        return unit, np.stack([0.35 + rises, np.full(len(unit), 0.35)], axis=1)

    return Rise(f"log-normal sizes, at most {limit} count, {documents} documents", rise, draw, 0.7, limit)


def tables(unit: Ints, wrong: NDArray[np.bool_]) -> ByDocument:
    """By unit, for one tier."""
    counts = np.zeros((int(unit.max()) + 1, len(GRID)), dtype=np.int64)
    np.add.at(counts, unit, wrong)
    asked = np.repeat(np.bincount(unit, minlength=len(counts))[:, None], len(GRID), axis=1).astype(np.int64)
    return ByDocument(tuple(f"unit {i}" for i in range(len(counts))), GRID, {"low": counts}, {"low": asked})


def falsely_within(world: Rise, calibrations: int) -> str:
    """One line: how often a limit just below the true rise is certified."""
    rng, passed, refused = np.random.default_rng([len(world.name), round(1e4 * world.rise)]), 0, 0
    for _ in range(calibrations):
        unit, errors = world.draw(rng)
        measured = tables(unit, answer(errors, unit, world.likeness, rng))
        try:
            check_even(measured, world.limit)
        except UnevenDocuments:
            refused += 1
            continue
        passed += p_beyond(measured, "low", SMALL, world.rise - ABOVE) < LEVEL
    cells = f"{world.rise - ABOVE:7.4f} {passed / calibrations:7.4f}{mark(passed, calibrations)}"
    return f"{world.name:62} {cells}   refused {refused / calibrations:.3f}"


def p_beyond(second: ByDocument, tier: str, budget: int, limit: float) -> float:
    """The p-value of "the rise is at or above the limit"; ``HarmBound.kept`` is whether it is below the level."""
    more, asked = more_wrong(second, tier, budget, MEAN)
    return p_mean_at_most_zero(limit * asked - more, -(1 - limit) * typical(asked))


class Tally(NamedTuple):
    """Of calibrations: the share that ships, the mean true gain, and the shares in which a shipped one is false."""

    ships: float
    gain: float
    harmful: float
    beyond: float


def ships(second: ByDocument, costs: Mapping[str, float], budgets: Mapping[str, int], limit: float) -> bool:
    """Whether ``certify`` would ship these budgets: p-values alone, without bounds."""
    if set(budgets.values()) == {MEAN}:
        return False
    saved, weight = saved_by_document(second, costs, budgets, MEAN)
    p = [p_mean_at_most_zero(saved, -lost_cost(weight, costs))]
    for tier, budget in budgets.items():
        if budget != MEAN and limit < 1:
            p.append(p_beyond(second, tier, budget, limit))
    return max(p) < LEVEL


def certified(
    truth: Mapping[str, Curve], ratio: float, size: int, limit: float, pages: str, calibrations: int
) -> list[Tally]:
    """Calibrations with choices within the stricter limit, as is done, within the limit itself, and without one."""
    rng, costs = np.random.default_rng([size, round(ratio), round(1e4 * limit)]), {"high": ratio, "low": 1.0}
    sums, even = np.zeros((3, 4)), dict.fromkeys(truth, MEAN)
    for _ in range(calibrations):
        measured = simulate(truth, dict.fromkeys(truth, size), rng, **PAGES[pages])
        first, second = measured.split()
        counts, fitted = measured.counts, fit(DEFAULT, first.curves(), first)
        stated = dict.fromkeys(truth, limit)
        strict = choosing_limits(stated, second.counts, 1 - LEVEL)
        for i, limits in enumerate((strict, stated, None)):
            terms = Terms(costs, counts, MEAN * sum(counts.values()), max_harm=limits)
            budgets = terms.allocate(fitted).budgets
            if ships(second, costs, budgets, limit if limits else 1.0):
                gain = cwe_at(truth, even, costs, counts) - cwe_at(truth, budgets, costs, counts)
                rises = [curve.error(budgets[tier]) - curve.error(MEAN) for tier, curve in truth.items()]
                sums[i] += (1, gain, gain <= 1e-12, max(rises) > limit)
    return [Tally(*row) for row in sums / calibrations]


def print_limits(calibrations: int) -> None:
    """Both tables."""
    print(f"\n{'limit just below the true rise':62} {'limit':>7}  passed")
    for size in (300, 75):
        for per_page, likeness in ((1, 0.0), (2, 0.3), (4, 0.7)):
            for small, even in ((0.52, 0.373), (0.043, 0.013), (0.98, 0.4)):
                print(falsely_within(paged(small, even, size, per_page, likeness), calibrations), flush=True)
    for groups, documents in ((40, 4), (8, 20)):
        print(falsely_within(grouped(groups, documents), calibrations), flush=True)
    for most in (4, 6):
        print(falsely_within(uneven(150, most), calibrations), flush=True)
    title = "whole calibrations: true curves, limit, r"
    columns = "ships, true gain, harmful, beyond the limit | chosen within the limit itself | no limit"
    print(f"\n{title:56} {'size':>5}  {columns}")
    just_below = [
        ("published, just below the rise at 224", published(), SMALL, 10.0),
        ("unequal, just below the rise at 160", unequal(), 160, 5.0),
    ]
    for name, truth, budget, ratio in just_below:
        low = truth["low"]
        for size in (300, 1000):
            print(
                whole(name, truth, low.error(budget) - low.error(MEAN) - ABOVE, ratio, size, calibrations), flush=True
            )
    well_below = [
        ("unequal", unequal(), 0.15, 5.0),
        ("unequal", unequal(), 0.25, 5.0),
        ("the low tier needs half", halved(), 0.15, 10.0),
        ("published", published(), 0.25, 10.0),
        ("published", published(), 0.15, 10.0),
    ]
    for name, truth, limit, ratio in well_below:
        for size in SIZES:
            print(whole(name, truth, limit, ratio, size, calibrations // 2), flush=True)


def whole(name: str, truth: Mapping[str, Curve], limit: float, ratio: float, size: int, calibrations: int) -> str:
    """One line: calibrations with a limit for both tiers, and without one."""
    ours, other, free = certified(truth, ratio, size, limit, "two a page, alike", calibrations)
    false = f"{ours.harmful:7.4f} {ours.beyond:7.4f}{mark(round(ours.beyond * calibrations), calibrations)}"
    cells = f"{ours.ships:6.3f} {ours.gain:7.4f} {false}   {other.ships:6.3f} {other.gain:7.4f} {other.beyond:7.4f}"
    return f"{f'{name}, {limit:.4g}, r = {ratio:g}':56} {size:5}  {cells}   {free.ships:6.3f} {free.gain:7.4f}"
