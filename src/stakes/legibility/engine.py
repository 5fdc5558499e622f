"""The OCR engine: RapidOCR, pinned, with its weights inside the wheel. It detects lines of text and reads them.

    engine = Engine()
    quads = engine.detect(pixels)                 # [n, 4, 2] corners of the text lines
    line = engine.recognize(pixels, quads[0])     # TextLine(text='Total: $4,500', score=0.98, ...)

Detection enlarges a small image until its shorter side has 736 pixels, and recognition scales every line to a height of
48. Both are the engine's own settings: an image that was shrunk to a budget is read as the engine reads any small
image. Two things differ from the engine's call for a whole page. Lines are recognized one at a time, because a batch is
padded to its widest line, so that a line's result would depend on the other lines. And only vertical lines are checked
for being upside down, because flipping a line would reverse the positions of its characters.
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
LEAST_SCORE = 0.5  # the engine's own threshold: a line below it counts as not read
_VERTICAL = 1.5  # height over width from which the engine rotates a line before it reads it


@dataclass(frozen=True)
class TextLine:
    """One line of text: its corners from the top left clockwise, its text, and the engine's score.

    ``positions``: where each character of ``text`` is, from 0 at the left end to 1 at the right end; empty for a
    vertical line.
    """

    quad: tuple[Point, Point, Point, Point]
    text: str
    score: float
    positions: tuple[float, ...]

    @property
    def height(self) -> float:
        """Height in pixels of the strip that was read."""
        wide, high = _sides(self.quad)
        return high if self.positions else min(wide, high)

    def scaled(self, x: float, y: float) -> TextLine:
        """The same line in an image that is x times as wide and y times as high."""
        a, b, c, d = ((px * x, py * y) for px, py in self.quad)
        return TextLine((a, b, c, d), self.text, self.score, self.positions)

    def point(self, position: float) -> Point:
        """The point on the line's center line at this position."""
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = self.quad
        start, stop = ((ax + dx) / 2, (ay + dy) / 2), ((bx + cx) / 2, (by + cy) / 2)
        return start[0] + position * (stop[0] - start[0]), start[1] + position * (stop[1] - start[1])


class Engine:
    """Detection and recognition; each call uses one thread, and several threads may call at once."""

    def __init__(self) -> None:
        rapidocr = _rapidocr()
        params = {
            "Global.log_level": "critical",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        }
        self._detector = rapidocr.RapidOCR(params=params)
        self._recognizer = rapidocr.RapidOCR(params={**params, "Global.use_preprocess_img": False})

    def detect(self, pixels: Pixels) -> NDArray[np.float32]:
        """[n, 4, 2]: the corners of every line, from the top left clockwise, in pixels of this image."""
        boxes = getattr(self._detector(pixels, use_det=True, use_cls=False, use_rec=False), "boxes", None)
        return np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32)

    def recognize(self, pixels: Pixels, quad: NDArray[np.float32]) -> TextLine:
        """The text of one line; an uncertain or empty result has the text ""."""
        from rapidocr.utils.process_img import get_rotate_crop_image

        a, b, c, d = ((round(float(x), 2), round(float(y), 2)) for x, y in quad)
        nothing = TextLine((a, b, c, d), "", 0.0, ())
        wide, high = (int(side) for side in _sides(nothing.quad))
        if min(wide, high) < 1:
            return nothing
        strip = np.ascontiguousarray(get_rotate_crop_image(pixels, quad.astype(np.float32)))
        vertical = high / wide >= _VERTICAL
        result = self._recognizer(strip, use_det=False, use_cls=vertical, use_rec=True, return_word_box=True)
        text, score = result.txts[0], float(result.scores[0])
        if not text.strip() or score < LEAST_SCORE:
            return nothing
        positions = () if vertical else _positions(text, result.word_results[0])
        return TextLine(nothing.quad, text, round(score, 4), positions)


def _sides(quad: Sequence[Point]) -> tuple[float, float]:
    """Width and height of a quad as the engine cuts it out."""
    a, b, c, d = quad
    return max(math.dist(a, b), math.dist(c, d)), max(math.dist(a, d), math.dist(b, c))


def _positions(text: str, words: Any) -> tuple[float, ...]:
    """The position of each character, by its column in the network's output; a space is between its neighbors."""
    columns = iter([column for word in words.word_cols for column in word])
    known: list[float | None] = [None if char.isspace() else next(columns) + 0.5 for char in text]
    filled: list[float] = []
    for i, position in enumerate(known):
        if position is None:
            before = filled[-1] if filled else 0.0
            position = (before + next((later for later in known[i:] if later is not None), words.line_txt_len)) / 2
        filled.append(position)
    return tuple(round(float(position / words.line_txt_len), 4) for position in filled)


def _rapidocr() -> Any:
    try:
        import rapidocr
    except ImportError:
        raise BadInput("OCR needs the extra [ocr]; install it: pip install 'stakes[ocr]'") from None
    return rapidocr


@lru_cache(maxsize=1)
def engine_identity() -> dict[str, str]:
    """Everything of the engine that can change a reading: its version, its runtime's, and its weights."""
    from importlib.metadata import version

    weights = hashlib.blake2b(digest_size=16)
    for path in sorted((Path(_rapidocr().__file__).parent / "models").glob("PP-OCR*.onnx")):
        weights.update(path.name.encode() + path.read_bytes())
    return {
        "engine": f"rapidocr {version('rapidocr')}, onnxruntime {version('onnxruntime')}",
        "weights": weights.hexdigest(),
    }
