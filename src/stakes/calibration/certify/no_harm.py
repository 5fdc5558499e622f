"""No harm on documents that budgets were not chosen on: in cost-weighted error, and in every tier with a harm limit.

Tiered budgets are compared with uniform, question by question, by document. Two kinds of statements are tested:

    CWE:    E[cost saved] > 0                                              p_mean_at_most_zero(saved, ...) < 1 - level
    tier t: E[wrong at b_t - wrong at u] <= h_t E[questions]               the upper bound of the rise is within h_t

Tiered budgets ship only if all of them pass. Each is tested at the full level: shipping is false only if at least one
statement is false, and that one passes with a probability of at most ``1 - level`` (an intersection-union test).

A choice right at its limit hardly ever passes. So budgets are chosen within a stricter limit, at which the bound is
expected to be just within the stated one (``choosing_limits``). Of simulated calibrations with limits, 42 % ship in
place of 36 % (docs/dev/decisions.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import proportion_interval
from stakes.budgets.harm import Limits
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import lower_ratio, typical
from stakes.errors import BadInput


@dataclass(frozen=True)
class NoHarm:
    """The tiered budgets against uniform, on the documents that they were not chosen on."""

    budgets: Mapping[str, int]
    uniform: int
    gain: float
    """CWE of uniform minus CWE of these budgets."""
    lower: float
    """Its lower confidence bound."""
    level: float
    """Of that bound: above the requested confidence where ceilings left several choices to certify."""


@dataclass(frozen=True)
class HarmBound:
    """How much a tier's error rises over uniform on the certifying documents, and the bound that it stays within."""

    limit: float
    budget: int
    uniform: int
    rise: float
    upper: float
    """The upper confidence bound of the rise."""
    level: float

    @property
    def kept(self) -> bool:
        """Whether the limit is certified."""
        return self.upper <= self.limit


def check_no_harm(
    second: ByDocument, costs: Mapping[str, float], budgets: Mapping[str, int], uniform: int, level: float
) -> NoHarm:
    """The CWE of these budgets against uniform's."""
    saved, weight = saved_by_document(second, costs, budgets, uniform)
    lower = lower_ratio(saved, weight, level, lost_cost(weight, costs))
    return NoHarm(dict(budgets), uniform, float(saved.sum() / weight.sum()), lower, level)


def harm_bounds(
    second: ByDocument, limits: Limits, budgets: Mapping[str, int], uniform: int, level: float
) -> dict[str, HarmBound]:
    """By tier with a limit, the bound of its rise; at uniform's budget there is none, whatever the answers."""
    bounds = {}
    for tier, limit in limits.items():
        rise, upper = 0.0, 0.0
        if budgets[tier] != uniform:
            more, asked = more_wrong(second, tier, budgets[tier], uniform)
            rise, upper = float(more.sum() / asked.sum()), -lower_ratio(-more, asked, level, typical(asked))
        bounds[tier] = HarmBound(limit, budgets[tier], uniform, rise, upper, level)
    return bounds


def choosing_limits(limits: Limits, questions: Mapping[str, int], level: float) -> dict[str, float]:
    """The stricter limits to choose within, where so many questions of each tier will certify the choice.

    If all that changes is right answers that become wrong, the rise r is a share of the n questions, and its bound lies
    about z sqrt(r (1 - r) / n) above it. The r whose bound is the limit is the lower end of Wilson's interval.
    """
    return {
        tier: proportion_interval(limit, max(1, questions[tier]), 2 * level - 1)[0] if 0.5 < level < 1 else limit
        for tier, limit in limits.items()
    }


def lost_cost(weight: NDArray[np.float64], costs: Mapping[str, float]) -> float:
    """The cost of a lost document: the typical cost at stake, and no less than one of the most expensive questions."""
    return max(typical(weight), *costs.values())


def saved_by_document(
    measured: ByDocument, costs: Mapping[str, float], budgets: Mapping[str, int], uniform: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cost that ``budgets`` save over ``uniform``, and cost at stake, for each document.

    The tier decides the budget; a mistake costs what its label says, where labels are known, else what its tier says.
    """
    saved, weight = np.zeros(len(measured)), np.zeros(len(measured))
    if measured.labelled is not None:
        for label, part in measured.labelled.items():
            more = saved_by_document(part, dict.fromkeys(budgets, costs[label]), budgets, uniform)
            saved, weight = saved + more[0], weight + more[1]
        return saved, weight
    for tier, budget in budgets.items():
        more_errors, asked = more_wrong(measured, tier, budget, uniform)
        saved -= costs[tier] * more_errors
        weight += costs[tier] * asked
    return saved, weight


def more_wrong(
    measured: ByDocument, tier: str, budget: int, uniform: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many more answers of a tier are wrong at ``budget`` than at ``uniform``, and of how many, by document."""
    tiered, even = measured.column(budget), measured.column(uniform)
    wrong, asked = measured.wrong[tier], measured.asked[tier]
    if (asked[:, tiered] != asked[:, even]).any():
        raise BadInput(
            f"not every question of tier {tier!r} was answered at both {budget} and {uniform} tokens; a certificate "
            "needs both"
        )
    return (wrong[:, tiered] - wrong[:, even]).astype(float), asked[:, tiered].astype(float)
