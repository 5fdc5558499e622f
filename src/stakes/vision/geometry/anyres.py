"""LLaVA-OneVision: the whole image once, and again in tiles on the best of 36 canvases (AnyRes, anyres_max_9).

    canvas = the one of 384 {1..6} x 384 {1..6} that keeps most of the image's pixels, then wastes least
    h, w   = features of that canvas (27 per tile side) with the padding cut off
    r      = sqrt(hw / (9 · 27²));  where r > 1.1:  h = floor(h / r),  w = floor(w / r)
    tokens = 729 + hw + h           the whole image, its tiles, one newline after each row of features

Follows ``select_best_resolution`` of transformers' image_processing_utils.py and ``_get_unpadded_features`` of
llava_onevision/processing_llava_onevision.py. The newlines are embeddings that the language model reads, so they
count. Several images in one prompt are not tiled at all: that case (730 tokens each) is not this formula.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class AnyRes:
    """Canvases of 1 to ``most_tiles`` tiles a side; ``side`` features per tile side; about ``cap`` tiles kept."""

    tile: int = 384
    side: int = 27
    most_tiles: int = 6
    cap: int = 9

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles on the canvas that the processor chooses."""
        most_kept, least_wasted, best = 0, math.inf, (1, 1)
        for rows in range(1, self.most_tiles + 1):
            for columns in range(1, self.most_tiles + 1):
                w, h = columns * self.tile, rows * self.tile
                scale = min(w / width, h / height)
                kept = min(int(width * scale) * int(height * scale), width * height)
                wasted = w * h - kept
                if kept > most_kept or (kept == most_kept and wasted < least_wasted):
                    most_kept, least_wasted, best = kept, wasted, (columns, rows)
        return best

    def covering(self, width: int, height: int) -> tuple[int, int]:
        """The same, at once, for an image that fits the largest canvas: the smallest canvas that covers it."""
        return math.ceil(width / self.tile), math.ceil(height / self.tile)

    def tokens_on(self, canvas: tuple[int, int], width: int, height: int) -> int:
        """Visual tokens of an image once its canvas is chosen."""
        w, h = canvas[0] * self.side, canvas[1] * self.side
        if width / height > w / h:
            padding = (h - int(round(height * (w / width), 7))) // 2
            h -= padding * 2
        else:
            padding = (w - int(round(width * (h / height), 7))) // 2
            w -= padding * 2
        ratio = math.sqrt(h * w / (self.cap * self.side**2))
        if ratio > 1.1:
            h, w = int(h // ratio), int(w // ratio)
        return self.side**2 + h * w + h

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image, newline features included."""
        return self.tokens_on(self.canvas(width, height), width, height)
