"""What does trimming margins cost, how much of real pages goes, and what does it do to legibility at equal tokens?

    python -m benchmarks.trim speed --data DIR                          # share of a fit
    python -m benchmarks.trim adversarial                               # drawn pages of all kinds: is ink lost?
    python -m benchmarks.trim area --data DIR                           # share of the area trimmed
    python -m benchmarks.trim legibility --data DIR --log trim.jsonl --minutes 30
    python -m benchmarks.trim table --log trim.jsonl --output docs/results/trim.json

``DIR`` holds docvqa/, sroie/ and chartqa/, each with questions.jsonl and images/. Legibility reads pages that have
something to trim, with and without, and pairs the samples whose answers are found at native size; the others are equal
by construction. It stops at the page that passes ``--minutes``, and the same command goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.photographs import drawn, photograph
from benchmarks.trim_pages import KINDS, make, name_of
from PIL import Image

from stakes.data.sample import Sample, read_samples
from stakes.evaluation.samples import draw_samples, prepare_samples
from stakes.evaluation.statistics import mcnemar
from stakes.legibility.answer_locations import MARGINS, read_at
from stakes.legibility.engine import TextLine
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import PageCache, as_pixels
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit
from stakes.vision.image.trim import margins

BUDGETS = (64, 96, 160, 224, 304, 448, 576)
SETS = {"docvqa": 4, "sroie": 1, "chartqa": 1, "forms": 1, "receipts": 1}  # and how many pages of each in turn
DRAWN = 40  # questions of each tier of a synthetic family


def speed(data: Path | None, repeats: int = 15) -> None:
    """CPU milliseconds of a fit with and without trim, medians of alternating runs."""
    page = io.BytesIO()
    drawn(random.Random(0)).resize((3000, 4000), Image.Resampling.BICUBIC).save(page, "JPEG", quality=90)
    gray = io.BytesIO()
    Image.open(page).convert("L").save(gray, "JPEG", quality=90)
    files = [("scan", page.getvalue()), ("gray scan", gray.getvalue()), ("photograph", photograph(0))]
    if data is not None:
        files += [(file.stem, file.read_bytes()) for file in sorted((data / "docvqa" / "images").iterdir())[::8]]
    for name, content in files:
        for budget in (304, 972):
            times: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(repeats):
                for trim in times:
                    began = time.process_time()
                    fitted = fit(content, budget, trim=trim)
                    times[trim].append(1000 * (time.process_time() - began))
            plain, trimmed = statistics.median(times[False]), statistics.median(times[True])
            share = trimmed / plain - 1
            print(
                f"{name:10} {budget:4} tokens: {plain:6.1f} ms, trimmed {trimmed:6.1f} ms, {share:+.1%}, {fitted.box}"
            )


def area(data: Path) -> None:
    """The share of the area that goes, for each data set."""
    for name in ("docvqa", "sroie", "chartqa"):
        shares = []
        for file in sorted((data / name / "images").iterdir()):
            image = open_image(file)
            x0, y0, x1, y1 = margins(image)
            shares.append(1 - (x1 - x0) * (y1 - y0) / image.width / image.height)
        trimmed = [share for share in shares if share]
        print(
            f"{name}: {len(shares)} images, {len(trimmed)} trimmed, {statistics.mean(shares):.1%} of the area, "
            f"median of the trimmed {statistics.median(trimmed or [0]):.1%}, most {max(shares):.1%}"
        )


def adversarial(seeds: int = 20) -> None:
    """Pages of every kind that lose ink; every fifth also as a JPEG of three times its sides, decoded reduced."""
    failed, jpegs = Counter[str](), 0
    for kind in KINDS:
        shares = []
        for seed in range(seeds):
            page = make(kind, seed)
            box = margins(page.image)
            shares.append(1 - (box[2] - box[0]) * (box[3] - box[1]) / page.width / page.height)
            failed[name_of(kind)] += page.lost(box) > 0
            if seed % 5 == 0 and max(page.size) < 1200:
                large, size = io.BytesIO(), (3 * page.width, 3 * page.height)
                page.image.resize(size, Image.Resampling.BICUBIC).save(large, "JPEG", quality=90)
                x0, y0, x1, y1 = fit(large.getvalue(), 304, trim=True).box
                failed[f"{name_of(kind)} as JPEG"] += page.lost((x0 // 3, y0 // 3, -(-x1 // 3), -(-y1 // 3))) > 0
                jpegs += 1
        print(f"{name_of(kind):40} {statistics.mean(shares):6.1%} of the area trimmed", flush=True)
    lost = {name: count for name, count in failed.items() if count}
    print(f"{len(KINDS) * seeds} pages, {jpegs} of them also as JPEG: {lost or 'none loses ink'}")


def pages_of(name: str, data: Path) -> list[list[Sample]]:
    """The samples of each page, in a fixed random order; ``forms``, ``receipts``, … are drawn."""
    if (folder := data / name).exists():
        samples = prepare_samples(read_samples(folder / "questions.jsonl"), folder)
    else:
        samples = draw_samples(name, "calibration", DRAWN)
    by_page: dict[str, list[Sample]] = {}
    for sample in samples:
        by_page.setdefault(sample.digest, []).append(sample)
    return random.Random(0).sample(list(by_page.values()), len(by_page))


def legibility(data: Path, log: Path, minutes: float) -> None:
    """Read pages that have something to trim with and without it, one line of the log for each page; goes on later."""
    model, until = Legibility(threads=1), time.monotonic() + 60 * minutes
    done = (
        {(row["set"], row["page"]) for row in map(json.loads, log.read_text().splitlines())} if log.exists() else set()
    )
    left = {name: pages_of(name, data) for name in SETS}
    turns = [name for name, times in SETS.items() for _ in range(times)]
    while any(left.values()) and time.monotonic() < until:
        for name in turns:
            if left[name]:
                samples = left[name].pop()
                if (name, samples[0].digest) not in done:
                    with log.open("a") as file:
                        file.write(json.dumps(_read_page(model, name, samples)) + "\n")


def _read_page(model: Legibility, name: str, samples: list[Sample]) -> dict[str, Any]:
    image = open_image(samples[0].load())
    x0, y0, x1, y1 = box = margins(image)
    row: dict[str, Any] = {"set": name, "page": samples[0].digest, "samples": len(samples)}
    row["area"] = 1 - (x1 - x0) * (y1 - y0) / image.width / image.height
    if box == (0, 0, *image.size):
        return row
    excluded = model.locate(samples)
    lines = model.native_lines(samples[0])
    row["cut_lines"] = [line.text for line in lines if not _inside(line.quad, box)]
    row["lines"], row["judged"] = len(lines), len(samples) - len(excluded)
    found = [at for sample in samples for location in model.locations[sample.id] for at in location.boxes]
    row["cut_answers"] = sum(not _inside(((left, top), (right, bottom)), box) for left, top, right, bottom in found)
    row["legible"] = {}
    for budget in BUDGETS if len(excluded) < len(samples) else ():
        whole, trimmed = (_legible(model, samples, image, budget, trim) for trim in (False, True))
        row["legible"][str(budget)] = [[whole[key], trimmed[key]] for key in whole]
    return row


def _inside(points: Iterable[tuple[float, float]], box: tuple[int, int, int, int], slack: float = 3) -> bool:
    """Whether all points are within the box; the detector's quads are a few pixels larger than the text."""
    return all(box[0] - slack <= x <= box[2] + slack and box[1] - slack <= y <= box[3] + slack for x, y in points)


PAGE_COLUMNS = ["pages", "read", "with margins", "area cut", "lines of print", "lines cut", "answers cut"]
ERROR_COLUMNS = ["pages", "tokens", "questions", "whole", "trimmed", "gained", "lost", "p (McNemar)"]


def table(log: Path, output: Path) -> None:
    """Sum the log up for the docs."""
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    pages, errors = [], []
    for name in SETS:
        rows = [row for row in logged if row["set"] == name]
        read = [row for row in rows if row["area"]]
        if not rows:
            continue
        area = statistics.mean(row["area"] for row in rows)
        cut = [sum(len(row["cut_lines"]) for row in read), sum(row["cut_answers"] for row in read)]
        pages.append([name, len(rows), len(read), area, sum(row["lines"] for row in read), *cut])
        for budget in BUDGETS:
            pairs = Counter((whole, trimmed) for row in read for whole, trimmed in row["legible"].get(str(budget), ()))
            n, gained, lost = pairs.total(), pairs[False, True], pairs[True, False]
            if n:
                wrong = [(pairs[False, False] + more) / n for more in (gained, lost)]
                errors.append([name, budget, n, *wrong, gained, lost, mcnemar(gained, lost)])
    tables = {
        "trim-pages": {"columns": PAGE_COLUMNS, "rows": pages, "findings": []},
        "trim": {"columns": ERROR_COLUMNS, "rows": errors, "findings": []},
    }
    output.write_text(json.dumps({"basis": "legibility", "tables": tables}, indent=1) + "\n")


def _legible(model: Legibility, samples: list[Sample], image: Image.Image, budget: int, trim: bool) -> dict[str, bool]:
    fitted = fit(image, budget, trim=trim)
    (left, top), (across, down) = fitted.box[:2], fitted.scale
    where = [
        ((x0 - left) * across, (y0 - top) * down, (x1 - left) * across, (y1 - top) * down)
        for sample in samples
        for location in model.locations[sample.id]
        for x0, y0, x1, y1 in location.widened(max(MARGINS))
    ]
    cache = PageCache(model.pages.engine, None)
    found = cache.lines("page", fitted.image.size, lambda: as_pixels(fitted.image), where)
    lines = [_moved(line.scaled(1 / across, 1 / down), left, top) for line in found]
    return {s.id: read_at(model.locations[s.id], lines).legible for s in samples if model.locations[s.id]}


def _moved(line: TextLine, x: float, y: float) -> TextLine:
    a, b, c, d = ((at_x + x, at_y + y) for at_x, at_y in line.quad)
    return dataclasses.replace(line, quad=(a, b, c, d))


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "area", "adversarial", "legibility", "table"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--log", type=Path, default=Path("trim.jsonl"))
    parser.add_argument("--output", type=Path, default=Path("docs/results/trim.json"))
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    if options.what == "adversarial":
        adversarial()
    elif options.what == "table":
        table(options.log, options.output)
    elif options.data is None and options.what != "speed":
        parser.error("give the folder of real pages: --data DIR")
    elif options.what == "legibility":
        legibility(options.data, options.log, options.minutes)
    elif options.what == "area":
        area(options.data)
    else:
        speed(options.data)


if __name__ == "__main__":
    main()
