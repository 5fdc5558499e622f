"""What a scanner leaves along the edges of a page that is no ink; for ``trim``.

    erase_scanner_edges(ink, paper, side=4)                   # ink: [rows, columns], squares of 4 pixels

* A line is outermost in its columns, at most 0.6 % thick, within 3 % of the edge, along a quarter of it. Small print
  has gaps between its letters, so where a line is thicker than 4 pixels, 95 % of its pixels along the edge have to be
  at least half as dark as their median.
* A strip has no light pixel, or none as dark as the paper. It is up to 12 % deep, at or near an edge of a light page.
  Its brightness is the same all along the edge; otherwise it is a picture, and stays.
* Flakes within 3 % of the edge are at most 4 pixels deep, flatter than any print, with nothing behind or beside them.
  Where there are one or two, those as long as a character stay.
* Lines along all four edges that do not touch them are a frame, and stay.
* Paper without noise comes from no scanner. There lines and strips have to touch the edge, a strip in which values
  change is print, and flakes stay.

Cells along an edge are rows, whole numbers with a bit for each cell: for a few hundred bits an operation takes a tenth
of the time of a call of NumPy.
"""

import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stakes.vision.image.scanned_paper import Cells, ScannedPaper, Values

RIM, DEEPEST, ALONG = 0.03, 0.12, 0.25  # of the side: where, how deep, how long
THICK, SOLID = 0.006, 0.95  # of a line: of the longer side, share of its pixels that are dark
MOST_TOUCHING, MOST_CHANGES = 4, 8  # cells: of a line that touches the edge, at least; of print in a strip, at least
BLOCK, UNLIKE, PICTURE = 8, 14, 4  # pixels; of 255: how far a block is from those beside it; blocks
FLAT, STEP, NEAR = 4, 16, 0.016  # pixels of no print; cells; of the longer side: how far from anything else
CHARACTER = 5, 0.013  # as long along the edge: pixels at least, of the longer side at most


def from_edges(cells: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Views from the top, the bottom, the left and the right: [inward, along]."""
    return cells, cells[::-1], cells.T, cells.T[::-1]


def to_rows(cells: Cells) -> list[int]:
    """Each row of cells as a number, the first cell as its lowest bit."""
    packed = np.packbits(np.ascontiguousarray(cells), axis=1, bitorder="little")
    wide, data = packed.shape[1], packed.tobytes()
    return [int.from_bytes(data[at : at + wide], "little") for at in range(0, len(data), wide)]


def to_cells(rows: list[int], along: int) -> Cells:
    """[inward, along]: the cells of rows."""
    wide = -(-along // 8)
    packed = np.frombuffer(b"".join(row.to_bytes(wide, "little") for row in rows), dtype=np.uint8)
    return np.unpackbits(packed.reshape(len(rows), wide), axis=1, count=along, bitorder="little").view(np.bool_)


def union(rows: list[int]) -> int:
    """The cells of any of the rows."""
    return reduce(or_, rows, 0)


def groups(row: int) -> Iterator[int]:
    """The cells of a row that lie side by side, group after group."""
    while row:
        group = row & ~(row + (row & -row))
        yield group
        row ^= group


def erase_scanner_edges(ink: Cells, paper: ScannedPaper, side: int) -> None:
    """Erase lines, strips and flakes along the edges; several times, because a line may run beside a strip."""
    longest = max(ink.shape)
    rim, flat, far = 1 if paper.clean else int(RIM * longest), max(1, FLAT // side), int(NEAR * longest)
    thick = max(flat + 1, int(THICK * longest))
    character = max(2, CHARACTER[0] // side), max(3, round(CHARACTER[1] * longest))
    before, frame = ink.copy(), 0
    for number, inward in enumerate(from_edges(ink)):
        if not inward[: rim + 1].any():
            continue
        edge = _Edge(paper, side, number, inward)
        rows = edge.rows(rim + far + thick)
        found, lines = rows.copy(), False
        for _ in range(3):
            if union(rows[: rim + 1]).bit_count() < ALONG * edge.along:
                break
            line = _erase_lines(rows, rim, edge, (flat, thick))
            if not (line or (paper.light and _erase_strips(rows, rim, edge))):
                break
            lines = lines or line
        frame += lines and found[0].bit_count() < MOST_TOUCHING
        if side > 1 and not paper.clean and any(rows[:rim]):
            flakes = _flakes(rows[: rim + far], rim, (flat, far), character)
            rows[:rim] = [row & ~flakes for row in rows[:rim]]
        if rows != found:
            inward[: len(rows)] = to_cells(rows, edge.along)
    if frame == 4:
        ink[:] = before


class _Edge:
    """The pixels along one of the four edges: 0 the top, 1 the bottom, 2 the left, 3 the right."""

    def __init__(self, paper: ScannedPaper, side: int, number: int, ink: Cells) -> None:
        self.paper, self.side, self.number, self.ink = paper, side, number, ink
        self.inward, self.along = ink.shape
        self._solid = dict[str, list[int] | None]()  # by what is flagged; pixels stay as they are, so once is enough

    def rows(self, deep: int, start: int = 0) -> list[int]:
        """The rows of ink from one to another."""
        return to_rows(self.ink[start:deep])

    def part(self, deep: int, along: tuple[int, int] | None = None) -> Values:
        """The values of this many rows of cells, between two cells along the edge."""
        side, (start, end) = self.side, along or (0, self.along)
        near, far = (self.inward - deep, self.inward) if self.number % 2 else (0, deep)
        x0, y0, x1, y1 = (start, near, end, far) if self.number < 2 else (near, start, far, end)
        width, height = self.paper.size
        return self.paper.part((x0 * side, y0 * side, min(x1 * side, width), min(y1 * side, height)))

    def solid(self, flagged: Callable[[Values, int], Cells], rim: int) -> list[int] | None:
        """Rows of the cells without a flagged pixel; None where too few are in the rim."""
        if flagged.__name__ not in self._solid:
            self._solid[flagged.__name__] = self._find_solid(flagged, rim)
        return self._solid[flagged.__name__]

    def _find_solid(self, flagged: Callable[[Values, int], Cells], rim: int) -> list[int] | None:
        for deep in (rim + 1, int(DEEPEST * self.inward) + 1):
            cells = from_edges(flagged(self.part(min(deep, self.inward)), self.side))[self.number]
            if self.along - np.count_nonzero(cells[: rim + 1].all(axis=0)) < ALONG * self.along:
                return None
        return to_rows(~cells)

    def is_solid(self, start: int, end: int, deep: int) -> bool:
        """Whether nearly all pixels along the edge are as dark, within so many cells of it."""
        contrast = self.paper.contrast(self.part(deep, (start, end)))
        darkest = np.sort(contrast.max(axis=0 if self.number < 2 else 1))
        median = (darkest[(len(darkest) - 1) // 2] + darkest[len(darkest) // 2]) / 2
        return int(np.count_nonzero(2 * darkest >= median)) >= SOLID * len(darkest)

    def shows(self, strip: list[int], dark: bool) -> bool:
        """Whether a strip is a picture, or has print. Print is looked for on paper without noise only."""
        values, depth = self.part(min(len(strip), self.inward)), to_cells(strip, self.along).sum(axis=0)
        return self._is_picture(values, depth, dark) or (self.paper.clean and self._has_print(values, depth))

    def _has_print(self, values: Values, depth: NDArray[np.int64]) -> bool:
        """Whether values change within the strip, as they do at print and not at dirt."""
        cells = from_edges(self.paper.changes(values, self.side))[self.number]
        within = np.arange(len(cells))[:, None] < _inner(depth) - 4  # farther in it turns to paper, so values change
        return int(np.count_nonzero(cells & within)) >= MOST_CHANGES

    def _is_picture(self, values: Values, depth: NDArray[np.int64], dark: bool) -> bool:
        """Whether blocks differ from others in their line along the edge. In a dark strip light blocks are paper."""
        channel, block = min(1, self.paper.depth - 1), max(BLOCK, self.side)
        gray = from_edges(values[:, channel :: self.paper.depth])[self.number]
        inner = _inner(np.minimum.reduceat(depth, np.arange(gray.shape[1] // block) * (block // self.side)))
        rows = min(len(gray), (int(inner.max()) - 6) * self.side) // block
        if rows < 1:
            return False
        lines = np.ascontiguousarray(gray[: rows * block, : len(inner) * block]).reshape(rows, block, -1)
        means = lines.sum(axis=1, dtype=np.uint32).reshape(rows, -1, block).sum(axis=2) / block**2
        within = np.arange(rows)[:, None] < (inner - 6) * self.side // block
        if dark:
            within &= lines.max(axis=1).reshape(rows, -1, block).max(axis=2) <= self.paper.background[channel] // 2
        beside = [row[some] for row, some in zip(means, within, strict=True) if np.count_nonzero(some) > PICTURE]
        return sum(int((np.abs(row - np.median(row)) > UNLIKE).sum()) for row in beside) >= PICTURE


def _inner(depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """The least depth of each place and of those beside it."""
    return np.minimum(depth, np.minimum(np.roll(depth, 1), np.roll(depth, -1)))


def _erase_lines(rows: list[int], rim: int, edge: _Edge, thickness: tuple[int, int]) -> bool:
    """Erase the outermost line of at most so many rows in the rim, where it follows a quarter of the edge."""
    seen, outermost = 0, []
    for row in rows[:rim]:
        outermost.append(row & ~seen)
        seen |= row
    for most in thickness:
        behind = rows[most:] + rows[-1:] * most
        thin = [first & ~row for first, row in zip(outermost, behind, strict=False)]
        lines = [
            (start, end)
            for start, end in _long_runs(thin, edge.along)
            if most * edge.side <= FLAT or edge.is_solid(start, end, _deepest(thin, start, end) + most)
        ]
        for start, end in lines:
            within = (1 << end) - (1 << start)
            for deep, first in enumerate(thin):
                for at in range(deep, deep + most if first & within else deep):
                    rows[at] &= ~(first & within)
            for near, far, at in ((0, start, start), (end, edge.along, end - 1)):
                if far - near <= rim:  # the corner, where the line of the next edge crosses
                    deep = _deepest(thin, at, at + 1)
                    for beside in range(max(0, deep - 1), min(deep + most + 1, len(rows))):
                        rows[beside] &= ~((1 << far) - (1 << near))
        if lines:
            return True
    return False


def _deepest(rows: list[int], start: int, end: int) -> int:
    """The last row with a cell between two cells along the edge."""
    within = (1 << end) - (1 << start)
    return max(deep for deep, row in enumerate(rows) if row & within)


def _long_runs(rows: list[int], along: int) -> list[tuple[int, int]]:
    """(start, end) of lines of cells, one to a column, that go on for a quarter of the edge, by a row at a time."""
    least, begin = math.ceil(ALONG * along), union(rows)
    if begin.bit_count() < least:
        return []
    near = zip(rows, [0, *rows], [*rows[1:], 0], strict=False)
    joined = union([row & (row | above | below) >> 1 for row, above, below in near])
    long, run = 1, joined  # where so many columns are joined
    while long < least - 1:
        step = min(long, least - 1 - long)
        run &= run >> step
        long += step
    found = []
    begin &= run if least > 1 else -1
    while begin:
        start = (begin & -begin).bit_length() - 1
        rest = joined >> start
        end = start + (rest ^ rest + 1).bit_length()
        found.append((start, end))
        begin &= -1 << end
    return found


def _flakes(rows: list[int], rim: int, limits: tuple[int, int], character: tuple[int, int]) -> int:
    """The columns of groups of ink in the rim that are flatter than any print, with nothing behind them.

    Those are pieces of lines, and dust. ``limits``, in cells: a flake is less deep than the first, and the gaps in a
    group are shorter than the second. ``character``: one or two groups with a length between these may be print.
    """
    flat, far = limits
    joined, behind, flakes, wide = union(rows), union(rows[rim:]), 0, 1
    while wide < far - 1:
        step = min(wide, far - 1 - wide)
        joined |= joined << step
        wide += step
    alone = [group for group in groups(joined) if not group & behind]
    for group in alone:
        own = [row & group for row in rows[:rim]]
        ink = union(own)
        length = ink.bit_length() - (ink & -ink).bit_length() + 1
        may_be_print = len(alone) <= 2 and character[0] < length <= character[1]
        if not may_be_print and _is_flat(own, group & -group, flat):
            flakes |= group
    return flakes


def _is_flat(group: list[int], first: int, flat: int) -> bool:
    """Whether a group is flat within ``STEP`` cells along the edge; it may lie at an angle."""
    depths = [deep for deep, row in enumerate(group) if row]
    if depths[-1] - depths[0] < flat:
        return True
    near = [(deep, group[deep]) for deep in depths]
    while near:
        end = first << STEP
        depths = [deep for deep, row in near if row & (end - first)]
        if depths and depths[-1] - depths[0] >= flat:
            return False
        near, first = [(deep, row) for deep, row in near if row >= end], end
    return True


def _erase_strips(rows: list[int], rim: int, edge: _Edge) -> bool:
    """Erase strips without a light pixel, or without one as dark as the paper."""
    paper, erased = edge.paper, False
    for flagged in (paper.is_light, paper.is_not_brighter) if paper.brighter else (paper.is_light,):
        solid = edge.solid(flagged, rim)
        strip = None if solid is None else _strip(rows, solid, rim, edge.along)
        if strip is not None and not edge.shows(strip, flagged == paper.is_light):
            rows += edge.rows(len(strip), len(rows))
            rows[: len(strip)] = [row & ~gone for row, gone in zip(rows, strip, strict=False)]
            erased = True
    return erased


def _strip(rows: list[int], solid: list[int], rim: int, along: int) -> list[int] | None:
    """Rows of a strip, with the two cells in which it turns to paper; paper may lie outside."""
    near = min(rim + 1, len(solid))  # along the long edges of an image of 4 : 1, the rim is deeper than a strip
    inside = outside = above = union(solid[:near])
    ends, reached = 0, list[int]()
    for deep, row in enumerate(solid):
        # Paper, and the cell in which it turns to the strip.
        outside = outside & ~(rows[deep] & above | row) if deep < near else 0
        left = inside & ~(row | outside)
        ends |= left & solid[deep - 1] if deep else 0
        inside ^= left
        reached.append(inside)
        above = rows[deep] if deep < near else 0
    if ends.bit_count() < ALONG * along:
        return None
    deepest = max(deep for deep, row in enumerate(reached) if row & ends) + 1
    # What is left inside is the strip of the next edge.
    return [inside | ends, inside | ends, *(inside | row & ends for row in reached[:deepest])]
