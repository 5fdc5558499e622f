"""Tokens as money and time, by plain arithmetic.

    dollars = tokens × price / 10^6            price: dollars per million input tokens
    seconds = tokens × ms / 10^6               ms: milliseconds that 1,000 visual tokens take

A price in another currency gives amounts in that currency.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, median

from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome


@dataclass(frozen=True)
class Savings:
    """What so many tokens cost and how long they take; None where no price or no time is known."""

    tokens: float
    dollars: float | None
    seconds: float | None


def savings(tokens: float, price: float | None = None, ms_per_thousand: float | None = None) -> Savings:
    """So many tokens as money and time.

    >>> savings(2_000_000, price=0.15, ms_per_thousand=80)
    Savings(tokens=2000000, dollars=0.3, seconds=160.0)
    """
    return Savings(
        tokens,
        None if price is None else tokens * price / 1e6,
        None if ms_per_thousand is None else tokens * ms_per_thousand / 1e6,
    )


def check_price(price: float | None) -> float | None:
    """A price, refused unless it is above 0."""
    if price is not None and not 0 < price < math.inf:
        raise BadInput(f"--price {price:g} is no price; give dollars per million input tokens, such as --price 0.15")
    return price


def ms_per_thousand_tokens(outcomes: Iterable[Outcome]) -> float | None:
    """Milliseconds that 1,000 further visual tokens take: the slope of the median time over budgets.

    None where answers have no time, as those of OCR, or where more tokens did not take longer.
    """
    times: dict[int, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.ms > 0:
            times.setdefault(outcome.budget, []).append(outcome)
    points = [(fmean(one.spent for one in at), median(one.ms for one in at)) for at in times.values()]
    if len(points) < 2:
        return None
    tokens, ms = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - tokens) ** 2 for x, _ in points)
    slope = sum((x - tokens) * (y - ms) for x, y in points) / spread if spread else 0.0
    return 1000 * slope if slope > 0 else None
