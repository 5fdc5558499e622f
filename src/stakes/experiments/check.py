"""One published figure beside what follows from other published figures, with a verdict.

A printed number stands for the interval that rounds to it. A figure *follows* when the recomputed value lies in that
interval (or satisfies the printed bound), *does not follow* when it lies outside, and *cannot be recomputed* when an
ingredient was not published.
"""

import math
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

Verdict = Literal["follows", "does not follow", "cannot be recomputed"]


@dataclass(frozen=True)
class Check:
    """One row of ``stakes reproduce published``."""

    table: str
    what: str
    printed: float | str
    recomputed: float | str | None
    how: str
    verdict: Verdict

    def record(self) -> dict[str, object]:
        """The row as JSON."""
        return asdict(self)


def _decimals(printed: float) -> int:
    """How many decimals a number is printed with, trailing zeros aside; -3 for 2000, 13 for 2e-13."""
    return -int(Decimal(repr(printed)).normalize().as_tuple().exponent)


def check_value(table: str, what: str, printed: float, value: float, how: str, *, decimals: int | None = None) -> Check:
    """A printed number against its recomputation; ``decimals`` where the paper prints more than the number shows."""
    unit = 10.0 ** -(_decimals(printed) if decimals is None else decimals)
    agrees = abs(value - printed) <= unit / 2 * (1 + 1e-9)
    return Check(table, what, printed, value, how, "follows" if agrees else "does not follow")


def check_bound(table: str, what: str, bound: float, value: float, how: str) -> Check:
    """A printed "below bound" against its recomputation."""
    return Check(table, what, f"< {bound:g}", value, how, "follows" if value < bound else "does not follow")


def check_fact(table: str, what: str, printed: str, found: str, how: str) -> Check:
    """A printed statement against the statement that the figures support."""
    return Check(table, what, printed, found, how, "follows" if printed == found else "does not follow")


def is_rate(rate: float, n: int) -> bool:
    """Whether some k out of n rounds to the printed rate."""
    return math.isfinite(rate) and abs(round(rate * n) / n - rate) <= 0.0005 * (1 + 1e-9)
