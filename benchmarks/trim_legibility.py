"""What do OCR and the embedded reader read of whole and of trimmed pages at equal tokens?

    python -m benchmarks.trim_legibility read --data DIR --log trim.jsonl --minutes 30
    python -m benchmarks.trim_legibility read --model embedded --sets sroie receipts forms --data DIR --log reader.jsonl
    python -m benchmarks.trim_legibility table --log trim.jsonl --reader reader.jsonl -o docs/results/trim.json

``DIR`` holds docvqa/, sroie/ and chartqa/, each with questions.jsonl and images/; the other sets are drawn. Pages
without margins are listed and not read, because both versions are the same. For OCR, answers are located on the whole
page at native size, and samples whose answers are not found there are left out. A log has one line for each page and
box. Reading stops at the page that passes ``--minutes``, and the same command goes on. A page is read again only where
its box changed. What is read at native size on trimmed pages: ``trim_native``; budgets by cost: ``trim_arms``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from stakes.data.sample import Sample, read_samples
from stakes.data.synthetic import FAMILIES
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.samples import draw_samples, prepare_samples
from stakes.evaluation.statistics import holm, mcnemar
from stakes.legibility.answer_locations import MARGINS, read_at
from stakes.legibility.engine import TextLine
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import PageCache, as_pixels
from stakes.models import load
from stakes.models.base import VLM, Request
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit
from stakes.vision.image.trim import Bounds, margins

BUDGETS = (64, 96, 160, 224, 304, 448, 576)
REAL = ("docvqa", "sroie", "chartqa")
SETS = (*REAL, *(family for family in FAMILIES if family != "swatches"))  # swatches have no text
DRAWN = 40  # questions of each tier of a synthetic family
PAGE_COLUMNS = ["pages", "read", "with margins", "area cut", "lines of print", "lines cut", "answers cut"]
ERROR_COLUMNS = ["model", "pages", "tokens", "questions", "whole", "trimmed", "gained", "lost", "p (McNemar)"]
Row = dict[str, Any]
Pages = list[tuple[Row, Row]]  # read whole, and as trimmed


def pages_of(name: str, data: Path) -> list[list[Sample]]:
    """The samples of each page, in fixed random order; ``forms``, ``receipts``, … are drawn."""
    if name in REAL:
        samples = prepare_samples(read_samples(data / name / "questions.jsonl"), data / name)
    else:
        samples = draw_samples(name, "calibration", DRAWN)
    by_page: dict[str, list[Sample]] = {}
    for sample in samples:
        by_page.setdefault(sample.digest, []).append(sample)
    return random.Random(0).sample(list(by_page.values()), len(by_page))


def read(data: Path, log: Path, minutes: float, sets: Iterable[str] = SETS, model: str = "ocr") -> None:
    """Read every page that has margins, whole and trimmed; native readings are cached next to the log."""
    until = time.monotonic() + 60 * minutes
    reader = Legibility(threads=1, cache=log.with_suffix("")) if model == "ocr" else load(model)
    logged = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {(row["set"], row["page"], tuple(row["box"]), _was_read(row)) for row in logged}
    for name, samples in in_turn({name: pages_of(name, data) for name in sets}):
        image = open_image(samples[0].load())
        whole, trimmed = (0, 0, *image.size), margins(image)
        for box in dict.fromkeys([whole, trimmed]):
            if time.monotonic() > until:
                return
            if (name, samples[0].digest, box, whole != trimmed) not in done:
                row = {"set": name, "page": samples[0].digest, "size": image.size, "box": box}
                row |= _read_page(reader, samples, image, box) if whole != trimmed else {}
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def in_turn(sets: dict[str, list[list[Sample]]]) -> list[tuple[str, list[Sample]]]:
    """The pages of all sets, each in proportion, so that a log that ends early has the same share of all."""
    order = [(number / len(pages), name, number) for name, pages in sets.items() for number in range(len(pages))]
    return [(name, sets[name][number]) for _, name, number in sorted(order)]


def _read_page(model: Any, samples: list[Sample], image: Image.Image, box: Bounds) -> dict[str, Any]:
    if not isinstance(model, Legibility):
        return _answered(model, samples, image.crop(box))
    model.locate(samples)
    lines = model.native_lines(samples[0])
    located = [sample for sample in samples if model.locations[sample.id]]
    answers = [at for sample in located for location in model.locations[sample.id] for at in location.boxes]
    shown = image if box == (0, 0, *image.size) else image.crop(box)
    return {
        "samples": len(samples),
        "tiers": {sample.id: sample.tier for sample in located},
        "lines": len(lines),
        "cut_lines": [line.text for line in lines if not _inside(line.quad, box)],
        "cut_answers": sum(not _inside(((x0, y0), (x1, y1)), box) for x0, y0, x1, y1 in answers),
        "legible": {budget: _legible(model, located, shown, box, budget) for budget in BUDGETS if located},
    }


def _answered(model: VLM, samples: list[Sample], shown: Image.Image) -> dict[str, Any]:
    """Which answers of a model are right at each budget, and the tokens that they took."""
    right: dict[int, dict[str, tuple[bool, int]]] = {}
    for budget in BUDGETS:
        most = min(budget, tokens_as_sent("qwen2.5-vl", *shown.size))
        answers = model.answer([Request(shown, sample.question, most, sample=sample.id) for sample in samples])
        right[budget] = {
            sample.id: (
                is_correct(grade(answer.text, sample.answers, truncated=answer.truncated)),
                answer.realised_tokens,
            )
            for sample, answer in zip(samples, answers, strict=True)
        }
    return {"samples": len(samples), "tiers": {sample.id: sample.tier for sample in samples}, "legible": right}


def _inside(points: Iterable[tuple[float, float]], box: Bounds, slack: float = 3) -> bool:
    """Whether all points are within the box; the detector's quads are a few pixels larger than the text."""
    return all(box[0] - slack <= x <= box[2] + slack and box[1] - slack <= y <= box[3] + slack for x, y in points)


def _legible(
    model: Legibility, samples: list[Sample], shown: Image.Image, box: Bounds, budget: int
) -> dict[str, tuple[bool, int]]:
    """Whether each sample's answer can be read, and the tokens it took."""
    fitted = fit(shown, budget)
    (left, top), (across, down) = box[:2], fitted.scale
    where = [
        ((x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down)
        for sample in samples
        for location in model.locations[sample.id]
        for x0, y0, x1, y1 in location.widened(max(MARGINS))
    ]
    cache = PageCache(model.pages.engine, None)
    found = cache.lines("page", fitted.image.size, lambda: as_pixels(fitted.image), where)
    lines = [moved(line.scaled(1 / across, 1 / down), left, top) for line in found]
    return {s.id: (read_at(model.locations[s.id], lines).legible, fitted.tokens) for s in samples}


def moved(line: TextLine, x: float, y: float) -> TextLine:
    """The line, x pixels to the right and y down."""
    a, b, c, d = ((at_x + x, at_y + y) for at_x, at_y in line.quad)
    return dataclasses.replace(line, quad=(a, b, c, d))


def page_pairs(log: Path, name: str) -> Pages:
    """The pages of a set: the whole one, and the last box that was read, the whole one where nothing is trimmed."""
    whole, trimmed = dict[str, Row](), dict[str, Row]()
    for row in map(json.loads, log.read_text().splitlines()):
        page = row["page"]
        if row["set"] != name:
            continue
        if row["box"] != [0, 0, *row["size"]]:
            trimmed[page] = row
        elif _was_read(row):
            whole[page] = row
        else:  # without margins, under the rules of then
            whole.setdefault(page, row)
            trimmed.pop(page, None)
    return [(row, trimmed.get(page, row)) for page, row in whole.items()]


def _was_read(row: Row) -> bool:
    """Whether the page had margins, and was read."""
    return len(row) > len(("set", "page", "size", "box"))


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


def findings(rows: list[list[Any]], model: str) -> list[str]:
    """What a model reads of all sets at each budget, and which cells are worse or significantly better."""
    mine = [row for row in rows if row[0] == model]
    parts = []
    for budget in BUDGETS:
        of_budget = [row for row in mine if row[2] == budget]
        n, gained, lost = (sum(row[column] for row in of_budget) for column in (3, 6, 7))
        whole, trimmed = (sum(row[3] * row[column] for row in of_budget) / n for column in (4, 5))
        parts.append(f"{whole:.3f} to {trimmed:.3f} at {budget} tokens ({gained}:{lost})")
    won, lost = (sum(row[column] for row in mine) for column in (6, 7))
    worse = [row[8] for row in mine if row[7] > row[6]]
    least = f", the smallest p among them {min(worse):.2g}" if worse else ""
    corrected = zip(mine, holm([row[8] for row in mine]), strict=True)
    better = [f"{row[1]} at {row[2]} tokens ({p:.2g})" for row, p in corrected if p < 0.05 and row[6] > row[7]]
    return [
        f"{model}, all sets, errors whole and trimmed (gained:lost): {', '.join(parts)}; {won}:{lost} in all",
        f"{model}: {len(worse)} of {len(mine)} cells lose more than they gain{least}; better after Holm's correction, "
        f"which takes questions of one page for independent: {', '.join(better) or 'none'}",
    ]


def table(logs: dict[str, Path], output: Path) -> None:
    """Write both tables. ``logs``: by model."""
    read = {(model, name): page_pairs(log, name) for model, log in logs.items() for name in SETS}
    read = {key: pages for key, pages in read.items() if pages}
    errors = [row for key, pages in read.items() for row in error_rows(*key, pages)]
    made = [page_row(name, pages) for (model, name), pages in read.items() if model == "ocr"]
    tables = {
        "trim-pages": {"columns": PAGE_COLUMNS, "rows": made, "findings": []},
        "trim": {
            "columns": ERROR_COLUMNS,
            "rows": errors,
            "findings": [one for model in logs for one in findings(errors, model)],
        },
    }
    output.write_text(json.dumps({"basis": "legibility", "tables": tables}, indent=1) + "\n")


def main() -> None:
    """Read, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", choices=["ocr", "embedded"], default="ocr")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--log", type=Path, default=Path("trim.jsonl"))
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--reader", type=Path, default=Path("reader.jsonl"))
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/trim.json"))
    options = parser.parse_args()
    if options.what == "table":
        return table({"ocr": options.log, "embedded": options.reader}, options.output)
    if options.data is None:
        parser.error("read needs --data, the folder that holds docvqa/, sroie/ and chartqa/")
    return read(options.data, options.log, options.minutes, options.sets, options.model)


if __name__ == "__main__":
    main()
