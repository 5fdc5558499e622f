"""Which token counts can LLaVA-OneVision's images take, and how do arms reach one total with them?

AnyRes quantises: by resizing, one image reaches only a few rungs (a page at 1654x2339: 1269, 1793, 2835, 4964, 5427,
7257, 7353). An arm names a target for each image; ``align_ladders`` starts at the nearest rungs and moves single
images, then pairs, then any number, until the total is the one asked for within 0.02 % (paper, "Equal-budget
protocol").

    ladders = [ladder(w, h) for w, h in sizes]
    align_ladders(ladders, total=600 * 3019)                            # the uniform arm
    align_ladders(ladders, total=600 * 3019, targets=budgets)           # any other arm, at the same total
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any

import numpy as np

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.anyres import AnyRes

TOLERANCE = 0.0002
Step = tuple[int, int, int]  # tokens that it adds, image, +1 or -1
MOVED = 512  # images, spread over the whole set, that the search together may move


@dataclass(frozen=True)
class Rung:
    """A token count that one image can take, and the largest size of it that takes no more."""

    tokens: int
    width: int
    height: int


@lru_cache(maxsize=4096)
def ladder(width: int, height: int, family: str = "llava-onevision", *, stretch: float = 0.01) -> tuple[Rung, ...]:
    """The rungs of one image, cheapest first; both tokens and pixels grow, and the last rung is the image itself.

    Sizes keep the aspect ratio but for rounding to whole pixels, at most ``stretch``. A rung that costs more than
    another without showing more pixels is left out.
    """
    anyres = named_family(family).formula
    if not isinstance(anyres, AnyRes):
        raise BadInput(f"{family} has no ladder of canvases; only LLaVA-OneVision's kind has one")
    rungs = [Rung(count_tokens(family, width, height), width, height)]
    long, short = max(width, height), min(width, height)
    # Beyond the largest canvas the processor shrinks the image itself: no further rung but the native one.
    for edge in range(min(long - 1, anyres.tile * anyres.most_tiles), 0, -1):
        side = max(1, round(edge * short / long))
        if abs(side * long / (edge * short) - 1) > stretch:
            continue
        w, h = (edge, side) if width >= height else (side, edge)
        tokens = anyres.tokens_on(anyres.covering(w, h), w, h)
        if tokens < rungs[-1].tokens:
            rungs.append(Rung(tokens, w, h))
    return tuple(reversed(rungs))


def align_ladders(
    ladders: Sequence[Sequence[Rung]],
    total: int,
    targets: Sequence[float] | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> list[Rung]:
    """One rung per image so that their tokens add up to ``total``, as near to ``targets`` as a greedy walk stays.

    Without targets every image aims at an equal share. The walk takes, of the single steps that bring the sum nearer,
    the one that leaves its target least per token moved, and where no single step helps the best pair of steps; ties
    go to the earlier image. Pages of one size have few different steps, whose pairs may all miss the total; what is
    left then is looked for in all images together, down to the smallest difference there is near the walk's end, not
    only to the tolerance, because two arms may miss the total on opposite sides.
    """
    if not ladders or not all(ladders):
        raise BadInput("every image needs at least one rung, and at least one image is needed")
    aims = [total / len(ladders)] * len(ladders) if targets is None else list(targets)
    if len(aims) != len(ladders):
        raise BadInput(f"targets are needed for each of the {len(ladders)} images, got {len(aims)}")
    counts = [sorted({rung.tokens for rung in rungs}) for rungs in ladders]
    least, most = sum(c[0] for c in counts), sum(c[-1] for c in counts)
    if not least * (1 - tolerance) <= total <= most * (1 + tolerance):
        raise InfeasibleBudget(f"these images can spend from {least} to {most} tokens together, not {total}")
    chosen = _walk(counts, total, aims)
    spent = _spent(counts, chosen)
    if spent != total:
        some = range(0, len(counts), -(-len(counts) // MOVED))
        parts: list[list[Any]] = [[every[i] for i in some] for every in (counts, chosen, aims)]
        for i, at in zip(some, _together(parts[0], parts[1], total - spent, parts[2]), strict=True):
            chosen[i] = at
        spent = _spent(counts, chosen)
    if abs(spent - total) > tolerance * total:
        raise InfeasibleBudget(
            f"the nearest total found is {spent}, {abs(spent - total) / total:.3%} off {total} ({tolerance:.2%} "
            f"allowed); ask for {spent}, or use more images (the smallest feasible total is {least})"
        )
    by_tokens = [{rung.tokens: rung for rung in rungs} for rungs in ladders]
    return [by_tokens[i][counts[i][at]] for i, at in enumerate(chosen)]


def _walk(counts: Sequence[Sequence[int]], total: int, aims: Sequence[float]) -> list[int]:
    chosen = [min(range(len(c)), key=lambda at: abs(c[at] - aim)) for c, aim in zip(counts, aims, strict=True)]
    gap = total - _spent(counts, chosen)
    steps = _Cheapest(counts, chosen, aims)
    while gap:
        moves = steps.towards(gap) or _best_pair(_steps(counts, chosen), gap)
        if not moves:
            break
        for moved, image, towards in moves:
            chosen[image] += towards
            gap -= moved
            steps.add(image)
    return chosen


class _Cheapest:
    """The cheapest single step that brings a walk nearer, without looking at all images for each.

    A step helps where |gap - moved| < |gap|: it goes the gap's way and moves less than twice the gap. Gaps only shrink,
    so a step that is too long once stays so, and each is taken off its heap once: n log n over a whole walk.
    """

    def __init__(self, counts: Sequence[Sequence[int]], chosen: Sequence[int], aims: Sequence[float]) -> None:
        self.counts, self.chosen, self.aims = counts, chosen, aims
        self.heaps: dict[int, list[tuple[float, int, int]]] = {1: [], -1: []}
        for image in range(len(counts)):
            self.add(image)

    def add(self, image: int) -> None:
        """Both steps of an image from where it is now; those from where it was are passed over when they come up."""
        at = self.chosen[image]
        for towards, heap in self.heaps.items():
            if 0 <= at + towards < len(self.counts[image]):
                heappush(heap, (_price(image, towards, self.counts, self.chosen, self.aims), image, at))

    def towards(self, gap: int) -> list[Step]:
        """The step that leaves its target least per token moved, of those that help, then the earlier image's."""
        towards = 1 if gap > 0 else -1
        heap = self.heaps[towards]
        while heap:
            _, image, at = heappop(heap)
            moved = self.counts[image][at + towards] - self.counts[image][at]
            if at == self.chosen[image] and abs(moved) < 2 * abs(gap):
                return [(moved, image, towards)]
        return []


def _spent(counts: Sequence[Sequence[int]], chosen: Sequence[int]) -> int:
    return sum(count[at] for count, at in zip(counts, chosen, strict=True))


def _steps(counts: Sequence[Sequence[int]], chosen: Sequence[int]) -> list[Step]:
    """Every single step from here."""
    return [
        (counts[i][at + towards] - counts[i][at], i, towards)
        for i, at in enumerate(chosen)
        for towards in (-1, 1)
        if 0 <= at + towards < len(counts[i])
    ]


def _price(
    image: int, towards: int, counts: Sequence[Sequence[int]], chosen: Sequence[int], aims: Sequence[float]
) -> float:
    """How much further from its target a step takes its image, per token moved."""
    here, there = (counts[image][chosen[image] + step] for step in (0, towards))
    return (abs(there - aims[image]) - abs(here - aims[image])) / abs(there - here)


def _best_pair(steps: Sequence[Step], gap: int) -> list[Step]:
    """The two steps on different images whose sum comes nearest to the gap; none where that is no nearer than here."""
    ordered = sorted(steps)
    best, nearest = [], abs(gap)
    for step in ordered:
        around = bisect_left(ordered, (gap - step[0],))
        # Two on each side: one of them may be a step of the same image.
        for other in ordered[max(around - 2, 0) : around + 2]:
            left = abs(gap - step[0] - other[0])
            if other[1] != step[1] and left < nearest:
                best, nearest = [step, other], left
    return best


def _together(counts: Sequence[Sequence[int]], chosen: Sequence[int], gap: int, aims: Sequence[float]) -> list[int]:
    """The rungs whose sum comes nearest to ``gap`` above the chosen ones', then leave their targets least.

    Dynamic programming over the images: ``far[d + reach]`` is the least distance from the targets at which the images
    so far spend d more than chosen. ``reach`` is three times the longest ladder, much more than a walk leaves.
    """
    reach = abs(gap) + 3 * max(max(count) - min(count) for count in counts)
    far = np.full(2 * reach + 1, np.inf)
    far[reach] = 0.0
    taken = []
    for count, at, aim in zip(counts, chosen, aims, strict=True):
        shifts = [tokens - count[at] for tokens in count]
        ways = np.full((len(count), len(far)), np.inf)
        for way, shift, tokens in zip(ways, shifts, count, strict=True):
            into, out = max(shift, 0), max(-shift, 0)
            if into < len(far) > out:
                way[into : len(far) - out] = far[out : len(far) - into] + abs(tokens - aim)
        taken.append(ways.argmin(axis=0).astype(np.int16))
        far = ways.min(axis=0)
    reached = np.flatnonzero(np.isfinite(far))
    missed = np.abs(reached - reach - gap)
    nearest = reached[missed == missed.min()]
    place = int(nearest[far[nearest].argmin()])
    found = []
    for count, at, way in zip(reversed(counts), reversed(chosen), reversed(taken), strict=True):
        rung = int(way[place])
        found.append(rung)
        place -= count[rung] - count[at]
    return found[::-1]
