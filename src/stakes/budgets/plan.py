"""A plan for one set of curves: the optimum, how it compares, and how far the given costs may be off.

Holds the optimum, the uniform budget at the same mean, the optimum at every cost ratio, the ratios at which it changes,
and the break-even of a named pair of budgets.

A cost only matters relative to the others, so any one unit serves: minutes, money, complaints. If a question is
high-cost (cost r) with probability p and low-cost (cost 1) otherwise, its expected cost is ``p r + (1 - p)``. A tiered
budget that pays from a ratio t upward therefore pays from ``p >= (t - 1) / (r - 1)`` upward.

    >>> costs_from_effort({"high": "20 minutes", "low": "1 minute"})
    {'high': 20.0, 'low': 1.0}
    >>> f"{required_confidence(20, 3.72):.2f}"
    '0.14'
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from stakes.budgets.allocate import Allocation, allocate, checked_menus
from stakes.budgets.curve import Curve, above_floor, cwe_at
from stakes.budgets.frontier import Change, break_even, change_ratios
from stakes.errors import BadInput
from stakes.evaluation.statistics import RATIOS
from stakes.tiers import extremes

_UNITS = {
    1: "s sec secs second seconds",
    60: "m min mins minute minutes",
    3600: "h hr hrs hour hours",
    28800: "day days",
}
_SECONDS = {unit: seconds for seconds, units in _UNITS.items() for unit in units.split()}
_CURRENCIES = frozenset("usd eur gbp chf jpy cny inr cad aud nzd sek nok dkk pln czk brl mxn zar krw sgd hkd".split())
_EFFORT = re.compile(r"\s*([$€£])?\s*([0-9]+(?:[.,][0-9]+)*)\s*([a-zA-Z$€£]*)\s*")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")
COST_SPAN = 1e100


@dataclass(frozen=True)
class RatioRow:
    """The optimum when one mistake in the most expensive tier costs ``ratio`` times one in the cheapest."""

    ratio: float
    budgets: Mapping[str, int]
    cwe: float
    uniform_cwe: float | None


@dataclass(frozen=True)
class PairRow:
    """A named pair of budgets against uniform: the cost ratio from which it pays, and the confidence it requires."""

    budgets: Mapping[str, int]
    cwe: float
    break_even: float
    required_confidence: float


@dataclass(frozen=True)
class Plan:
    """Everything that ``stakes plan`` reports."""

    costs: Mapping[str, float]
    counts: Mapping[str, int]
    allocation: Allocation
    uniform_budget: int | None
    uniform_cwe: float | None
    ratios: tuple[RatioRow, ...]
    changes: tuple[Change, ...] | None  # None with other than two tiers
    pair: PairRow | None
    required_confidence: float | None
    """How likely a question must be of the most expensive tier to be worth that tier's budget."""
    most_expensive: str
    cheapest: str

    def record(self) -> dict[str, object]:
        """The plan as JSON."""
        return asdict(self)


def make_plan(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    floor: int | None = None,
    *,
    pair: Mapping[str, int] | None = None,
    ratios: Iterable[float] = RATIOS,
    mix: bool = False,
) -> Plan:
    """Plan the budgets of ``curves`` under ``total`` tokens for ``counts`` samples."""
    best = allocate(curves, costs, counts, total, floor, mix=mix)
    _check_costs(costs)
    most_expensive, cheapest = extremes(costs)
    uniform = _uniform_budget(curves, total // sum(counts.values()))

    def uniform_cwe(prices: Mapping[str, float]) -> float | None:
        return None if uniform is None else cwe_at(curves, dict.fromkeys(curves, uniform), prices, counts)

    rows = []
    for ratio in ratios if len(curves) > 1 else ():
        prices = _at_ratio(costs, ratio)
        optimum = allocate(curves, prices, counts, total, floor)
        rows.append(RatioRow(float(ratio), optimum.budgets, optimum.cwe, uniform_cwe(prices)))
    changes, confidence = None, None
    if len(curves) == 2:
        permitted = above_floor(curves, floor)
        sizes = {"high": counts[most_expensive], "low": counts[cheapest]}
        changes = change_ratios(permitted[most_expensive], permitted[cheapest], total, counts=sizes)
        ratio = costs[most_expensive] / costs[cheapest]
        below = [change.ratio for change in changes if change.ratio <= ratio]
        confidence = required_confidence(ratio, below[-1]) if below else None
    return Plan(
        costs=dict(costs),
        counts=dict(counts),
        allocation=best,
        uniform_budget=uniform,
        uniform_cwe=uniform_cwe(costs),
        ratios=tuple(rows),
        changes=changes,
        pair=None if pair is None else _pair_row(curves, costs, counts, uniform, pair),
        required_confidence=confidence,
        most_expensive=most_expensive,
        cheapest=cheapest,
    )


def check_feasible(
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    budgets: Sequence[int],
    floor: int | None = None,
) -> None:
    """Raise what ``make_plan`` would refuse for curves measured at ``budgets``: it does not depend on the answers."""
    grid = Curve(budgets, [0.0] * len(budgets), 1)
    checked_menus(dict.fromkeys(costs, grid), costs, counts, total, floor)
    _check_costs(costs)


def _check_costs(costs: Mapping[str, float]) -> None:
    for tier, cost in costs.items():
        if not 1 / COST_SPAN <= cost <= COST_SPAN:
            raise BadInput(
                f"the cost of tier {tier!r} is {cost}, and sums and ratios of such costs overflow; only ratios matter, "
                f"so scale all costs to lie between {1 / COST_SPAN:g} and {COST_SPAN:g}"
            )


def _at_ratio(costs: Mapping[str, float], ratio: float) -> dict[str, float]:
    """Costs with the most expensive at ``ratio`` times the cheapest; those between keep their rank on a log scale.

    c' = c_min r^(log(c / c_min) / log(c_max / c_min)); if all costs are equal, only the most expensive moves.
    """
    most_expensive, cheapest = extremes(costs)
    least, span = costs[cheapest], math.log(costs[most_expensive] / costs[cheapest])
    if span == 0:
        return {**costs, most_expensive: ratio * least}
    return {tier: least * ratio ** (math.log(cost / least) / span) for tier, cost in costs.items()}


def _uniform_budget(curves: Mapping[str, Curve], mean: int) -> int | None:
    """The largest budget measured in every tier that a uniform split of the total affords."""
    shared = set.intersection(*(set(curve.budgets) for curve in curves.values()))
    return max((budget for budget in shared if budget <= mean), default=None)


def _pair_row(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    uniform: int | None,
    pair: Mapping[str, int],
) -> PairRow:
    if set(pair) != set(curves) or len(pair) != 2:
        raise BadInput(f"a pair names a budget for each of two tiers, {' and '.join(curves)}, not {dict(pair)}")
    if uniform is None:
        raise BadInput("there is no budget measured in both tiers to compare the pair with")
    high, low = extremes(costs)
    before, after = (
        {"high": curves[high].error(budgets[high]), "low": curves[low].error(budgets[low])}
        for budgets in (dict.fromkeys(curves, uniform), pair)
    )
    # Rates weigh tiers alike; with tiers of unequal size a mistake of the larger one counts more often.
    ratio = break_even(before, after) * counts[low] / counts[high]
    return PairRow(
        budgets=dict(pair),
        cwe=cwe_at(curves, pair, costs, counts),
        break_even=ratio,
        required_confidence=required_confidence(costs[high] / costs[low], ratio),
    )


def required_confidence(ratio: float, threshold: float) -> float:
    """The probability of being high-cost, at cost ``ratio``, at which a question's expected cost meets ``threshold``.

    0 where the threshold is at or below 1 (it pays even for low-cost questions), inf where even certainty falls short.
    """
    if threshold <= 1:
        return 0.0
    return math.inf if ratio < threshold else (threshold - 1) / (ratio - 1)


def costs_from_effort(efforts: Mapping[str, str]) -> dict[str, float]:
    """Costs relative to the cheapest tier, from the effort of one mistake: a time, a sum of money, or a plain number.

    A day is a working day of eight hours. All tiers must be given in one kind of unit.
    """
    if not efforts:
        raise BadInput('say what a mistake takes for each tier, for example high="20 minutes"')
    parsed = {tier: _parse_effort(tier, text) for tier, text in efforts.items()}
    kinds = {kind for _, kind in parsed.values()}
    if len(kinds) > 1:
        raise BadInput(
            f"efforts must share a unit, but these are in {' and '.join(sorted(kinds))}; turn them all into time, "
            "or all into money"
        )
    least = min(value for value, _ in parsed.values())
    return {tier: value / least for tier, (value, _) in parsed.items()}


def _parse_effort(tier: str, text: str) -> tuple[float, str]:
    """The value, times in seconds, and the kind of unit."""
    match = _EFFORT.fullmatch(text)
    if not match:
        raise BadInput(f'tier {tier!r}: cannot read {text!r} as an effort; write "20 minutes", "$35" or 20')
    sign, number, unit = match.groups()
    if _THOUSANDS.fullmatch(number):
        plain = re.sub("[.,]", "", number)
        raise BadInput(f"tier {tier!r}: {number!r} may be thousands or a fraction; write {plain}, or fewer places")
    if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", number):
        raise BadInput(f"tier {tier!r}: cannot read {number!r} as a number; write it as 1234.5")
    value = float(number)
    if value <= 0:
        raise BadInput(f"tier {tier!r}: a mistake that takes {text!r} costs nothing; give it a positive effort")
    if sign or unit in {"$", "€", "£"}:
        return value, f"money ({sign or unit})"
    if unit.lower() in _SECONDS:
        return value * _SECONDS[unit.lower()], "time"
    if unit.lower() in _CURRENCIES or (len(unit) == 3 and unit.isupper()):
        return value, f"money ({unit.upper()})"
    if unit:
        raise BadInput(
            f"tier {tier!r}: unknown unit {unit!r}; use seconds, minutes, hours, days, or money as $35 or 35 EUR"
        )
    return value, "plain numbers"
