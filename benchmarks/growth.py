"""Does anything grow faster than it must? Cost against tokens, images, records, tiers and budgets, as exponents.

    python benchmarks/growth.py --out docs/results/growth.json --figure docs/figures/growth.svg   # minutes
    python benchmarks/growth.py --quick                                                           # tries the script
    python benchmarks/growth.py --device cuda --only answer                                       # one GPU

Every row is a ladder of sizes (``growth_ladder``): median times, the exponent over the upper half with its interval,
and beside it the exponent that the work must have. One thread; processor time on a CPU, wall time on a GPU. Exit status
1 where something grows faster than it must.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import growth_images, growth_offline, growth_online
from benchmarks.growth_figure import draw
from benchmarks.growth_ladder import ROOM, Ladder, climb, timer
from benchmarks.machine import about, about_table, printed


def table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the documentation shows of some rows."""
    cells = []
    for row in rows:
        (small, first), (large, last) = row["points"][0], row["points"][-1]
        interval = f"{row['exponent']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
        must = f"{row['must']:.3g}: {row['why']}"
        cells.append([row["what"], f"{small} to {large}", f"{short(first)} to {short(last)}", interval, must])
    return {"columns": ["what", rows[0]["against"], "time, ms", "exponent", "must"], "rows": cells}


def short(ms: float) -> str:
    """Three digits."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def tables(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One table for each quantity that is varied."""
    quantities = dict.fromkeys(row["against"] for row in rows)
    return {
        f"growth-{name.replace(' ', '-')}": table([row for row in rows if row["against"] == name])
        for name in quantities
    }


def findings(rows: list[dict[str, Any]]) -> list[str]:
    """How many ladders there are, and which of them grow faster than they must."""
    faster = [f"{row['what']} against {row['against']}" for row in rows if row["faster"]]
    above = [
        f"{row['what']} against {row['against']} ({row['exponent']:.2f}, {row['low']:.2f} to {row['high']:.2f}; "
        f"{row['must']:.3g})"
        for row in rows
        if row["exponent"] > row["must"] + ROOM and not row["faster"]
    ]
    said = f"{len(rows)} ladders. Faster than it must, even at the low end of its interval, grows: "
    found = [said + ("; ".join(faster) or "nothing") + "."]
    if above:
        found.append(f"Above it by more than {ROOM}, within its interval: {'; '.join(above)}.")
    return found


def main() -> None:
    """Measure ladder after ladder, print the tables, write file and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="short ladders: tries the script")
    parser.add_argument("--only", default="", help="ladders whose name or quantity contains this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--patience", type=float, default=4.0, help="seconds that one rung may take, about")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON; an earlier run's other rows stay")
    parser.add_argument("--figure", type=Path, help="where the log-log panels go, as SVG")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock, rows = timer(options.device), []
    answers = growth_online.Answers(options.device)
    chosen: list[Ladder] = [
        ladder
        for ladder in [
            *growth_online.ladders(options.quick, options.device, answers),
            *(growth_offline.ladders(options.quick) if options.device == "cpu" else []),
            *(growth_images.ladders(options.quick) if options.device == "cpu" else []),
        ]
        if options.only in f"{ladder.what} {ladder.against}"
    ]
    with torch.inference_mode():
        for ladder in chosen:
            rows.append(climb(ladder, clock, options.repeats, options.patience))
            say(rows[-1])
            if ladder.what == "answer":
                rows += answers.stages([size for size, _ in rows[-1]["points"]], options.repeats)
                say(*rows[-2:])
    if not rows:
        raise SystemExit(f"no ladder has {options.only!r} in its name; leave --only out to see all")
    if options.only and options.out and options.out.exists():
        rows = merged(json.loads(options.out.read_text(encoding="utf-8"))["rows"], rows)
    results: dict[str, Any] = {
        "about": about("numpy", "scipy", "torch", "transformers") | {"device": options.device, "threads": 1},
        "time": "milliseconds, medians; " + ("processor time" if options.device == "cpu" else "wall time"),
        "rows": rows,
        "tables": tables(rows),
    }
    results["tables"]["growth-about"] = about_table(results["about"]) | {"findings": findings(rows)}
    for shown in results["tables"].values():
        print(printed(shown))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.figure:
        options.figure.write_text(draw(rows), encoding="utf-8")
    print("\n".join(findings(rows)))
    if any(row["faster"] for row in rows):
        raise SystemExit(1)


def merged(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of an earlier run with those measured again put in their place."""
    again = {(row["what"], row["against"]): row for row in now}
    kept = [again.pop((row["what"], row["against"]), row) for row in before]
    return [*kept, *again.values()]


def say(*rows: dict[str, Any]) -> None:
    """A line of progress for each row."""
    for row in rows:
        mark = "FASTER" if row["faster"] else ""
        print(f"{row['what']:32} {row['against']:10} {row['exponent']:6.2f} {mark}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
