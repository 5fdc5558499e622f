"""Error curves (a tier's error rate at each measured budget, with counts) and the grids of budgets to measure.

``e_t(b) = wrong answers at b / answers at b``, as measured: errors may rise with tokens, and only ``isotonic`` smooths
that. Paper, section "Calibrate-Then-Allocate".

    >>> high = Curve([32, 304, 576], [0.903, 0.300, 0.100], counts=300)
    >>> high.error(304)
    0.3
    >>> low, up = high.interval(304)
    >>> f"{low:.3f} {up:.3f}"
    '0.251 0.354'
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from stakes.errors import BadInput
from stakes.notebooks import CurveView

MOST_TOKENS = 10**9
"""Of any budget: far beyond every image, and far below what arithmetic overflows at."""
PAPER_MEAN = 304
PAPER_GRID = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)
"""The budgets that the paper measured; they pair up to twice its mean."""


@dataclass(frozen=True)
class Curve(CurveView):
    """Error rates in [0, 1] at sorted, unique budgets; ``counts`` is one number for all budgets or one for each."""

    budgets: tuple[int, ...]
    errors: tuple[float, ...]
    counts: tuple[int, ...]

    def __init__(self, budgets: Sequence[int], errors: Sequence[float], counts: Sequence[int] | int) -> None:
        try:
            per_budget = list(counts)  # type: ignore[arg-type]
        except TypeError:  # one number, which need not be an ``int``: numpy's integers are none
            per_budget = [counts] * len(budgets)  # type: ignore[list-item]
        object.__setattr__(self, "budgets", tuple(whole_number("a budget", b) for b in budgets))
        object.__setattr__(self, "errors", tuple(float(e) for e in errors))
        object.__setattr__(self, "counts", tuple(whole_number("a count", n) for n in per_budget))
        self.__post_init__()

    def __post_init__(self) -> None:  # pydantic, which reads the curves of a policy file, calls this and not __init__
        if not self.budgets:
            raise BadInput("a curve needs at least one measured budget, and this one has none; measure some first")
        for name, values in (("errors", self.errors), ("counts", self.counts)):
            if len(values) != len(self.budgets):
                raise BadInput(
                    f"a curve needs one of its {name} per budget, but has {len(values)} {name} "
                    f"for {len(self.budgets)} budgets; give them the same length"
                )
        for left, right in zip(self.budgets, self.budgets[1:], strict=False):
            if left == right:
                raise BadInput(f"budget {left} appears twice in one curve; merge its measurements first")
            if left > right:
                raise BadInput(f"budgets must rise, but {right} comes after {left}; sort them with their errors")
        for budget, error, count in zip(self.budgets, self.errors, self.counts, strict=True):
            if not 1 <= budget <= MOST_TOKENS:
                raise BadInput(f"a budget is 1 to {MOST_TOKENS:,} tokens, not {budget}; drop that point")
            if not 0 <= error <= 1:  # also catches NaN
                raise BadInput(f"the error at budget {budget} is {error}, not a rate in [0, 1]; check the measurement")
            if not 1 <= count <= MOST_TOKENS:
                raise BadInput(f"the error at budget {budget} rests on {count} questions; give 1 to {MOST_TOKENS:,}")

    def index(self, budget: int) -> int:
        """The index of ``budget`` among the measured ones."""
        if budget not in self.budgets:
            raise BadInput(f"budget {budget} was not measured; choose one of {', '.join(map(str, self.budgets))}")
        return self.budgets.index(budget)

    def error(self, budget: int) -> float:
        """The measured error rate at ``budget``, which must be on the grid: nothing is interpolated."""
        return self.errors[self.index(budget)]

    def interval(self, budget: int, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval of the error rate at one budget."""
        i = self.index(budget)
        return proportion_interval(self.errors[i], self.counts[i], level)

    def isotonic(self) -> Curve:
        """The nearest non-increasing curve in count-weighted least squares: a view for people, not a certificate."""
        from scipy.optimize import isotonic_regression

        fit = isotonic_regression(self.errors, weights=self.counts, increasing=False)
        return Curve(self.budgets, [min(1.0, max(0.0, float(e))) for e in fit.x], self.counts)


def proportion_interval(rate: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's confidence interval for a proportion, from ``rate * n`` successes in ``n``.

    It inverts the score test: coverage is near-nominal on average. A certificate needs coverage that is never below
    the level, and takes Clopper–Pearson's (``calibration.certify.ceiling``).
    """
    if not 0 < level < 1:
        raise BadInput(f"a confidence level lies between 0 and 1, not {level}; 0.95 is usual")
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def curve_from_answers(answers: Iterable[tuple[int, bool]]) -> Curve:
    """The curve of one tier's answers, each a pair (budget, correct)."""
    counts: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    for budget, correct in answers:
        counts[budget] += 1
        wrong[budget] += not correct
    budgets = sorted(counts)
    return Curve(budgets, [wrong[b] / counts[b] for b in budgets], [counts[b] for b in budgets])


def above_floor(curves: Mapping[str, Curve], floor: int | None) -> dict[str, Curve]:
    """The part of each tier's curve at or above ``floor``; None permits the whole curve."""
    parts = {}
    for tier, curve in curves.items():
        start = 0 if floor is None else bisect_left(curve.budgets, floor)
        if start == len(curve.budgets):
            raise BadInput(
                f"the floor {floor} lies above every measured budget of tier {tier!r} (at most {curve.budgets[-1]}); "
                f"lower the floor or measure more"
            )
        parts[tier] = Curve(curve.budgets[start:], curve.errors[start:], curve.counts[start:]) if start else curve
    return parts


def cwe_at(
    curves: Mapping[str, Curve],
    budgets: Mapping[str, int],
    costs: Mapping[str, float],
    counts: Mapping[str, float],
) -> float:
    """Cost-weighted error of one choice of budgets: ``sum(n c e(b)) / sum(n c)``.

    Costs enter only here, so one set of curves gives the CWE at any cost ratio with no further answers.
    """
    weight = {tier: counts[tier] * costs[tier] for tier in budgets}
    return sum(weight[t] * curves[t].error(b) for t, b in budgets.items()) / sum(weight.values())


def whole_number(name: str, value: SupportsIndex) -> int:
    """A whole number of any kind, numpy's included, as ``int``; no bool and no float, not even a whole one."""
    try:
        return operator.index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise BadInput(f"{name} is a whole number, not {value!r}; round it yourself if that is what you mean") from None


def budgets_to_measure(
    grid: Sequence[int] | None, mean_budget: int, floor: int | None, menu: Sequence[int] | None = None
) -> list[int]:
    """The grid, sorted, or the paper's grid scaled to the mean; raises where no budget of it fits floor and mean.

    ``menu``: the budgets that the engine can take, where these are few; all of them are measured, and no others.

    >>> budgets_to_measure([304, 32, 160], mean_budget=160, floor=None)
    [32, 160, 304]
    """
    if not 1 <= mean_budget <= MOST_TOKENS:
        raise BadInput(f"the mean budget is 1 to {MOST_TOKENS:,} tokens per image, not {mean_budget}")
    check_floor(floor)
    if menu is not None and (others := sorted(set(grid or ()) - set(menu))):
        raise BadInput(
            f"the engine takes {', '.join(map(str, menu))} tokens, and not {others[0]}; give these in --grid"
        )
    default = default_grid(mean_budget) if menu is None else menu
    budgets = sorted(set(default if grid is None else grid))
    if not budgets or budgets[0] < 1:
        raise BadInput(f"a grid needs budgets of at least one token, not {list(grid or ())}")
    permitted = [budget for budget in budgets if budget >= (floor or 1)]
    if not permitted:
        raise BadInput(
            f"the floor of {floor} lies above every budget of the grid (at most {budgets[-1]}); lower it, or give "
            "larger budgets with --grid"
        )
    if permitted[0] > mean_budget:
        where = f" at or above the floor of {floor}" if permitted[0] > budgets[0] else ""
        raise BadInput(
            f"the smallest budget of the grid{where} is {permitted[0]}, above the mean budget of {mean_budget}; "
            "give a smaller budget with --grid, or a larger mean"
        )
    if grid is not None and budgets[-1] < mean_budget:
        raise BadInput(
            f"the largest budget of the grid is {budgets[-1]}, below the mean budget of {mean_budget}, so nothing "
            "is scarce and every tier would get the largest; give larger budgets with --grid, or a smaller mean"
        )
    return budgets


def check_floor(floor: int | None) -> None:
    """Raise where the floor is not a budget; None permits the whole grid."""
    if floor is not None and floor < 1:
        raise BadInput(f"the floor is at least one token, not {floor}; leave it out to permit every budget")


def default_grid(mean_budget: int) -> tuple[int, ...]:
    """The paper's thirteen budgets, scaled from its mean of 304 to another."""
    scaled = {max(1, round(budget * mean_budget / PAPER_MEAN)) for budget in PAPER_GRID}
    return tuple(sorted(scaled))


def mean_within(largest: int) -> int:
    """The largest mean budget, up to the paper's, whose scaled grid has no budget above ``largest``."""
    fits = (mean for mean in range(PAPER_MEAN, 1, -1) if default_grid(mean)[-1] <= largest)
    return next(fits, 1)
