"""Text lines of pages at any size, read once and cached on disk.

    cache = PageCache(Engine(), folder=user_cache())
    lines = cache.lines(digest, (532, 840), pixels, where=[(100, 80, 220, 96)])

Lines are always detected on the whole image, as in a full reading: a strip that is cut out at a known answer would save
the engine the search for it. Only the lines that touch ``where`` are then recognized, which takes most of the time. One
file for each (page, size) holds the results; the folder's name changes with the engine. The cache contains the text of
pages: keep it private where the pages are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from stakes.files import write_whole
from stakes.legibility.engine import Engine, Pixels, TextLine, engine_identity

Box = tuple[float, float, float, float]  # left, top, right, bottom
RULES = "1"  # increase it when the content of a cache file changes
PROBED = 12  # lines of a page whose scores are its confidence; each takes some 10 ms
TOUCH = 0.25  # share of the smaller height that a line and a box must have in common


class PageCache:
    """The lines of pages, from the engine or from files of earlier readings; ``folder`` None keeps no files."""

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine = engine
        self.folder = None if folder is None else folder / _tag()

    def lines(
        self, digest: str, size: tuple[int, int], pixels: Callable[[], Pixels], where: Sequence[Box] | None = None
    ) -> list[TextLine]:
        """The lines of the page ``digest`` at this (width, height) that touch ``where``; all of them for None.

        ``pixels`` is called only where something has not been read yet.
        """

        def needed(quads: NDArray[np.float32]) -> list[int]:
            return [i for i, quad in enumerate(quads) if where is None or any(_touches(quad, box) for box in where)]

        return [line for line in self._read(digest, size, pixels, needed) if line.text]

    def score(self, digest: str, size: tuple[int, int], pixels: Callable[[], Pixels]) -> float:
        """The mean score of PROBED lines evenly over the page, 0 for one that is not read; 0 without any line."""

        def needed(quads: NDArray[np.float32]) -> list[int]:
            return sorted({round(i) for i in np.linspace(0, len(quads) - 1, PROBED)}) if len(quads) else []

        scores = [line.score for line in self._read(digest, size, pixels, needed)]
        return round(sum(scores) / len(scores), 4) if scores else 0.0

    def _read(
        self,
        digest: str,
        size: tuple[int, int],
        pixels: Callable[[], Pixels],
        needed: Callable[[NDArray[np.float32]], list[int]],
    ) -> list[TextLine]:
        """The lines that are needed, by their numbers; what was not read before is read and kept."""
        path = None if self.folder is None else self.folder / digest[:2] / f"{digest}-{size[0]}x{size[1]}.json"
        record, pixels = _load(path), cache(pixels)
        if record is None:
            record = {"quads": np.asarray(self.engine.detect(pixels())).round(2).tolist(), "lines": {}}
            _save(path, record)
        quads = np.asarray(record["quads"], np.float32).reshape(-1, 4, 2)
        numbers = needed(quads)
        missing = [i for i in numbers if str(i) not in record["lines"]]
        for i in missing:
            line = self.engine.recognize(pixels(), quads[i])
            record["lines"][str(i)] = [line.text, line.score, line.positions]
        if missing:
            _save(path, record)
        return [_line(record["quads"][i], *record["lines"][str(i)]) for i in numbers]


def _load(path: Path | None) -> Any:
    """The record in a cache file; None where there is none or it is damaged, which costs one reading."""
    try:
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _save(path: Path | None, record: object) -> None:
    if path is not None:
        write_whole(path, json.dumps(record, ensure_ascii=False, separators=(",", ":")))


def as_pixels(image: Image) -> Pixels:
    """An RGB image in the engine's format."""
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8)[:, :, ::-1])


def user_cache() -> Path:
    """The user's cache folder for OCR readings."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stakes" / "ocr"


def _touches(quad: NDArray[np.float32], box: Box) -> bool:
    (left, top), (right, bottom) = quad.min(axis=0), quad.max(axis=0)
    across = min(right, box[2]) - max(left, box[0])
    down = min(bottom, box[3]) - max(top, box[1])
    return bool(across > 0 and down >= TOUCH * min(bottom - top, box[3] - box[1]))


def _line(quad: Any, text: Any, score: Any, positions: Any) -> TextLine:
    a, b, c, d = ((float(x), float(y)) for x, y in quad)
    return TextLine((a, b, c, d), str(text), float(score), tuple(float(position) for position in positions))


def _tag() -> str:
    parts = json.dumps({**engine_identity(), "rules": RULES}, sort_keys=True)
    return hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()
