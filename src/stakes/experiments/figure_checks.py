"""One published figure compared with what follows from other published figures, with a verdict.

A printed number stands for the interval that rounds to it. A figure *follows* when the recomputed value lies in that
interval (or satisfies the printed bound), *does not follow* when it lies outside, and *cannot be recomputed* when an
ingredient was not published.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

Verdict = Literal["follows", "does not follow", "cannot be recomputed"]


@dataclass(frozen=True)
class FigureCheck:
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


def check_value(
    table: str, what: str, printed: float, value: float, how: str, *, decimals: int | None = None
) -> FigureCheck:
    """A printed number against its recomputation; ``decimals`` where the paper prints more than the number shows."""
    unit = 10.0 ** -(_decimals(printed) if decimals is None else decimals)
    return FigureCheck(table, what, printed, value, how, _verdict(abs(value - printed) <= unit / 2 * (1 + 1e-9)))


def check_bound(table: str, what: str, bound: float, value: float, how: str) -> FigureCheck:
    """A printed "below bound" against its recomputation."""
    return FigureCheck(table, what, f"< {bound:g}", value, how, _verdict(value < bound))


def check_fact(table: str, what: str, printed: str, recomputed: str, how: str) -> FigureCheck:
    """A printed statement against the statement that the figures support."""
    return FigureCheck(table, what, printed, recomputed, how, _verdict(printed == recomputed))


def check_balance(table: str, what: str, before: float, after: float, n: int, pair: Sequence[int]) -> FigureCheck:
    """Wins minus losses, ``b - c``, must be the fall in wrong answers."""
    fall = round(before * n) - round(after * n)
    return check_value(table, f"{what}: b - c of {pair[0]}:{pair[1]}", pair[0] - pair[1], fall, "fall in wrong answers")


def check_interval(table: str, before: float, after: float, interval: Sequence[float]) -> FigureCheck:
    """The recomputed gain must lie in its printed confidence interval."""
    gain, (low, high) = before - after, interval
    where = "inside" if low <= gain <= high else "outside"
    return check_fact(table, f"CWE gain in [{low}, {high}]", "inside", where, f"recomputed gain {gain:.4f}")


def is_rate(rate: float, n: int) -> bool:
    """Whether some k out of n rounds to the printed rate."""
    return math.isfinite(rate) and abs(round(rate * n) / n - rate) <= 0.0005 * (1 + 1e-9)


def _verdict(agrees: bool) -> Verdict:
    return "follows" if agrees else "does not follow"


def _decimals(printed: float) -> int:
    """How many decimals a number is printed with, without trailing zeros; -3 for 2000, 13 for 2e-13."""
    return -int(Decimal(repr(printed)).normalize().as_tuple().exponent)
