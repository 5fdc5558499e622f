"""The token counts that LLaVA-OneVision's images can take, and arms that reach one total with them.

AnyRes quantizes: by resizing, one image reaches only a few rungs (a page at 1654x2339: 1269, 1793, 2835, 4964, 5427,
7257, 7353). An arm names a target for each image. ``align_ladders`` starts at the nearest rungs and moves single
images, then pairs, then any number of images, until the total is met within 0.02 % (paper, "Equal-budget protocol").

    ladders = [ladder(w, h) for w, h in sizes]
    align_ladders(ladders, total=600 * 3019)                            # the uniform arm
    align_ladders(ladders, total=600 * 3019, targets=budgets)           # any other arm, at the same total
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

import numpy as np

from stakes.errors import BadInput, InfeasibleBudget
from stakes.vision.geometry import count_tokens
from stakes.vision.geometry import family as named_family
from stakes.vision.geometry.tiles import AnyRes

TOLERANCE = 0.0002
SEARCHED = 512  # images, spread over the whole set, that the joint search may move

Step = tuple[int, int, int]  # tokens that it adds, image, +1 or -1
Counts = Sequence[Sequence[int]]  # by image, the token counts of its rungs, ascending


@dataclass(frozen=True)
class Rung:
    """A token count that one image can take, and the largest size of the image that takes no more."""

    tokens: int
    width: int
    height: int


@lru_cache(maxsize=4096)
def ladder(width: int, height: int, family: str = "llava-onevision", *, stretch: float = 0.01) -> tuple[Rung, ...]:
    """The rungs of one image, cheapest first; both tokens and pixels grow, and the last rung is the image itself.

    Sizes keep the aspect ratio except for rounding to whole pixels, at most ``stretch``. A rung that costs more than
    another without showing more pixels is left out.
    """
    anyres = named_family(family).formula
    if not isinstance(anyres, AnyRes):
        raise BadInput(f"{family} has no ladder of canvases; only families of LLaVA-OneVision's kind have one")
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
    """One rung per image so that their tokens add up to ``total``, close to ``targets``.

    Without targets every image aims at an equal share. The walk takes the single step that brings the sum nearer and
    moves its image away from its target least per token, and, where no single step helps, the best pair of steps; ties
    go to the earlier image. Pages of one size have few different steps, whose pairs may all miss the total. The rest of
    the gap is then closed by a joint search over all images. It looks for the smallest difference that can be reached,
    not only for the tolerance, because two arms may miss the total on opposite sides.
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
        some = slice(None, None, -(-len(counts) // SEARCHED))
        chosen[some] = _search(counts[some], chosen[some], total - spent, aims[some])
        spent = _spent(counts, chosen)
    if abs(spent - total) > tolerance * total:
        raise InfeasibleBudget(
            f"the nearest total found is {spent}, {abs(spent - total) / total:.3%} off {total} ({tolerance:.2%} "
            f"allowed); ask for {spent}, or use more images (the smallest feasible total is {least})"
        )
    by_tokens = [{rung.tokens: rung for rung in rungs} for rungs in ladders]
    return [by_tokens[i][counts[i][at]] for i, at in enumerate(chosen)]


def _walk(counts: Counts, total: int, aims: Sequence[float]) -> list[int]:
    chosen = [min(range(len(c)), key=lambda at: abs(c[at] - aim)) for c, aim in zip(counts, aims, strict=True)]
    gap = total - _spent(counts, chosen)
    steps = _CheapestSteps(counts, chosen, aims)
    while gap:
        moves = steps.pop(gap) or _best_pair(_steps(counts, chosen), gap)
        if not moves:
            break
        for moved, image, direction in moves:
            chosen[image] += direction
            gap -= moved
            steps.push(image)
    return chosen


class _CheapestSteps:
    """Priority queues of the single steps, one per direction, so that no step looks at all images.

    A step helps where |gap - moved| < |gap|: it goes in the gap's direction and moves less than twice the gap. Gaps
    only shrink, so a step that is too long once stays too long, and each is popped once: O(n log n) over a whole walk.
    """

    def __init__(self, counts: Counts, chosen: Sequence[int], aims: Sequence[float]) -> None:
        self.counts, self.chosen, self.aims = counts, chosen, aims
        self.queues: dict[int, list[tuple[float, int, int]]] = {1: [], -1: []}
        for image in range(len(counts)):
            self.push(image)

    def push(self, image: int) -> None:
        """Add both steps of an image from its current rung; ``pop`` skips those from an earlier rung."""
        at, counts, aim = self.chosen[image], self.counts[image], self.aims[image]
        for direction, queue in self.queues.items():
            if 0 <= at + direction < len(counts):
                here, there = counts[at], counts[at + direction]
                price = (abs(there - aim) - abs(here - aim)) / abs(there - here)  # further from the target, per token
                heappush(queue, (price, image, at))

    def pop(self, gap: int) -> list[Step]:
        """The cheapest step that helps, of equals the earlier image's; none where no step helps."""
        direction = 1 if gap > 0 else -1
        queue = self.queues[direction]
        while queue:
            _, image, at = heappop(queue)
            moved = self.counts[image][at + direction] - self.counts[image][at]
            if at == self.chosen[image] and abs(moved) < 2 * abs(gap):
                return [(moved, image, direction)]
        return []


def _spent(counts: Counts, chosen: Sequence[int]) -> int:
    return sum(count[at] for count, at in zip(counts, chosen, strict=True))


def _steps(counts: Counts, chosen: Sequence[int]) -> list[Step]:
    """Every single step from here."""
    return [
        (counts[i][at + direction] - counts[i][at], i, direction)
        for i, at in enumerate(chosen)
        for direction in (-1, 1)
        if 0 <= at + direction < len(counts[i])
    ]


def _best_pair(steps: Sequence[Step], gap: int) -> list[Step]:
    """The two steps on different images whose sum comes closest to the gap; none where that is no closer than here."""
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


def _search(counts: Counts, chosen: Sequence[int], gap: int, aims: Sequence[float]) -> list[int]:
    """The rungs whose sum is closest to ``gap`` above the chosen ones, and of these the closest to the targets.

    Dynamic programming over the images: ``cost[d + reach]`` is the least distance from the targets at which the images
    so far spend d more than chosen. ``reach`` is three times the longest ladder, much more than a walk leaves.
    """
    reach = abs(gap) + 3 * max(max(count) - min(count) for count in counts)
    cost = np.full(2 * reach + 1, np.inf)
    cost[reach] = 0.0
    taken = []
    for count, at, aim in zip(counts, chosen, aims, strict=True):
        ways = np.full((len(count), len(cost)), np.inf)
        for way, tokens in zip(ways, count, strict=True):
            shift = tokens - count[at]
            into, out = max(shift, 0), max(-shift, 0)
            if into < len(cost) > out:
                way[into : len(cost) - out] = cost[out : len(cost) - into] + abs(tokens - aim)
        taken.append(ways.argmin(axis=0).astype(np.int16))
        cost = ways.min(axis=0)
    reached = np.flatnonzero(np.isfinite(cost))
    missed = np.abs(reached - reach - gap)
    nearest = reached[missed == missed.min()]
    end = int(nearest[cost[nearest].argmin()])
    rungs = []
    for count, at, way in zip(reversed(counts), reversed(chosen), reversed(taken), strict=True):
        rungs.append(int(way[end]))
        end -= count[rungs[-1]] - count[at]
    return rungs[::-1]
