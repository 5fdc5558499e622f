"""How are arms written down? One row an arm: errors by tier, CWE, discordant answers, interval; ours and published."""

from collections.abc import Mapping, Sequence
from typing import Any

from stakes.budgets.comparison import ArmRow, Comparison
from stakes.experiments.table import Cell, spell_p

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
