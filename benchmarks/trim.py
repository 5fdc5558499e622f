"""What does trimming margins cost, how much of real pages goes, and does a drawn page lose ink?

    python -m benchmarks.trim speed --data DIR -o docs/results/trim-speed.json       # beside a fit without trim
    python -m benchmarks.trim adversarial                               # drawn pages of all kinds: is ink lost?
    python -m benchmarks.trim area --data DIR                           # share of the area trimmed

``DIR`` holds docvqa/, sroie/ and chartqa/, each with images/. ``trim_legibility`` has what OCR and a reader make of it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.photographs import drawn, photograph
from benchmarks.trim_pages import KINDS, make, name_of
from PIL import Image

from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit
from stakes.vision.image.trim import margins

COLUMNS = ["pages", "files", "tokens", "fit, ms", "fit with trim, ms", "more"]


def speed(data: Path | None, rounds: int = 7) -> list[list[Any]]:
    """CPU milliseconds of a fit with and without trim, by kind of page; a row for each budget.

    All files take turns, whole and trimmed, so that no fit finds the memory of the one before it. Medians of rounds,
    means over files.
    """
    kinds = _files(data)
    rows = []
    for budget in (304, 972):
        times: dict[tuple[str, int, bool], list[float]] = {}
        for _ in range(rounds + 1):  # the first warms up
            for kind, files in kinds.items():
                for number, content in enumerate(files):
                    for trim in (False, True):
                        began = time.process_time()
                        fit(content, budget, trim=trim)
                        times.setdefault((kind, number, trim), []).append(1000 * (time.process_time() - began))
        for kind, files in kinds.items():
            plain, trimmed = (
                statistics.mean(statistics.median(times[kind, number, trim][1:]) for number in range(len(files)))
                for trim in (False, True)
            )
            rows.append([kind, len(files), budget, round(plain, 2), round(trimmed, 2), f"{trimmed / plain - 1:+.0%}"])
    return rows


def _files(data: Path | None) -> dict[str, list[bytes]]:
    """Files by kind: drawn ones of 12 megapixels, and some of each real set."""
    rgb, gray = io.BytesIO(), io.BytesIO()
    drawn(random.Random(0)).resize((3000, 4000), Image.Resampling.BICUBIC).save(rgb, "JPEG", quality=90)
    Image.open(rgb).convert("L").save(gray, "JPEG", quality=90)
    found = {"scan, 12 MP": [rgb.getvalue()], "gray scan, 12 MP": [gray.getvalue()], "photograph": [photograph(0)]}
    for name, step in (("docvqa", 8), ("sroie", 4), ("chartqa", 20)) if data is not None else ():
        assert data is not None
        found[name] = [file.read_bytes() for file in sorted((data / name / "images").iterdir())[::step]]
    return found


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


def adversarial(seeds: int = 10) -> None:
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


def main() -> None:
    """Run one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "area", "adversarial"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="where the table of speed goes, as JSON")
    options = parser.parse_args()
    if options.what == "adversarial":
        adversarial()
    elif options.what == "speed":
        table = {"columns": COLUMNS, "rows": speed(options.data), "findings": []}
        print(json.dumps(table, indent=1))
        if options.output is not None:
            options.output.write_text(json.dumps({"tables": {"trim-speed": table}}, indent=1) + "\n", "utf-8")
    elif options.data is None:
        parser.error("give the folder of real pages: --data DIR")
    else:
        area(options.data)


if __name__ == "__main__":
    main()
