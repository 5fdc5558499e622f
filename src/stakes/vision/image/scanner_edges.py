"""The paper of a scanned page, and what a scanner leaves along its edges that is no ink; for ``trim``.

    paper = ScannedPaper(image, tolerance=32)                        # "L" or "RGB"
    ink = paper.differs(paper.part((0, 0, 200, 100)), side=4) # [25, 50]: squares of 4 pixels that hold ink
    erase_scanner_edges(ink, paper, side=4)

* A line is outermost in its columns, at most 0.6 % thick, within 3 % of the edge, along a quarter of it. Small print
  has gaps between its letters, so where a line is thicker than 4 pixels, 95 % of its pixels along the edge have to be
  at least half as dark as their median.
* A strip has no light pixel, or none as dark as the paper. It is up to 12 % deep, at or near an edge of a light page.
* Flakes within 3 % of the edge are at most 4 pixels deep, flatter than any print, with nothing behind or beside them.
* Paper without noise comes from no scanner. There lines and strips have to touch the edge, a strip in which values
  change is print, and flakes stay.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bounds = tuple[int, int, int, int]  # x0, y0, x1, y1
Cells = NDArray[np.bool_]  # [rows, columns]; seen from an edge: [inward, along]
Values = NDArray[np.uint8]  # [rows, columns] of gray, [rows, 4 * columns] of RGBX

SAMPLES = 128  # along the longer side
RIM, DEEPEST, ALONG = 0.03, 0.12, 0.25  # of the side: where, how deep, how long
THICK, SOLID = 0.006, 0.95  # of a line: of the longer side, share of its pixels that are dark
NOISE, CLEAN_OF = 4, 1000  # of 255: what noise adds to paper; of so many samples of clean paper one may have it
MOST_CHANGES = 8  # cells of a strip in which values change that are dirt
FLAT, STEP, NEAR = 4, 16, 0.016  # pixels of no print; cells; of the longer side: how far from anything else


class ScannedPaper:
    """The most frequent value of each channel, from single pixels on a grid, and the values of parts of the page.

    RGBX is how Pillow holds RGB. Packing it into 3 bytes takes longer than all that follows.
    """

    def __init__(self, image: Image.Image, tolerance: int) -> None:
        self.image, self.size, self.depth = image, image.size, 1 if image.mode == "L" else 4
        step = max(1, max(image.size) // SAMPLES)
        columns, rows = (-(-length // step) for length in image.size)
        self.grid = _bytes(image.resize((columns, rows), Image.Resampling.NEAREST))
        self.background = [_most_frequent(self.grid[:, channel :: self.depth]) for channel in range(min(3, self.depth))]
        self.light = min(self.background) > 128
        self.clean = False
        self.tolerate(tolerance)
        self._half = self._row([max(0, value // 2 - 1) for value in self.background])

    def tolerate(self, tolerance: int) -> None:
        """Background is what differs by no more than this in any channel."""
        self.tolerance = tolerance
        low = [max(0, value - tolerance) for value in self.background]
        high = [min(255, value + tolerance) for value in self.background]
        self._lowest = self._row(low)
        self._spread = self._row([above - below for below, above in zip(low, high, strict=True)])
        self._above = self._row([min(255, value + 1) for value in high])
        self.brighter = max(high) < 255  # whether a pixel can be brighter than the paper

    def is_clean(self, core: Bounds) -> bool:
        """Whether the paper around the core has one value, as no scan has; what has two values in all may be one."""
        rows, columns = self.grid.shape[0], self.grid.shape[1] // self.depth
        same, near = np.ones((2, rows, columns), dtype=np.bool_)
        for channel, value in enumerate(self.background):
            values, least = self.grid[:, channel :: self.depth], max(0, value - NOISE)
            same &= values == value
            near &= values - np.uint8(least) <= min(255, value + NOISE) - least
        if any(core):
            x0, x1 = (int(x * columns / self.size[0]) for x in (core[0], core[2]))
            y0, y1 = (int(y * rows / self.size[1]) for y in (core[1], core[3]))
            same[y0 : y1 + 1, x0 : x1 + 1] = near[y0 : y1 + 1, x0 : x1 + 1] = False
        unlike = np.count_nonzero(near) - np.count_nonzero(same)
        self.clean = bool(unlike * CLEAN_OF <= np.count_nonzero(same)) and not self._has_two_values()
        return self.clean

    def _has_two_values(self) -> bool:
        """Whether no sample lies between two values, as in a scan of one bit."""
        values = self.grid[:, min(1, self.depth - 1) :: self.depth].ravel()
        return int(np.count_nonzero(np.bincount(values))) <= 2

    def part(self, box: Bounds) -> Values:
        """The values in a box of pixels."""
        return _bytes(self.image.crop(box))

    def differs(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel that is not background; below the lowest, the difference wraps."""
        wide = values.shape[1]
        return self._squares(values - self._lowest[:wide] > self._spread[:wide], side)

    def is_light(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel at least half as bright as the background in some channel."""
        return self._squares(values > self._half[: values.shape[1]], side)

    def is_not_brighter(self, values: Values, side: int = 1) -> Cells:
        """[rows, columns]: squares with a pixel that is not brighter than background in some channel."""
        return self._squares(values < self._above[: values.shape[1]], side)

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

    def _row(self, channels: list[int]) -> Values:
        """The values of the channels for each pixel of a row; that of X keeps its flag from being set."""
        values = np.array([*channels, 255][: self.depth], dtype=np.uint8)
        return values if self.depth == 1 else np.tile(values, self.size[0])

    def _squares(self, flags: Cells, side: int) -> Cells:
        """[rows, columns]: whether any flag of a square is set; the last may be smaller."""
        word = side * self.depth  # bytes of one row of a square
        if word == 1:
            return flags
        height, width = flags.shape
        rows, columns = -(-height // side), -(-width // word)
        if (rows * side, columns * word) != flags.shape:
            padded = np.zeros((rows * side, columns * word), dtype=np.bool_)
            padded[:height, :width] = flags
            flags = padded
        line = flags
        if side > 1:
            lines = flags.reshape(rows, side, columns * word)
            line = lines[:, 0] | lines[:, 1]
            for offset in range(2, side):
                line |= lines[:, offset]
        found: Cells = line.view(f"u{min(word, 8)}") != 0  # as many flags at once
        return found if word <= 8 else np.logical_or.reduce(found.reshape(rows, columns, word // 8), axis=2)


def _bytes(image: Image.Image) -> Values:
    if image.mode == "L":
        return np.asarray(image)
    return np.frombuffer(image.tobytes("raw", "RGBX"), dtype=np.uint8).reshape(image.height, 4 * image.width)


def _most_frequent(values: Values) -> int:
    """The median of the most frequent values, those within 8 of each other."""
    counts = np.bincount(values.ravel(), minlength=256)
    total = np.concatenate(([0] * 9, counts.cumsum(), [values.size] * 8))
    middle = int((total[17:] - total[:-17]).argmax())
    first = max(0, middle - 8)
    near = counts[first : middle + 9].cumsum()
    return first + int(np.searchsorted(near, near[-1] / 2))


def from_edges(cells: Cells) -> tuple[Cells, Cells, Cells, Cells]:
    """Views from the top, the bottom, the left and the right: [inward, along]."""
    return cells, cells[::-1], cells.T, cells.T[::-1]


def erase_scanner_edges(ink: Cells, paper: ScannedPaper, side: int) -> None:
    """Erase lines, strips and flakes along the edges; several times, because a line may run beside a strip."""
    longest = max(ink.shape)
    rim, flat, far = 1 if paper.clean else int(RIM * longest), max(1, FLAT // side), int(NEAR * longest)
    thick = max(flat + 1, int(THICK * longest))
    for number, inward in enumerate(from_edges(ink)):
        edge = _Edge(paper, side, number, ink.shape)
        outer = inward[: rim + far + thick]
        for _ in range(3):
            band = np.ascontiguousarray(outer)  # seen from a side, lines of cells are far apart in memory
            if np.count_nonzero(band[: rim + 1].any(axis=0)) < ALONG * band.shape[1]:
                break
            if _erase_lines(band, rim, edge, (flat, thick)):
                outer[:] = band
            elif not (paper.light and _erase_strips(inward, rim, edge)):
                break
        if side > 1 and not paper.clean and band[:rim].any():
            outer[:rim] &= _without_flakes(np.ascontiguousarray(outer[: rim + far]), rim, flat, far)


class _Edge:
    """The pixels along one of the four edges: 0 the top, 1 the bottom, 2 the left, 3 the right."""

    def __init__(self, paper: ScannedPaper, side: int, number: int, shape: tuple[int, ...]) -> None:
        self.paper, self.side, self.number, (self.rows, self.columns) = paper, side, number, shape
        self.inward = self.rows if number < 2 else self.columns

    def part(self, deep: int, along: tuple[int, int] | None = None) -> Values:
        """The values of this many lines of cells, between two cells along the edge."""
        rows, columns, side = self.rows, self.columns, self.side
        start, end = along or (0, columns if self.number < 2 else rows)
        x0, y0, x1, y1 = (
            (start, 0, end, deep), (start, rows - deep, end, rows),
            (0, start, deep, end), (columns - deep, start, columns, end),
        )[self.number]  # fmt: skip
        width, height = self.paper.size
        return self.paper.part((x0 * side, y0 * side, min(x1 * side, width), min(y1 * side, height)))

    def solid(self, flagged: Callable[[Values, int], Cells], rim: int) -> Cells | None:
        """[inward, along]: cells without a flagged pixel; None where too few are in the rim."""
        for deep in (rim + 1, int(DEEPEST * self.inward) + 1):
            cells = from_edges(~flagged(self.part(min(deep, self.inward)), self.side))[self.number]
            if np.count_nonzero(cells[: rim + 1].any(axis=0)) < ALONG * cells.shape[1]:
                return None
        return cells

    def is_solid(self, start: int, end: int, deep: int) -> bool:
        """Whether nearly all pixels along the edge are as dark, within so many cells of it."""
        contrast = self.paper.contrast(self.part(deep, (start, end)))
        darkest = contrast.max(axis=0 if self.number < 2 else 1)
        return int(np.count_nonzero(2 * darkest >= np.median(darkest))) >= SOLID * len(darkest)

    def has_print(self, depth: NDArray[np.intp]) -> bool:
        """Whether values change within the strip, as they do at print and not at dirt or noise."""
        values = self.part(min(int(depth.max()), self.inward))
        cells = from_edges(self.paper.changes(values, self.side))[self.number]
        inner = np.minimum(depth, np.minimum(np.roll(depth, 1), np.roll(depth, -1))) - 4
        within = np.arange(len(cells))[:, None] < inner  # farther in it turns to paper, so values change
        return int(np.count_nonzero(cells & within)) >= MOST_CHANGES


def _erase_lines(band: Cells, rim: int, edge: _Edge, thickness: tuple[int, int]) -> bool:
    """Erase the outermost line of at most so many cells in the rim, where it follows a quarter of the edge."""
    along = np.arange(band.shape[1])
    first = band.argmax(axis=0)
    outermost = band[first, along] & (first < rim)
    for most in thickness:
        thin = outermost & ~band[np.minimum(first + most, len(band) - 1), along]
        if np.count_nonzero(thin) < ALONG * len(thin):
            continue
        broken = (thin[1:] != thin[:-1]) | (np.abs(first[1:] - first[:-1]) > 1)
        starts, ends = np.flatnonzero(np.append(True, broken)), np.flatnonzero(np.append(broken, True)) + 1
        long = np.flatnonzero((ends - starts >= ALONG * len(thin)) & thin[starts])
        lines = [
            (start, end)
            for start, end in zip(starts[long].tolist(), ends[long].tolist(), strict=True)
            if most * edge.side <= FLAT or edge.is_solid(start, end, int(first[start:end].max()) + most)
        ]
        for start, end in lines:
            for offset in range(most):
                band[first[start:end] + offset, along[start:end]] = False
            for near, far, at in ((0, start, start), (end, len(thin), end - 1)):
                if far - near <= rim:  # the corner, where the line of the next edge crosses
                    band[max(0, first[at] - 1) : first[at] + most + 1, near:far] = False
        if lines:
            return True
    return False


def _without_flakes(band: Cells, rim: int, flat: int, far: int) -> Cells:
    """[along]: columns whose ink in the rim is not part of a group flatter than any print, with nothing behind it.

    Those are pieces of lines, and dust. A group has less than ``far`` cells between its columns. It may lie at an
    angle, so its depth is compared within ``STEP`` cells along the edge.
    """
    columns = np.flatnonzero(band.any(axis=0))
    cells = band[:, columns]
    first, last = cells.argmax(axis=0), len(band) - 1 - cells[::-1].argmax(axis=0)
    gaps = np.empty_like(columns)
    gaps[0], gaps[1:] = far, columns[1:] - columns[:-1]
    begins = gaps >= far
    group = begins.cumsum() - 1
    step = (columns - columns[begins][group]) // STEP
    begins[1:] |= step[1:] != step[:-1]
    parts = np.flatnonzero(begins)
    deepest = np.maximum.reduceat(last, parts)
    print_like = (deepest - np.minimum.reduceat(first, parts) >= flat) | (deepest >= rim)
    kept = np.bincount(group[parts], weights=print_like) > 0
    result: Cells = np.zeros(band.shape[1], dtype=np.bool_)
    result[columns] = kept[group]
    return result


def _erase_strips(inward: Cells, rim: int, edge: _Edge) -> bool:
    """Erase strips without a light pixel, or without one as dark as the paper."""
    paper, erased = edge.paper, False
    for flagged in (paper.is_light, paper.is_not_brighter) if paper.brighter else (paper.is_light,):
        solid = edge.solid(flagged, rim)
        depth = None if solid is None else _strip(inward, solid, rim)
        if depth is not None and not (paper.clean and edge.has_print(depth)):
            reach = min(int(depth.max()), len(inward))
            inward[:reach] &= np.arange(reach)[:, None] >= depth
            erased = True
    return erased


def _strip(inward: Cells, solid: Cells, rim: int) -> NDArray[np.intp] | None:
    """[along]: how deep a strip is, with the two cells in which it turns to paper; paper may lie outside."""
    near = min(rim + 1, len(solid))  # along the long edges of an image of 4 : 1, the rim is deeper than a strip
    begins = solid[:near].any(axis=0)
    run = solid.copy()
    paper = ~inward[:near]
    paper[1:] |= paper[:-1].copy()  # and the cell in which it turns to the strip
    run[:near] |= np.logical_and.accumulate(paper & ~solid[:near], axis=0)
    depth = np.logical_and.accumulate(run, axis=0).sum(axis=0)
    deepest = len(solid) - 1
    strip = begins & (depth > 0) & (depth <= deepest) & solid[np.maximum(depth, 1) - 1, np.arange(len(depth))]
    if np.count_nonzero(strip) < ALONG * len(strip):
        return None
    corner = begins & (depth > deepest)  # the strip of the next edge begins
    result: NDArray[np.intp] = np.where(strip, depth + 2, np.where(corner, depth[strip].max() + 2, 0))
    return result
