"""What do runs of ``latency_steady.py`` say? Their tables and, bar by bar, whether it was met, for the documentation.

    python benchmarks/latency_steady_tables.py steady.json [others.json ...] docs/results/latency-steady-h200.json

Ratios to the floor count the host's work. A floor is counted twice: with the rate of a large product that the GPU has
for some milliseconds, and with the one that it sustains. Blank tokens that the first run did not reach are taken from
the others: their ratios compare two answers of one run. The new file holds the results, rounded to five digits, and the
tables made of what was rounded.
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
FLOORS = {"ratio": "the floor", "sustained_ratio": "the floor at the sustained rate"}
STAGES = ("encoder", "selector", "prefill", "decode")
OTHERS = "parts of another run"


def tables(results: Results) -> dict[str, Any]:
    """By name, for ``docs/fill.py``."""
    bar_columns = ["bar", "measured", "met"]
    return {
        "steady-about": setup(results),
        "steady-bars": {"columns": bar_columns, "rows": bars(results), "findings": findings(results)},
        "steady": steady(results),
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


def steady(results: Results) -> dict[str, Any]:
    """Batch after batch of different pages, opened ahead and one call at a time."""
    rows = []
    for batch, mechanism, budget, one in cells(results):
        ahead = one["ahead"]
        times = [one["floor"], one["sustained_floor"], ahead["all"], ahead["slowest"], one["one_by_one"]["all"]]
        ratios = [ahead["ratio"], ahead["sustained_ratio"], one["one_by_one"]["ratio"]]
        rows.append([batch, budget, mechanism, *map(ms, times), *(f"{ratio:.2f}" for ratio in ratios)])
    columns = ["batch", "budget", "mechanism", "floor", "floor, sustained", "next batch opened ahead", "slowest"]
    columns += ["one call at a time", "ahead / floor", "ahead / floor, sustained", "one at a time / floor"]
    return {"columns": columns, "rows": rows, "findings": []}


def stages(results: Results) -> dict[str, Any]:
    """Where the time goes when the next batch is opened ahead; the rest: when the GPU waits for the host."""
    rows = [
        [
            batch,
            budget,
            mechanism,
            *(ms(one["ahead"][stage]) for stage in STAGES),
            ms(rest(one)),
            ms(one["ahead"]["all"]),
        ]
        for batch, mechanism, budget, one in cells(results)
    ]
    return {"columns": ["batch", "budget", "mechanism", *STAGES, "rest", "a batch"], "rows": rows, "findings": []}


def rest(one: Results) -> float:
    """Milliseconds of a batch that are in no stage of the GPU, by medians."""
    ahead = one["ahead"]
    return max(0.0, float(ahead["median"] - sum(ahead[stage] for stage in STAGES)))


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
    names = [name.removeprefix("blank, ") for name in results.get(OTHERS, {})]
    said = [f"measured in another run, on another GPU of this kind: {', '.join(names)}"] if names else []
    return {"columns": columns, "rows": rows, "findings": said}


def of_blank(results: Results) -> list[tuple[str, Results]]:
    """The kinds of pages that were measured."""
    return [(name.removeprefix("blank, "), one) for name, one in results.items() if "encoder_ratio" in one]


def bars(results: Results) -> list[list[str]]:
    """What was asked for, what was measured, and whether that is enough."""
    rows = []
    for batch, most in MOST.items():
        found = [(mechanism, budget, one) for b, mechanism, budget, one in cells(results) if b == batch]
        for kind, floor in FLOORS.items():
            ratios = {f"{mechanism}, {budget}": one["ahead"][kind] for mechanism, budget, one in found}
            bar = f"steady state with the host, batch {batch}, 304 tokens and more: at most {most} times {floor}"
            if not ratios:
                rows.append([bar, "not measured", "open"])
                continue
            worst, within = max(ratios, key=lambda name: ratios[name]), sum(ratio <= most for ratio in ratios.values())
            measured = f"{within} of {len(ratios)}, worst {ratios[worst]:.2f} ({worst})"
            rows.append([bar, measured, verdict(within == len(ratios))])
    for name, one in of_blank(results):
        bar = f"304 of 972 tokens, batch 32, {name}: the encoder without blank tokens takes at most 60 % of its time"
        rows.append([bar, percent(one["encoder_ratio"], 0), verdict(one["encoder_ratio"] <= BLANK)])
    return rows


def findings(results: Results) -> list[str]:
    """How long the GPU waits for the host, by mechanism and batch, and the two rates."""
    shares: dict[str, list[float]] = {}
    for batch, mechanism, _, one in cells(results):
        shares.setdefault(f"{mechanism}, batch {batch}", []).append(rest(one) / one["ahead"]["median"])
    waits = "; ".join(f"{name}: {percent(min(some))} to {percent(max(some))}" for name, some in shares.items())
    rates = results["rates"]
    return [
        f"share of the time in which the GPU waits for the host, by medians: {waits}",
        f"a large product runs at {rates['TFLOP_per_s']:.0f} TFLOP/s for some milliseconds, and at "
        f"{rates['sustained_TFLOP_per_s']:.0f} without a pause",
    ]


def verdict(met: bool) -> str:
    """As the tables write it."""
    return "met" if met else "**missed**"


def merged(results: Results, others: list[Results]) -> Results:
    """The results, and blank tokens of the others where they are not among them."""
    added = {
        name: one
        for other in others
        for name, one in other.items()
        if name.startswith("blank, ") and "encoder_ratio" in one and "encoder_ratio" not in results.get(name, {})
    }
    return {**results, **added, OTHERS: {**results.get(OTHERS, {}), **dict.fromkeys(added, True)}}


def main() -> None:
    """Read runs, write the documentation's file."""
    *sources, target = (Path(name) for name in sys.argv[1:])
    read = [json.loads(source.read_text(encoding="utf-8")) for source in sources]
    first, *others = [one.get("results", one) for one in read]
    results = rounded(merged(first, others))
    whole = {"results": results, "tables": tables(results)}
    target.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
