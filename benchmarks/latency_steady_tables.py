"""What does a run of ``latency_steady.py`` say? Its tables and, bar by bar, whether it was met, for the documentation.

    python benchmarks/latency_steady_tables.py steady.json docs/results/latency-steady-h200.json

Ratios to the floor count the host's work. The rate of a large product, from which floors are counted, differs between
GPUs of one kind, so the floors of ``latency.py``'s run stand beside those of this one. The new file holds the results,
rounded to five digits, and the tables made of what was rounded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.latency_tables import Results, ms, percent, rounded, setup

BLANK = 0.6  # of the encoder's time, where blank tokens are dropped before it
MOST = {"1": 1.4, "32": 1.3}  # times the floor, by batch
STAGES = ("encoder", "selector", "prefill", "decode", "host")
OTHER = Path(__file__).resolve().parents[1] / "docs" / "results" / "latency-h200.json"


def tables(results: Results, other: Results) -> dict[str, Any]:
    """By name, for ``docs/fill.py``. ``other``: the results of ``latency.py``."""
    bar_columns = ["bar", "measured", "met"]
    return {
        "steady-about": setup(results),
        "steady-bars": {"columns": bar_columns, "rows": bars(results), "findings": findings(results, other)},
        "steady": steady(results, other),
        "steady-stages": stages(results),
        "steady-blank": blank(results),
    }


def cells(results: Results) -> list[tuple[str, str, str, Results]]:
    """Batch, mechanism, budget and what was measured; what failed or was not reached is left out."""
    found = []
    for name, one in results.items():
        if name.startswith("steady, ") and "ahead" in one:
            batch, mechanism, budget = name.removeprefix("steady, batch ").split(", ")
            found.append((batch, mechanism, budget, one))
    return sorted(found, key=lambda cell: (int(cell[0]), -tokens(cell[2]), cell[1] == "deletion"))


def tokens(budget: str) -> int:
    """For sorting; the whole page comes first."""
    return 10**6 if budget == "full" else int(budget)


def steady(results: Results, other: Results) -> dict[str, Any]:
    """Batch after batch of different pages, opened ahead and one call at a time."""
    rows = []
    for batch, mechanism, budget, one in cells(results):
        times = [ms(one["floor"]), *(ms(one[how]["all"]) for how in ("ahead", "one_by_one"))]
        ratios = [
            one["ahead"]["ratio"],
            ratio_to_other(batch, mechanism, budget, one, other),
            one["one_by_one"]["ratio"],
        ]
        rows.append([batch, budget, mechanism, *times, *(f"{ratio:.2f}" for ratio in ratios)])
    columns = ["batch", "budget", "mechanism", "floor", "next batch opened ahead", "one call at a time"]
    columns += ["ahead / floor", f"ahead / floor at {rate_of(other)} TFLOP/s", "one at a time / floor"]
    return {"columns": columns, "rows": rows, "findings": []}


def ratio_to_other(batch: str, mechanism: str, budget: str, one: Results, other: Results) -> float:
    """Of the same answers, to the floor of the other run."""
    return float(one["ahead"]["all"] / other[f"{mechanism}, batch {batch}, {budget}"]["floor"]["all"])


def rate_of(results: Results) -> str:
    """Of a large product, as the tables write it."""
    return f"{results['rates']['TFLOP_per_s']:.0f}"


def stages(results: Results) -> dict[str, Any]:
    """Where the time goes when the next batch is opened ahead; ``host``: when the GPU waits."""
    rows = [
        [batch, budget, mechanism, *(ms(one["ahead"][stage]) for stage in STAGES), ms(one["ahead"]["all"])]
        for batch, mechanism, budget, one in cells(results)
    ]
    return {"columns": ["batch", "budget", "mechanism", *STAGES, "a batch"], "rows": rows, "findings": []}


def blank(results: Results) -> dict[str, Any]:
    """The encoder with and without blank tokens, in an answer and alone at given shares of tokens."""
    rows = []
    for kind, one in of_blank(results):
        native, read = (one["blank+redundancy"][name] for name in ("native_tokens", "encoder_tokens"))
        times = [one[selector]["encoder"] for selector in ("redundancy", "blank+redundancy")]
        rows.append([kind, f"{read:.0f} of {native:.0f}", *map(ms, times), f"{one['encoder_ratio']:.2f}"])
        rows[-1].append(f"{one['all_ratio']:.2f}")
    alone = results.get("blank, the encoder alone", {})
    for share, took in alone.items():
        if share != "1.0" and "1.0" in alone:
            whole = alone["1.0"]
            rows.append(["the encoder alone", percent(float(share), 0), ms(whole), ms(took), f"{took / whole:.2f}", ""])
    columns = ["pages", "tokens read", "encoder, all tokens", "encoder, those", "ratio", "ratio of the answer"]
    return {"columns": columns, "rows": rows, "findings": []}


def of_blank(results: Results) -> list[tuple[str, Results]]:
    """The kinds of pages that were measured."""
    return [(name.removeprefix("blank, "), one) for name, one in results.items() if "encoder_ratio" in one]


def bars(results: Results) -> list[list[str]]:
    """What was asked for, what was measured, and whether that is enough."""
    rows = []
    for batch, most in MOST.items():
        found = [(mechanism, budget, one) for b, mechanism, budget, one in cells(results) if b == batch]
        ratios = {f"{mechanism}, {budget}": one["ahead"]["ratio"] for mechanism, budget, one in found}
        bar = f"steady state with the host, batch {batch}, 304 tokens and more: at most {most} times the floor"
        if not ratios:
            rows.append([bar, "not measured", "open"])
            continue
        worst, within = max(ratios, key=lambda name: ratios[name]), sum(ratio <= most for ratio in ratios.values())
        measured = f"{within} of {len(ratios)}, worst {ratios[worst]:.2f} ({worst})"
        rows.append([bar, measured, verdict(within == len(ratios))])
    for kind, one in of_blank(results):
        bar = f"304 of 972 tokens, batch 32, {kind}: the encoder without blank tokens takes at most 60 % of its time"
        rows.append([bar, percent(one["encoder_ratio"], 0), verdict(one["encoder_ratio"] <= BLANK)])
    return rows


def findings(results: Results, other: Results) -> list[str]:
    """The host's share, and what the same times are beside the other run's floors."""
    of_host: dict[str, list[float]] = {}
    others = []
    for batch, mechanism, budget, one in cells(results):
        ahead = one["ahead"]
        of_host.setdefault(mechanism, []).append(ahead["host"] / sum(ahead[stage] for stage in STAGES))
        others.append(ratio_to_other(batch, mechanism, budget, one, other))
    shares = " and ".join(f"{percent(min(s))} to {percent(max(s))} of a batch by {name}" for name, s in of_host.items())
    return [
        f"the GPU waits for the host during {shares}; by medians of the stages",
        f"beside floors at {rate_of(other)} TFLOP/s, which the other run measured: {min(others):.2f} to "
        f"{max(others):.2f}; here a large product ran at {rate_of(results)}",
    ]


def verdict(met: bool) -> str:
    """As the tables write it."""
    return "met" if met else "**missed**"


def main() -> None:
    """Read a run, write the documentation's file."""
    source, target = (Path(name) for name in sys.argv[1:3])
    read = json.loads(source.read_text(encoding="utf-8"))
    results = rounded(read.get("results", read))
    other = json.loads(OTHER.read_text(encoding="utf-8"))["results"]
    whole = {"results": results, "tables": tables(results, other)}
    target.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
