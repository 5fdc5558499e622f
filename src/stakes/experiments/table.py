"""What does a measured table look like? Rows of ours beside the published ones, and what must be said of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from stakes.calibration.arms.comparison import ArmRow, Comparison
from stakes.evaluation.slopes import SlopeTest

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """One table of ``stakes reproduce``. ``source`` of a row says whose it is: the model's name, or "published"."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    findings: tuple[str, ...]
    """Computed sentences: what agrees with the paper, what does not, and why where that is known."""
    meta: Mapping[str, object]
    """Model, data, seeds, totals: what one needs to make it again."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells under {len(self.columns)} columns: {row}")

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def spell_p(p: float) -> str:
    """A p-value as tables print it: 0.45, 3.2e-12."""
    return f"{p:.2g}" if p >= 0.001 else f"{p:.1e}"


def spell_interval(interval: Sequence[float]) -> str:
    """[0.041, 0.078]"""
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"


def spell_slopes(test: SlopeTest) -> str:
    """Whether two tiers respond to tokens alike, in one sentence."""
    verdict = "differ" if test.p < 0.05 else "are not told apart"
    (first, steep), (second, other) = test.slopes.items()
    permuted = (
        f"permuted within documents p = {spell_p(test.permutation_p)}; that the error curves run parallel, "
        f"p = {spell_p(test.parallel_p)}"
        if test.shared
        else "no document has questions of both tiers, so that nothing can be permuted within them"
    )
    return (
        f"the tiers' slopes {verdict}: log-odds per doubling of tokens {steep:.2f} {first}, {other:.2f} {second}, "
        f"difference {test.difference:+.2f} [{test.low:+.2f}, {test.high:+.2f}], p = {spell_p(test.p)} by documents; "
        f"{permuted}"
    )


# How are arms written down? One row an arm: errors by tier, CWE, discordant answers, interval; ours and published.


COLUMNS = ("source", "arm", "high", "low", "average", "CWE (r = 5)", "b:c", "p", "CWE gain", "pays from r =", "tokens")


def measured_rows(found: Comparison, source: str) -> list[tuple[Cell, ...]]:
    """The arms of a two-tier comparison; the dearest tier first."""
    cheap = next(tier for tier in found.counts if tier != found.dearest)
    return [_measured(row, source, found.dearest, cheap) for row in found.rows]


def _measured(row: ArmRow, source: str, dear: str, cheap: str) -> tuple[Cell, ...]:
    head = (source, row.arm, row.errors[dear], row.errors[cheap], row.average, row.ratios[5])
    if row.dear is None or row.gain is None:
        return (*head, None, None, None, None, row.realised)
    balance = f"{row.dear.b}:{row.dear.c}"
    return (*head, balance, spell_p(row.dear.p), str(row.gain), row.break_even, row.realised)


def published_rows(arms: Mapping[str, Any], n: int, extra: Mapping[str, Sequence[Cell]]) -> list[tuple[Cell, ...]]:
    """The published arms, in the same columns. ``extra``: (CWE gain, break-even) of an arm where they were printed."""
    from stakes.evaluation.statistics import mcnemar

    rows: list[tuple[Cell, ...]] = []
    for arm, row in arms.items():
        high, low = row["high"], row["low"]
        average, five = row.get("avg", (high + low) / 2), row.get("cwe_r5", (5 * high + low) / 6)
        pair = row.get("mcnemar")
        balance = f"{pair[0]}:{pair[1]}" if pair else None
        p = spell_p(mcnemar(*pair)) if pair else None
        gain, pays = extra.get(arm, (None, None))
        rows.append(("published", arm, high, low, average, five, balance, p, gain, pays, n))
    return rows


# One published figure beside what follows from other published figures, with a verdict.
#
# A printed number stands for the interval that rounds to it. A figure *follows* when the recomputed value lies in that
# interval (or satisfies the printed bound), *does not follow* when it lies outside, and *cannot be recomputed* when an
# ingredient was not published.


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
