"""Gemma 3 and 4: every image is rescaled to one budget of the model's own, so resizing it changes nothing.

Gemma 3 sees a fixed square of 256 tokens, and more such squares where pan-and-scan cuts crops out of long images.
Gemma 4 fills a budget chosen from a menu, at the image's own aspect ratio.
"""

import math
from dataclasses import dataclass

from stakes.errors import BadInput

MENU = (70, 140, 280, 560, 1120)


@dataclass(frozen=True)
class Gemma3:
    """``per_image`` tokens for the image and for each crop; no crops unless ``pan_and_scan``.

        crops = clamp(min(floor(long / short + 0.5), floor(long / least_crop)), 2, most_crops)
                where long / short >= least_ratio and every crop keeps at least least_crop pixels a side, else 0
        tokens = per_image (1 + crops)

    Follows transformers' gemma3/image_processing_gemma3.py. Markers and the words between crops do not count.
    """

    per_image: int = 256
    pan_and_scan: bool = False
    least_crop: int = 256
    most_crops: int = 4
    least_ratio: float = 1.2

    def crops(self, width: int, height: int) -> int:
        """How many crops pan-and-scan adds."""
        long, short = max(width, height), min(width, height)
        if not self.pan_and_scan or long / short < self.least_ratio:
            return 0
        crops = min(math.floor(long / short + 0.5), long // self.least_crop)
        crops = min(max(crops, 2), self.most_crops)
        return crops if min(math.ceil(long / crops), short) >= self.least_crop else 0

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image and its crops."""
        return self.per_image * (1 + self.crops(width, height))


@dataclass(frozen=True)
class Gemma4:
    """At most ``max_soft_tokens`` squares of 48 pixels (patches of 16, pooled 3 x 3) at the image's aspect ratio.

        s = sqrt(max_soft_tokens 48² / (WH));  tokens = floor(sW / 48) floor(sH / 48)
        an image so thin that a side gets no square: one row (or column) of max_soft_tokens

    Follows ``get_aspect_ratio_preserving_size`` of transformers' gemma4/image_processing_gemma4.py. The two markers
    around the image do not count.
    """

    max_soft_tokens: int = 280
    square: int = 48

    def __post_init__(self) -> None:
        if self.max_soft_tokens not in MENU:
            raise BadInput(f"Gemma 4's max_soft_tokens must be one of {MENU}, not {self.max_soft_tokens}")

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        scale = math.sqrt(self.max_soft_tokens * self.square**2 / (height * width))
        columns, rows = math.floor(scale * width / self.square), math.floor(scale * height / self.square)
        # The original gives a thin image floor(long / short) squares, at most max_soft_tokens; the ratio is never less.
        return columns * rows or self.max_soft_tokens
