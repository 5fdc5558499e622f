"""Qwen-VL: both sides become multiples of one factor, and every factor x factor square is one token.

    h = round(H / f) f,  w = round(W / f) f
    where hw > max_pixels:  b = sqrt(HW / max_pixels),  h = max(f, floor(H / b / f) f),  w likewise
    where hw < min_pixels:  b = sqrt(min_pixels / HW),  h = ceil(H b / f) f,             w likewise
    tokens = hw / f²

Follows ``smart_resize`` of transformers' qwen2_vl/image_processing_qwen2_vl.py. Its floor leaves part of a budget
unspent and its two bounds are not both kept: a thin image may end above max_pixels (no side goes below one factor),
and one whose area lies under both bounds is enlarged to min_pixels even where that is above max_pixels.

    smart_resize(1654, 2339)              # (1652, 2352): 59 x 84 squares of 28 pixels, 4956 tokens
"""

import math
from dataclasses import dataclass

from stakes.errors import BadInput

MAX_ASPECT = 200


def smart_resize(
    width: int, height: int, factor: int = 28, min_pixels: int = 56 * 56, max_pixels: int = 28 * 28 * 16384
) -> tuple[int, int]:
    """The (width, height) that a Qwen-VL processor resizes an image to; the identity on its own results."""
    aspect = max(width, height) / min(width, height)
    if aspect > MAX_ASPECT:
        raise BadInput(
            f"an image of {width}x{height} has an aspect ratio of {aspect:.0f}, and Qwen-VL's processor refuses "
            f"more than {MAX_ASPECT}; crop it"
        )
    # The operations keep the order of the original: another order rounds differently on some sizes.
    columns, rows = round(width / factor), round(height / factor)
    if columns * rows * factor**2 > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        columns = max(1, math.floor(width / shrink / factor))
        rows = max(1, math.floor(height / shrink / factor))
    elif columns * rows * factor**2 < min_pixels:
        enlarge = math.sqrt(min_pixels / (height * width))
        columns = math.ceil(width * enlarge / factor)
        rows = math.ceil(height * enlarge / factor)
    return columns * factor, rows * factor


@dataclass(frozen=True)
class Factor:
    """One token for each square of ``factor`` pixels after ``smart_resize``; markers around the image do not count."""

    factor: int
    min_pixels: int
    max_pixels: int

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tokens."""
        w, h = smart_resize(width, height, self.factor, self.min_pixels, self.max_pixels)
        return w // self.factor, h // self.factor

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        columns, rows = self.grid(width, height)
        return columns * rows
