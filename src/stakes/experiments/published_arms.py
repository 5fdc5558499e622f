"""Checks of the paper's tables of arms: averages, CWE, discordant balances, break-evens and intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stakes.budgets.frontier import break_even, snap
from stakes.evaluation.statistics import mcnemar
from stakes.experiments.figure_checks import (
    FigureCheck,
    check_balance,
    check_bound,
    check_fact,
    check_interval,
    check_value,
    is_rate,
)
from stakes.published import figures

PER_TIER = {"docvqa": 300, "chartqa": 200, "infographicvqa": 200}
NAMES = {"docvqa": "DocVQA", "chartqa": "ChartQA", "infographicvqa": "InfographicVQA"}


def arm_checks() -> Iterator[FigureCheck]:
    """Every table that compares arms, in the paper's order."""
    yield from _within_task()
    yield from _cross_task()
    yield from _cross_dataset()
    yield from _invariance()
    yield from _mixed()
    yield from _metrics()


def _cwe(high: float, low: float, ratio: float = 5) -> float:
    return (ratio * high + low) / (ratio + 1)


def _snapped(arms: Mapping[str, Sequence[float]], n: int) -> dict[str, dict[str, float]]:
    """The rates of each arm's two tiers as k/n."""
    return {arm: {"high": snap(row[0], n), "low": snap(row[1], n)} for arm, row in arms.items()}


def _gain(table: str, snapped: Mapping[str, Mapping[str, float]], interval: Sequence[float]) -> FigureCheck:
    """The gain of cost over uniform against its printed interval."""
    return check_interval(table, _cwe(**snapped["uniform"]), _cwe(**snapped["cost"]), interval)


def _arm_rows(
    table: str, arms: Mapping[str, Sequence[float]], printed: Mapping[str, Mapping[str, float]], n: int
) -> Iterator[FigureCheck]:
    """Average and CWE of each arm from its two tiers' rates, the first two numbers of its row."""
    for arm, (high, low, *_) in arms.items():
        for tier, rate in (("high", high), ("low", low)):
            some = "some k" if is_rate(rate, n) else "no k"
            yield check_fact(table, f"{arm}: {tier} error {rate} is k/{n}", "some k", some, f"k = 0 … {n}")
        high, low = snap(high, n), snap(low, n)
        values = {"avg": (high + low) / 2, "cwe_r5": _cwe(high, low)}
        for key, value in values.items():
            if key in printed[arm]:
                how = "mean of the tiers" if key == "avg" else "(5 high + low) / 6"
                yield check_value(table, f"{arm}: {key}", printed[arm][key], value, how, decimals=3)


def _within_task() -> Iterator[FigureCheck]:
    f = figures()["within_task_docvqa"]
    table, n, arms = "within-task DocVQA", 300, f["arms"]
    rates = {arm: (row["high"], row["low"]) for arm, row in arms.items()}
    yield from _arm_rows(table, rates, arms, n)
    for arm in ("content", "cost", "anti"):
        yield check_balance(table, arm, arms["uniform"]["high"], arms[arm]["high"], n, arms[arm]["mcnemar"])
    budgets = f["budgets"]
    yield check_value(table, "total budget", f["total_budget"], n * sum(budgets.values()), "300 × 512 + 300 × 96")
    means = sum(f["content_mean_budgets"].values())
    yield check_value(table, "content mean budgets", 2 * 304, means, "305 + 303 = 2 × 304")
    snapped = _snapped(rates, n)
    yield _gain(table, snapped, f["delta_cwe_ci_r5"])
    factor = snapped["uniform"]["high"] / snapped["cost"]["high"]
    printed = figures()["printed_reductions"]["high_error_factor_docvqa"]
    yield check_value(table, "high error falls by a factor of", printed, factor, "0.300 / 0.133")


def _cross_task() -> Iterator[FigureCheck]:
    f = figures()["cross_task"]
    table, n, arms = "cross-task", 60, f["arms"]
    yield from _arm_rows(table, {arm: (row["high"], row["low"]) for arm, row in arms.items()}, arms, n)
    total = n * sum(f["budgets"].values())
    yield check_value(table, "total budget", f["total_budget"], total, "60 × 512 + 60 × 96")
    solid = figures()["sampling"]["cross_task"]
    tokens = (solid["solid_color_size"][0] // 28) * (solid["solid_color_size"][1] // 28)
    yield check_value(table, "tokens of a solid color", solid["solid_color_native_tokens"], tokens, "(1008 / 28)²")


def _cross_dataset() -> Iterator[FigureCheck]:
    for dataset, f in figures()["cross_dataset"].items():
        if dataset == "columns":
            continue
        table, n, arms = f"cross-dataset {NAMES[dataset]}", PER_TIER[dataset], f["arms"]
        yield from _arm_rows(table, arms, {arm: {"cwe_r5": row[2]} for arm, row in arms.items()}, n)
        snapped = _snapped(arms, n)
        ratio = break_even(snapped["uniform"], snapped["cost"])
        yield check_value(table, "break-even", f["break_even"], ratio, "(low rise) / (high fall)", decimals=2)
        for arm in ("cost", "content"):
            yield check_balance(table, arm, arms["uniform"][0], arms[arm][0], n, f[f"mcnemar_{arm}"])
        fall = snapped["uniform"]["high"] - snapped["cost"]["high"]
        printed = figures()["printed_reductions"]["absolute"][dataset]
        yield check_value(table, "absolute fall of high error", printed, fall, "uniform - cost", decimals=3)
        yield _gain(table, snapped, f["delta_cwe_ci_r5"])


def _invariance() -> Iterator[FigureCheck]:
    f, n = figures(), 300
    for name, row in f["invariance_docvqa_high_error"].items():
        yield check_balance("invariance", name, row["uniform"], row["cost"], n, row["mcnemar"])
    for name, row in f["selectors_docvqa"].items():
        if name == "columns":
            continue
        table, arms = f"selector {name}", {arm: row[arm] for arm in ("uniform", "cost")}
        yield from _arm_rows(table, arms, {arm: {"cwe_r5": rates[2]} for arm, rates in arms.items()}, n)
        yield check_balance(table, "cost", row["uniform"][0], row["cost"][0], n, row["mcnemar"])
    for key, table in (("llava_onevision", "LLaVA-OneVision"), ("qwen25vl_3b", "Qwen2.5-VL-3B")):
        model: Any = f[key]
        printed = {arm: {"avg": row[2], "cwe_r5": row[3]} for arm, row in model["arms"].items()}
        yield from _arm_rows(table, model["arms"], printed, n)
        snapped = _snapped(model["arms"], n)
        ratio = break_even(snapped["uniform"], snapped["cost"])
        if "break_even" in model:
            yield check_value(table, "break-even", model["break_even"], ratio, "(low rise) / (high fall)", decimals=2)
        else:
            low, high = model["break_even_between"]
            where = "between" if low < ratio < high else "outside"
            yield check_fact(table, f"break-even between {low} and {high}", "between", where, f"recomputed {ratio:.2f}")
        yield _gain(table, snapped, model["delta_cwe_ci_r5"])
    anti = f["qwen25vl_3b"]["arms"]
    pair = f["invariance_docvqa_high_error"]["qwen25vl_3b_resolution"]["anti_mcnemar"]
    yield check_balance("Qwen2.5-VL-3B", "anti", anti["uniform"][0], anti["anti"][0], n, pair)
    llava = f["llava_onevision"]
    before, after = (llava["arms"][arm][0] for arm in ("uniform", "anti"))
    yield check_balance("LLaVA-OneVision", "anti", before, after, n, llava["mcnemar_anti"])


def _mixed() -> Iterator[FigureCheck]:
    f, table, n = figures()["mixed_workload"], "mixed workload", 120
    costs = figures()["defaults"]["mixed_costs"]
    value = {}
    for arm, row in f["arms"].items():
        rates = [snap(rate, n) for rate in row[:3]]
        value[arm] = sum(c * e for c, e in zip(costs.values(), rates, strict=True)) / sum(costs.values())
        yield check_value(table, f"{arm}: CWE", row[3], value[arm], "(5 high + 3 medium + low) / 9", decimals=3)
    saved = 1 - value["tiered"] / value["uniform"]
    yield check_value(table, "CWE reduction", f["cwe_reduction"], saved, "1 - tiered / uniform", decimals=2)
    yield check_balance(table, "tiered", f["arms"]["uniform"][0], f["arms"]["tiered"][0], n, f["mcnemar_tiered"])
    yield check_balance(table, "content", f["arms"]["uniform"][0], f["arms"]["content"][0], n, f["mcnemar_content"])
    mean = sum(f["tier_budgets"].values()) / 3
    yield check_value(table, "uniform budget", f["uniform_budget"], mean, "(512 + 256 + 96) / 3")
    content = f["content_mean_budgets"]["values"]
    equal = "equal" if abs(sum(content) - 3 * f["uniform_budget"]) <= 1.5 else "unequal"
    yield check_fact(table, "content spends the uniform total", "equal", equal, f"{content} after rounding")
    yield check_interval(table, value["uniform"], value["tiered"], f["delta_cwe_ci"])


def _metrics() -> Iterator[FigureCheck]:
    for dataset, metrics in figures()["metric_robustness"].items():
        if dataset == "note":
            continue
        n, table = PER_TIER[dataset], f"metric robustness {NAMES[dataset]}"
        for metric, row in metrics.items():
            before, after = row["high"]
            yield check_balance(table, metric, before, after, n, row["mcnemar"])
            b, c = row["mcnemar"]
            yield check_bound(table, f"{metric}: p of {b}:{c}", 1e-4, mcnemar(b, c), "exact McNemar")
            for arm, high, printed in zip(("uniform", "cost"), row["high"], row["cwe"], strict=True):
                possible = any(abs(_cwe(snap(high, n), k / n) - printed) <= 0.0005 * (1 + 1e-9) for k in range(n + 1))
                some = "some low error" if possible else "no low error"
                what, how = f"{metric}: {arm} CWE {printed}", f"low = k/{n} with high {high}"
                yield check_fact(table, what, "some low error", some, how)
