"""Does OCR read at native size on trimmed pages what it read on whole ones? And is a loss one of ink?

    python -m benchmarks.trim_native read --data DIR --log native.jsonl --cache FOLDER --minutes 30
    python -m benchmarks.trim_native table --log native.jsonl -o docs/results/trim-native.json

Every page with margins is read in full in four versions, all at native scale:

    whole      what is located here is what the others should find
    trimmed    the crop
    erased     the whole size, with plain background outside of the box: what is cut, but nothing moves
    moved      nothing cut, and 13 and 9 pixels of background added on the left and at the top: the engine's own noise

An answer counts that reads at its location on the whole page itself. It is found again where it reads there as before
(``read_at``), or where it is found anywhere. A line is read again where lines at its place contain its text; it is seen
where they cover half of its width. ``strip``: for what the trimmed page lost, the line's old quad is cut out of the
trimmed page and read without detection. Where that reads the same, the ink is there and detection differs. A log has
one line for each page; the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.trim_legibility import REAL, in_turn, moved, pages_of
from PIL import Image

from stakes.data.sample import Sample
from stakes.data.trim import trim_samples
from stakes.evaluation.statistics import mcnemar
from stakes.legibility.answer_locations import find_locations, read_at
from stakes.legibility.engine import Engine, TextLine
from stakes.legibility.page_cache import PageCache, as_pixels
from stakes.legibility.text_match import normalize
from stakes.vision.image.decode import open_image
from stakes.vision.image.trim import Bounds, margins

MOVED = (13, 9)  # pixels, no multiple of the detector's cells of 32
VERSIONS = ("trimmed", "erased", "moved")
SLACK = 3  # pixels by which the detector's quads are larger than the text
COLUMNS = (
    "pages", "version", "with margins", "answers", "lost at their place", "found nowhere", "found only here",
    "lines", "not read again", "not seen", "p against moved",
)  # fmt: skip
Lines = Sequence[TextLine]


def read(data: Path, log: Path, cache: Path, sets: Sequence[str], minutes: float) -> None:
    """Read the pages that are not in the log yet, until the time is over."""
    until = time.monotonic() + 60 * minutes
    logged = [json.loads(row) for row in log.read_text().splitlines()] if log.exists() else []
    done, pages = {(row["set"], row["page"], tuple(row["box"])) for row in logged}, PageCache(Engine(), cache)
    for name, samples in in_turn({name: pages_of(name, data) for name in sets}):
        if time.monotonic() > until:
            return
        image = open_image(samples[0].load())
        box = margins(image)
        if (name, samples[0].digest, box) not in done:
            row = {"set": name, "page": samples[0].digest, "size": image.size, "box": box}
            row |= page_row(pages, samples, image, box) if box != (0, 0, *image.size) else {}
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")


def page_row(pages: PageCache, samples: Sequence[Sample], image: Image.Image, box: Bounds) -> dict[str, Any]:
    """What each version of a page loses."""
    digest, crop = samples[0].digest, image.crop(box)
    whole = _lines(pages, digest, image)
    found = {sample.id: find_locations(whole, sample.answers) for sample in samples}
    located = {key: at for key, at in found.items() if read_at(at, whole).legible}
    cut = trim_samples(samples[:1], lambda *_: True)[0].digest
    read_in = {
        "trimmed": [moved(line, *box[:2]) for line in _lines(pages, cut, crop)],
        "erased": _lines(pages, f"{digest}-erased", erased(image, box)),
        "moved": [moved(line, -MOVED[0], -MOVED[1]) for line in _lines(pages, f"{digest}-moved", shifted(image))],
    }
    row: dict[str, Any] = {"located": list(located), "lines": len(whole)}
    for version, lines in read_in.items():
        nowhere = [s.id for s in samples if s.id in located and not find_locations(lines, s.answers)]
        row[version] = {
            "lost": [key for key, at in located.items() if not read_at(at, lines).legible],
            "nowhere": nowhere,
            "new": [s.id for s in samples if not found[s.id] and find_locations(lines, s.answers)],
            "not_read": [i for i, line in enumerate(whole) if not _again(line, lines)],
            "not_seen": [i for i, line in enumerate(whole) if not _seen(line, lines)],
        }
    of_crop = row["trimmed"]
    strips = [_strip(pages.engine, crop, line, box) for line in whole] if of_crop["lost"] or of_crop["not_read"] else []
    of_crop["strip_lost"] = [key for key in of_crop["lost"] if not read_at(located[key], strips).legible]
    of_crop["strip_not_read"] = [i for i in of_crop["not_read"] if strips[i].text != whole[i].text]
    of_crop["outside"] = [i for i, line in enumerate(whole) if not _inside(line, box)]
    return row


def erased(image: Image.Image, box: Bounds) -> Image.Image:
    """The whole page with plain background outside of the box."""
    page = Image.new("RGB", image.size, background(image))
    page.paste(image.crop(box), box[:2])
    return page


def shifted(image: Image.Image) -> Image.Image:
    """The whole page with background added on the left and at the top."""
    page = Image.new("RGB", (image.width + MOVED[0], image.height + MOVED[1]), background(image))
    page.paste(image, MOVED)
    return page


def background(image: Image.Image) -> tuple[int, int, int]:
    """The most frequent value of each channel."""
    pixels = np.asarray(image.convert("RGB"))
    red, green, blue = (int(np.bincount(pixels[..., i].ravel()).argmax()) for i in range(3))
    return red, green, blue


def _lines(pages: PageCache, digest: str, image: Image.Image) -> list[TextLine]:
    return pages.lines(digest, image.size, lambda: as_pixels(image.convert("RGB")))


def _strip(engine: Engine, crop: Image.Image, line: TextLine, box: Bounds) -> TextLine:
    """What is read where a line was, without detection."""
    quad = np.asarray(moved(line, -box[0], -box[1]).quad, np.float32)
    return moved(engine.recognize(as_pixels(crop.convert("RGB")), quad), *box[:2])


def _inside(line: TextLine, box: Bounds) -> bool:
    return all(box[0] - SLACK <= x <= box[2] + SLACK and box[1] - SLACK <= y <= box[3] + SLACK for x, y in line.quad)


def _bounds(line: TextLine) -> tuple[float, float, float, float]:
    xs, ys = zip(*line.quad, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _here(line: TextLine, lines: Lines) -> list[tuple[float, float, TextLine]]:
    """(from, to, line) of the lines at the place of one: they share half of the smaller height."""
    left, top, right, bottom = _bounds(line)
    found = []
    for other in lines:
        x0, y0, x1, y1 = _bounds(other)
        shared = min(bottom, y1) - max(top, y0)
        if min(right, x1) > max(left, x0) and shared >= 0.5 * min(bottom - top, y1 - y0):
            found.append((max(left, x0), min(right, x1), other))
    return sorted(found, key=lambda one: one[:2])


def _again(line: TextLine, lines: Lines) -> bool:
    here = normalize(" ".join(other.text for *_, other in _here(line, lines))).key
    return normalize(line.text).key in here


def _seen(line: TextLine, lines: Lines) -> bool:
    left, _, right, _ = _bounds(line)
    return sum(stop - start for start, stop, _ in _here(line, lines)) >= 0.5 * (right - left)


def set_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """One row for each version of the pages of a set."""
    cut = [row for row in rows if "located" in row]
    answers, lines = sum(len(row["located"]) for row in cut), sum(row["lines"] for row in cut)
    made = []
    for version in VERSIONS:
        sums = {
            key: sum(len(row[version][key]) for row in cut)
            for key in ("lost", "nowhere", "new", "not_read", "not_seen")
        }
        both = [(set(row[version]["lost"]), set(row["moved"]["lost"])) for row in cut]
        pair = sum(len(other - own) for own, other in both), sum(len(own - other) for own, other in both)
        p = None if version == "moved" else mcnemar(*pair)
        first = (name, version, len(cut), answers, sums["lost"], sums["nowhere"], sums["new"])
        made.append([*first, lines, sums["not_read"], sums["not_seen"], p])
    return made


def findings(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How the losses of the trimmed pages are explained."""
    cut = [row["trimmed"] for row in rows if "located" in row]
    lost, lines = sum(len(one["lost"]) for one in cut), sum(len(one["not_read"]) for one in cut)
    strip, strips = sum(len(one["strip_lost"]) for one in cut), sum(len(one["strip_not_read"]) for one in cut)
    unseen = sum(len(set(one["not_seen"]) & set(one["strip_not_read"])) for one in cut)
    outside = sum(len(one["outside"]) for one in cut)
    seen_there = f"{lost - strip} read as before in a strip at the old place"
    lines_there = f"{lines - strips} of {lines} lines that were not read again"
    rest = f" ({unseen} of the others are not seen)" if strips else ""
    return [
        f"{name}: of {lost} answers that the trimmed pages lost at their place, {seen_there}, and so do {lines_there}"
        f"{rest}; {outside} lines are outside of the box"
    ]


def table(log: Path) -> dict[str, Any]:
    """All sets."""
    by_set: dict[str, dict[str, Any]] = {}
    for row in map(json.loads, log.read_text().splitlines()):
        by_set.setdefault(row["set"], {})[row["page"]] = row
    pages = {name: list(by_set[name].values()) for name in REAL if name in by_set}
    return {
        "columns": COLUMNS,
        "rows": [row for name, rows in pages.items() for row in set_rows(name, rows)],
        "findings": [line for name, rows in pages.items() for line in findings(name, rows)],
    }


def main() -> None:
    """Read, or make the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read", "table"])
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--log", type=Path, default=Path("native.jsonl"))
    parser.add_argument("--cache", type=Path, default=Path("native"))
    parser.add_argument("--sets", nargs="+", default=REAL, choices=REAL)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/trim-native.json"))
    options = parser.parse_args()
    if options.what == "read":
        read(options.data, options.log, options.cache, options.sets, options.minutes)
    else:
        record = {"basis": "legibility", "tables": {"trim-native": table(options.log)}}
        options.output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
