"""Find the margins of a page: ``margins`` gives the box that holds all ink, and the whole image where in doubt.

The image is reduced to at most 512 cells along its longer side. A cell keeps the least and the greatest value of each
channel, not their mean, so that a line of one pixel counts as much as a block:

    background = the most frequent value of each channel, bright or dark, white or colored
    ink        = cells in which a pixel differs from the background by more than ``TOLERANCE`` in some channel

Not ink are specks (at most 3 x 3 cells, 0.6 % of the longer side, with nothing else within 8 cells), dirt that touches
an edge and ends within 3 cells of it, and scanner borders: cells without a light pixel, in runs from an edge of a light
page, along half of that edge and at most 12 % deep. An image of at most 512 pixels has neither specks nor dirt.
Punch holes, stamps and rules at the edge are ink. The box of the ink grows by 1 % of the longer side.

The whole image is returned where less than a fifth of it is background, where ink lies along the edges as in a
photograph (the shares of the four edges add up to a whole edge), for a blank page, for a strip longer than 10 times its
width, and where less than 2 % of the area would go.

    margins(Image.open("page.png"))    # (131, 96, 1540, 2203) of 1700 x 2200 pixels
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stakes.vision.image.modes import gray_or_rgb

Bounds = tuple[int, int, int, int]  # x0, y0, x1, y1

TOLERANCE = 32  # of 255: grain of paper and noise of JPEG stay below it
CELLS = 512  # along the longer side
BORDER = 0.01  # of the longer side, kept around the ink
SPECK, NEAR = 1, 8  # cells around a cell: a speck lies within the first, and nothing else within the second
DIRT = 3  # cells from an edge, less than the border that is kept
DEEPEST, ALONG = 0.12, 0.5  # of a scanner border: share of the page's depth, share of the edge
LEAST_BACKGROUND, FULL_BLEED = 0.2, 1.0
LONGEST, SMALLEST_SIDE, LEAST_TRIMMED = 10, 0.25, 0.02

Cells = NDArray[np.bool_]  # [rows, columns]


def margins(image: Image.Image) -> Bounds:
    """The box (x0, y0, x1, y1) of the image without its uniform margins and scanner borders, in whole pixels."""
    width, height = image.size
    whole = (0, 0, width, height)
    if max(width, height) > LONGEST * min(width, height):
        return whole
    side = -(-max(width, height) // CELLS)
    ink = _ink(gray_or_rgb(image), side)
    if ink is None:
        return whole
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    kept = max(2 * side, round(BORDER * max(width, height)))
    x0, x1 = _grown(int(columns[0]) * side - kept, int(columns[-1] + 1) * side + kept, width)
    y0, y1 = _grown(int(rows[0]) * side - kept, int(rows[-1] + 1) * side + kept, height)
    return (x0, y0, x1, y1) if (x1 - x0) * (y1 - y0) <= (1 - LEAST_TRIMMED) * width * height else whole


def _grown(start: int, end: int, length: int) -> tuple[int, int]:
    """The stretch from start to end, within 0 and length, grown on both sides to the smallest side allowed."""
    missing = max(0, round(SMALLEST_SIDE * length) - (end - start))
    return max(0, start - missing), min(length, end + missing)


def _ink(image: Image.Image, side: int) -> Cells | None:
    """The cells that hold ink; None where nothing can be trimmed safely."""
    differs: Cells = np.zeros((1, 1), dtype=np.bool_)
    light, paper = differs, 255
    for channel in map(np.asarray, image.split()):
        background = _background(channel)
        least, most = _reduced(channel, side, np.minimum), _reduced(channel, side, np.maximum)
        differs = differs | (most > min(255, background + TOLERANCE)) | (least < max(0, background - TOLERANCE))
        light, paper = light | (most >= background // 2), min(paper, background)
    ink = differs
    if 1 - ink.mean() < LEAST_BACKGROUND:
        return None
    if paper > 128:
        ink = ink & ~_scanner_border(~light)
    if side > 1:
        ink = _without_specks(ink & ~_edge_dirt(ink))
    edges = sum(float(edge.mean()) for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1]))
    return None if edges >= FULL_BLEED or not ink.any() else ink


def _background(values: NDArray[np.uint8]) -> int:
    """The median of the most frequent values, those within 8 of each other, on a grid of pixels."""
    step = max(1, max(values.shape) // 256)
    counts = np.bincount(values[::step, ::step].ravel(), minlength=256)
    middle = int(np.convolve(counts, np.ones(17, dtype=np.int64), "same").argmax())
    first = max(0, middle - 8)
    near = counts[first : middle + 9].cumsum()
    return first + int(np.searchsorted(near, near[-1] / 2))


def _reduced(values: NDArray[np.uint8], side: int, extreme: np.ufunc) -> NDArray[np.uint8]:
    """[rows, columns]: the least or greatest value of each square of pixels; the last may be smaller."""
    for axis in (0, 1):
        lines = values.swapaxes(0, axis)
        reduced = lines[::side].copy(order="K")
        for offset in range(1, side):
            line = lines[offset::side]
            extreme(reduced[: len(line)], line, out=reduced[: len(line)])
        values = reduced.swapaxes(0, axis)
    return values


def _scanner_border(dark: Cells) -> Cells:
    """Cells of the dark strips along the edges, and the two behind them, where dark turns into paper."""
    border = np.zeros_like(dark)
    for turns in range(4):
        inward, found = np.rot90(dark, turns), np.rot90(border, turns)
        deepest = max(1, int(DEEPEST * len(inward)))
        depth = np.logical_and.accumulate(inward[: deepest + 1], axis=0).sum(axis=0)
        strip = (depth > 0) & (depth <= deepest)
        if strip.mean() >= ALONG:
            depth[depth > deepest] = depth[strip].max()  # a corner: the strip of the next edge begins
            found[: deepest + 2] |= np.arange(deepest + 2)[:, None] < np.where(depth > 0, depth + 2, 0)
    return border


def _edge_dirt(ink: Cells) -> Cells:
    """Groups of ink that touch an edge and end within ``DIRT`` cells of it, so that nothing deeper continues them."""
    dirt = np.zeros_like(ink)
    for turns in range(4):
        inward, found = np.rot90(ink, turns), np.rot90(dirt, turns)
        if len(inward) > DIRT:
            active = inward[:DIRT].any(axis=0)
            group = np.cumsum(np.diff(active, prepend=False))
            shallow = np.isin(group, group[inward[0]]) & ~np.isin(group, group[active & inward[DIRT]])
            found[:DIRT] |= inward[:DIRT] & (active & shallow)
    return dirt


def _without_specks(ink: Cells) -> Cells:
    """The ink without groups that are as small as dust and far from anything else, outside of the crowded lines."""
    outside = ink.copy()
    crowded = [np.flatnonzero(ink.sum(axis=axis) > (2 * SPECK + 1) ** 2) for axis in (1, 0)]
    if all(len(lines) for lines in crowded):
        outside[crowded[0][0] : crowded[0][-1] + 1, crowded[1][0] : crowded[1][-1] + 1] = False
    rows, columns = np.nonzero(outside)
    total = np.pad(ink.cumsum(axis=0, dtype=np.int32).cumsum(axis=1, dtype=np.int32), ((1, 0), (1, 0)))

    def around(reach: int) -> NDArray[np.int32]:
        top, bottom = np.maximum(rows - reach, 0), np.minimum(rows + reach + 1, ink.shape[0])
        left, right = np.maximum(columns - reach, 0), np.minimum(columns + reach + 1, ink.shape[1])
        counted: NDArray[np.int32] = total[bottom, right] - total[top, right] - total[bottom, left] + total[top, left]
        return counted

    kept = ink.copy()
    kept[rows, columns] = around(SPECK) < around(NEAR)
    return kept
