"""Where does print stand in an image, and what does it say? RapidOCR, pinned, with its weights inside the wheel.

    engine = Engine()
    quads = engine.detect(pixels)                 # [n, 4, 2] corners of the lines of print
    line = engine.recognise(pixels, quads[0])     # Line(text='Total: $4,500', score=0.98, …)

Detection enlarges a small image until its shorter side has 736 pixels, and recognition brings every line to a height of
48. Both are the engine's own settings: an image that was shrunk to a budget is read as the engine reads any small
image, and nothing is enlarged before that. In two ways this is not the engine's call for a whole page. Lines are
recognised one at a time, because a batch is padded to its widest line and a line would read otherwise in other
company. And only a line that stands on its side is asked which way up it is: in one that was turned over, characters
would stand at the wrong end.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stakes.errors import BadInput

Pixels = NDArray[np.uint8]  # [height, width, 3], blue first as OpenCV has it
Point = tuple[float, float]
LEAST_SCORE = 0.5  # the engine's own: a line that it is less sure of counts as not read
_SIDEWAYS = 1.5  # height over width from which the engine turns a line before it reads it


@dataclass(frozen=True)
class Line:
    """One line of print: its corners from the top left clockwise, its text, and how sure the engine is.

    ``at`` says where each character of ``text`` stands, from 0 at the left end to 1 at the right one; it is empty for a
    line that stands on its side.
    """

    quad: tuple[Point, Point, Point, Point]
    text: str
    score: float
    at: tuple[float, ...]

    @property
    def height(self) -> float:
        """In pixels, of the strip that was read."""
        wide, high = sides(self.quad)
        return high if self.at else min(wide, high)

    def scaled(self, x: float, y: float) -> Line:
        """The same line in an image that is x times as wide and y times as high."""
        a, b, c, d = ((px * x, py * y) for px, py in self.quad)
        return Line((a, b, c, d), self.text, self.score, self.at)

    def point(self, fraction: float) -> Point:
        """The middle of the line, so far along it."""
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = self.quad
        start, stop = ((ax + dx) / 2, (ay + dy) / 2), ((bx + cx) / 2, (by + cy) / 2)
        return start[0] + fraction * (stop[0] - start[0]), start[1] + fraction * (stop[1] - start[1])


class Engine:
    """The two networks, one thread each call; several threads may call at once."""

    def __init__(self) -> None:
        try:
            from rapidocr import RapidOCR
        except ImportError:
            raise BadInput("reading print needs the extra [ocr]; install it: pip install 'stakes[ocr]'") from None
        quiet = {
            "Global.log_level": "critical",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
        self._detector: Any = RapidOCR(params=quiet)
        self._reader: Any = RapidOCR(params={**quiet, "Global.use_preprocess_img": False})

    def detect(self, pixels: Pixels) -> NDArray[np.float32]:
        """[n, 4, 2]: the corners of every line, from the top left clockwise, in pixels of this image."""
        found = self._detector(pixels, use_det=True, use_cls=False, use_rec=False)
        boxes = getattr(found, "boxes", None)
        return np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32)

    def recognise(self, pixels: Pixels, quad: NDArray[np.float32]) -> Line:
        """What one line says; an unsure or empty reading has the text ""."""
        from rapidocr.utils.process_img import get_rotate_crop_image

        a, b, c, d = ((round(float(x), 2), round(float(y), 2)) for x, y in quad)
        nothing = Line((a, b, c, d), "", 0.0, ())
        wide, high = (int(side) for side in sides(nothing.quad))
        if min(wide, high) < 1:
            return nothing
        strip = np.ascontiguousarray(get_rotate_crop_image(pixels, quad.astype(np.float32)))
        sideways = high / wide >= _SIDEWAYS
        found = self._reader(strip, use_det=False, use_cls=sideways, use_rec=True, return_word_box=True)
        text, score = found.txts[0], float(found.scores[0])
        if not text.strip() or score < LEAST_SCORE:
            return nothing
        return Line(nothing.quad, text, round(score, 4), () if sideways else _along(text, found.word_results[0]))


def sides(quad: Sequence[Point]) -> tuple[float, float]:
    """Width and height of a quad as the engine cuts it out."""
    a, b, c, d = quad
    return max(math.dist(a, b), math.dist(c, d)), max(math.dist(a, d), math.dist(b, c))


def _along(text: str, words: Any) -> tuple[float, ...]:
    """Where each character stands, by the column of the network's output that named it; spaces stand between."""
    columns = iter([column for word in words.word_cols for column in word])
    known: list[float | None] = [None if char.isspace() else next(columns) + 0.5 for char in text]
    filled: list[float] = []
    for i, place in enumerate(known):
        if place is None:
            before = filled[-1] if filled else 0.0
            place = (before + next((later for later in known[i:] if later is not None), words.line_txt_len)) / 2
        filled.append(place)
    return tuple(round(float(place / words.line_txt_len), 4) for place in filled)


@lru_cache(maxsize=1)
def engine_identity() -> dict[str, str]:
    """Whatever of the engine could change a reading: its version, its runtime's, and its weights."""
    from importlib.metadata import version

    try:
        import rapidocr
    except ImportError:
        raise BadInput("reading print needs the extra [ocr]; install it: pip install 'stakes[ocr]'") from None
    weights = hashlib.blake2b(digest_size=16)
    for path in sorted((Path(rapidocr.__file__).parent / "models").glob("PP-OCR*.onnx")):
        weights.update(path.name.encode() + path.read_bytes())
    return {
        "engine": f"rapidocr {version('rapidocr')}, onnxruntime {version('onnxruntime')}",
        "weights": weights.hexdigest(),
    }
