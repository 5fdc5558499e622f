"""What stands in the model card? Families against budgets, from the files that ``training.evaluate`` wrote.

    PYTHONPATH=src:. python -m training.card docs/results/reader-families.json reader=runs/reader/errors.json \
        reader-small=runs/small/errors.json reader-llava=runs/llava/errors.json
    python docs/fill.py docs/reader.md docs/results/reader-families.json docs/results/reader.json

A reader that is not named keeps the table that the file has.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# budgets in the table; AnyRes has few rungs, and the lowest takes 252 tokens of a page
SHOWN = {
    "reader": ("32", "96", "160", "304", "576", "full"),
    "reader-small": ("32", "96", "160", "304", "576", "full"),
    "reader-llava": ("32", "128", "300", "600", "944", "1188", "1536", "full"),
}
# what the first architecture is held to at full size
BARS = {"forms": 0.05, "charts": 0.10, "infographics": 0.15, "signs": 0.03, "shapes": 0.03, "swatches": 0.03}
COMMAND = "python -m training.evaluate --weights EXPORT --out errors.json"


def families(errors: dict[str, Any], reader: str = "reader") -> dict[str, Any]:
    """A table for ``docs/fill.py``: error at a few budgets, by tier at full size; of the first reader, the bar."""
    rows, missed, held = [], [], reader == "reader"
    shown = [b for b in SHOWN[reader] if any(b in by_budget for by_budget in errors.values())]
    for key, by_budget in errors.items():
        family, mechanism = key.split(".")
        cells = [by_budget[b]["error"] if b in by_budget else None for b in shown]
        full = by_budget.get("full", {})
        bar = [BARS.get(family) if full else None] if held else []
        rows.append([family, mechanism, *cells, full.get("high"), full.get("low"), *bar])
        if full and full["error"] > BARS.get(family, 1):
            missed.append(f"{family} {full['error']:.3f} (bar {BARS[family]:g})")
    budgets = (b if b == "full" else f"{b} tokens" for b in shown)
    columns = ["family", "by", *budgets, "full: high", "low", *(["bar"] if held else [])]
    finding = f"above the bar at full size: {', '.join(missed)}" if missed else "every family is under its bar"
    return {"name": f"{reader}-families", "columns": columns, "rows": rows, "findings": [finding] if held else []}


def main(path: Path, named: dict[str, Path]) -> None:
    """Put the tables of these readers into the file."""
    tables = json.loads(path.read_text())["tables"] if path.exists() else {}
    for reader, errors in named.items():
        found = families(json.loads(errors.read_text()), reader)
        tables[found["name"]] = found
    path.write_text(json.dumps({"command": COMMAND, "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), {name: Path(file) for name, file in (arg.split("=", 1) for arg in sys.argv[2:])})
