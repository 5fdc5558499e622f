"""Measure a reader on the real receipts that are kept for validation: the first 20 of SROIE, never the others.

    PYTHONPATH=src:. python -m training.validate --data DIR/sroie --model runs/reader/export

Totals are right by number, whatever is printed around it, dates by day, companies by ANLS of at least 0.5. Exact match
is shown next to it. Pages are shrunk to the budget and not enlarged. No training run reads any of them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from datetime import date
from itertools import permutations
from pathlib import Path

from PIL import Image

from stakes.evaluation.grading import grade, is_correct
from stakes.models import load
from stakes.models.base import Request

RECEIPTS = 20
PIXELS_PER_TOKEN = 28 * 28
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def number(text: str) -> float | None:
    """The first number of a text; a comma or point before the last two digits is the decimal mark."""
    match = re.search(r"\d[\d,. ]*\d|\d", text)
    if not match:
        return None
    cents = re.search(r"[.,]\d\d$", match[0])
    return int(re.sub(r"\D", "", match[0])) / (100 if cents else 1)


def days(text: str) -> set[date]:
    """Every day that a text may mean: its first three numbers or months in any order."""
    words = [w.lower() for w in re.findall(r"\d+|[A-Za-z]+", text)][:3]
    parts = [MONTHS.index(w[:3]) + 1 if w[:3] in MONTHS else int(w) if w.isdigit() else 0 for w in words]
    result = set()
    for year, month, day in permutations(parts, 3):
        try:
            result.add(date(year + 2000 if year < 100 else year, month, day))
        except ValueError:
            continue
    return result


def is_right(field: str, answer: str, gold: str) -> bool:
    """Whether an answer has the value of the gold answer."""
    if field == "total":
        return number(gold) is not None and number(answer) == number(gold)
    if field == "date":
        same_start = re.sub(r"\D", "", gold)[:4] == re.sub(r"\D", "", answer)[:4]  # the same order of day and month
        return same_start and bool(days(answer) & days(gold))
    return grade(answer, [gold], "anls") >= 0.5


def load_page(path: Path, tokens: int, enlarge: bool) -> Image.Image:
    """The page with at most so many tokens; with ``enlarge`` brought up to them, by 1.6 at most."""
    image = Image.open(path).convert("RGB")
    ratio = min(1.6, (tokens * PIXELS_PER_TOKEN / (image.width * image.height)) ** 0.5)
    if ratio >= 1 and not enlarge:
        return image
    return image.resize((int(image.width * ratio), int(image.height * ratio)), Image.Resampling.BICUBIC)


def main() -> None:
    """Print one line per field, and with ``--show`` every answer."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path, required=True, help="folder with questions.jsonl and images")
    p.add_argument("--model", default="embedded")
    p.add_argument("--tokens", type=int, default=1280)
    p.add_argument("--enlarge", action="store_true", help="enlarge small pages to the budget, by 1.6 at most")
    p.add_argument("--show", action="store_true", help="print every answer")
    a = p.parse_args()
    rows = [json.loads(line) for line in (a.data / "questions.jsonl").read_text().splitlines()]
    documents = list(dict.fromkeys(row["document"] for row in rows))[:RECEIPTS]
    model = load(a.model)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])  # questions, right by value, exactly right
    for row in rows:
        field = row["id"].rpartition("_")[2]
        if row["document"] not in documents or field == "address":
            continue
        (answer,) = model.answer([Request(load_page(a.data / row["image"], a.tokens, a.enlarge), row["question"])])
        gold = row["answers"][0]
        right = is_right(field, answer.text, gold)
        exact = is_correct(grade(answer.text, [gold], "exact"))
        counts[field] = [total + new for total, new in zip(counts[field], (1, right, exact), strict=True)]
        if a.show:
            print("ok " if right else "   ", row["document"], field, repr(answer.text), "|", gold, flush=True)
    for field, (n, value, exact) in sorted(counts.items()):
        print(f"{field}: {value} of {n} right by value, {exact} exactly", flush=True)


if __name__ == "__main__":
    main()
