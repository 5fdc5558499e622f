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

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, SupportsIndex

from stakes.errors import BadInput

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

    def isotonic(self) -> "Curve":
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
