"""Token formulas that cut an image into tiles of one size: LLaVA-OneVision, InternVL, Idefics3, GPT-4o, Gemini 2.

A tile has a fixed cost, so tokens move in steps. InternVL's number of tiles follows the aspect ratio, and Idefics3 and
SmolVLM first scale every image to the same long side: resizing an image changes nothing there.
"""

import math
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class AnyRes:
    """LLaVA-OneVision (anyres_max_9): the whole image once, and again in tiles on the best of 36 canvases.

        canvas = the one of 384 {1..6} x 384 {1..6} that keeps most of the image's pixels, then wastes least
        h, w   = features of that canvas (27 per tile side) with the padding cut off
        r      = sqrt(hw / (9 · 27²));  where r > 1.1:  h = floor(h / r),  w = floor(w / r)
        tokens = 729 + hw + h           the whole image, its tiles, one newline after each row of features

    Canvases have 1 to ``most_tiles`` tiles per side, a tile has ``side`` features per side, and about ``cap`` tiles are
    kept. Follows ``select_best_resolution`` of transformers' image_processing_utils.py and ``_get_unpadded_features``
    of llava_onevision/processing_llava_onevision.py. The newlines are embeddings that the language model reads, so
    they count. Several images in one prompt are not tiled at all: that case (730 tokens each) is not this formula.

    ``canvases`` (columns, rows of tiles) are the only ones of a model that has fewer: LLaVA-NeXT has five.
    """

    tile: int = 384
    side: int = 27
    most_tiles: int = 6
    cap: int = 9
    canvases: tuple[tuple[int, int], ...] = ()

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles on the canvas that the processor chooses."""
        most_kept, least_wasted, best = 0, math.inf, (1, 1)
        sides = range(1, self.most_tiles + 1)
        for columns, rows in self.canvases or ((columns, rows) for rows in sides for columns in sides):
            w, h = columns * self.tile, rows * self.tile
            scale = min(w / width, h / height)
            kept = min(int(width * scale) * int(height * scale), width * height)
            wasted = w * h - kept
            if kept > most_kept or (kept == most_kept and wasted < least_wasted):
                most_kept, least_wasted, best = kept, wasted, (columns, rows)
        return best

    def covering(self, width: int, height: int) -> tuple[int, int]:
        """``canvas`` without the search, for an image that fits the largest canvas: the smallest that covers it."""
        if self.canvases:
            return self.canvas(width, height)
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


@lru_cache
def _grids(least: int, most: int) -> list[tuple[int, int, float]]:
    """Columns, rows and their ratio of all grids of ``least`` to ``most`` tiles, the smallest first."""
    grids = [(i, j, i / j) for i in range(1, most + 1) for j in range(1, most // i + 1) if i * j >= least]
    return sorted(grids, key=lambda grid: grid[0] * grid[1])


@dataclass(frozen=True)
class AspectTiles:
    """InternVL: the grid of at most ``most`` tiles whose aspect ratio is closest, and a thumbnail.

        (i, j) = argmin |W/H - i/j| over least <= ij <= most; a tie goes to the larger grid where WH > 0.5 tile² ij
        tokens = per_tile (ij + [ij > 1])

    Follows ``get_optimal_tiled_canvas`` of transformers' got_ocr2/image_processing_got_ocr2.py, with the processor's
    crop_to_patches. The two markers around the image do not count.
    """

    tile: int = 448
    most: int = 12
    per_tile: int = 256
    least: int = 1

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self.per_tile * (self.most + (self.most > 1))

    def tiles(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles, without the thumbnail."""
        best, least, aspect = (1, 1), math.inf, width / height
        for i, j, ratio in _grids(self.least, self.most):
            difference = abs(aspect - ratio)
            if difference < least:
                best, least = (i, j), difference
            elif difference == least and width * height > 0.5 * self.tile * self.tile * i * j:
                best = (i, j)
        return best

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        columns, rows = self.tiles(width, height)
        return self.per_tile * (columns * rows + (columns * rows > 1))


@dataclass(frozen=True)
class SplitTiles:
    """Idefics3 and SmolVLM: the long side becomes ``longest_edge``; R x C tiles, then the whole image.

        tokens = S + 3 + R ((S + 2) C + 1)         S = per_tile

    Follows transformers' idefics3/image_processing_idefics3.py and processing_idefics3.py. The marker and position
    tokens around every tile and the newline after every row count, because the processor writes them for the image;
    the formula holds where the tokenizer reads two newlines as one token (one more otherwise).
    """

    longest_edge: int
    tile: int
    per_tile: int
    limit: int = 4096

    @property
    def most_tokens(self) -> int:
        """The most that any image takes: a square one has the most tiles."""
        return self.tokens(self.longest_edge, self.longest_edge)

    def tiles(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles; (0, 0) where the whole image is the only tile."""
        landscape = width >= height
        width, height = _with_long_side(width, height, self.longest_edge)
        if landscape:  # only the short side is made even
            height = max(height + height % 2, 1)
        else:
            width = max(width + width % 2, 1)
        if max(width, height) > self.limit:
            width, height = (max(side, 1) for side in _with_long_side(width, height, self.limit))
        long = math.ceil(max(width, height) / self.tile) * self.tile
        columns, rows = (math.ceil(side / self.tile) for side in _with_long_side(width, height, long))
        return (columns, rows) if columns * rows > 1 else (0, 0)

    def tokens(self, width: int, height: int) -> int:
        """Tokens that the processor writes for one image, markers included."""
        columns, rows = self.tiles(width, height)
        return self.per_tile + 3 + rows * ((self.per_tile + 2) * columns + 1)

    def markers(self, width: int, height: int) -> int:
        """How many of them stand for no part of the image."""
        columns, rows = self.tiles(width, height)
        return 3 + rows * (2 * columns + 1)


def _with_long_side(width: int, height: int, long: int) -> tuple[int, int]:
    aspect = width / height
    return (long, int(long / aspect)) if width >= height else (int(long * aspect), long)


@dataclass(frozen=True)
class DetailTiles:
    """GPT-4o and similar models at detail "high": fit into ``square``, shrink the short side to ``short``, count tiles.

        tokens = base + per_tile ceil(w / tile) ceil(h / tile)

    Intermediate sizes are kept exact, because the guide does not say how they are rounded: where a side falls within a
    pixel of a tile's edge, the bill may be one tile less. Small images are not enlarged.
    """

    base: int
    per_tile: int
    square: int = 2048
    short: int = 768
    tile: int = 512

    @property
    def most_tokens(self) -> int:
        """The most that any image takes."""
        return self.base + self.per_tile * -(-self.square // self.tile) * -(-self.short // self.tile)

    @property
    def low_tokens(self) -> int:
        """What every image takes at detail "low"."""
        return self.base

    def tokens(self, width: int, height: int) -> int:
        """Billed tokens of one image."""
        # The scale is a fraction of integers, so that 2048 / 512 never becomes 4.0000001 tiles.
        above, below = 1, 1
        if max(width, height) > self.square:
            above, below = self.square, max(width, height)
        if min(width, height) * above > self.short * below:
            above, below = self.short, min(width, height)
        columns, rows = (-(-side * above // (self.tile * below)) for side in (width, height))
        return self.base + self.per_tile * columns * rows


@dataclass(frozen=True)
class CropTiles:
    """Gemini 2: one tile up to ``small`` x ``small``, else square crops of a side that follows the short side.

    u = clamp(floor(min(W, H) / 1.5), 256, 768);  tokens = per_tile ceil(W / u) ceil(H / u)
    """

    per_tile: int
    small: int = 384
    least: int = 256
    most: int = 768

    def tokens(self, width: int, height: int) -> int:
        """Billed tokens of one image."""
        if max(width, height) <= self.small:
            return self.per_tile
        unit = min(max(min(width, height) * 2 // 3, self.least), self.most)
        return self.per_tile * math.ceil(width / unit) * math.ceil(height / unit)
