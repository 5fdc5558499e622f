"""Checks of the published figures: which follow from other published figures, and which do not.

    stakes reproduce published

Nothing is measured. Rates are snapped to k/n, then averages, CWE, exact McNemar p-values, discordant balances (b - c
must equal the fall in wrong answers), break-even ratios, the frontier and its optima, kappas, latency savings and
totals are recomputed. What does not follow is as useful to a reader of the paper as what does.
"""

from collections.abc import Iterator

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.frontier import central_marginal, marginals, snap
from stakes.evaluation.statistics import mcnemar
from stakes.experiments.figure_checks import (
    FigureCheck,
    check_balance,
    check_bound,
    check_fact,
    check_interval,
    check_value,
)
from stakes.experiments.published_arms import PER_TIER, arm_checks
from stakes.published import figures
from stakes.signals.agreement import Confusion

OPTIONS = frozenset({"--every", "-o"})
"""The options of ``stakes reproduce`` that ``published`` uses."""
PAIR = {"high": 1, "low": 1}


def curves(dataset: str) -> dict[str, Curve]:
    """The published curves of a dataset by tier: 13 points for DocVQA, three (its arms) for the others."""
    f, n = figures(), PER_TIER[dataset]
    if dataset == "docvqa":
        points = {tier: {int(b): e for b, e in f["curves_docvqa"][tier].items()} for tier in ("high", "low")}
        points["low"][384] = 74 / 300  # not tabulated; the published marginal 0.00171 fixes it
    else:
        arms = f["cross_dataset"][dataset]["arms"]
        points = {
            "high": {96: arms["anti"][0], 304: arms["uniform"][0], 512: arms["cost"][0]},
            "low": {96: arms["cost"][1], 304: arms["uniform"][1], 512: arms["anti"][1]},
        }
    return {tier: Curve(sorted(p), [snap(p[b], n) for b in sorted(p)], n) for tier, p in points.items()}


def checks() -> list[FigureCheck]:
    """Every check, in the order of the paper's tables."""
    return [*arm_checks(), *_frontier(), *_p_values(), *_labels(), *_latency(), *_proportional()]


def _frontier() -> Iterator[FigureCheck]:
    f, published, table = figures(), curves("docvqa"), "frontier"
    for row in f["frontier"]:
        pair = {"high": row["high"], "low": row["low"]}
        for tier, key in (("high", "e_high"), ("low", "e_low")):
            value = published[tier].error(pair[tier])
            yield check_value(table, f"{tier} error at {pair[tier]}", row[key], value, "the curve", decimals=3)
        for ratio, printed in row["cwe"].items():
            value = cwe_at(published, pair, {"high": float(ratio), "low": 1.0}, PAIR)
            what = f"({row['high']}, {row['low']}): CWE at r = {ratio}"
            yield check_value(table, what, printed, value, "(r high + low) / (r + 1)", decimals=3)
    for ratio, printed in f["frontier_optimum"].items():
        best = allocate(published, {"high": float(ratio), "low": 1.0}, PAIR, f["defaults"]["pair_total"]).budgets
        expected, optimum = "({}, {})".format(*printed), f"({best['high']}, {best['low']})"
        yield check_fact(table, f"optimum at r = {ratio}", expected, optimum, "allocate, total 608")
    grid, total = f["defaults"]["grid"], f["defaults"]["pair_total"]
    pairs = sum(total - budget in grid for budget in grid)
    yield check_value(table, "pairs of the grid that add up to 608", 13, pairs, "split-half ranks are out of 13")
    slopes = f["curves_docvqa"]["marginals_at_uniform"]
    for tier in ("high", "low"):
        slope = central_marginal(published[tier], 304)
        yield check_value(table, f"{tier} marginal at 304", slopes[tier], -slope.per_token, "(e(224) - e(384)) / 160")
        yield check_value(table, f"{tier} slope SE", slopes["slope_se"], slope.standard_error, "binomial")
    steps = {f"{m.start}-{m.stop}": m.change for m in marginals(published["high"])}
    rounded = f["curves_docvqa"]["high"]
    for step, printed in f["curves_docvqa"]["finite_differences_high"].items():
        start, stop = step.split("-")
        how = f"e({stop}) - e({start}) of k/300; the rounded rates differ by {rounded[stop] - rounded[start]:.3f}"
        yield check_value(table, f"high difference {step}", printed, steps[step], how, decimals=3)
    deployed, uniform = f["deployed_r5"], f["within_task_docvqa"]["arms"]["uniform"]
    at_576 = published["high"].error(576)
    yield check_balance(table, "deployed (576, 32)", uniform["high"], at_576, 300, deployed["mcnemar"])
    costs = {"high": 5.0, "low": 1.0}
    before = cwe_at(published, {"high": 304, "low": 304}, costs, PAIR)
    after = cwe_at(published, {"high": 576, "low": 32}, costs, PAIR)
    yield check_interval(table, before, after, deployed["delta_cwe_ci"])


def _p_values() -> Iterator[FigureCheck]:
    for row in figures()["printed_p_values"]:
        p = mcnemar(row["b"], row["c"])
        what, how = f"{row['what']}: p of {row['b']}:{row['c']}", "exact McNemar"
        if row["relation"] == "<":
            yield check_bound("p-values", what, row["p"], p, how)
        else:
            yield check_value("p-values", what, row["p"], p, how)


def _labels() -> Iterator[FigureCheck]:
    """Label validation (two checks) and the predictor (two targets).

    Accuracy, F1 and kappa of a classifier come from one integer confusion table; if no such table gives all three
    printed numbers, they cannot all be right.
    """
    f = figures()
    for name, row in f["label_validation"].items():
        if not isinstance(row, dict):
            continue
        table = f"label validation, {name.replace('_', ' ')}"
        hh, ll, hl, lh = (row[cell] for cell in ("HH", "LL", "HL", "LH"))
        yield check_value(table, "samples", row["n"], hh + ll + hl + lh, "HH + LL + HL + LH")
        yield check_value(table, "agreement", row["agree"], (hh + ll) / row["n"], "(HH + LL) / n", decimals=3)
        kappa = Confusion.two(hh=hh, ll=ll, hl=hl, lh=lh).kappa
        yield check_value(table, "kappa", row["kappa"], kappa, "Cohen", decimals=3)
        if "quantitative_high" in row:
            high, low = (row[f"quantitative_{tier}"] for tier in ("high", "low"))
            yield check_value(table, "quantitative, high", high, hh / (hh + hl), "HH / (HH + HL)", decimals=3)
            yield check_value(table, "quantitative, low", low, lh / (lh + ll), "LH / (LH + LL)", decimals=2)
    judged = f["label_validation"]["llm_judge"]
    positives = {"rule_tier": 300, "llm_judge": judged["HH"] + judged["LH"]}
    for target, high in positives.items():
        row = f["predictor"][target]
        possible = _tables(row["n"], high, row["acc"], row["f1"], row["kappa"])
        what = f"{target}: acc {row['acc']}, F1 {row['f1']}, kappa {row['kappa']}"
        how = f"{high} high of {row['n']}: " + (f"e.g. TP, FN, FP, TN = {possible[0]}" if possible else "no table")
        yield check_fact("predictor", what, "one table", "one table" if possible else "no table", how)


def _tables(n: int, high: int, accuracy: float, f1: float, kappa: float) -> list[tuple[int, int, int, int]]:
    """Every (TP, FN, FP, TN) with ``high`` positives whose three scores round to the printed ones."""
    fits = []
    for tp in range(1, high + 1):
        for tn in range(n - high + 1):
            fn, fp = high - tp, n - high - tn
            if abs((tp + tn) / n - accuracy) > 0.0005001:
                continue
            scores = (2 * tp / (2 * tp + fn + fp), Confusion.two(hh=tp, ll=tn, hl=fn, lh=fp).kappa)
            if all(abs(a - b) <= 0.0005001 for a, b in zip(scores, (f1, kappa), strict=True)):
                fits.append((tp, fn, fp, tn))
    return fits


def _latency() -> Iterator[FigureCheck]:
    f = figures()
    ms = {k: v["ms"] for k, v in f["latency_a100_resolution_ms"].items() if isinstance(v, dict)}
    for budget, printed in f["printed_latency_reductions"].items():
        saved = 1 - ms[budget] / ms["full"]
        yield check_value("latency", f"saved at {budget} tokens", printed, saved, "1 - ms / full ms", decimals=3)
    deployed = f["latency_a100_resolution_ms"]["deployed_576_32_reduction"]
    needed, fastest = 2 * (1 - deployed) * ms["full"] - ms["576"], min(ms.values())
    yield FigureCheck(
        "latency",
        "saved by the deployed pair (576, 32)",
        deployed,
        None,
        f"no latency is published at 32 tokens; it would have to be {needed:.1f} ms, below the fastest published one "
        f"({fastest} ms), with which the pair saves {1 - (ms['576'] + fastest) / 2 / ms['full']:.1%}",
        "cannot be recomputed",
    )


def _proportional() -> Iterator[FigureCheck]:
    f = figures()["proportional"]
    gain = f["cwe"]["uniform"] / f["cwe"]["cost"]
    yield check_value("proportional", "gain", f["gain"], gain, "0.153 / 0.125", decimals=2)
    width, height = f["small_image"]["size"]
    tokens, printed = (width // 28) * (height // 28), f["small_image"]["native_tokens"]
    yield check_value("proportional", "tokens of a 336 × 336 image", printed, tokens, "(336 / 28)²")
