"""Legibility results as tables beside the published VLM figures, with computed findings.

Published rates are errors of a 7B VLM on other questions of the same sets. Legibility is whether text can be read where
the answer is known to be. The two need not agree: a VLM may guess what it cannot read, and miss what it can.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stakes.budgets.frontier import break_even
from stakes.calibration.holdout import HeldOut
from stakes.evaluation.statistics import Gain
from stakes.experiments.legibility import LegibilityResults, MixedWorkload
from stakes.experiments.legibility.agreement import ALL, Agreements, best_shift
from stakes.experiments.legibility.real_pages import TIERS, RealArms, SetResult
from stakes.experiments.table import (
    Cell,
    Table,
    discordant_cells,
    format_interval,
    format_slopes,
    gain_cell,
    of_trimmed,
    published_pair,
)
from stakes.legibility.model import BASIS
from stakes.published import figures

NAMES = {"docvqa": "DocVQA", "chartqa": "ChartQA", "sroie": "SROIE"}
META = {"basis": BASIS}


def legibility_tables(results: LegibilityResults) -> list[Table]:
    """Curves, arms and frontier of each set, and the mixed workload."""
    made = [table for one in results.sets for table in (curve_table(one), arm_table(one), frontier_table(one))]
    made += [] if results.mixed is None else [mixed_table(results.mixed)]
    return list(map(of_trimmed, made)) if results.trim else made


def curve_table(result: SetResult) -> Table:
    """Error by budget: of the located answers, if the others counted as lost, and published."""
    published = figures()["curves_docvqa"] if result.name == "docvqa" else {}
    shown = ("lost", "lost or excluded", "published VLM")
    columns = ("budget", *(f"{tier}: {what}" for tier in TIERS for what in shown))
    rows: list[tuple[Cell, ...]] = []
    for budget in result.curves["high"].budgets:
        row: list[Cell] = [budget]
        for tier in TIERS:
            row += [result.curves[tier].error(budget), result.if_excluded_were_lost(tier, budget)]
            row.append(published.get(tier, {}).get(str(budget)))
        rows.append(tuple(row))
    counts, length = result.counts, result.length
    by_tier = ", ".join(f"{count} {tier}" for tier, count in result.excluded.items()) or "none"
    curves = sorted(result.one_location_curves.items())
    findings = [
        f"legibility, not a VLM's error; {sum(counts.values())} questions on {result.documents} documents "
        f"({counts['high']} high, {counts['low']} low)",
        f"answers have {length['high']:g} characters at the median (high) and {length['low']:g} (low)",
        f"{sum(result.excluded.values())} questions are excluded ({by_tier}): their answer is not found at native size"
        + (f"; {result.too_small} more are on pages with too few tokens" if result.too_small else ""),
        format_slopes(result.slopes),
        "answers with one location only: lost at 304 "
        + ", ".join(f"{curve.error(304):.3f} {tier}" for tier, curve in curves),
        *(_published_shift(result, tier, points) for tier, points in published.items() if tier in result.curves),
    ]
    title = f"{NAMES[result.name]}: answers no longer legible, by budget"
    return Table(f"{result.name}-curves", title, columns, tuple(rows), tuple(findings), META)


def arm_table(result: SetResult) -> Table:
    """The arms at equal totals."""
    arms = result.arms
    rows: list[tuple[Cell, ...]] = []
    for row in arms.comparison.rows:
        compared = (*discordant_cells(row.high_cost), gain_cell(row), row.break_even, row.realised)
        rows.append((BASIS, row.arm, row.errors["high"], row.errors["low"], row.ratios[5], *compared))
    published = figures()["cross_dataset"].get(result.name)
    if published is not None:
        rows += [_published_arm(arm, rates, published) for arm, rates in published["arms"].items()]
    pays = next(row.break_even for row in arms.comparison.rows if row.arm == "cost")
    findings = [
        f"at r = 5 {_cost_verdict(arms)}",
        "it pays at no cost ratio" if pays in (None, float("inf")) else f"it pays from a cost ratio of {pays:.2f}",
        *(
            f"{row.arm}: CWE falls by {row.gain} from uniform"
            for row in arms.comparison.rows
            if row.arm in ("content", "print") and row.gain is not None
        ),
        _composed_verdict(arms),
        "pages take "
        + " and ".join(f"{low} to {high} tokens by {arm}" for arm, (low, _, high) in arms.ranges.items())
        + f" (5th and 95th percentile); the two have a rank correlation of {arms.content_print_rank:.2f}",
        f"all arms plan {arms.total} tokens; realised totals differ by {arms.deviation:.3%} at most",
    ]
    against_uniform = ("high b:c", "p", "CWE gain, 95 %", "pays from r")
    columns = ("source", "arm", "high", "low", "CWE (r = 5)", *against_uniform, "tokens")
    title = f"{NAMES[result.name]}: arms of one total, budgets (512, 96)"
    return Table(f"{result.name}-arms", title, columns, tuple(rows), tuple(findings), META)


def frontier_table(result: SetResult) -> Table:
    """The best pair of budgets by cost ratio, and how a choice on one half does on the other."""
    of_docvqa = result.name == "docvqa"
    published = figures()["frontier_optimum"] if of_docvqa else {}
    ranks = figures()["split_half"]["rank_of_13"] if of_docvqa else {}
    rows = []
    for ratio, pair in result.optimum.items():
        half, name = result.split_half[ratio], f"{ratio:g}"
        pairs = _pair(pair), _pair(published.get(name)), _pair(half.chosen)
        rows.append((name, *pairs, f"{half.rank} of {half.of}", half.gap, ranks.get(name)))
    columns = ("r", "best pair", "published", "chosen on odd", "rank on even", "gap on even", "published rank")
    findings = (
        "the best pair changes at r = " + (", ".join(f"{change.ratio:.2f}" for change in result.changes) or "none"),
        _held_out(result.held_out),
        f"with fewer tokens: {_held_out(result.scarce)}",
    )
    title = f"{NAMES[result.name]}: the best pair of budgets that add up to 608"
    return Table(f"{result.name}-frontier", title, columns, tuple(rows), findings, META)


def mixed_table(mixed: MixedWorkload) -> Table:
    """Receipts at cost 5, forms at 3, charts at 1; the published workload had DocVQA, TextVQA and VQAv2."""
    rows: list[tuple[Cell, ...]] = []
    for row in mixed.arms.comparison.rows:
        errors = (row.errors[tier] for tier in ("high", "medium", "low"))
        pair, _ = discordant_cells(row.high_cost)
        rows.append((BASIS, row.arm, *errors, row.cwe, pair, gain_cell(row), row.realised))
    published = figures()["mixed_workload"]
    for arm, values in published["arms"].items():
        if arm == "tiered":
            pair, gain = ":".join(map(str, published["mcnemar_tiered"])), format_interval(published["delta_cwe_ci"])
            rows.append(("published", "cost", *values, pair, gain, None))
        else:
            rows.append(("published", arm, *values, None, None, None))
    chosen = ", ".join(f"{tier} {budget}" for tier, budget in mixed.chosen.items())
    findings = (
        f"{mixed.each} questions of each task; {_cost_verdict(mixed.arms)}",
        _composed_verdict(mixed.arms),
        f"the curves choose {chosen} at a mean of 304",
        _held_out(mixed.held_out).replace("at r = 5 and", "at"),
    )
    columns = ("source", "arm", "high", "medium", "low", "CWE (5, 3, 1)", "high b:c", "CWE gain, 95 %", "tokens")
    title = "Mixed workload: SROIE high, DocVQA medium, ChartQA low; budgets (512, 256, 96)"
    return Table("legibility-mixed", title, columns, tuple(rows), findings, META)


def agreement_tables(agreements: Agreements) -> list[Table]:
    """For each mechanism, the model's curves beside legibility, and their alignment."""
    return [_agreement_table(mechanism, agreements) for mechanism in agreements.alignments]


def _agreement_table(mechanism: str, agreements: Agreements) -> Table:
    alignments = agreements.alignments[mechanism]
    tiers = [tier for tier in alignments if tier != ALL]
    together = alignments[ALL]
    shown = (f"{tier}: {reader}" for tier in tiers for reader in ("model", "legibility"))
    columns = ("budget", *shown, "right", "of these not legible")
    rows: list[tuple[Cell, ...]] = []
    for i, budget in enumerate(together.budgets):
        rates = [rate for tier in tiers for rate in (alignments[tier].first[i], alignments[tier].second[i])]
        rows.append((budget, *rates, together.both[i] + together.only_first[i], together.only_first[i]))
    findings = [
        f"{sum(agreements.questions.values())} questions on {together.documents} pages; "
        f"{sum(agreements.excluded.values())} more are excluded: their answer is not found at native size"
    ]
    for tier, one in alignments.items():
        half = ["none of these" if tokens is None else f"{tokens:.0f}" for tokens in one.half]
        findings.append(
            f"{tier}: rank correlation {one.rank_of_curves:.3f} of the curves, {one.rank_of_questions:.3f} of the "
            f"questions; the model needs 2^{one.shift:+.2f} = {2**one.shift:.2f} times the tokens "
            f"[{2**one.low:.2f}, {2**one.high:.2f}], which leaves {one.left_over:.3f}; half are lost at "
            f"{half[0]} tokens (model) and {half[1]} (legibility)"
        )
    title = f"Synthetic forms: errors of the model by {mechanism} beside legibility"
    return Table(f"agreement-{mechanism}", title, columns, tuple(rows), tuple(findings), META)


def _held_out(held: HeldOut) -> str:
    chosen = ", ".join(f"{tier} {budget}" for tier, budget in held.budgets.items())
    return (
        f"held out at r = 5 and a mean of {held.uniform_budget}: chosen on {held.chosen_on} documents ({chosen}), on "
        f"the other {held.tested_on} CWE falls by {held.gain}, at {held.mean_tokens:.0f} tokens per image against "
        f"{held.uniform_mean_tokens:.0f}"
    )


def _published_shift(result: SetResult, tier: str, points: Mapping[str, float]) -> str:
    """How many times the tokens of legibility the published VLM needs, at the published budgets."""
    budgets = [budget for budget in result.curves[tier].budgets if str(budget) in points]
    ours = np.array([result.curves[tier].error(budget) for budget in budgets])
    shift, left_over = best_shift(np.array([points[str(b)] for b in budgets]), ours, np.log2(budgets))
    return (
        f"{tier}: the published VLM's curve is this one at {2**shift:.2f} times the tokens (2^{shift:+.2f}), give or "
        f"take {left_over:.3f} of error at a budget"
    )


def _published_arm(arm: str, rates: list[float], published: Mapping[str, Any]) -> tuple[Cell, ...]:
    gain, pays = None, None
    if arm == "cost":
        gain = format_interval(published["delta_cwe_ci_r5"])
        uniform = dict(zip(TIERS, published["arms"]["uniform"][:2], strict=True))
        pays = break_even(uniform, dict(zip(TIERS, rates[:2], strict=True)), published["n"] // 2)
    return ("published", arm, *rates, *published_pair(published.get(f"mcnemar_{arm}")), gain, pays, None)


def _cost_verdict(arms: RealArms) -> str:
    gain = next(row.gain for row in arms.comparison.rows if row.arm == "cost")
    assert gain is not None
    return f"cost-aware {_verdict(gain)} uniform: CWE falls by {gain}"


def _composed_verdict(arms: RealArms) -> str:
    return f"sharing each tier's tokens by print {_verdict(arms.composed)} the cost arm alone: {arms.composed}"


def _verdict(gain: Gain) -> str:
    return "beats" if gain.low > 0 else "loses to" if gain.high < 0 else "does not differ significantly from"


def _pair(pair: Any) -> str | None:
    return None if pair is None else f"({pair[0]}, {pair[1]})"
