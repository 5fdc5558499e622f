"""How skewed are scanned pages, and does OCR read more of them when they are rotated upright first?

    python -m benchmarks.deskew --data DIR --cache FOLDER

``DIR`` holds docvqa/ and sroie/, each with questions.jsonl and images/; readings at native size are kept in ``FOLDER``.
The angle of a page maximizes the sum over rows of (ink in the row)^2, where a pixel's row is y - x tan(angle),
over -3 to 3 degrees in steps of 0.25; the total is fixed, so this is the variance of the row sums. It is checked on the
straight pages, rotated by 2 degrees. Then pages of at least 0.75 degrees are read as they are and deskewed (bicubic,
expanded, filled with the background) at equal budgets, and straight pages as they are and skewed by 2 degrees. Answers
are located on the page as it is, at native size; what is read on the rotated page is mapped back.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
from pathlib import Path

import numpy as np
from benchmarks.trim_legibility import pages_of
from PIL import Image

from stakes.data.sample import Sample
from stakes.evaluation.statistics import discordant
from stakes.legibility.answer_locations import MARGINS, read_at
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import PageCache, as_pixels
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

BUDGETS = (96, 160, 304)
ANGLES = sorted((step / 4 for step in range(-12, 13)), key=abs)
REDUCED, EDGE = 1000, 0.04  # pixels along the longer side; share of each side not looked at, where scanners leave lines
TOLERANCE = 32  # of 255, as in ``trim``
SKEWED, KNOWN, MOST = 0.75, 2.0, 40
Page = tuple[list[Sample], float]  # its questions and an angle in degrees


def background(image: Image.Image) -> tuple[int, ...]:
    """The most frequent value of each channel."""
    return tuple(np.reshape(image.histogram(), (-1, 256)).argmax(axis=1).tolist())


def angle_of(image: Image.Image) -> float:
    """The counterclockwise rotation in degrees that makes the rows of ink sharpest; the smallest where several do."""
    gray = image.convert("L")
    gray.thumbnail((REDUCED, REDUCED), Image.Resampling.BOX)
    values = np.asarray(gray, np.int16)
    down, across = (slice(int(EDGE * side), side - int(EDGE * side)) for side in values.shape)
    y, x = np.nonzero(np.abs(values[down, across] - background(gray)[0]) > TOLERANCE)

    def sharpness(angle: float) -> int:
        rows = np.rint(y - x * math.tan(math.radians(angle))).astype(np.intp)
        return int(np.square(np.bincount(rows - rows.min(initial=0))).sum())

    return max(ANGLES, key=sharpness)


def rotated(image: Image.Image, angle: float) -> Image.Image:
    """The page rotated counterclockwise, expanded and filled with its background."""
    return image.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=background(image))


def legible(model: Legibility, samples: list[Sample], image: Image.Image, angle: float, budget: int) -> list[bool]:
    """Whether each answer can be read on the page rotated by ``angle``."""
    shown = rotated(image, angle) if angle else image
    fitted, where, lines = fit(shown, budget), [], []
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn = np.array([[cos, sin], [-sin, cos]])  # counterclockwise, because y points down
    scale, middle, center = np.array(fitted.scale), np.array(shown.size) / 2, np.array(image.size) / 2
    for x0, y0, x1, y1 in (b for s in samples for at in model.locations[s.id] for b in at.widened(max(MARGINS))):
        corners = ((np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)]) - center) @ turn.T + middle) * scale
        where.append((*corners.min(axis=0), *corners.max(axis=0)))
    cache = PageCache(model.pages.engine, None)
    for line in cache.lines("", fitted.image.size, lambda: as_pixels(fitted.image), where):
        a, b, c, d = ((float(x), float(y)) for x, y in (np.array(line.quad) / scale - middle) @ turn + center)
        lines.append(dataclasses.replace(line, quad=(a, b, c, d)))
    return [read_at(model.locations[sample.id], lines).legible for sample in samples]


def compare(title: str, model: Legibility, pages: list[Page]) -> None:
    """Print gained:lost by rotating at most ``MOST`` of these pages, at each budget."""
    chosen = random.Random(0).sample(pages, min(MOST, len(pages)))
    missing = model.locate([sample for samples, _ in chosen for sample in samples])
    before, after, documents = {b: list[bool]() for b in BUDGETS}, {b: list[bool]() for b in BUDGETS}, list[str]()
    for samples, angle in chosen:
        located, image = [s for s in samples if s.id not in missing], open_image(samples[0].load())
        documents += [sample.digest for sample in located]
        for budget in BUDGETS:
            before[budget] += legible(model, located, image, 0, budget)
            after[budget] += legible(model, located, image, angle, budget)
    print(f"{title}: {len(pages)} pages, {len(chosen)} read, {len(documents)} questions")
    for budget in BUDGETS:
        print(f"  {budget} tokens:", discordant(before[budget], after[budget], documents), flush=True)


def main() -> None:
    """Print the angles, then the paired readings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--data", "--cache"):
        parser.add_argument(option, type=Path, required=True)
    options = parser.parse_args()
    skewed, straight = list[Page](), list[Page]()
    for name in ("docvqa", "sroie"):
        pages = [(samples, angle_of(open_image(samples[0].load()))) for samples in pages_of(name, options.data)]
        sizes = np.abs([angle for _, angle in pages])
        print(name, len(pages), "pages", {f"over {least}": int((sizes > least).sum()) for least in (0.5, 1, 2)})
        skewed += [(samples, angle) for samples, angle in pages if abs(angle) >= SKEWED]
        straight += (upright := [(samples, KNOWN) for samples, angle in pages if angle == 0])
        errors = [angle_of(rotated(open_image(samples[0].load()), KNOWN)) + KNOWN for samples, _ in upright]
        print(f"rotation found on {sum(abs(error) <= 0.25 for error in errors)} of {len(upright)} straight pages")
    for title, chosen in ("skewed pages, deskewed", skewed), ("straight pages, skewed", straight):
        compare(title, Legibility(threads=1, cache=options.cache), chosen)


if __name__ == "__main__":
    main()
