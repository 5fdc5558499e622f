"""From "a wrong amount takes us 20 minutes, a wrong title 1" to cost ratios, and how sure one must be of them.

A cost only matters relative to the others, so any one unit serves: minutes, money, complaints. If a question is
dear (cost r) with probability p and cheap (cost 1) otherwise, its expected cost is ``p r + (1 - p)``; a tiered
budget that pays from a ratio t upward therefore pays from ``p >= (t - 1) / (r - 1)`` upward.

    >>> costs_from_effort({"high": "20 minutes", "low": "1 minute"})
    {'high': 20.0, 'low': 1.0}
    >>> f"{sureness_needed(20, 3.72):.2f}"
    '0.14'
"""

import math
import re
from collections.abc import Mapping

from stakes.errors import BadInput

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


def costs_from_effort(efforts: Mapping[str, str]) -> dict[str, float]:
    """Costs relative to the cheapest tier, from what one mistake takes: a time, a sum of money, or a plain number.

    A day is a working day of eight hours. All tiers must be given in one kind of unit.
    """
    if not efforts:
        raise BadInput('say what a mistake takes for each tier, such as high="20 minutes"')
    read = {tier: _read(tier, text) for tier, text in efforts.items()}
    kinds = {kind for _, kind in read.values()}
    if len(kinds) > 1:
        raise BadInput(
            f"efforts must share a unit, but these are in {' and '.join(sorted(kinds))}; turn them all into time, "
            "or all into money"
        )
    least = min(value for value, _ in read.values())
    return {tier: value / least for tier, (value, _) in read.items()}


def sureness_needed(ratio: float, threshold: float) -> float:
    """How probable a question must be dear, at cost ``ratio``, for its expected cost to reach ``threshold``.

    0 where the threshold is at or below 1 (it pays even for cheap questions), inf where even certainty falls short.
    """
    if threshold <= 1:
        return 0.0
    return math.inf if ratio < threshold else (threshold - 1) / (ratio - 1)


def _read(tier: str, text: str) -> tuple[float, str]:
    found = _EFFORT.fullmatch(text)
    if not found:
        raise BadInput(f'tier {tier!r}: cannot read {text!r} as an effort; write "20 minutes", "$35" or 20')
    sign, number, unit = found.groups()
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
