"""The paper of a scanned page and the values of its pixels, for ``trim`` and ``scanner_edges``.

paper = ScannedPaper(image, tolerance=32)                        # "L" or "RGB", or RGB pixels as bytes
ink = paper.differs(paper.part((0, 0, 200, 100)), side=4) # [25, 50]: squares of 4 pixels that hold ink
"""

from bisect import bisect_left
from itertools import accumulate
from operator import sub
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stakes.vision.image.modes import Pixels, gray_values

Bounds = tuple[int, int, int, int]  # x0, y0, x1, y1
Cells = NDArray[np.bool_]  # [rows, columns]; seen from an edge: [inward, along]
Values = NDArray[np.uint8]  # [rows, columns] of gray, [rows, 3 * columns] of RGB

SAMPLES = 128  # along the longer side
COUNTED, BETWEEN_OF = 1 << 20, 20  # pixels, of larger images some rows; one in so many of a scan's ink is gray
NOISE, CLEAN_OF = 4, 1000  # of 255: what noise adds to paper; of so many samples of clean paper one may have it


class ScannedPaper:
    """The most frequent value of each channel, from single pixels on a grid, and the values of parts of the page."""

    def __init__(self, image: Image.Image | Pixels, tolerance: int) -> None:
        self.size = image.size
        step = max(1, max(image.size) // SAMPLES)
        columns, rows = (-(-length // step) for length in image.size)
        if isinstance(image, Pixels):
            values = np.frombuffer(image.data, dtype=np.uint8).reshape(image.size[1], image.size[0], 3)
            down, across = _nearest(image.size[1], rows), _nearest(image.size[0], columns)
            taken = values.take(down, axis=0).take(across, axis=1)
            grid, self.grid = Image.fromarray(taken), taken.reshape(len(down), -1)
            self._pixels: Image.Image | Values = values.reshape(image.size[1], -1)
        else:
            grid = image.resize((columns, rows), Image.Resampling.NEAREST)
            self.grid = _values(grid)
            self._pixels = _values(image) if image.mode == "L" else image
        self.depth, counts = len(grid.getbands()), grid.histogram()
        self._counts = [counts[first : first + 256] for first in range(0, 256 * self.depth, 256)]
        self.background = [_most_frequent(counts) for counts in self._counts]
        self.light = min(self.background) > 128
        self.clean = False
        self.tolerate(tolerance)
        self._half = self._row([max(0, value // 2 - 1) for value in self.background], self.size[0])

    def tolerate(self, tolerance: int) -> None:
        """Background is what differs by no more than this in any channel."""
        self.tolerance = tolerance
        low, high = self._limits(tolerance)
        self._lowest, self._highest = self._row(low, self.size[0]), self._row(high, self.size[0])
        self._above = self._row([min(255, value + 1) for value in high], self.size[0])
        self.brighter = max(high) < 255  # whether a pixel can be brighter than the paper
        self._only_darker = min(high) == 255  # whether no channel can

    def is_clean(self, core: Bounds) -> bool:
        """Whether the paper around the core has one value, as no scan has; what has two values in all may be one."""
        rows, columns = self.grid.shape[0], self.grid.shape[1] // self.depth
        lowest, highest = (self._row(channels, columns) for channels in self._limits(NOISE))
        unlike = self._squares(self.grid != self._row(self.background, columns), 1)
        far = self._squares((self.grid < lowest) | (self.grid > highest), 1)
        if any(core):
            x0, x1 = (int(x * columns / self.size[0]) for x in (core[0], core[2]))
            y0, y1 = (int(y * rows / self.size[1]) for y in (core[1], core[3]))
            unlike[y0 : y1 + 1, x0 : x1 + 1] = far[y0 : y1 + 1, x0 : x1 + 1] = True
        noisy, same = np.count_nonzero(unlike) - np.count_nonzero(far), unlike.size - np.count_nonzero(unlike)
        self.clean = bool(noisy * CLEAN_OF <= same) and not self._has_two_values()
        return self.clean

    def _has_two_values(self) -> bool:
        """Whether next to nothing lies between two values, as in a scan of one bit."""
        channel, step = min(1, self.depth - 1), max(1, self.size[0] * self.size[1] // COUNTED)
        if self._counts[channel].count(0) < 254:
            return False
        counts = np.zeros(256, dtype=np.int64)
        for y in range(0, self.size[1], step):
            counts += np.bincount(self.part((0, y, self.size[0], y + 1))[0, channel :: self.depth], minlength=256)
        counts.sort()
        return bool(BETWEEN_OF * counts[:-2].sum() < counts[:-1].sum())

    def part(self, box: Bounds) -> Values:
        """The values in a box of pixels."""
        if isinstance(self._pixels, Image.Image):
            return _values(self._pixels.crop(box))
        return self._pixels[box[1] : box[3], box[0] * self.depth : box[2] * self.depth]

    def differs(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel that is not background."""
        wide = values.shape[1]
        lines = _joined(values, side, np.minimum) < self._lowest[:wide]
        if not self._only_darker:
            lines |= _joined(values, side, np.maximum) > self._highest[:wide]
        return self._across(lines, side)

    def is_light(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel at least half as bright as the background in some channel."""
        return self._across(_joined(values, side, np.maximum) > self._half[: values.shape[1]], side)

    def is_not_brighter(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel that is not brighter than background in some channel."""
        return self._across(_joined(values, side, np.minimum) < self._above[: values.shape[1]], side)

    def changes(self, values: Values, side: int) -> Cells:
        """[rows, columns]: squares with a pixel that differs from the one above or beside it."""
        signed, flags = values.astype(np.int16), np.zeros(values.shape, dtype=np.bool_)
        flags[:, self.depth :] = np.abs(signed[:, self.depth :] - signed[:, : -self.depth]) > self.tolerance
        flags[1:] |= np.abs(signed[1:] - signed[:-1]) > self.tolerance
        return self._squares(flags, side)

    def contrast(self, values: Values) -> NDArray[np.int16]:
        """[rows, columns]: how far pixels are from the background, in green or gray."""
        channel = min(1, self.depth - 1)
        return np.abs(values[:, channel :: self.depth].astype(np.int16) - self.background[channel])

    def _limits(self, tolerance: int) -> tuple[list[int], list[int]]:
        """The lowest and the highest value of each channel that count as background."""
        low = [max(0, value - tolerance) for value in self.background]
        return low, [min(255, value + tolerance) for value in self.background]

    def _row(self, channels: list[int], columns: int) -> Values:
        """The values of the channels for each pixel of a row; a single one where they are the same, which is faster."""
        values = np.array(channels, dtype=np.uint8)
        return values[:1] if len(set(channels)) == 1 else np.tile(values, columns)

    def _squares(self, flags: Cells, side: int) -> Cells:
        """[rows, columns]: whether any flag of a square is set; the last may be smaller."""
        return self._across(_joined(flags, side, np.bitwise_or), side)

    def _across(self, lines: Cells, side: int) -> Cells:
        """[rows, columns]: whether any flag is set, of so many pixels side by side."""
        word = side * self.depth  # bytes of a line of a square
        if word == 1:
            return lines
        rows, width = lines.shape
        columns = -(-width // word)
        if columns * word != width:
            padded = np.zeros((rows, columns * word), dtype=np.bool_)
            padded[:, :width] = lines
            lines = padded
        words = lines.reshape(-1).view(f"u{min(side, 8)}")  # as many flags at once
        each = len(words) // (rows * columns)
        count = len(words) - each + 1
        joined = words[:count]  # each word with those after it: two thirds of the time of steps of so many words
        for offset in range(1, each):
            joined = joined | words[offset : offset + count]
        found: Cells = (joined[::each] != 0).reshape(rows, columns)
        return found


def _joined(values: NDArray[Any], side: int, join: np.ufunc) -> NDArray[Any]:
    """[rows of squares, values]: so many rows as one; the last may be fewer.

    The least and the greatest are joined before they are compared: half as many comparisons, 0.7 of the time.
    """
    if side == 1:
        return values
    whole, wide = len(values) // side, values.shape[1]
    lines = values[: whole * side].reshape(whole, side, wide)
    joined = np.empty((-(-len(values) // side), wide), dtype=values.dtype)
    join(lines[:, 0], lines[:, 1], out=joined[:whole])
    for offset in range(2, side):
        join(joined[:whole], lines[:, offset], out=joined[:whole])
    if whole < len(joined):
        join.reduce(values[whole * side :], axis=0, out=joined[whole])
    return joined


def _nearest(length: int, count: int) -> NDArray[np.intp]:
    """So many positions, at equal steps, that stand for a length; as Pillow's ``NEAREST`` adds them up."""
    steps = np.full(count, length / count)
    steps[0] /= 2
    return steps.cumsum().astype(np.intp)


def _values(image: Image.Image) -> Values:
    return gray_values(image) if image.mode == "L" else np.asarray(image).reshape(image.height, -1)


def _most_frequent(counts: list[int]) -> int:
    """The median of the most frequent values, those within 8 of each other."""
    sums = list(accumulate(counts, initial=0))
    padded = [0] * 8 + sums + [sums[-1]] * 8
    near = list(map(sub, padded[17:], padded))
    middle = near.index(max(near))
    first = max(0, middle - 8)
    return bisect_left(sums, sums[first] + near[middle] / 2, first + 1) - 1
