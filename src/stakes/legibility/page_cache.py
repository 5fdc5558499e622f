"""What does a page say at a size? Read where it is asked for, and kept, so that no line is read twice.

    pages = Pages(Engine(), folder=user_cache())
    lines = pages.lines(digest, (532, 840), pixels, where=[(100, 80, 220, 96)])

Lines are always detected on the whole image, as in a full reading: a strip that is cut out because an answer is known
to stand there would spare the engine the search for it. Only the lines that touch ``where`` are then recognised, which
is what takes the time. A file for each (page, size) keeps what was read, written whole or not at all; the
folder's name changes with the engine. It holds the text of pages: private pages want a private folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stakes.legibility.engine import Engine, Line, Pixels, engine_identity

if TYPE_CHECKING:
    from PIL.Image import Image


Box = tuple[float, float, float, float]  # left, top, right, bottom
RULES = "1"  # raise it when what is kept of a reading changes
TOUCH = 0.25  # of the lower height that a line and a place must share, to be worth reading


class Pages:
    """All that was read, in memory for the page at hand and in a folder for good."""

    def __init__(self, engine: Engine, folder: Path | None) -> None:
        self.engine = engine
        self.folder = None if folder is None else folder / _tag()

    def lines(
        self,
        digest: str,
        size: tuple[int, int],
        pixels: Callable[[], Pixels],
        where: Sequence[Box] | None = None,
    ) -> list[Line]:
        """The lines of the page ``digest`` at this (width, height) that touch ``where``; all of them for None.

        ``pixels`` is called only where something is not known yet.
        """
        record = self._load(digest, size)
        image: Pixels | None = None
        if record is None:
            image = pixels()
            record = {"quads": np.asarray(self.engine.detect(image)).round(2).tolist(), "lines": {}}
            self._save(digest, size, record)
        quads = np.asarray(record["quads"], np.float32).reshape(-1, 4, 2)
        wanted = [i for i, quad in enumerate(quads) if where is None or any(_touches(quad, box) for box in where)]
        missing = [i for i in wanted if str(i) not in record["lines"]]
        for i in missing:
            image = pixels() if image is None else image
            line = self.engine.recognise(image, quads[i])
            record["lines"][str(i)] = [line.text, line.score, line.at]
        if missing:
            self._save(digest, size, record)
        return [_line(record["quads"][i], record["lines"][str(i)]) for i in wanted if record["lines"][str(i)][0]]

    def _path(self, digest: str, size: tuple[int, int]) -> Path | None:
        return None if self.folder is None else self.folder / digest[:2] / f"{digest}-{size[0]}x{size[1]}.json"

    def _load(self, digest: str, size: tuple[int, int]) -> Any:
        path = self._path(digest, size)
        if path is None or not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # a damaged file costs one reading
            return None

    def _save(self, digest: str, size: tuple[int, int], record: object) -> None:
        path = self._path(digest, size)
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file, ensure_ascii=False, separators=(",", ":"))
        os.replace(part, path)


def as_pixels(image: Image) -> Pixels:
    """An RGB image as the engine takes it."""
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8)[:, :, ::-1])


def user_cache() -> Path:
    """Where a person's programs keep what they can make again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stakes" / "ocr"


def _touches(quad: NDArray[np.float32], box: Box) -> bool:
    (left, top), (right, bottom) = quad.min(axis=0), quad.max(axis=0)
    across = min(right, box[2]) - max(left, box[0])
    down = min(bottom, box[3]) - max(top, box[1])
    return bool(across > 0 and down >= TOUCH * min(bottom - top, box[3] - box[1]))


def _line(quad: Any, kept: Any) -> Line:
    a, b, c, d = ((float(x), float(y)) for x, y in quad)
    text, score, at = kept
    return Line((a, b, c, d), str(text), float(score), tuple(float(f) for f in at))


def _tag() -> str:
    parts = json.dumps({**engine_identity(), "rules": RULES}, sort_keys=True)
    return hashlib.blake2b(parts.encode(), digest_size=6).hexdigest()
