"""Token formulas that show an image whole and again in parts: DeepSeek, Llama 4, Phi-4, LFM2-VL, MiniCPM-V.

Each follows the processor that it names. Markers and breaks between the parts count, because the processor writes them
for the image; the pair of markers around the whole does not.
"""

import math
from dataclasses import dataclass
from functools import cache

from stakes.errors import BadInput
from stakes.vision.geometry.factor import bounded_grid
from stakes.vision.geometry.tiles import AnyRes, AspectTiles


@dataclass(frozen=True)
class CanvasTiles(AnyRes):
    """DeepSeek-VL2: the whole image in one tile, and its tiles on the best canvas, each row of features with a break.

        tokens = side (side + 1) + 1 + side rows (side columns + 1)

    Follows vLLM's model_executor/models/deepseek_vl2.py; the padding is not cut off.
    """

    def tokens_on(self, canvas: tuple[int, int], width: int, height: int) -> int:  # noqa: ARG002
        """Visual tokens of an image once its canvas is chosen."""
        columns, rows = canvas
        return self.side * (self.side + 1) + 1 + self.side * rows * (self.side * columns + 1)


@dataclass(frozen=True)
class PageTiles:
    """DeepSeek-OCR: ``whole`` tokens for the page, and tiles as InternVL's where a side is longer than a tile.

        tokens = whole + side rows (side columns + breaks)

    DeepSeek-OCR has a break after each row of features, DeepSeek-OCR 2 has none: transformers'
    deepseek_ocr2/processing_deepseek_ocr2.py, and vLLM's deepseek_ocr.py for the first.
    """

    tile: int
    side: int
    whole: int
    breaks: int
    least: int = 2
    most: int = 6

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        if max(width, height) <= self.tile:
            return self.whole
        columns, rows = AspectTiles(self.tile, self.most, least=self.least).tiles(width, height)
        return self.whole + self.side * rows * (self.side * columns + self.breaks)


@dataclass(frozen=True)
class FitTiles:
    """Llama 4: the canvas of at most ``most`` tiles that enlarges the image least, or else shrinks it least.

        s(i, j) = min(tile i / W, tile j / H);  the least s >= 1, or else the largest; of equals the fewest tiles
        tokens = (per_tile + 1) ij [ij > 1] + per_tile + 1

    Follows ``get_best_fit`` of transformers' llama4/image_processing_llama4.py and processing_llama4.py. A separator
    after each tile and a marker before the whole image count.
    """

    tile: int = 336
    most: int = 16
    per_tile: int = 144

    def tokens(self, width: int, height: int) -> int:
        """Tokens that the processor writes for one image."""
        across = [columns * self.tile / width for columns in range(self.most + 1)]
        down = [rows * self.tile / height for rows in range(self.most + 1)]
        scales = [(min(across[i], down[j]), -i * j) for i, j in _grids(self.most)]
        enlarging = [(scale, -count) for scale, count in scales if scale >= 1]
        count = min(enlarging)[1] if enlarging else -max(scales)[1]
        return (self.per_tile + 1) * (count * (count > 1) + 1)

    def markers(self, width: int, height: int) -> int:
        """How many of them stand for no part of the image."""
        return self.tokens(width, height) // (self.per_tile + 1)


@cache
def _grids(most: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(1, most + 1) for j in range(1, most // i + 1)]


@dataclass(frozen=True)
class MaskedTiles:
    """Phi-4-multimodal: the whole image in one tile, and as many tiles as cover it, without what is padding.

        (i, j) = ceil(W / tile), ceil(H / tile), or InternVL's grid where ij > most
        a, b   = features across and down of the image, enlarged into that grid: ceil((32 i - floor(padding / 14)) / 2)
        tokens = 273 + ab + b

    Follows transformers' phi4_multimodal/image_processing_phi4_multimodal.py; breaks after rows of features count.
    """

    tile: int = 448
    most: int = 36
    patch: int = 14

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of one image."""
        columns, rows = math.ceil(width / self.tile), math.ceil(height / self.tile)
        if columns * rows > self.most:
            columns, rows = AspectTiles(self.tile, self.most).tiles(width, height)
        full_width, full_height = columns * self.tile, rows * self.tile
        across, down = full_width / width, full_height / height
        if across < down:
            w, h = full_width, int(height * across)
        else:
            w, h = int(width * down), full_height
        if min(w, h) < 10:
            raise BadInput(f"an image of {width}x{height} is too thin for Phi-4: its processor refuses it; crop it")
        a, b = self._features(full_width, w), self._features(full_height, h)
        whole = self.tile // self.patch // 2
        return whole * (whole + 1) + 1 + a * b + b

    def _features(self, full: int, side: int) -> int:
        return math.ceil((full // self.patch - (full - side) // self.patch) / 2)


@dataclass(frozen=True)
class ThumbnailTiles:
    """LFM2-VL: an image of up to twice ``most_tokens`` squares as Qwen-VL's, a larger one in tiles with that before.

        t      = squares of 32 pixels of the image, ``fewest`` to ``most_single`` of them
        tokens = t, or (16² + 1) ij + 1 + t where W H > tolerance most_single 32²; (i, j) as InternVL's, 2 to 10 tiles

    Follows transformers' lfm2_vl/image_processing_lfm2_vl.py and processing_lfm2_vl.py. A marker before each tile and
    before the whole image counts.
    """

    factor: int = 32
    fewest: int = 64
    most_single: int = 256
    tile: int = 512
    least: int = 2
    most: int = 10
    tolerance: float = 2.0

    def tokens(self, width: int, height: int) -> int:
        """Tokens that the processor writes for one image."""
        tiles, whole = self._parts(width, height)
        return (self.tile // self.factor) ** 2 * tiles + whole + self.markers(width, height)

    def markers(self, width: int, height: int) -> int:
        """How many of them stand for no part of the image."""
        tiles, _ = self._parts(width, height)
        return tiles + 1 if tiles else 0

    def _parts(self, width: int, height: int) -> tuple[int, int]:
        """Tiles, 0 where the image is not cut, and the squares of the whole image."""
        square = self.factor**2
        bounds = self.fewest * square, self.most_single * square
        columns, rows = bounded_grid(width, height, self.factor, *bounds, least=1)
        sides = (max(self.factor // 2, round(side / self.factor) * self.factor) for side in (width, height))
        if math.prod(sides) <= self.most_single * square * self.tolerance:
            return 0, columns * rows
        i, j = AspectTiles(self.tile, self.most, least=self.least).tiles(width, height)
        return i * j, columns * rows


@dataclass(frozen=True)
class Slices:
    """MiniCPM-V: the whole image, and slices where it has more than ``side``² pixels.

        n      = ceil(WH / side²), at most ``most``;  (i, j) = argmin |ln(W/H) - ln(i/j)| over ij = n - 1, n, n + 1
        tokens = v(W, H) + ij (v(W/i, H/j) + 2) + j - 1
        v      = squares of ``square`` pixels after scaling to side² pixels, or ``queries`` where the model has them

    Two markers around each slice and a break between rows of them count. Follows transformers'
    minicpmv4_6/image_processing_pil_minicpmv4_6.py and processing_minicpmv4_6.py.
    """

    square: int = 56
    queries: int = 0
    most: int = 9
    side: int = 448

    def slices(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of slices; (0, 0) where the image is not cut."""
        wanted = min(math.ceil(width * height / self.side**2), self.most)
        if wanted <= 1:
            return 0, 0
        best, least, shape = (1, 1), math.inf, math.log(width / height)
        for count in (wanted - 1, wanted, wanted + 1):
            if count == 1 or count > self.most:
                continue
            for rows in range(1, count + 1):
                if count % rows == 0:
                    error = abs(shape - math.log(count // rows / rows))
                    if error < least or (error == least and rows > best[1]):
                        best, least = (count // rows, rows), error
        return best

    def tokens(self, width: int, height: int) -> int:
        """Tokens that the processor writes for one image."""
        columns, rows = self.slices(width, height)
        if not columns:
            return self._view(width, height, enlarge=True)
        w, h = (max(round(side / n) * n, n) / n for side, n in ((width, columns), (height, rows)))
        one = self._view(w, h, enlarge=True)
        return self._view(width, height, enlarge=False) + columns * rows * (one + 2) + rows - 1

    def markers(self, width: int, height: int) -> int:
        """How many of them stand for no part of the image."""
        columns, rows = self.slices(width, height)
        return 2 * columns * rows + rows - 1 if columns else 0

    def _view(self, width: float, height: float, enlarge: bool) -> int:
        if self.queries:
            return self.queries
        if enlarge or width * height > self.side**2:
            shape = width / height
            height = int(self.side / math.sqrt(shape))
            width = int(height * shape)
        columns, rows = (max(round(side / self.square), 1) for side in (width, height))
        return columns * rows
