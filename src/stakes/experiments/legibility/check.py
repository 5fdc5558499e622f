"""Is reading only where answers stand the same as reading the whole page? Three readings of the same small images.

    place    what ``models.ocr`` does: lines detected on the whole image, those at the answers read, judged at the place
    page     the engine's own call for a whole page; an answer is there when its words are anywhere in what was read
    strip    no detection: the line's box at native size, scaled, is cut out and read, judged at the place

Against ``page``, ``place`` may lose what is found by chance elsewhere and keep what a batch of lines read otherwise.
Against ``strip``, it loses what detection no longer finds: that share is what knowing the place would give away.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stakes.evaluation.items import Asked
from stakes.legibility.answer_places import read_at
from stakes.legibility.model import Legibility
from stakes.legibility.page_cache import as_pixels
from stakes.legibility.text_match import spelled
from stakes.models.base import Request
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit


@dataclass(frozen=True)
class Agreement:
    """Of ``questions`` answers at one budget, how many are legible by each reading, and how many by only one of two."""

    budget: int
    pages: int
    questions: int
    place: int
    page: int
    strip: int
    place_not_page: int
    page_not_place: int
    place_not_strip: int
    strip_not_place: int

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def check_readings(model: Legibility, asked: Sequence[Asked], budgets: Sequence[int]) -> list[Agreement]:
    """Read the pages of these samples, which were prepared and found, in all three ways."""
    whole = _whole_page_engine()
    pages: dict[str, list[Asked]] = {}
    for one in asked:
        pages.setdefault(one.digest, []).append(one)
    found = []
    for budget in budgets:
        requests = [Request(one.load(), one.question, budget, sample=one.id) for one in asked]
        place = {one.id: not said.truncated for one, said in zip(asked, model.answer(requests), strict=True)}
        page: dict[str, bool] = {}
        strip: dict[str, bool] = {}
        with ThreadPoolExecutor(model.threads) as pool:
            for there, cut in pool.map(lambda rows: _other_ways(model, whole, rows, budget), pages.values()):  # noqa: B023
                page |= there
                strip |= cut
        names = [one.id for one in asked]
        found.append(
            Agreement(
                budget=budget,
                pages=len(pages),
                questions=len(names),
                place=sum(place.values()),
                page=sum(page.values()),
                strip=sum(strip.values()),
                place_not_page=sum(place[name] and not page[name] for name in names),
                page_not_place=sum(page[name] and not place[name] for name in names),
                place_not_strip=sum(place[name] and not strip[name] for name in names),
                strip_not_place=sum(strip[name] and not place[name] for name in names),
            )
        )
    return found


def _other_ways(
    model: Legibility, whole: Any, rows: Sequence[Asked], budget: int
) -> tuple[dict[str, bool], dict[str, bool]]:
    """(anywhere on the page, in a strip of known place) for every sample of one page."""
    image = open_image(rows[0].load())
    small = fit(image, budget, model.family)
    pixels = as_pixels(small.image)
    said = spelled(" ".join(whole(pixels).txts or ()))
    x, y = small.scale
    native = model.native_lines(rows[0])
    strips = [
        model.pages.engine.recognise(pixels, np.asarray(line.scaled(x, y).quad, np.float32)).scaled(1 / x, 1 / y)
        for line in native
        if any(_holds(line.quad, box) for one in rows for place in model.places[one.id] for box in place.boxes)
    ]
    there = {one.id: any(said.find(spelled(a).key, glued=True) for a in one.answers) for one in rows}
    return there, {one.id: read_at(model.places[one.id], strips).same for one in rows}


def _holds(quad: Sequence[tuple[float, float]], box: tuple[float, float, float, float]) -> bool:
    """Whether the middle of a box lies within a line's bounds."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    xs, ys = [p[0] for p in quad], [p[1] for p in quad]
    return min(xs) <= x <= max(xs) and min(ys) <= y <= max(ys)


def _whole_page_engine() -> Any:
    """The engine with its defaults, one thread."""
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.log_level": "critical", "EngineConfig.onnxruntime.intra_op_num_threads": 1})
