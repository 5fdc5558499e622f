"""Tables of the logs of ``trim_legibility``: pages, errors whole and trimmed, and cost-based budgets with both.

    python -m benchmarks.trim_tables --log trim.jsonl --reader reader.jsonl --output docs/results/trim.json

``trim`` pairs the samples on pages that have something to trim; the others are equal by construction.
``trim-budgets`` has all samples: uniform budgets, the same total by cost (more to the high tier), and the opposite.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.trim_legibility import BUDGETS, SETS

from stakes.evaluation.statistics import cwe, mcnemar

COSTS = {"high": 5.0, "low": 1.0}
ARMS = {304: {"uniform": (304, 304), "cost": (448, 160), "anti": (160, 448)}}
ARMS[160] = {"uniform": (160, 160), "cost": (224, 96), "anti": (96, 224)}
PAGE_COLUMNS = ["pages", "read", "with margins", "area cut", "lines of print", "lines cut", "answers cut"]
ERROR_COLUMNS = ["model", "pages", "tokens", "questions", "whole", "trimmed", "gained", "lost", "p (McNemar)"]
ARM_COLUMNS = ["model", "pages", "mean", "arm", "high", "high, trimmed", "low", "low, trimmed", "CWE", "CWE, trimmed"]
Row = dict[str, Any]
Pages = list[tuple[Row, Row]]  # read whole, and as trimmed


def pages_of(log: Path, name: str) -> Pages:
    """The pages of a set: the whole one, and the last box that was read, the whole one where nothing is trimmed."""
    whole, trimmed = dict[str, Row](), dict[str, Row]()
    for row in map(json.loads, log.read_text().splitlines()):
        if row["set"] == name:
            (whole if row["box"] == [0, 0, *row["size"]] else trimmed)[row["page"]] = row
    return [(row, trimmed.get(page, row)) for page, row in whole.items()]


def _area(row: Row) -> float:
    x0, y0, x1, y1 = row["box"]
    width, height = row["size"]
    return float(1 - (x1 - x0) * (y1 - y0) / width / height)


def page_row(name: str, pages: Pages) -> list[Any]:
    """How many pages have margins, what goes, and what of the print."""
    cut = [trimmed for whole, trimmed in pages if trimmed is not whole]
    sums = [sum(row["lines"] for row in cut), sum(len(row["cut_lines"]) for row in cut)]
    area = statistics.mean(_area(trimmed) for _, trimmed in pages)
    return [name, len(pages), len(cut), area, *sums, sum(row["cut_answers"] for row in cut)]


def error_rows(model: str, name: str, pages: Pages) -> list[list[Any]]:
    """Errors of whole and of trimmed pages at each budget, paired."""
    rows = []
    for budget in map(str, BUDGETS):
        pairs = Counter(
            (right, trimmed["legible"][budget][sample][0])
            for whole, trimmed in pages
            if trimmed is not whole and budget in whole["legible"]
            for sample, (right, _) in whole["legible"][budget].items()
        )
        n, gained, lost = pairs.total(), pairs[False, True], pairs[True, False]
        if n:
            wrong = [(pairs[False, False] + more) / n for more in (gained, lost)]
            rows.append([model, name, int(budget), n, *wrong, gained, lost, mcnemar(gained, lost)])
    return rows


def arm_rows(model: str, name: str, pages: Pages) -> list[list[Any]]:
    """Errors of each tier and cost-weighted error of each arm, whole and trimmed."""
    rows = []
    for mean, arms in ARMS.items():
        for arm, budgets in arms.items():
            by_tier = dict(zip(COSTS, map(str, budgets), strict=True))
            right: list[list[bool]] = [[], []]
            tiers = []
            for both in pages:
                for sample, tier in both[0]["tiers"].items():
                    tiers.append(tier)
                    for column, row in zip(right, both, strict=True):
                        column.append(row["legible"][by_tier[tier]][sample][0])
            errors = [
                1 - statistics.mean(flag for flag, at in zip(column, tiers, strict=True) if at == tier)
                for tier in COSTS
                for column in right
            ]
            weighted = [cwe(column, [COSTS[tier] for tier in tiers]) for column in right]
            rows.append([model, name, mean, arm, *errors, *weighted])
    return rows


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--reader", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=Path("docs/results/trim.json"))
    options = parser.parse_args()
    logs = {"ocr": options.log, "embedded": options.reader}
    read = {(model, name): pages_of(log, name) for model, log in logs.items() for name in SETS}
    read = {key: pages for key, pages in read.items() if pages}
    with_arms = [("ocr", "docvqa"), ("ocr", "sroie"), ("embedded", "sroie"), ("embedded", "receipts")]
    ocr = {name: pages for (model, name), pages in read.items() if model == "ocr"}
    made = {
        "trim-pages": (PAGE_COLUMNS, [page_row(name, pages) for name, pages in ocr.items()]),
        "trim": (ERROR_COLUMNS, [row for key, pages in read.items() for row in error_rows(*key, pages)]),
        "trim-budgets": (ARM_COLUMNS, [row for key in with_arms if key in read for row in arm_rows(*key, read[key])]),
    }
    tables = {name: {"columns": columns, "rows": rows, "findings": []} for name, (columns, rows) in made.items()}
    options.output.write_text(json.dumps({"basis": "legibility", "tables": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()
