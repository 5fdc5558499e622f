"""What does trimming margins cost, how much of real pages goes, and what does it do to legibility at equal tokens?

    python -m benchmarks.trim speed                                     # share of a fit of 12 megapixels
    python -m benchmarks.trim area --data DIR                           # share of the area trimmed
    python -m benchmarks.trim legibility --data DIR --pages 20 --minutes 6

``DIR`` holds docvqa/ and sroie/, each with questions.jsonl and images/. Legibility reads pages that have something to
trim, with and without, and pairs the samples whose answers are found at native size; the others are equal by
construction. It stops at the page that passes ``--minutes``.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import random
import statistics
import time
from collections import Counter
from pathlib import Path

from benchmarks.photographs import drawn, photograph
from PIL import Image

from stakes.data.sample import Sample, read_samples
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import mcnemar
from stakes.legibility.answer_locations import MARGINS, read_at
from stakes.legibility.engine import TextLine
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import PageCache, as_pixels
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit
from stakes.vision.image.trim import margins

BUDGETS = (96, 160, 224, 304)


def speed(repeats: int = 15) -> None:
    """CPU milliseconds of a fit with and without trim, medians of alternating runs."""
    page = io.BytesIO()
    drawn(random.Random(0)).resize((3000, 4000), Image.Resampling.BICUBIC).save(page, "JPEG", quality=90)
    gray = io.BytesIO()
    Image.open(page).convert("L").save(gray, "JPEG", quality=90)
    for name, data in (("scan", page.getvalue()), ("gray scan", gray.getvalue()), ("photograph", photograph(0))):
        for budget in (304, 972):
            times: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(repeats):
                for trim in times:
                    began = time.process_time()
                    fitted = fit(data, budget, trim=trim)
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


def legibility(data: Path, pages: int, minutes: float) -> None:
    """Samples that only the trimmed, or only the whole page leaves legible, at each budget."""
    model, began = Legibility(threads=1), time.process_time()
    for share, name in enumerate(("docvqa", "sroie"), 1):
        by_page: dict[str, list[Sample]] = {}
        for sample in prepare_samples(read_samples(data / name / "questions.jsonl"), data / name):
            by_page.setdefault(str(sample.image), []).append(sample)
        counts: dict[int, Counter[tuple[bool, bool]]] = {budget: Counter() for budget in BUDGETS}
        read = seen = 0
        for samples in by_page.values():
            image = open_image(samples[0].load())
            if read == pages or time.process_time() - began > share * 30 * minutes:
                break
            seen += 1
            if margins(image) == (0, 0, *image.size):
                continue
            read += 1
            excluded = model.locate(samples)
            for budget in BUDGETS:
                both = [_legible(model, samples, image, budget, trim) for trim in (False, True)]
                counts[budget].update((both[0][s.id], both[1][s.id]) for s in samples if s.id not in excluded)
        print(f"{name}: {read} pages with something to trim, of the first {seen}; {counts[BUDGETS[0]].total()} samples")
        for budget, found in counts.items():
            n, gained, lost = found.total(), found[False, True], found[True, False]
            whole, trimmed = (found[False, False] + gained) / max(n, 1), (found[False, False] + lost) / max(n, 1)
            print(
                f"  {budget:4} tokens: error {whole:.3f} whole, {trimmed:.3f} trimmed; "
                f"{gained} gained, {lost} lost, p = {mcnemar(gained, lost):.3g}"
            )


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
    parser.add_argument("what", choices=["speed", "area", "legibility"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pages", type=int, default=20, help="of each data set")
    parser.add_argument("--minutes", type=float, default=6, help="of CPU, for both data sets")
    options = parser.parse_args()
    if options.what == "speed":
        speed()
    elif options.data is None:
        parser.error("give the folder of real pages: --data DIR")
    elif options.what == "area":
        area(options.data)
    else:
        legibility(options.data, options.pages, options.minutes)


if __name__ == "__main__":
    main()
