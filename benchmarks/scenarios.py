"""True curves on which estimators, certificates and adaptive sampling are tried: published, made up, and random.

All on the paper's grid of thirteen budgets. ``published`` is DocVQA as printed, with the low tier's two points that
were not (480 and 544 tokens) interpolated linearly between their neighbors. Made up:

    unequal             tiers that fall at different places and speeds
    halved              the low tier needs half the tokens (its error at b is the published one at 2b)
    with_dips           non-monotone: the high tier has a sweet spot at 448 and rises after it, the low tier dips at 128
    rising              non-monotone: both tiers' errors rise again from 448 tokens on
    rising_high         non-monotone: only the high tier's does, and the low tier has a bump at 224
    flat                no budget matters: nothing can be gained
    rare_and_high_cost  tokens moved to the low tier bring a steady gain, and rare losses that are worth more

Random, drawn anew each time and never logistic (``RANDOM``): a fall of random size in random steps (Dirichlet, from few
large steps to many small ones), tier by tier (``random_fall``), nearly the same for both tiers (``random_alike``), or
with one to three bumps or dips of 0.03 to 0.1 on each tier (``random_bumpy``, non-monotone).
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.published import figures

GRID = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)
Curves = dict[str, Curve]


def published() -> Curves:
    """The paper's curves of DocVQA."""
    table = figures()["curves_docvqa"]
    curves = {}
    for tier in ("high", "low"):
        points = {int(budget): round(error * 300) / 300 for budget, error in table[tier].items()}
        if tier == "low":
            points[384] = 74 / 300  # fixed by the published marginal
        budgets = sorted(points)
        curves[tier] = _curve(np.interp(GRID, budgets, [points[b] for b in budgets]))
    return curves


def unequal() -> Curves:
    """Tiers that fall at different places and at different speeds."""
    return {"high": _fall(0.05, 330, 2.6), "low": _fall(0.12, 110, 1.6)}


def halved() -> Curves:
    """The low tier needs half the tokens."""
    curves = published()
    low = np.interp(2.0 * np.array(GRID), GRID, curves["low"].errors)
    return {"high": curves["high"], "low": _curve(low)}


def with_dips() -> Curves:
    """Non-monotone, each tier in its own way and sharply."""
    return _plus(
        np.where(_b() >= 512, 0.07, 0) - 0.05 * np.exp(-(((_b() - 448) / 40) ** 2)),
        0.06 * np.exp(-(((_b() - 224) / 50) ** 2)) - 0.08 * np.exp(-(((_b() - 128) / 30) ** 2)),
    )


def rising() -> Curves:
    """Non-monotone: more tokens than 448 hurt both tiers."""
    return _plus(0.0006 * np.maximum(0, _b() - 448), 0.0006 * np.maximum(0, _b() - 448))


def rising_high() -> Curves:
    """Non-monotone: more tokens than 448 bring the high tier nothing, and the low tier has a bump at 224."""
    return _plus(0.0004 * np.maximum(0, _b() - 448), 0.05 * np.exp(-(((_b() - 224) / 60) ** 2)))


def flat() -> Curves:
    """No budget matters."""
    return {"high": _curve(np.full(13, 0.3)), "low": _curve(np.full(13, 0.4))}


def rare_and_high_cost() -> Curves:
    """The high tier errs rarely, a little more often with fewer tokens; at r = 20 that outweighs the low tier's gain.

    From (304, 304) to (32, 576) the low tier saves 0.28 of its mistakes, the high tier makes 0.015 more.
    """
    return {"high": _curve(np.interp(GRID, (32, 304), (0.025, 0.010))), "low": published()["low"]}


TRIED: Mapping[str, Callable[[], Curves]] = {
    "published": published,
    "unequal": unequal,
    "with_dips": with_dips,
    "halved": halved,
    "rising": rising,
    "rising_high": rising_high,
}
"""What estimators are compared on."""


def random_fall(rng: np.random.Generator) -> Curves:
    """Monotone, each tier on its own."""
    return {"high": _curve(_steps(rng)), "low": _curve(_steps(rng))}


def random_alike(rng: np.random.Generator) -> Curves:
    """Nearly monotone, both tiers alike up to an offset."""
    shape = _steps(rng)
    return {"high": _curve(shape), "low": _curve(shape + rng.uniform(-0.1, 0.15) + rng.normal(0, 0.01, len(GRID)))}


def random_bumpy(rng: np.random.Generator) -> Curves:
    """Non-monotone, each tier on its own."""
    return {"high": _curve(_steps(rng) + _bumps(rng)), "low": _curve(_steps(rng) + _bumps(rng))}


RANDOM: Mapping[str, Callable[[np.random.Generator], Curves]] = {
    "random_fall": random_fall,
    "random_alike": random_alike,
    "random_bumpy": random_bumpy,
}


def _steps(rng: np.random.Generator) -> NDArray[np.float64]:
    floor, top = rng.uniform(0.02, 0.3), rng.uniform(0.5, 0.95)
    steps = rng.dirichlet(np.full(len(GRID) - 1, rng.choice([0.3, 1.0, 3.0])))
    return np.asarray(top - (top - floor) * np.concatenate([[0.0], np.cumsum(steps)]))


def _bumps(rng: np.random.Generator) -> NDArray[np.float64]:
    x, found = np.log(_b()), np.zeros(len(GRID))
    for _ in range(rng.integers(1, 4)):
        size, at, width = rng.uniform(0.03, 0.1), rng.uniform(x[0], x[-1]), rng.uniform(0.1, 0.4)
        found += rng.choice([-1, 1]) * size * np.exp(-(((x - at) / width) ** 2))
    return found


def _b() -> NDArray[np.float64]:
    return np.array(GRID, dtype=float)


def _curve(errors: NDArray[np.float64]) -> Curve:
    return Curve(GRID, [float(e) for e in np.clip(errors, 0, 1)], 300)


def _fall(floor: float, middle: float, steepness: float) -> Curve:
    return _curve(floor + (1 - floor) / (1 + np.exp(steepness * (np.log(_b()) - np.log(middle)))))


def _plus(high: NDArray[np.float64], low: NDArray[np.float64]) -> Curves:
    curves = published()
    return {"high": _curve(np.array(curves["high"].errors) + high), "low": _curve(np.array(curves["low"].errors) + low)}
