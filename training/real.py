"""How well does a reader read real pages? Receipts (SROIE) by field, DocVQA and ChartQA by metric, at full size.

    PYTHONPATH=src:. python -m training.real --data DIR --model runs/reader/export                # between runs
    PYTHONPATH=src:. python -m training.real --data DIR --sets receipts-held-out docvqa chartqa --out real.json

DIR holds ``sroie/``, ``docvqa/`` and ``chartqa/`` with ``questions.jsonl`` and images. No training run reads any of
them. The first 20 receipts are for comparing runs (``receipts``); the other 20 are for weights that are to be shipped
(``receipts-held-out``). Pages are shrunk to 1,280 tokens and not enlarged. Totals and dates are right by ``value``,
companies by an ANLS of at least 0.5.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from PIL import Image

from stakes.budgets.curve import proportion_interval
from stakes.commands.output import as_markdown
from stakes.evaluation.grading import grade, is_correct
from stakes.models import load
from stakes.models.base import VLM, Request

VALIDATION = 20  # receipts
TOKENS, PIXELS_PER_TOKEN = 1280, 28 * 28
FIELDS = {"total": "value", "date": "value", "company": "anls"}
METRICS = ("exact", "value", "relaxed", "anls")
RECEIPTS, HELD_OUT = "receipts", "receipts-held-out"
SETS = (RECEIPTS, HELD_OUT, "docvqa", "chartqa")
Graded = tuple[dict[str, Any], str, dict[str, bool]]  # row, answer, right by metric


def load_page(path: Path) -> Image.Image:
    """The page with at most TOKENS tokens."""
    image = Image.open(path).convert("RGB")
    ratio = (TOKENS * PIXELS_PER_TOKEN / (image.width * image.height)) ** 0.5
    size = int(image.width * ratio), int(image.height * ratio)
    return image if ratio >= 1 else image.resize(size, Image.Resampling.BICUBIC)


def read_rows(data: Path, name: str) -> list[dict[str, Any]]:
    """The questions of a set, with the full path of each image; of receipts, those of its half and of FIELDS."""
    folder = data / ("sroie" if name in (RECEIPTS, HELD_OUT) else name)
    rows = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    if name in (RECEIPTS, HELD_OUT):
        documents = list(dict.fromkeys(row["document"] for row in rows))
        chosen = documents[:VALIDATION] if name == RECEIPTS else documents[VALIDATION:]
        rows = [row for row in rows if row["document"] in chosen and field_of(row) in FIELDS]
    return [row | {"image": folder / row["image"]} for row in rows]


def field_of(row: dict[str, Any]) -> str:
    """The field that a question about a receipt asks for: the end of its id."""
    return str(row["id"]).rpartition("_")[2]


def answer_all(model: VLM, rows: list[dict[str, Any]]) -> list[Graded]:
    """Every question answered and graded by all metrics."""
    found = []
    for row in rows:
        (answer,) = model.answer([Request(load_page(row["image"]), row["question"])])
        right = {metric: is_correct(grade(answer.text, row["answers"], metric)) for metric in METRICS}
        found.append((row, answer.text, right))
    return found


def by_field(name: str, found: list[Graded]) -> list[list[Any]]:
    """One row per field: receipts, right, its interval, exactly right."""
    rows = []
    for field, metric in FIELDS.items():
        these = [right for row, _, right in found if field_of(row) == field]
        count, right, exact = len(these), sum(r[metric] for r in these), sum(r["exact"] for r in these)
        low, high = proportion_interval(right / count, count)
        rows.append([name, field, metric, count, right, f"[{low:.3f}, {high:.3f}]", exact])
    return rows


def by_metric(name: str, found: list[Graded]) -> list[Any]:
    """One row of a set: questions, pages, right by each metric."""
    pages = len({row["document"] for row, _, _ in found})
    return [name, len(found), pages, *(sum(right[metric] for _, _, right in found) for metric in METRICS)]


def main() -> None:
    """Print the tables, with ``--show`` every answer, and write them with ``--out``."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True, help="folder with sroie/, docvqa/ and chartqa/")
    p.add_argument("--model", default="embedded")
    p.add_argument("--sets", nargs="+", choices=SETS, default=[RECEIPTS])
    p.add_argument("--every", type=int, default=1, help="ask only each so many-th question of docvqa and chartqa")
    p.add_argument("--show", action="store_true", help="print every answer")
    p.add_argument("--out", type=Path, help="write the tables as JSON; no text of a page is in it")
    a = p.parse_args()
    model, fields, metrics = load(a.model), [], []
    for name in a.sets:
        receipts = name in (RECEIPTS, HELD_OUT)
        found = answer_all(model, read_rows(a.data, name)[:: 1 if receipts else a.every])
        if receipts:
            fields += by_field(name, found)
        else:
            metrics.append(by_metric(name, found))
        for row, text, right in found if a.show else ():
            print("ok " if any(right.values()) else "   ", row["id"], repr(text), "|", row["answers"][0], flush=True)
    columns = ["set", "field", "metric", "receipts", "right", "95 %", "exact"]
    tables = {
        "real-receipts": {"columns": columns, "rows": fields},
        "real-pages": {"columns": ["set", "questions", "pages", *METRICS], "rows": metrics},
    }
    tables = {name: {"name": name, "findings": []} | table for name, table in tables.items() if table["rows"]}
    for table in tables.values():
        print(as_markdown(table["columns"], table["rows"]), flush=True)
    if a.out:
        command = f"python -m training.real --data DIR --sets {' '.join(a.sets)}"
        record = {"model": a.model, "command": command, "tables": tables}
        a.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
