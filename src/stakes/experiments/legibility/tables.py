"""How do legibility's findings read beside the published VLM figures? Tables, and sentences that are computed.

Published rates are errors of a 7B VLM on other questions of the same sets; legibility is whether print can be read
where the answer is known to stand. The two need not agree: a VLM may guess what it cannot read, and miss what it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stakes.budgets.frontier import break_even
from stakes.calibration.arms.comparison import ArmRow
from stakes.calibration.holdout import HeldOut
from stakes.experiments.legibility import Findings, Mixed
from stakes.experiments.legibility.agreement import best_shift
from stakes.experiments.legibility.datasets import SetResult
from stakes.experiments.table import Cell, Table, spell_interval, spell_p, spell_slopes
from stakes.published import figures

OURS = "legibility"
NAMES = {"docvqa": "DocVQA", "chartqa": "ChartQA", "sroie": "SROIE"}
ARM_COLUMNS = (
    "source",
    "arm",
    "high",
    "low",
    "CWE (r = 5)",
    "high b:c",
    "p",
    "CWE gain, 95 %",
    "pays from r",
    "tokens",
)


def tables(found: Findings) -> list[Table]:
    """All of them: curves, arms and frontier of each set, and the mixed workload."""
    made = [table for one in found.sets for table in (curve_table(one), arm_table(one), frontier_table(one))]
    return made if found.mixed is None else [*made, mixed_table(found.mixed)]


def curve_table(one: SetResult) -> Table:
    """Error by budget: of the answers found, if the others counted as lost, and published."""
    printed = figures()["curves_docvqa"] if one.name == "docvqa" else {}
    rows: list[tuple[Cell, ...]] = []
    for budget in one.curves["high"].budgets:
        row: list[Cell] = [budget]
        for tier in ("high", "low"):
            row += [one.curves[tier].error(budget), one.with_apart(tier, budget)]
            row.append(printed.get(tier, {}).get(str(budget)))
        rows.append(tuple(row))
    columns = ["budget"]
    for tier in ("high", "low"):
        columns += [f"{tier}: lost", f"{tier}: lost or apart", f"{tier}: published VLM"]
    apart = sum(one.apart.values())
    findings = [
        f"legibility, not a VLM's error; {sum(one.counts.values())} questions on {one.documents} documents "
        f"({one.counts['high']} high, {one.counts['low']} low)",
        f"answers have {one.length['high']:g} characters at the median (high) and {one.length['low']:g} (low)",
        f"{apart} questions are set apart ({_by_tier(one.apart)}): their answer is not found at native size"
        + (f"; {one.too_small} more stand on pages with too few tokens" if one.too_small else ""),
        spell_slopes(one.slopes),
        "answers with one place only: lost at 304 "
        + ", ".join(f"{curve.error(304):.3f} {tier}" for tier, curve in sorted(one.one_place_curves.items())),
    ]
    findings += [_published_shift(one, tier, points) for tier, points in printed.items() if tier in one.curves]
    return Table(
        f"{one.name}-curves",
        f"{NAMES[one.name]}: answers no longer legible, by budget",
        tuple(columns),
        tuple(rows),
        tuple(findings),
        {"basis": OURS},
    )


def arm_table(one: SetResult) -> Table:
    """The arms at equal totals."""
    rows = [_arm(row, one.arms.comparison.dearest) for row in one.arms.comparison.rows]
    f = figures()
    if one.name in f["cross_dataset"]:
        printed = f["cross_dataset"][one.name]
        rows += [_published_arm(arm, rates, printed) for arm, rates in printed["arms"].items()]
    by_arm = {row.arm: row for row in one.arms.comparison.rows}
    cost, both = by_arm["cost"], one.arms.composed
    assert cost.gain is not None
    findings = [
        f"at r = 5 cost-aware {_verdict(cost.gain.low, cost.gain.high)} uniform: CWE falls by {cost.gain}",
        "it pays at no cost ratio"
        if cost.break_even in (None, float("inf"))
        else f"it pays from a cost ratio of {_ratio(cost.break_even)}",
        *(
            f"{name}: CWE falls by {row.gain} from uniform"
            for name, row in by_arm.items()
            if name in ("content", "print") and row.gain is not None
        ),
        f"sharing each tier's tokens by print {_verdict(both.low, both.high)} the cost arm alone: {both}",
        "pages take "
        + " and ".join(f"{low} to {high} tokens by {arm}" for arm, (low, _, high) in one.arms.ranges.items())
        + f" (5th and 95th percentile); the two have a rank correlation of {one.arms.content_print_rank:.2f}",
        f"all arms plan {one.arms.total} tokens; realised totals differ by {one.arms.deviation:.3%} at most",
    ]
    title = f"{NAMES[one.name]}: arms of one total, budgets (512, 96)"
    return Table(f"{one.name}-arms", title, ARM_COLUMNS, tuple(rows), tuple(findings), {"basis": OURS})


def frontier_table(one: SetResult) -> Table:
    """Best pair of budgets by cost ratio, and how a choice on one half does on the other."""
    f = figures()
    printed = f["frontier_optimum"] if one.name == "docvqa" else {}
    halves = f["split_half"]["rank_of_13"] if one.name == "docvqa" else {}
    rows = [
        (
            f"{ratio:g}",
            _pair(pair),
            _pair(printed.get(f"{ratio:g}")),
            _pair(one.halves[ratio].chosen),
            f"{one.halves[ratio].rank} of {one.halves[ratio].of}",
            one.halves[ratio].gap,
            halves.get(f"{ratio:g}"),
        )
        for ratio, pair in one.optimum.items()
    ]
    columns = ("r", "best pair", "published", "chosen on odd", "rank on even", "gap on even", "published rank")
    findings = [
        "the best pair changes at r = " + (", ".join(f"{change.ratio:.2f}" for change in one.changes) or "none"),
        _held_out(one.held_out),
        f"where tokens are scarcer: {_held_out(one.scarce)}",
    ]
    title = f"{NAMES[one.name]}: the best pair of budgets that add up to 608"
    return Table(f"{one.name}-frontier", title, columns, tuple(rows), tuple(findings), {"basis": OURS})


def mixed_table(mixed: Mixed) -> Table:
    """Receipts at cost 5, forms at 3, charts at 1; the published workload had DocVQA, TextVQA and VQAv2."""
    rows: list[tuple[Cell, ...]] = []
    for row in mixed.arms.comparison.rows:
        errors = [row.errors[tier] for tier in ("high", "medium", "low")]
        gain = None if row.gain is None else str(row.gain)
        pair = None if row.dear is None else f"{row.dear.b}:{row.dear.c}"
        rows.append((OURS, row.arm, *errors, row.cwe, pair, gain, row.realised))
    printed = figures()["mixed_workload"]
    for arm, values in printed["arms"].items():
        name = "cost" if arm == "tiered" else arm
        gain = spell_interval(printed["delta_cwe_ci"]) if name == "cost" else None
        pair = ":".join(map(str, printed["mcnemar_tiered"])) if name == "cost" else None
        rows.append(("published", name, *values, pair, gain, None))
    cost = next(row for row in mixed.arms.comparison.rows if row.arm == "cost")
    assert cost.gain is not None
    both = mixed.arms.composed
    findings = [
        f"{mixed.each} questions of each task; cost-aware {_verdict(cost.gain.low, cost.gain.high)} uniform: "
        f"CWE falls by {cost.gain}",
        f"sharing each tier's tokens by print {_verdict(both.low, both.high)} the cost arm alone: {both}",
        "the curves choose "
        + ", ".join(f"{tier} {budget}" for tier, budget in mixed.chosen.items())
        + " at a mean of 304",
        _held_out(mixed.held_out).replace("at r = 5 and", "at"),
    ]
    columns = ("source", "arm", "high", "medium", "low", "CWE (5, 3, 1)", "high b:c", "CWE gain, 95 %", "tokens")
    title = "Mixed workload: SROIE high, DocVQA medium, ChartQA low; budgets (512, 256, 96)"
    return Table("legibility-mixed", title, columns, tuple(rows), tuple(findings), {"basis": OURS})


def _held_out(held: HeldOut) -> str:
    chosen = ", ".join(f"{tier} {budget}" for tier, budget in held.budgets.items())
    return (
        f"held out at r = 5 and a mean of {held.uniform_budget}: chosen on {held.chosen_on} documents ({chosen}), on "
        f"the other {held.tested_on} CWE falls by {held.gain}, at {held.mean_tokens:.0f} tokens an image against "
        f"{held.uniform_mean_tokens:.0f}"
    )


def _published_shift(one: SetResult, tier: str, points: Mapping[str, float]) -> str:
    """How many more tokens the published VLM needs than legibility, at the budgets that were published."""
    budgets = [budget for budget in one.curves[tier].budgets if str(budget) in points]
    ours = np.array([one.curves[tier].error(budget) for budget in budgets])
    shift, left_over = best_shift(np.array([points[str(b)] for b in budgets]), ours, np.log2(budgets))
    return (
        f"{tier}: the published VLM's curve is this one at {2**shift:.2f} times the tokens (2^{shift:+.2f}), give or "
        f"take {left_over:.3f} of error at a budget"
    )


def _arm(row: ArmRow, dear: str) -> tuple[Cell, ...]:
    head = (OURS, row.arm, row.errors["high"], row.errors["low"], row.ratios[5])
    if row.gain is None or row.dear is None:
        return (*head, None, None, None, None, row.realised)
    assert dear == "high"
    return (*head, f"{row.dear.b}:{row.dear.c}", spell_p(row.dear.p), str(row.gain), row.break_even, row.realised)


def _published_arm(arm: str, rates: list[float], printed: Mapping[str, Any]) -> tuple[Cell, ...]:
    from stakes.evaluation.statistics import mcnemar

    pair = printed.get(f"mcnemar_{arm}")
    gain, pays = None, None
    if arm == "cost":
        gain = spell_interval(printed["delta_cwe_ci_r5"])
        even = dict(zip(("high", "low"), printed["arms"]["uniform"][:2], strict=True))
        pays = break_even(even, {"high": rates[0], "low": rates[1]}, printed["n"] // 2)
    balance = f"{pair[0]}:{pair[1]}" if pair else None
    return ("published", arm, *rates, balance, spell_p(mcnemar(*pair)) if pair else None, gain, pays, None)


def _verdict(low: float, high: float) -> str:
    return "beats" if low > 0 else "loses to" if high < 0 else "is not told from"


def _ratio(value: float | None) -> str:
    return "none" if value is None else "never" if value == float("inf") else f"{value:.2f}"


def _pair(pair: Any) -> str | None:
    return None if pair is None else f"({pair[0]}, {pair[1]})"


def _by_tier(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {tier}" for tier, count in counts.items()) or "none"
