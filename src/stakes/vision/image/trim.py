"""Find the margins of a page: ``margins`` gives the box that holds all ink, and the whole image where in doubt.

Single pixels on a grid give the background and the core, the box of the inner lines that are full of ink. What lies
outside of the core is looked at in full, in cells, squares of 2 pixels, or 4, 8, … beyond 2048 along the longer side:

    background = the most frequent value of each channel, bright or dark, white or colored
    ink        = cells in which any pixel differs from the background by more than ``TOLERANCE`` in some channel,
                 or ``CLEAN``, where the paper has one value, as a program draws it

so that a line of one pixel counts as much as a block. Not ink are

* what a scanner leaves along an edge (``scanner_edges``): lines, strips without print, flakes,
* dirt that touches an edge and ends within 0.4 % of it, but is smaller than print,
* specks: at most 0.6 % of the longer side and smaller than print, with nothing else within 1.6 % but, on paper with
  noise, dust; and at most 2 of them in a line.

Dirt and specks are not looked for in an image of at most 512 pixels. Punch holes, stamps, and rules farther in are ink.
The box of the ink grows by 1 % of the longer side.

The whole image is returned where less than a fifth of it is background, where ink lies along the edges as in a
photograph (the shares of the four edges add up to a whole edge), for a blank page, for a strip longer than 10 times its
width, for an image of fewer than 16 pixels on a side, and where less than 2 % of the area would go.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from stakes.vision.image.modes import Pixels, gray_or_rgb
from stakes.vision.image.scanned_paper import Bounds, Cells, ScannedPaper
from stakes.vision.image.scanner_edges import DEEPEST, erase_scanner_edges, from_edges, groups, to_cells, to_rows, union

__all__ = ["Bounds", "margins"]

TOLERANCE = 32  # of 255: grain of paper and noise of JPEG stay below it
CLEAN = 8  # the tolerance of a page without either
SMALL, CELLS = 512, 1024  # pixels and cells along the longer side
BAND = 1 << 18  # pixels at a time, which bounds the memory
FULL = 3  # samples of ink from which a line of them belongs to the core
BORDER = 0.01  # of the longer side, kept around the ink
SPECK, NEAR = 0.006, 0.016  # of the longer side: how large a speck is, and how far from anything else
MOST_SPECKS = 2  # that begin in one line; more are dots or numbers in a row
DUST = 4  # cells around a speck, its own included, that may be other specks
DIRT = 0.004  # of the longer side: how deep dirt reaches, less than the border that is kept
NO_PRINT, SMALL_PRINT = (5, 8), 1 / 300  # print is larger than this share of the longer side, or than 5 to 8 pixels
LEAST_BACKGROUND, FULL_BLEED = 0.2, 1.0
LONGEST, SMALLEST_SIDE, LEAST_TRIMMED = 10, 0.25, 0.02
LEAST_PIXELS = 16  # along each side of an image that has margins


def margins(image: Image.Image | Pixels) -> Bounds:
    """The box (x0, y0, x1, y1) of the image without its uniform margins and scanner borders, in whole pixels."""
    width, height = image.size
    whole = (0, 0, width, height)
    if max(width, height) > LONGEST * min(width, height) or min(width, height) < LEAST_PIXELS:
        return whole
    pixels = image if isinstance(image, Pixels) else gray_or_rgb(image)
    paper, side = ScannedPaper(pixels, TOLERANCE), 1 if max(width, height) <= SMALL else 2
    while side * CELLS < max(width, height):
        side *= 2
    differs = paper.differs(paper.grid)
    if np.count_nonzero(differs) > (1 - LEAST_BACKGROUND) * differs.size:
        return whole
    core = _core(differs, paper.size)
    if paper.is_clean(core):
        paper.tolerate(CLEAN)
    ink = _outside(paper, core, side)
    erase_scanner_edges(ink, paper, side)
    if side > 1:
        _erase_edge_dirt(ink, _cells(DIRT, ink, side))
    edges = (ink[0], ink[-1], ink[:, 0], ink[:, -1])
    if sum(np.count_nonzero(edge) / edge.size for edge in edges) >= FULL_BLEED:
        return whole
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    if not len(rows):
        return whole
    lines = rows, len(ink) - 1 - rows[::-1], columns, ink.shape[1] - 1 - columns[::-1]
    firsts = [int(seen[0]) for seen in lines]
    if side > 1:
        dust = 0 if paper.clean else DUST
        firsts = [
            _after_specks(seen, at, _cells(SPECK, ink, side), dust)
            for seen, at in zip(from_edges(ink), lines, strict=True)
        ]
    top, bottom, left, right = firsts
    box = left * side, top * side, (ink.shape[1] - right) * side, (ink.shape[0] - bottom) * side
    kept = max(2 * side, round(BORDER * max(width, height)))
    return _grown(box, kept, image.size) if box[0] < box[2] and box[1] < box[3] else whole


def _grown(box: Bounds, kept: int, size: tuple[int, int]) -> Bounds:
    """The box with its border, at least a quarter of each side; the whole image where less than 2 % would go."""
    spans = []
    for start, end, length in ((box[0], box[2], size[0]), (box[1], box[3], size[1])):
        missing = max(0, round(SMALLEST_SIDE * length) - (end - start + 2 * kept))
        spans.append((max(0, start - kept - missing), min(length, end + kept + missing)))
    (x0, x1), (y0, y1) = spans
    trimmed = 1 - (x1 - x0) * (y1 - y0) / size[0] / size[1]
    return (x0, y0, x1, y1) if trimmed >= LEAST_TRIMMED else (0, 0, *size)


def _core(differs: Cells, size: tuple[int, int]) -> Bounds:
    """The box of the lines full of ink, in pixels, farther in than a scanner's strips; empty where there are none."""
    down, across = (int(DEEPEST * samples) + 2 for samples in differs.shape)
    inner = differs[down : len(differs) - down, across : differs.shape[1] - across]
    rows, columns = (np.flatnonzero(inner.view(np.uint8).sum(axis=axis, dtype=np.uint8) >= FULL) for axis in (1, 0))
    if not len(rows) or not len(columns):
        return 0, 0, 0, 0
    x0, x1 = (int((n + across + 0.5) * size[0] / differs.shape[1]) for n in (columns[0], columns[-1]))
    y0, y1 = (int((n + down + 0.5) * size[1] / len(differs)) for n in (rows[0], rows[-1]))
    return x0, y0, x1 + 1, y1 + 1


def _outside(paper: ScannedPaper, core: Bounds, side: int) -> Cells:
    """[rows, columns]: the cells that hold ink; those of the core count as ink and are not read."""
    width, height = paper.size
    rows, columns = -(-height // side), -(-width // side)
    x0, y0, x1, y1 = core[0] // side, core[1] // side, -(-core[2] // side), -(-core[3] // side)
    ink: Cells = np.ones((rows, columns), dtype=np.bool_)
    for x, top, end_x, end_y in (0, 0, columns, y0), (0, y1, columns, rows), (0, y0, x0, y1), (x1, y0, columns, y1):
        step = max(1, BAND // max(1, end_x - x) // side // side)
        for y in range(top, end_y, step) if x < end_x else ():
            until = min(y + step, end_y)
            box = x * side, y * side, min(end_x * side, width), min(until * side, height)
            ink[y:until, x:end_x] = paper.differs(paper.part(box), side)
    return ink


def _cells(share: float, ink: Cells, side: int) -> int:
    """Cells of a share of the longer side, but not of the size of print."""
    longest, (least, most) = max(ink.shape), NO_PRINT
    return min(int(share * longest), max(1, int(min(most, max(least, SMALL_PRINT * longest * side)) / side)))


def _erase_edge_dirt(ink: Cells, most: int) -> None:
    """Erase groups of ink that touch an edge and end near it, so that nothing deeper continues them."""
    for inward in from_edges(ink):
        if len(inward) > most and inward[0].any():
            rows = to_rows(inward[: most + 1])
            kept = [group for group in groups(union(rows[:most])) if group & rows[most] or not group & rows[0]]
            inward[:most] = to_cells([row & union(kept) for row in rows[:most]], inward.shape[1])


def _after_specks(inward: Cells, lines: NDArray[np.intp], most: int, dust: int) -> int:
    """The first line that has more ink than specks, which are small and far from anything else.

    ``dust``: up to so many cells around a speck, its own included, are taken for other specks.
    """
    far = int(NEAR * max(inward.shape))
    for line in map(int, lines):
        specks, begin = 0, inward.shape[1]
        while inward[line].any():
            at = int(inward[line].argmax())
            left = max(0, at - most + 1)
            speck = inward[line : line + most, left : at + most]
            count, wide = np.count_nonzero(speck), np.flatnonzero(speck.any(axis=0))
            near = inward[max(0, line - far) : line + most + far, max(0, at - far) : at + most + far]
            deep = int(np.flatnonzero(speck.any(axis=1))[-1])
            touching = inward[max(0, line - 1) : line + deep + 2, max(0, left + wide[0] - 1) : left + wide[-1] + 2]
            others = np.count_nonzero(touching) > count or np.count_nonzero(near) > max(int(count), dust)
            specks += 1
            if specks > MOST_SPECKS:
                inward[line, begin : np.flatnonzero(inward[line])[-1]] = True
            if wide[-1] - wide[0] >= most or others or specks > MOST_SPECKS:
                return line
            begin = min(begin, at)
            speck[:] = False
    return len(inward)
