"""A plan for one set of curves: the optimum, how it compares, and how far the given costs may be off.

Holds the optimum, uniform at the same tokens, the optimum at every cost ratio, the ratios at which it changes, and the
break-even of a named pair of budgets.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from stakes.budgets.allocate import Allocation, checked_menus
from stakes.budgets.curve import Curve, above_floor, cwe_at
from stakes.budgets.frontier import Change, break_even, change_ratios, format_pays, pays_below
from stakes.budgets.harm import Limits, allocate_within, within_limits
from stakes.budgets.uniform import uniform_at
from stakes.errors import BadInput
from stakes.evaluation.statistics import RATIOS
from stakes.tiers import at_ratio, expected_costs, extremes, own_ratio

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
Questions = Mapping[str, Mapping[str, int]]
"""How many questions were read as each tier, by label."""


@dataclass(frozen=True)
class RatioRow:
    """The optimum at one cost ratio (``tiers.at_ratio``), and uniform at the same tokens."""

    ratio: float
    budgets: Mapping[str, int]
    tokens: float
    """Per image, on average."""
    cwe: float
    uniform_cwe: float | None


@dataclass(frozen=True)
class PairRow:
    """A named pair of budgets against uniform: the cost ratio from which it pays, and the confidence it requires."""

    budgets: Mapping[str, int]
    cwe: float
    break_even: float
    required_confidence: float
    pays: str
    """At which cost ratios, in words."""


@dataclass(frozen=True)
class Plan:
    """Everything that ``stakes plan`` reports."""

    costs: Mapping[str, float]
    """As stated. ``r`` is their ratio."""
    costs_as_read: Mapping[str, float] | None
    """Where labels make the mean cost of what is read as a tier another than stated: what budgets are chosen at."""
    counts: Mapping[str, int]
    questions: Questions
    allocation: Allocation
    uniform_budget: float | None
    """The tokens of ``allocation`` per image, on average."""
    uniform_cwe: float | None
    uniform_interpolated: bool
    """Whether that is not a measured budget."""
    ratios: tuple[RatioRow, ...]
    changes: tuple[Change, ...] | None  # None with other than two tiers
    pair: PairRow | None
    required_confidence: float | None
    """How likely a question must be of the most expensive tier to be worth that tier's budget."""
    most_expensive: str
    cheapest: str
    max_harm: Mapping[str, float] | None = None
    """Harm limits by tier; None: there is none."""

    def prices(self, ratio: float) -> dict[str, float]:
        """By tier, what a mistake costs at cost ratio r: the mean by label."""
        return expected_costs(self.questions, at_ratio(self.costs, ratio))

    def record(self) -> dict[str, object]:
        """The plan as JSON."""
        return asdict(self)


def make_plan(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int] | Questions,
    total: int,
    floor: int | None = None,
    *,
    pair: Mapping[str, int] | None = None,
    mix: bool = False,
    max_harm: Limits | None = None,
) -> Plan:
    """Plan the budgets of ``curves`` under ``total`` tokens for ``counts`` samples.

    ``counts``: by tier, or where tiers were read by a signal and labels are known, by tier and label: then mistakes
    cost by the label, and budgets are chosen at the mean cost of what is read as each tier. ``max_harm``: harm limits
    by tier, which every choice keeps (``harm``); the pair is compared as it is.
    """
    questions = {tier: {tier: n} if not isinstance(n, Mapping) else n for tier, n in counts.items()}
    sizes = {tier: n if not isinstance(n, Mapping) else sum(n.values()) for tier, n in counts.items()}
    labelled = any(set(by_label) != {tier} for tier, by_label in questions.items())
    prices = expected_costs(questions, costs) if labelled else dict(costs)
    best = allocate_within(curves, prices, sizes, total, floor, max_harm, mix=mix)
    _check_costs(costs)
    most_expensive, cheapest = extremes(costs)
    samples = sum(sizes.values())
    even = uniform_at(curves, best.spent / samples)

    def row(ratio: float) -> RatioRow:
        at = expected_costs(questions, at_ratio(costs, ratio))
        optimum = allocate_within(curves, at, sizes, total, floor, max_harm)
        same = uniform_at(curves, optimum.spent / samples)
        even_cwe = None if same is None else same.cwe(at, sizes)
        return RatioRow(float(ratio), optimum.budgets, optimum.spent / samples, optimum.cwe, even_cwe)

    own = own_ratio(costs)
    changes, confidence = None, None
    if len(curves) == 2:
        permitted = above_floor(within_limits(curves, max_harm or {}, total // samples), floor)
        each = {"high": sizes[most_expensive], "low": sizes[cheapest]}
        found = change_ratios(permitted[most_expensive], permitted[cheapest], total, counts=each)
        stated = [replace(change, ratio=_stated_ratio(change.ratio, questions, costs)) for change in found]
        changes = tuple(change for change in stated if change.ratio < math.inf)
        below = [change.ratio for change in changes if change.ratio <= own]
        confidence = required_confidence(own, below[-1]) if below else None
    return Plan(
        costs=dict(costs),
        costs_as_read=None if prices == costs else prices,
        counts=sizes,
        questions=questions,
        allocation=best,
        uniform_budget=None if even is None else even.tokens,
        uniform_cwe=None if even is None else even.cwe(prices, sizes),
        uniform_interpolated=even is not None and even.interpolated,
        ratios=tuple(row(ratio) for ratio in sorted({*RATIOS, own})) if len(curves) > 1 else (),
        changes=changes,
        pair=None if pair is None else _pair_row(curves, costs, questions, pair),
        required_confidence=confidence,
        most_expensive=most_expensive,
        cheapest=cheapest,
        max_harm=max_harm or None,
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


def _stated_ratio(ratio: float, questions: Questions, costs: Mapping[str, float]) -> float:
    """The ratio of the stated costs of two tiers at which the mean costs of what is read as each have this ratio.

    With p of what is read as high-cost labelled low and q of what is read as low-cost labelled high, the means are
    ``(1 - p) r + p`` and ``q r + 1 - q``. Their ratio stays below ``(1 - p) / q``: inf beyond.
    """
    high, low = extremes(costs)
    p, q = (questions[tier].get(other, 0) / sum(questions[tier].values()) for tier, other in ((high, low), (low, high)))
    rise = (1 - p) - ratio * q
    return (ratio * (1 - q) - p) / rise if rise > 0 and math.isfinite(ratio) else math.inf


def _pair_row(
    curves: Mapping[str, Curve], costs: Mapping[str, float], questions: Questions, pair: Mapping[str, int]
) -> PairRow:
    """The pair against uniform at the pair's own mean."""
    if set(pair) != set(curves) or len(pair) != 2:
        raise BadInput(f"a pair names a budget for each of two tiers, {' and '.join(curves)}, not {dict(pair)}")
    high, low = extremes(costs)
    sizes = {tier: sum(by_label.values()) for tier, by_label in questions.items()}
    even = uniform_at(curves, sum(sizes[tier] * budget for tier, budget in pair.items()) / sum(sizes.values()))
    if even is None:
        raise BadInput("the pair's mean budget was not measured in both tiers, so there is no uniform to compare with")
    before, after = (
        {"high": errors[high], "low": errors[low]}
        for errors in (even.errors, {tier: curves[tier].error(budget) for tier, budget in pair.items()})
    )
    # Rates weigh tiers alike; with tiers of unequal size a mistake of the larger one counts more often.
    weight = sizes[low] / sizes[high]
    ratio, below = break_even(before, after), pays_below(before, after)
    ratio = ratio if ratio == 0 else _stated_ratio(ratio * weight, questions, costs)
    below = None if below is None else _stated_ratio(below * weight, questions, costs)
    return PairRow(
        budgets=dict(pair),
        cwe=cwe_at(curves, pair, expected_costs(questions, costs), sizes),
        break_even=ratio,
        required_confidence=required_confidence(own_ratio(costs), ratio),
        pays=format_pays(ratio, below),
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
