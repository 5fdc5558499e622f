"""The token formula of Qwen-VL and of the models that resize as it does: one token for each square of pixels."""

import math
from dataclasses import dataclass
from typing import Literal

from stakes.errors import BadInput

MAX_ASPECT = 200  # of an image that a Qwen-VL processor accepts


@dataclass(frozen=True)
class Factor:
    """Qwen-VL: one token for each ``factor`` x ``factor`` square of pixels after ``smart_resize``.

        tokens = hw / factor²

    ``enlarge`` says how a side below one factor is brought to it before, where the processor does that: "floor" as in
    GLM-4.xV (which counts every image as two frames, so the bounds here are half of its own), "round" as in
    PaddleOCR-VL. The markers around the image do not count.
    """

    factor: int
    min_pixels: int
    max_pixels: int
    enlarge: Literal["", "floor", "round"] = ""

    def enlarged(self, width: int, height: int) -> tuple[int, int]:
        """The size that ``smart_resize`` gets."""
        if self.enlarge == "floor" and min(width, height) < self.factor:
            scale = max(self.factor / height, self.factor / width)
            return int(width * scale), int(height * scale)
        if self.enlarge == "round":
            if height < self.factor:
                width, height = round((width * self.factor) / height), self.factor
            if width < self.factor:
                width, height = self.factor, round((height * self.factor) / width)
        return width, height

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tokens."""
        w, h = self.enlarged(width, height)
        _refuse_thin(max(w, h) / min(w, h), width, height)
        return bounded_grid(w, h, self.factor, self.min_pixels, self.max_pixels)

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        columns, rows = self.grid(width, height)
        return columns * rows


def smart_resize(
    width: int, height: int, factor: int = 28, min_pixels: int = 56 * 56, max_pixels: int = 28 * 28 * 16384
) -> tuple[int, int]:
    """The (width, height) to which a Qwen-VL processor resizes an image; the identity on its own results.

        h = round(H / f) f,  w = round(W / f) f
        where hw > max_pixels:  b = sqrt(HW / max_pixels),  h = max(f, floor(H / b / f) f),  w likewise
        where hw < min_pixels:  b = sqrt(min_pixels / HW),  h = ceil(H b / f) f,             w likewise

        smart_resize(1654, 2339)              # (1652, 2352): 59 x 84 squares of 28 pixels, 4956 tokens

    Follows ``smart_resize`` of transformers' qwen2_vl/image_processing_qwen2_vl.py. The floor leaves part of a budget
    unspent. The two bounds are not always kept: a thin image may end above max_pixels, because no side goes below one
    factor, and an image whose area lies under both bounds is enlarged to min_pixels even where that exceeds max_pixels.
    """
    _refuse_thin(max(width, height) / min(width, height), width, height)
    columns, rows = bounded_grid(width, height, factor, min_pixels, max_pixels)
    return columns * factor, rows * factor


def bounded_grid(
    width: int, height: int, factor: int, min_pixels: int, max_pixels: int, least: int = 0
) -> tuple[int, int]:
    """Columns and rows of ``smart_resize``; ``least``: of either, before the bounds are looked at."""
    # The operations keep the order of the original: another order rounds differently on some sizes.
    columns, rows = max(least, round(width / factor)), max(least, round(height / factor))
    if columns * rows * factor**2 > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        columns = max(1, math.floor(width / shrink / factor))
        rows = max(1, math.floor(height / shrink / factor))
    elif columns * rows * factor**2 < min_pixels:
        enlarge = math.sqrt(min_pixels / (height * width))
        columns = math.ceil(width * enlarge / factor)
        rows = math.ceil(height * enlarge / factor)
    return columns, rows


def _refuse_thin(aspect: float, width: int, height: int) -> None:
    if aspect > MAX_ASPECT:
        raise BadInput(
            f"an image of {width}x{height} has an aspect ratio of {aspect:.0f}, and Qwen-VL's processor refuses "
            f"more than {MAX_ASPECT}; crop it"
        )
