"""An OCR engine as a model: it answers with what it reads at the answer's location, at each budget.

    model = load("ocr")                        # or "ocr:qwen3-vl": the family whose tokens are counted
    excluded = model.locate(samples)           # {'q17': 'its answer is not found on the page at native size', ...}
    model.answer([Request(image, question, budget=304, sample="q3")])

The model needs the acceptable answers, which a request does not carry. ``locate`` takes them from the samples, reads
every page once at native size and finds the answers (``answer_locations``). A sample whose answer is not found is
excluded by its id: it may be handwritten, or counted or computed rather than printed. A legible answer is returned as
the sample has it. Any other text is returned as read and marked ``truncated``, because a piece of an answer is not the
answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.legibility.answer_locations import MARGINS, AnswerLocation, find_locations, read_at
from stakes.legibility.engine import Engine, TextLine, engine_identity
from stakes.legibility.page_cache import Box, PageCache, as_pixels, user_cache
from stakes.models.base import OCR_CONFIDENCE, Answer, Mechanism, Request
from stakes.models.identity import ModelName
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.image.decode import open_image, probe
from stakes.vision.image.resize import fit, fitted_size

BASIS = "legibility"
NOT_FOUND = "its answer is not found on the page at native size"
RULES = "2"  # increase it when the same pixels would be judged differently


class Legibility:
    """A model that only reads; ``basis`` labels everything that is measured with it."""

    basis = BASIS
    statistic = OCR_CONFIDENCE
    named: ModelName | None = None

    def __init__(
        self, family: str = "qwen2.5-vl", *, cache: Path | None = None, threads: int | None = None, keep: bool = True
    ) -> None:
        """``cache``: the folder of readings, by default in the user's cache; ``keep=False`` stores none."""
        self.family = named_family(family).name
        self.pages = PageCache(Engine(), (cache or user_cache()) if keep else None)
        self.threads = threads or os.cpu_count() or 1
        self.locations: dict[str, tuple[AnswerLocation, ...]] = {}
        self._page_of: dict[str, str] = {}
        self._boxes: dict[str, list[Box]] = {}

    def identity(self) -> dict[str, str]:
        """Engine, weights, rules, the confidence, and the family, whose geometry decides the sizes."""
        return {
            "basis": BASIS,
            "family": self.family,
            **engine_identity(),
            "rules": RULES,
            "confidence": OCR_CONFIDENCE,
        }

    def native_tokens(self, width: int, height: int, mechanism: Mechanism) -> int:
        """The tokens of an image of this size without a budget."""
        _check_mechanism(mechanism)
        return tokens_as_sent(self.family, width, height)

    def locate(self, samples: Sequence[Sample], done: Callable[[int, int], None] = lambda *_: None) -> dict[str, str]:
        """Read every page at native size and find every answer; returns why a sample cannot be judged, by its id.

        ``done(pages, of)`` is called after each page.
        """
        pages = {sample.digest: sample for sample in reversed(samples)}
        texts: dict[str, list[TextLine]] = {}
        with ThreadPoolExecutor(self.threads) as pool:
            for digest, lines in zip(pages, pool.map(self.native_lines, pages.values()), strict=True):
                texts[digest] = lines
                done(len(texts), len(pages))
        for sample in samples:
            found = self.locations[sample.id] = tuple(find_locations(texts[sample.digest], sample.answers))
            self._page_of[sample.id] = sample.digest
            boxes = self._boxes.setdefault(sample.digest, [])
            boxes += [box for location in found for box in location.widened(max(MARGINS))]
        return {sample.id: NOT_FOUND for sample in samples if not self.locations[sample.id]}

    def forget(self) -> None:
        """Forget every answer that was located; what is cached on disk stays."""
        for found in (self.locations, self._page_of, self._boxes):
            found.clear()

    def native_lines(self, sample: Sample) -> list[TextLine]:
        """Every line of a sample's page at native size."""
        image = sample.load()
        _, width, height = probe(image)
        return self.pages.lines(sample.digest, (width, height), lambda: as_pixels(open_image(image)))

    def lines_at(self, sample: Sample, budget: int) -> list[TextLine]:
        """Every line of a sample's page at a budget, in native pixels."""
        fitted = fit(open_image(sample.load()), budget, self.family)
        x, y = fitted.scale
        lines = self.pages.lines(sample.digest, fitted.image.size, lambda: as_pixels(fitted.image))
        return [line.scaled(1 / x, 1 / y) for line in lines]

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """What is read at each request's answer, in order; pages are read on all cores."""
        jobs: dict[tuple[str, tuple[int, int]], Request] = {}
        keys = []
        for request in requests:
            _check_mechanism(request.mechanism)
            if request.sample not in self._page_of:
                raise BadInput(
                    f"legibility is judged at the answer's location, and sample {request.sample!r} was not located; "
                    "call locate with all samples first"
                )
            if not self.locations[request.sample]:
                raise BadInput(f"sample {request.sample!r} cannot be judged: {NOT_FOUND}; leave it out")
            _, width, height = probe(request.image)
            native = tokens_as_sent(self.family, width, height)
            size = fitted_size(width, height, request.budget or native, self.family)
            key = self._page_of[request.sample], (size.width, size.height)
            jobs.setdefault(key, request)
            keys.append((key, native, size.tokens))
        with ThreadPoolExecutor(self.threads) as pool:
            results = dict(zip(jobs, pool.map(self._read, jobs, jobs.values()), strict=True))
        answers = []
        for request, (key, native, tokens) in zip(requests, keys, strict=True):
            lines, score, ms = results[key]
            reading = read_at(self.locations[str(request.sample)], lines)
            answers.append(
                Answer(
                    text=reading.text,
                    native_tokens=native,
                    budget=request.budget,
                    realised_tokens=tokens,
                    truncated=not reading.legible,
                    timings={"read": ms},
                    input_tokens=tokens,
                    layer_tokens=float(tokens),
                    encoder_tokens=tokens,
                    confidence=score,
                )
            )
        return answers

    def _read(self, key: tuple[str, tuple[int, int]], request: Request) -> tuple[list[TextLine], float, float]:
        """The lines at the page's answers, in native pixels, the page's score, and the milliseconds it took.

        The score is of lines all over the page: where the answer is, is known here but not when serving.
        """
        began = time.perf_counter()
        digest, (width, height) = key
        _, native_width, native_height = probe(request.image)
        x, y = native_width / width, native_height / height
        budget = request.budget or tokens_as_sent(self.family, native_width, native_height)
        where = [(left / x, top / y, right / x, bottom / y) for left, top, right, bottom in self._boxes[digest]]
        pixels = cache(lambda: as_pixels(fit(request.image, budget, self.family).image))
        lines = self.pages.lines(digest, (width, height), pixels, where)
        score = self.pages.score(digest, (width, height), pixels)
        return [line.scaled(x, y) for line in lines], score, 1000 * (time.perf_counter() - began)


def load_ocr(name: str, **options: Any) -> Legibility:
    """``ocr`` or ``ocr:FAMILY``."""
    _, _, family = name.partition(":")
    return Legibility(family or "qwen2.5-vl", **options)


def _check_mechanism(mechanism: str) -> None:
    if mechanism != "resolution":
        raise BadInput(f"legibility is measured by resizing and does not apply to {mechanism}; use resolution")
