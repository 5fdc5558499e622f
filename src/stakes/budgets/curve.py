"""One tier's error rate at each measured budget, with the counts behind it.

``e_t(b) = wrong answers at b / questions asked at b``, kept as measured: errors may rise with tokens, and nothing here
smooths that away unless asked (``isotonic``). Paper, section "Calibrate-Then-Allocate".

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, SupportsIndex

from stakes.errors import BadInput

MOST_TOKENS = 10**9


Method = Literal["wilson", "clopper-pearson"]


@dataclass(frozen=True)
class Curve:
    """Error rates in [0, 1] at sorted, unique budgets; ``counts`` is one number for all budgets or one for each."""

    budgets: tuple[int, ...]
    errors: tuple[float, ...]
    counts: tuple[int, ...] = field(default=())

    def __init__(self, budgets: Sequence[int], errors: Sequence[float], counts: Sequence[int] | int) -> None:
        try:
            per_budget = list(counts)  # type: ignore[arg-type]
        except TypeError:  # one number, which need not be an ``int``: numpy's integers are none
            per_budget = [counts] * len(budgets)  # type: ignore[list-item]
        object.__setattr__(self, "budgets", _integers("budget", budgets))
        object.__setattr__(self, "errors", tuple(float(e) for e in errors))
        object.__setattr__(self, "counts", _integers("count", per_budget))
        self._check()

    def _check(self) -> None:
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
        if self.budgets[0] < 1:
            raise BadInput(f"a budget is at least one token, not {self.budgets[0]}; drop that point")
        for budget, error, count in zip(self.budgets, self.errors, self.counts, strict=True):
            if not 0 <= error <= 1:  # also catches NaN
                raise BadInput(f"the error at budget {budget} is {error}, not a rate in [0, 1]; check the measurement")
            if count < 1:
                raise BadInput(f"the error at budget {budget} rests on {count} questions; at least one is needed")

    @cached_property
    def _at(self) -> dict[int, int]:
        return {budget: i for i, budget in enumerate(self.budgets)}

    def index(self, budget: int) -> int:
        """Where ``budget`` stands among the measured ones."""
        if budget not in self._at:
            measured = ", ".join(map(str, self.budgets))
            raise BadInput(f"budget {budget} was not measured; choose one of {measured}")
        return self._at[budget]

    def error(self, budget: int) -> float:
        """The measured error rate at ``budget``, which must be on the grid: nothing is interpolated."""
        return self.errors[self.index(budget)]

    def interval(self, budget: int, level: float = 0.95, method: Method = "wilson") -> tuple[float, float]:
        """A confidence interval of the error rate at one budget."""
        i = self.index(budget)
        return proportion_interval(self.errors[i], self.counts[i], level, method)

    def intervals(self, level: float = 0.95, method: Method = "wilson") -> tuple[tuple[float, float], ...]:
        """Confidence intervals at every budget, pointwise."""
        return tuple(self.interval(budget, level, method) for budget in self.budgets)

    def isotonic(self) -> Curve:
        """The nearest non-increasing curve in count-weighted least squares: a view for people, not a certificate."""
        from scipy.optimize import isotonic_regression

        fit = isotonic_regression(self.errors, weights=self.counts, increasing=False)
        return Curve(self.budgets, [min(1.0, max(0.0, float(e))) for e in fit.x], self.counts)


def proportion_interval(rate: float, n: int, level: float = 0.95, method: Method = "wilson") -> tuple[float, float]:
    """An interval for a proportion of which ``rate * n`` of ``n`` were seen.

    Wilson inverts the score test (near-nominal coverage on average); Clopper–Pearson inverts the exact binomial
    test (coverage never below the level), for guarantees.
    """
    if not 0 < level < 1:
        raise BadInput(f"a confidence level lies between 0 and 1, not {level}; 0.95 is usual")
    if method == "clopper-pearson":
        from scipy.special import betaincinv

        k, tail = rate * n, (1 - level) / 2
        low = 0.0 if k <= 0 else float(betaincinv(k, n - k + 1, tail))
        high = 1.0 if k >= n else float(betaincinv(k + 1, n - k, 1 - tail))
        return low, high
    if method != "wilson":
        raise BadInput(f"unknown interval {method!r}; choose wilson or clopper-pearson")
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def curve_from_answers(answers: Iterable[tuple[int, bool]]) -> Curve:
    """The curve of one tier's answers, each a pair (budget, correct)."""
    asked: dict[int, int] = {}
    wrong: dict[int, int] = {}
    for budget, correct in answers:
        asked[budget] = asked.get(budget, 0) + 1
        wrong[budget] = wrong.get(budget, 0) + (not correct)
    budgets = sorted(asked)
    return Curve(budgets, [wrong[b] / asked[b] for b in budgets], [asked[b] for b in budgets])


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


def _integers(name: str, values: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """Whole numbers of any kind, numpy's included, as ``int``; no bool and no float, not even a whole one."""
    whole = []
    for value in values:
        try:
            whole.append(operator.index(None if isinstance(value, bool) else value))  # type: ignore[arg-type]
        except TypeError:
            raise BadInput(
                f"a {name} is a whole number, not {value!r}; round it yourself if that is what you mean"
            ) from None
    return tuple(whole)


# Which budgets did the paper measure at?


PAPER_MEAN = 304
PAPER_GRID = (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)


# Which budgets are measured? Those asked for, or the paper's scaled to the mean; what cannot work is said at once.
#
# >>> budgets_to_measure([304, 32, 160], mean_budget=160, floor=None)
# [32, 160, 304]


def budgets_to_measure(grid: Sequence[int] | None, mean_budget: int, floor: int | None) -> list[int]:
    """The grid, sorted; refused where no choice from it can keep to the floor and to the mean."""
    if not 1 <= mean_budget <= MOST_TOKENS:
        raise BadInput(f"the mean budget is 1 to {MOST_TOKENS:,} tokens an image, not {mean_budget}")
    check_floor(floor)
    budgets = sorted(set(default_grid(mean_budget) if grid is None else grid))
    if not budgets or budgets[0] < 1:
        raise BadInput(f"a grid needs budgets of at least one token, not {list(grid or ())}")
    permitted = [budget for budget in budgets if budget >= (floor or 1)]
    if not permitted:
        raise BadInput(
            f"the floor of {floor} lies above every budget of the grid (at most {budgets[-1]}); lower it, or give "
            "larger budgets with --grid"
        )
    if permitted[0] > mean_budget:
        held = f" at or above the floor of {floor}" if permitted[0] > budgets[0] else ""
        raise BadInput(
            f"the smallest budget of the grid{held} is {permitted[0]}, above the mean budget of {mean_budget}"
        )
    return budgets


def check_floor(floor: int | None) -> None:
    """A floor is a budget; none permits the whole grid."""
    if floor is not None and floor < 1:
        raise BadInput(f"the floor is at least one token, not {floor}; leave it out to permit every budget")


def default_grid(mean_budget: int) -> tuple[int, ...]:
    """The paper's thirteen budgets, which pair up to twice its mean of 304, scaled to another mean."""
    if mean_budget < 1:
        raise BadInput(f"the mean budget is at least one token an image, not {mean_budget}")
    scaled = {max(1, round(budget * mean_budget / PAPER_MEAN)) for budget in PAPER_GRID}
    return tuple(sorted(scaled))
