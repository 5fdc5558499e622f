"""What does a run of ``latency.py`` say? Its tables and, bar by bar, whether it was met, for the documentation.

    python benchmarks/latency_tables.py latency.json docs/results/latency-h200.json

Ratios to the floor count the host's work unless they say otherwise. The new file holds the results, rounded to five
digits, and the tables made of what was rounded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import about_table

RATIO, FASTER = 1.5, 4.0  # to the floor; than stock, at batch 1 and 304 tokens
TIERS_FULL, TIERS_STOCK = 1.8, 6.0  # two tiers against full resolution, ours and stock's
SAVED = 0.8  # of what arithmetic predicts that deletion saves
SELECTOR = {"1296": 0.05, "16000": 0.2}  # of the encoder's time, by tokens
STAGES = ("encoder", "selector", "prefill", "decode")
FASTEST = 795.5  # TFLOP/s of a large product on an H200, the most that any run measured
Results = dict[str, Any]


def cells(results: Results) -> dict[str, Results]:
    """Every budget, mechanism and batch, by name: ``deletion, batch 32, 304``."""
    return {name: cell for name, cell in results.items() if ", batch " in name and "ours" in cell}


def ms(value: float) -> str:
    """Three digits, and no more than a tenth."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def cell_rows(results: Results) -> list[list[str]]:
    """One row a cell."""
    rows = []
    for name, cell in cells(results).items():
        mechanism, batch, budget = name.split(", ")
        ours, stock = cell["ours"], cell.get("stock")
        rows.append(
            [batch.removeprefix("batch "), budget, mechanism, str(cell["tokens"])]
            + [ms(ours[stage]) for stage in STAGES]
            + [ms(ours["host"]), ms(ours["all"]), ms(cell["floor"]["all"])]
            + [f"{cell[ratio]:.2f}" for ratio in ("ratio_with_host", "ratio_to_floor")]
            + ([ms(stock["all"]), f"{cell['times_faster_than_stock']:.1f}×"] if stock else ["", ""])
        )
    return rows


def tables(results: Results) -> dict[str, Any]:
    """By name, for ``docs/fill.py``."""
    columns = ["batch", "budget", "mechanism", "tokens", *STAGES, "host", "ours", "floor", "ours / floor"]
    columns += ["without the host", "stock", "stock / ours without the host"]
    return {
        "latency-cells": {"columns": columns, "rows": cell_rows(results)},
        "latency-stages": stages(results),
        "latency-tiers": tiers(results),
        "latency-deletion": deletion(results["deletion pays"]),
        "latency-selectors": selectors(results["selectors"]),
        "latency-growth": growth(results["growth"]),
        "latency-encoder": encoder(results["encoder by kind"]),
        "latency-about": setup(results),
        "latency-bars": {
            "columns": ["bar", "measured", "met"],
            "rows": bars(results),
            "findings": findings(results),
        },
    }


def setup(results: Results) -> dict[str, Any]:
    """The machine, and the rates that its floors are counted with."""
    about = {name: results["about"][name] for name in ("device", "torch", "transformers", "python", "date")}
    kinds = {
        "TB/s, copy": "TB_per_s",
        "TFLOP/s, product": "TFLOP_per_s",
        "TFLOP/s, product, sustained": "sustained_TFLOP_per_s",
    }
    rates = {name: results["rates"][kind] for name, kind in kinds.items() if kind in results["rates"]}
    return about_table({**about, **{name: f"{rate:.4g}" for name, rate in rates.items()}})


def stages(results: Results) -> dict[str, Any]:
    """Where the distance to the floor is, for three budgets."""
    timed = ("encoder", "prefill", "decode")
    rows = []
    for name, cell in cells(results).items():
        mechanism, batch, budget = name.split(", ")
        if budget in ("full", "304", "32"):
            ratios = [f"{cell['ours'][stage] / cell['floor'][stage]:.2f}" for stage in timed]
            rows.append([batch.removeprefix("batch "), budget, mechanism, *ratios])
    return {"columns": ["batch", "budget", "mechanism", *(f"{stage}: ours / floor" for stage in timed)], "rows": rows}


def tiers(results: Results) -> dict[str, Any]:
    """A batch of 32 with two budgets beside the same pages at full resolution."""
    both, full = results["two tiers"], results["resolution, batch 32, full"]
    ours, stock = both["times_full_resolution"], both["times_stock_full_resolution"]
    rows = [
        ["16 pages at 576, 16 at 32", ms(both["ours"]["without_host"]), ms(both["floor"]["all"]), ""],
        ["all at full resolution", ms(full["ours"]["without_host"]), ms(full["floor"]["all"]), f"{ours:.2f}×"],
        ["all at full resolution, stock", ms(full["stock"]["all"]), "", f"{stock:.1f}×"],
    ]
    return {"columns": ["batch of 32", "time", "floor", "times the first"], "rows": rows}


def deletion(runs: Results) -> dict[str, Any]:
    """What deletion saves of a page of 1,296 tokens."""
    rows = []
    for name, one in runs.items():
        took = [one[what]["ours"]["without_host"] for what in ("full", "kept")]
        times = [ms(value) for value in (*took, one["saved_ms"], one["predicted_ms"])]
        ratios = [percent(one["share_of_prediction"], 0), f"{one['kept']['ratio_to_floor']:.2f}"]
        rows.append([name.removeprefix("batch "), *times, *ratios])
    columns = ["batch", "all 1,296", "304 of them", "saved", "predicted", "saved / predicted", "ours / floor"]
    return {"columns": columns, "rows": rows}


def selectors(runs: Results) -> dict[str, Any]:
    """The choice of a quarter beside the encoder."""
    rows = []
    for count, one in runs.items():
        times = [f"{one['selector_ms']:.2f}", ms(one["encoder_ms"]), ms(one["encoder_floor_ms"])]
        rows.append([f"{int(count):,}", *times, percent(one["selector_of_encoder"])])
    return {"columns": ["tokens", "redundancy", "encoder", "its floor", "redundancy / encoder"], "rows": rows}


def encoder(runs: Results) -> dict[str, Any]:
    """What its kinds of work take, each replayed alone, and how fast that is."""
    rows = []
    for batch, one in runs.items():
        kinds = {name: kind for name, kind in one.items() if isinstance(kind, dict)}
        for name, kind in kinds.items():
            rate = f"{kind['TFLOP_per_s']:.0f}" if "TFLOP_per_s" in kind else ""
            rows.append([batch.removeprefix("batch "), name, ms(kind["ms"]), rate, f"{kind['TB_per_s']:.1f}"])
        whole = {"all kinds": one["sum_of_kinds_ms"], "the encoder": one["encoder_ms"], "its floor": one["floor_ms"]}
        rows += [[batch.removeprefix("batch "), f"**{name}**", ms(took), "", ""] for name, took in whole.items()]
    return {"columns": ["batch", "kind of work", "ms", "TFLOP/s", "TB/s"], "rows": rows}


def growth(runs: Results) -> dict[str, Any]:
    """Exponents over the ladder, and from its last rung but one to its last."""
    rows = []
    for name, one in runs.items():
        exponents = [f"{one[which]:.2f}" for which in ("exponent", "at_the_end")]
        rows.append([name.replace("without_host", "all but the host"), *_ends(one["points"]), *exponents])
    return {"columns": ["against", "from", "to", "exponent", "of the last step"], "rows": rows}


def percent(share: float, digits: int = 1) -> str:
    """As the pages write it."""
    return f"{100 * share:.{digits}f} %"


def _ends(points: list[list[float]]) -> list[str]:
    return [f"{ms(y)} ms at {x}" for x, y in (min(points), max(points))]


def bars(results: Results) -> list[list[str]]:
    """What was asked for, what was measured, and whether that is enough."""
    one, all_ = results["resolution, batch 1, 304"], cells(results)
    ratio, faster = one["ratio_to_floor"], one["times_faster_than_stock"]
    above = [name for name, cell in all_.items() if cell["ratio_to_floor"] > RATIO]
    misses = [f"{name}: {all_[name]['ratio_to_floor']:.3f}" for name in above]
    said = "; ".join([f"{len(all_) - len(above)} of {len(all_)}", *misses])

    def ladder(batch: int, budgets: tuple[str, ...]) -> list[float]:
        return [all_[f"resolution, batch {batch}, {budget}"]["ours"]["without_host"] for budget in budgets]

    small, large = ladder(1, ("96", "304", "full")), ladder(32, ("32", "96"))
    tiers = results["two tiers"]
    full, stock = tiers["times_full_resolution"], tiers["times_stock_full_resolution"]
    saved = {name: run["share_of_prediction"] for name, run in results["deletion pays"].items()}
    rows = [
        ["batch 1, 304 tokens, without the host: at most 1.5 times the floor", f"{ratio:.2f}", ratio <= RATIO],
        ["batch 1, 304 tokens: at least 4 times as fast as stock", f"{faster:.1f}", faster >= FASTER],
        ["every cell, without the host: at most 1.5 times its floor", said, not above],
        ["batch 1: 96 tokens before 304 before all 972", _listed(small), small == sorted(set(small))],
        ["batch 32: 32 tokens before 96", _listed(large), large == sorted(set(large))],
        ["two tiers (576, 32): at least 1.8 times our full resolution", f"{full:.2f}", full >= TIERS_FULL],
        ["two tiers: at least 6 times stock's full resolution", f"{stock:.1f}", stock >= TIERS_STOCK],
        [
            "deletion to 304 of 1,296: at least 80 % of the saving that arithmetic predicts",
            ", ".join(f"{name}: {percent(share, 0)}" for name, share in saved.items()),
            min(saved.values()) >= SAVED,
        ],
    ]
    for count, most in SELECTOR.items():
        share = results["selectors"][count]["selector_of_encoder"]
        bar = f"redundancy at {int(count):,} tokens: under {percent(most, 0)} of the encoder"
        rows.append([bar, percent(share), share < most])
    ratios = {name: ratio_at_most(cell, results["rates"]["TFLOP_per_s"]) for name, cell in all_.items()}
    worst = max(ratios, key=lambda name: ratios[name])
    bar = f"every cell, floors by the fastest product of any run ({FASTEST:.0f} TFLOP/s): at most 1.5 times"
    rows.append([bar, f"worst: {worst}: {ratios[worst]:.2f}", ratios[worst] <= RATIO])
    return [[bar, measured, "met" if met else "**missed**"] for bar, measured, met in rows]


def ratio_at_most(cell: Results, rate: float) -> float:
    """Ours over the floor that ``FASTEST`` gives, or more.

    Encoder and prefill are taken to wait for operations; where they wait for memory, their floor does not fall.
    """
    floor = cell["floor"]
    faster = rate / max(rate, FASTEST)
    return float(cell["ours"]["without_host"] / (faster * (floor["encoder"] + floor["prefill"]) + floor["decode"]))


def _listed(times: list[float]) -> str:
    return ", ".join(ms(time) for time in times) + " ms"


def findings(results: Results) -> list[str]:
    """How many bars were met, and what no bar is about."""
    rows = bars(results)
    missed = [bar for bar, _, met in rows if met != "met"]
    ratios = {
        batch: [cell["ratio_with_host"] for name, cell in cells(results).items() if f", batch {batch}," in name]
        for batch in (1, 32)
    }
    said = " and ".join(
        f"{min(each):.2f} to {max(each):.2f} times its floor at batch {batch}" for batch, each in ratios.items()
    )
    hosts = [cell["ours"]["host"] for name, cell in cells(results).items() if ", batch 32," in name]
    return [
        f"{len(rows) - len(missed)} of {len(rows)} bars met. Missed: {'; '.join(missed) or 'none'}.",
        f"With the host, one call at a time and nothing overlapped, an answer takes {said}. At batch "
        f"32 the host takes {min(hosts):.0f} to {max(hosts):.0f} ms of it.",
    ]


def rounded(value: Any, digits: int = 5) -> Any:
    """The same with every number to so many digits."""
    if isinstance(value, dict):
        return {name: rounded(one, digits) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one, digits) for one in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def main() -> None:
    """Read a run, write the documentation's file."""
    source, target = (Path(name) for name in sys.argv[1:3])
    read = json.loads(source.read_text(encoding="utf-8"))
    results = rounded(read.get("results", read))  # of a run, or of a file that was made here before
    if isinstance(results["two tiers"].get("tokens"), list):
        results["two tiers"]["tokens"] = sorted(set(results["two tiers"]["tokens"]), reverse=True)
    whole = {"results": results, "tables": tables(results)}
    target.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
