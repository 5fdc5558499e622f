"""Find the margins of a page: ``margins`` gives the box that holds all ink, and the whole image where in doubt.

Single pixels on a grid of 128 along the longer side give the background and the core, the box of the rows and columns
that are full of ink. Only what lies outside of the core is looked at in full. There, squares of 2, 4, 8, … pixels, at
most 512 along the longer side, are the cells:

    background = the most frequent value of each channel, bright or dark, white or colored
    ink        = cells in which any pixel differs from the background by more than ``TOLERANCE`` in some channel

so that a line of one pixel counts as much as a block. Not ink are

* a scanner's edge: a line of at most 2 cells along a quarter of an edge, within 3 % of it, or a dark strip without a
  light pixel, up to 12 % deep, at or near an edge of a light page,
* dirt that touches an edge and ends within 0.4 % of it,
* specks: at most 0.6 % of the longer side, with nothing else within 1.6 %.

Dirt and specks are not looked for in an image of at most 512 pixels. Punch holes, stamps, and rules farther in are ink.
The box of the ink grows by 1 % of the longer side.

The whole image is returned where less than a fifth of it is background, where ink lies along the edges as in a
photograph (the shares of the four edges add up to a whole edge), for a blank page, for a strip longer than 10 times its
width, and where less than 2 % of the area would go.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stakes.vision.image.modes import gray_or_rgb

Bounds = tuple[int, int, int, int]  # x0, y0, x1, y1

TOLERANCE = 32  # of 255: grain of paper and noise of JPEG stay below it
SAMPLES, CELLS, BAND = 128, 512, 32  # along the longer side; rows of cells at a time, which bounds the memory
FULL = 3  # samples of ink from which a line of them belongs to the core
BORDER = 0.01  # of the longer side, kept around the ink
SPECK, NEAR = 0.006, 0.016  # of the longer side: how large a speck is, and how far from anything else
DIRT = 0.004  # of the longer side: how deep dirt reaches, less than the border that is kept
RIM, DEEPEST, ALONG, THIN = 0.03, 0.12, 0.25, 2  # of a scanner's edge: where, how deep, how long; cells of a line
LEAST_BACKGROUND, FULL_BLEED = 0.2, 1.0
LONGEST, SMALLEST_SIDE, LEAST_TRIMMED = 10, 0.25, 0.02
NOWHERE = (0, 0, 0, 0)  # no core: everything is looked at

Cells = NDArray[np.bool_]  # [rows, columns]; seen from an edge: [inward, along]


def margins(image: Image.Image) -> Bounds:
    """The box (x0, y0, x1, y1) of the image without its uniform margins and scanner borders, in whole pixels."""
    width, height = image.size
    whole = (0, 0, width, height)
    if max(width, height) > LONGEST * min(width, height):
        return whole
    image, side = gray_or_rgb(image), 1
    while side * CELLS < max(width, height):
        side *= 2
    paper = _Paper(image)
    core = paper.core()
    kept = max(2 * side, round(BORDER * max(width, height)))
    if core is None or (core != NOWHERE and _grown(core, kept, image) == whole):
        return whole
    ink = _outside(image, paper, core, side)
    _erase_scanner_edges(ink, image, paper, side)
    if side > 1:
        _erase_edge_dirt(ink)
    if sum(float(edge.mean()) for edge in (ink[0], ink[-1], ink[:, 0], ink[:, -1])) >= FULL_BLEED or not ink.any():
        return whole
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    lines = rows, len(ink) - 1 - rows[::-1], columns, ink.shape[1] - 1 - columns[::-1]
    firsts = [int(seen[0]) for seen in lines]
    if side > 1:
        firsts = [_after_specks(*both) for both in zip(_from_edges(ink), lines, strict=True)]
    top, bottom, left, right = firsts
    box = left * side, top * side, (ink.shape[1] - right) * side, (ink.shape[0] - bottom) * side
    return _grown(box, kept, image) if box[0] < box[2] and box[1] < box[3] else whole


def _grown(box: Bounds, kept: int, image: Image.Image) -> Bounds:
    """The box with its border, at least a quarter of each side; the whole image where less than 2 % would go."""
    spans = []
    for start, end, length in ((box[0], box[2], image.width), (box[1], box[3], image.height)):
        missing = max(0, round(SMALLEST_SIDE * length) - (end - start + 2 * kept))
        spans.append((max(0, start - kept - missing), min(length, end + kept + missing)))
    (x0, x1), (y0, y1) = spans
    trimmed = 1 - (x1 - x0) * (y1 - y0) / image.width / image.height
    return (x0, y0, x1, y1) if trimmed >= LEAST_TRIMMED else (0, 0, *image.size)


class _Paper:
    """The background of a page, from single pixels on a grid: [rows, columns] of values, or of 4 bytes a pixel.

    RGBX is how Pillow holds RGB. Packing it into 3 bytes takes longer than all that follows.
    """

    def __init__(self, image: Image.Image) -> None:
        self.size, self.depth = image.size, 1 if image.mode == "L" else 4
        self.image, step = image, max(1, max(image.size) // SAMPLES)
        self.whole = _bytes(image) if self.depth == 1 else None  # of one byte a pixel, a copy of all is cheap
        if self.whole is not None:
            self.grid = self.whole[step // 2 :: step, step // 2 :: step].copy()
        else:
            rows, columns = -(-image.height // step), -(-image.width // step)
            self.grid = _bytes(image.resize((columns, rows), Image.Resampling.NEAREST))
        channels = range(min(3, self.depth))
        background = np.array([_most_frequent(self.grid[:, channel :: self.depth]) for channel in channels])
        low, high = np.maximum(0, background - TOLERANCE), np.minimum(255, background + TOLERANCE)
        self.lowest, self.spread, self.half = (
            np.append(values, 255 * (self.depth - len(channels)))[: self.depth].astype(np.uint8)
            for values in (low, high - low, background // 2)
        )
        self.light = int(background.min()) > 128

    def part(self, box: Bounds) -> NDArray[np.uint8]:
        """The values in a box of pixels."""
        return _bytes(self.image.crop(box)) if self.whole is None else self.whole[box[1] : box[3], box[0] : box[2]]

    def differs(self, values: NDArray[np.uint8]) -> Cells:
        """[rows, columns]: pixels that are not background; below the lowest, the difference wraps around."""
        return self._any_channel(values - self._along(self.lowest, values) > self._along(self.spread, values))

    def is_light(self, values: NDArray[np.uint8]) -> Cells:
        """[rows, columns]: pixels at least half as bright as the background in some channel."""
        return self._any_channel(values >= self._along(self.half, values))

    def _along(self, channels: NDArray[np.uint8], values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return channels if self.depth == 1 else np.tile(channels, values.shape[1] // 4)

    def _any_channel(self, flags: Cells) -> Cells:
        return flags if self.depth == 1 else (flags.view(np.uint32) & 0x00FFFFFF) != 0

    def core(self) -> Bounds | None:
        """The box of lines full of ink, farther in than the rim, in pixels; None where nothing can be trimmed."""
        ink = self.differs(self.grid)
        if 1 - np.count_nonzero(ink) / ink.size < LEAST_BACKGROUND:
            return None
        if self.light:
            dark = ~self.is_light(self.grid)
            for inward, of_it in zip(_from_edges(ink), _from_edges(dark), strict=True):
                _erase_strip(inward, of_it[: int(DEEPEST * len(of_it)) + 1], int(RIM * max(ink.shape)))
        spans = []
        for axis, length in ((1, self.size[1]), (0, self.size[0])):
            lines = np.count_nonzero(ink, axis=axis)
            rim = -(-int(RIM * max(self.size)) * len(lines) // length)
            full = np.flatnonzero(lines[rim : len(lines) - rim] >= FULL) + rim
            if not len(full):
                return NOWHERE
            spans.append([int((n + 0.5) * length / len(lines)) for n in (full[0], full[-1])])
        (y0, y1), (x0, x1) = spans
        return x0, y0, x1 + 1, y1 + 1


def _bytes(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode == "L":
        return np.asarray(image)
    return np.frombuffer(image.tobytes("raw", "RGBX"), dtype=np.uint8).reshape(image.height, 4 * image.width)


def _most_frequent(values: NDArray[np.uint8]) -> int:
    """The median of the most frequent values, those within 8 of each other."""
    counts = np.bincount(values.ravel(), minlength=256)
    middle = int(np.convolve(counts, np.ones(17, dtype=np.int64), "same").argmax())
    first = max(0, middle - 8)
    near = counts[first : middle + 9].cumsum()
    return first + int(np.searchsorted(near, near[-1] / 2))


def _outside(image: Image.Image, paper: _Paper, core: Bounds, side: int) -> Cells:
    """The cells that hold ink, those of the core taken as ink."""
    rows, columns = -(-image.height // side), -(-image.width // side)
    x0, y0, x1, y1 = core[0] // side, core[1] // side, -(-core[2] // side), -(-core[3] // side)
    ink: Cells = np.ones((rows, columns), dtype=np.bool_)
    for x, top, end_x, end_y in (0, 0, columns, y0), (0, y1, columns, rows), (0, y0, x0, y1), (x1, y0, columns, y1):
        for y in range(top, end_y, BAND) if x < end_x else ():
            box = x * side, y * side, min(end_x * side, image.width), min((y + BAND) * side, end_y * side, image.height)
            ink[y:end_y, x:end_x][:BAND] = _squares(paper.differs(paper.part(box)), side)
    return ink


def _squares(pixels: Cells, side: int) -> Cells:
    """[rows, columns]: whether any pixel of a square is set; the last may be smaller."""
    if side == 1:
        return pixels
    height, width = pixels.shape
    rows, columns = -(-height // side), -(-width // side)
    if (rows * side, columns * side) != pixels.shape:
        padded = np.zeros((rows * side, columns * side), dtype=np.bool_)
        padded[:height, :width] = pixels
        pixels = padded
    lines = pixels.reshape(rows, side, columns * side)
    line = lines[:, 0] | lines[:, 1]
    for offset in range(2, side):
        line |= lines[:, offset]
    word = min(side, 8)  # as many flags are compared with 0 at once
    words: Cells = line.view(f"u{word}") != 0
    return words if side == word else np.logical_or.reduce(words.reshape(rows, columns, side // word), axis=2)


def _from_edges(cells: Cells) -> tuple[Cells, Cells, Cells, Cells]:
    """Views from the top, the bottom, the left and the right: [inward, along]."""
    return cells, cells[::-1], cells.T, cells.T[::-1]


def _erase_scanner_edges(ink: Cells, image: Image.Image, paper: _Paper, side: int) -> None:
    """Erase lines and dark strips along the edges, twice: a line may run beside a strip."""
    rim = int(RIM * max(ink.shape))
    for number, inward in enumerate(_from_edges(ink)):
        dark: Cells | None = None
        for _ in range(2):
            along = inward[: rim + 1].any(axis=0)
            if np.count_nonzero(along) < ALONG * inward.shape[1] or _erase_line(inward, rim):
                continue
            if not paper.light:
                break
            if dark is None:
                deep = min(len(inward), int(DEEPEST * len(inward)) + 1)
                dark = _dark(image, paper, side, (number, deep), ink.shape)
            if not _erase_strip(inward, dark, rim):
                break


def _dark(image: Image.Image, paper: _Paper, side: int, where: tuple[int, int], shape: tuple[int, ...]) -> Cells:
    """[inward, along]: cells without a light pixel, as deep as given from the edge of this number."""
    number, deep = where
    rows, columns = shape
    x0, y0, x1, y1 = (
        (0, 0, columns, deep), (0, rows - deep, columns, rows), (0, 0, deep, rows), (columns - deep, 0, columns, rows)
    )[number]  # fmt: skip
    box = x0 * side, y0 * side, min(x1 * side, image.width), min(y1 * side, image.height)
    return _from_edges(~_squares(paper.is_light(paper.part(box)), side))[number]


def _erase_line(inward: Cells, rim: int) -> bool:
    """Erase the outermost line of at most ``THIN`` cells in the rim, where it follows a quarter of the edge."""
    band = inward[: rim + THIN + 1]
    along = np.arange(band.shape[1])
    first = band.argmax(axis=0)
    thick = band[np.minimum(first + THIN, len(band) - 1), along]
    thin = band[first, along] & ~thick & (first < rim)
    breaks = np.flatnonzero((thin[1:] != thin[:-1]) | (np.abs(first[1:] - first[:-1]) > 1)) + 1
    erased = False
    for start, end in pairwise([0, *breaks.tolist(), len(thin)]):
        if thin[start] and end - start >= ALONG * len(thin):
            for offset in range(THIN):
                band[first[start:end] + offset, along[start:end]] = False
            for near, far, at in ((0, start, start), (end, len(thin), end - 1)):
                if far - near <= rim:  # the corner, where the line of the next edge crosses
                    band[max(0, first[at] - 1) : first[at] + THIN + 1, near:far] = False
            erased = True
    return erased


def _erase_strip(inward: Cells, dark: Cells, rim: int) -> bool:
    """Erase the dark strip along an edge, and the two cells in which it turns to paper; paper may lie outside."""
    begins = dark[: rim + 1].any(axis=0)
    if np.count_nonzero(begins) < ALONG * dark.shape[1]:
        return False
    run = dark.copy()
    paper = ~inward[: rim + 1]
    paper[1:] |= paper[:-1].copy()  # and the cell in which it turns to dark
    run[: rim + 1] |= np.logical_and.accumulate(paper & ~dark[: rim + 1], axis=0)
    depth = np.logical_and.accumulate(run, axis=0).sum(axis=0)
    deepest = len(dark) - 1
    strip = begins & (depth > 0) & (depth <= deepest) & dark[np.maximum(depth, 1) - 1, np.arange(len(depth))]
    if np.count_nonzero(strip) < ALONG * len(strip):
        return False
    corner = begins & (depth > deepest)  # the strip of the next edge begins
    depth = np.where(strip, depth + 2, np.where(corner, depth[strip].max() + 2, 0))
    reach = min(deepest + 2, len(inward))
    inward[:reach] &= np.arange(reach)[:, None] >= depth
    return True


def _erase_edge_dirt(ink: Cells) -> None:
    """Erase groups of ink that touch an edge and end near it, so that nothing deeper continues them."""
    most = int(DIRT * max(ink.shape))
    for inward in _from_edges(ink):
        if len(inward) > most and inward[0].any():
            active = inward[:most].any(axis=0)
            group = np.cumsum(np.diff(active, prepend=False))
            shallow: Cells = np.zeros(group[-1] + 1, dtype=np.bool_)
            shallow[group[inward[0]]] = True
            shallow[group[active & inward[most]]] = False
            inward[:most] &= ~(active & shallow[group])


def _after_specks(inward: Cells, lines: NDArray[np.intp]) -> int:
    """The first line that has more ink than specks, which are as small as dust and far from anything else."""
    most, far = int(SPECK * max(inward.shape)), int(NEAR * max(inward.shape))
    for line in map(int, lines):
        while inward[line].any():
            at = int(inward[line].argmax())
            left = max(0, at - most + 1)
            speck = inward[line : line + most, left : at + most]
            count, wide = np.count_nonzero(speck), np.flatnonzero(speck.any(axis=0))
            near = inward[max(0, line - far) : line + most + far, max(0, at - far) : at + most + far]
            if not count or wide[-1] - wide[0] >= most or np.count_nonzero(near) > count:
                return line
            speck[:] = False
    return len(inward)
