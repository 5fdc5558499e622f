"""Is the answer still legible? An OCR engine as a model: what stands at the answer's place, read at each budget.

    model = load("ocr")                        # or "ocr:qwen3-vl": whose tokens are counted
    apart = model.locate(asked)                # {'q17': 'its answer is not found on the page at native size', …}
    model.answer([Request(image, question, budget=304, sample="q3")])

This is legibility, not a VLM's error: the place of the answer is known, so nothing has to be understood or searched,
and print that no engine reads is print that a model must guess. It costs no GPU, and bounds what a reader can do.

It needs the acceptable answers, which a request does not carry: ``locate`` takes them with the samples, reads every
page once at native size and finds the places (``ocr_places``). A sample whose answer is not found there is set apart by
its id: handwriting, or an answer that is counted or reckoned rather than printed. A legible answer is given in its own
spelling; what is not the same as at native size is given as it is read, and marked ``truncated``, because a piece of
an answer is not the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from stakes.errors import BadInput
from stakes.legibility.answer_places import MARGINS, Place, find_places, read_at
from stakes.legibility.engine import Engine, Line, engine_identity
from stakes.legibility.page_cache import Box, Pages, as_pixels, user_cache
from stakes.models.base import Answer, Mechanism, Request
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry import tokens_as_sent
from stakes.vision.image.decode import open_image, probe
from stakes.vision.image.resize import fit, fitted_size

BASIS = "legibility"
NOT_FOUND = "its answer is not found on the page at native size"
RULES = "2"  # raise it when the same pixels would be judged otherwise


class Posed(Protocol):
    """What is needed of a sample: ``evaluation.asked.Asked`` has it."""

    @property
    def id(self) -> str:
        """Its name."""

    @property
    def answers(self) -> tuple[str, ...]:
        """The acceptable ones."""

    @property
    def digest(self) -> str:
        """The same for the same page."""

    @property
    def load(self) -> Callable[[], Any]:
        """Its image."""


class Legibility:
    """A model that only reads; ``basis`` marks whatever is measured with it."""

    basis = BASIS

    def __init__(
        self, family: str = "qwen2.5-vl", *, cache: Path | None = None, threads: int | None = None, keep: bool = True
    ) -> None:
        """``cache``: where readings are kept, by default the user's cache; none are with ``keep=False``."""
        self.family = named_family(family).name
        self.pages = Pages(Engine(), (cache or user_cache()) if keep else None)
        self.threads = threads or os.cpu_count() or 1
        self.places: dict[str, tuple[Place, ...]] = {}
        self._page_of: dict[str, str] = {}
        self._boxes: dict[str, list[Box]] = {}

    def identity(self) -> dict[str, str]:
        """Engine, weights, rules; not the family's name alone, since its geometry decides the sizes."""
        return {"basis": BASIS, "family": self.family, **engine_identity(), "rules": RULES}

    def native_tokens(self, width: int, height: int, mechanism: Mechanism) -> int:
        """What an image of this size takes with no budget."""
        _resized_only(mechanism)
        return tokens_as_sent(self.family, width, height)

    def locate(self, asked: Sequence[Posed], done: Callable[[int, int], None] | None = None) -> dict[str, str]:
        """Read every page at native size, find every answer; returns why a sample cannot be judged, by its id.

        ``done(pages, of)`` is called after each page.
        """
        first = {one.digest: one for one in reversed(asked)}
        texts: dict[str, list[Line]] = {}
        with ThreadPoolExecutor(self.threads) as pool:
            for digest, lines in zip(first, pool.map(self._native, first.values()), strict=True):
                texts[digest] = lines
                if done is not None:
                    done(len(texts), len(first))
        apart = {}
        for one in asked:
            found = self.places[one.id] = tuple(find_places(texts[one.digest], one.answers))
            self._page_of[one.id] = one.digest
            if not found:
                apart[one.id] = NOT_FOUND
            boxes = self._boxes.setdefault(one.digest, [])
            boxes += [_widened(place, i) for place in found for i in range(len(place.boxes))]
        return apart

    def native_lines(self, one: Posed) -> list[Line]:
        """Every line of a sample's page at native size."""
        return self._native(one)

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """What is read at each request's answer, in order; pages are read on all cores."""
        jobs: dict[tuple[str, tuple[int, int]], Request] = {}
        keys = []
        for request in requests:
            _resized_only(request.mechanism)
            if request.sample not in self._page_of:
                raise BadInput(
                    f"legibility is judged at the answer's place, and sample {request.sample!r} was not located; call "
                    "locate with all samples first"
                )
            if not self.places[request.sample]:
                raise BadInput(f"sample {request.sample!r} cannot be judged: {NOT_FOUND}; leave it out")
            _, width, height = probe(request.image)
            native = tokens_as_sent(self.family, width, height)
            size = fitted_size(width, height, request.budget or native, self.family)
            key = self._page_of[request.sample], (size.width, size.height)
            jobs.setdefault(key, request)
            keys.append((key, native, size.tokens))
        with ThreadPoolExecutor(self.threads) as pool:
            read = dict(zip(jobs, pool.map(self._read, jobs, jobs.values()), strict=True))
        answers = []
        for request, (key, native, tokens) in zip(requests, keys, strict=True):
            lines, ms = read[key]
            found = read_at(self.places[str(request.sample)], lines)
            answers.append(
                Answer(
                    text=found.text,
                    native_tokens=native,
                    budget=request.budget,
                    realised_tokens=tokens,
                    truncated=not found.same,
                    timings={"read": ms},
                    input_tokens=tokens,
                    layer_tokens=float(tokens),
                    encoder_tokens=tokens,
                )
            )
        return answers

    def _native(self, one: Posed) -> list[Line]:
        image = one.load()
        _, width, height = probe(image)
        return self.pages.lines(one.digest, (width, height), lambda: as_pixels(open_image(image)))

    def _read(self, key: tuple[str, tuple[int, int]], request: Request) -> tuple[list[Line], float]:
        """The lines at the page's answers, in native pixels, and how long that took."""
        began = time.perf_counter()
        digest, (width, height) = key
        _, native_width, native_height = probe(request.image)
        x, y = native_width / width, native_height / height
        budget = request.budget or tokens_as_sent(self.family, native_width, native_height)
        where = [(left / x, top / y, right / x, bottom / y) for left, top, right, bottom in self._boxes[digest]]
        lines = self.pages.lines(
            digest, (width, height), lambda: as_pixels(fit(request.image, budget, self.family).image), where
        )
        return [line.scaled(x, y) for line in lines], 1000 * (time.perf_counter() - began)


def load_ocr(name: str, **options: Any) -> Legibility:
    """``ocr`` or ``ocr:FAMILY``."""
    _, _, family = name.partition(":")
    return Legibility(family or "qwen2.5-vl", **options)


def places_of(model: Legibility) -> Mapping[str, tuple[Place, ...]]:
    """The places of every prepared sample, by its id."""
    return model.places


def _widened(place: Place, i: int) -> Box:
    left, top, right, bottom = place.boxes[i]
    room = max(MARGINS) * place.widths[i]
    return left - room, top, right + room, bottom


def _resized_only(mechanism: str) -> None:
    if mechanism != "resolution":
        raise BadInput(f"legibility is measured by resizing; it says nothing of {mechanism}")
