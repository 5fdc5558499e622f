"""What stands in the model card? Families against budgets, from the file that ``training.evaluate`` wrote.

PYTHONPATH=src:. python -m training.card runs/reader/errors.json docs/results/reader-families.json
python docs/fill.py docs/reader.md docs/results/reader-families.json docs/results/reader.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SHOWN = ("32", "96", "160", "304", "576", "full")
# what the first architecture is held to at full size
BARS = {"forms": 0.05, "charts": 0.10, "infographics": 0.15, "signs": 0.03, "shapes": 0.03, "swatches": 0.03}


def families(errors: dict[str, Any]) -> dict[str, Any]:
    """A table for ``docs/fill.py``: error by resizing at a few budgets, by tier at full size, and the bar."""
    rows, missed = [], []
    for key, by_budget in errors.items():
        family, mechanism = key.split(".")
        cells = [by_budget[b]["error"] if b in by_budget else None for b in SHOWN]
        full = by_budget.get("full", {})
        bar = BARS[family] if full else None
        rows.append([family, mechanism, *cells, full.get("high"), full.get("low"), bar])
        if full and full["error"] > BARS[family]:
            missed.append(f"{family} {full['error']:.3f} (bar {BARS[family]:g})")
    columns = ["family", "by", *(b if b == "full" else f"{b} tokens" for b in SHOWN), "full: high", "low", "bar"]
    finding = f"above the bar at full size: {', '.join(missed)}" if missed else "every family is under its bar"
    return {"name": "reader-families", "columns": columns, "rows": rows, "findings": [finding]}


if __name__ == "__main__":
    found = families(json.loads(Path(sys.argv[1]).read_text()))
    command = "python -m training.evaluate --weights EXPORT --pages 48 --out errors.json"
    record = {"command": command, "tables": {found["name"]: found}}
    Path(sys.argv[2]).write_text(json.dumps(record, indent=1) + "\n")
