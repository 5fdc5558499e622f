"""How fast does a cost grow? Time over a geometric ladder of sizes, and the exponent in cost ~ size^exponent.

The exponent is the slope of log time on log size by least squares over the upper half of the ladder, where fixed costs
matter least, with a 95 % interval (Student's t on what the line leaves). Beside it stands the exponent that the work
must have; ``faster`` says that even the low end of the interval is more than 0.1 above it, the room that logarithms and
caches get.

    exponent([(1, 2.0), (2, 4.1), (4, 8.0), (8, 16.2)], 4).value      # 1.00
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

ROOM = 0.1
LEAST = 0.004  # seconds that one reading takes at least; quicker work is repeated

Work = Callable[[], object]


@dataclass(frozen=True)
class Ladder:
    """What is measured at which sizes; ``prepare`` makes the work of one size and is not timed."""

    what: str
    against: str
    sizes: Sequence[int]
    prepare: Callable[[int], Work]
    must: float | Callable[[], float]
    why: str


@dataclass(frozen=True)
class Exponent:
    """A slope with its 95 % interval."""

    value: float
    low: float
    high: float


def geometric(first: int, last: int, rungs: int) -> list[int]:
    """Whole numbers from first to last in equal ratios, as nearly as rounding allows."""
    ratio = (last / first) ** (1 / (rungs - 1))
    return sorted({round(first * ratio**i) for i in range(rungs)})


def exponent(points: Sequence[tuple[float, float]], upper: int | None = None) -> Exponent:
    """The slope over the ``upper`` largest sizes; half of them, and at least four, unless given."""
    from scipy.stats import linregress, t

    ordered = sorted(points)
    number = upper or max(4, (len(ordered) + 1) // 2)
    x, y = zip(*((math.log(size), math.log(max(cost, 1e-12))) for size, cost in ordered[-number:]), strict=True)
    if len(x) < 3:
        raise ValueError(f"an exponent with an interval needs three sizes, not {len(x)}")
    line = linregress(x, y)
    reach = float(t.ppf(0.975, len(x) - 2)) * float(line.stderr)
    return Exponent(float(line.slope), float(line.slope) - reach, float(line.slope) + reach)


def seconds(work: Work, clock: Callable[[], float], repeats: int, patience: float) -> float:
    """Median seconds of one call; slow work is called fewer times, so that ``patience`` is about what it takes."""
    began = clock()
    work()  # warms up
    once = clock() - began
    times = max(1, math.ceil(LEAST / max(once, 1e-7)))
    readings = max(1, min(repeats, int(patience / max(once, 1e-9))))
    found = []
    for _ in range(readings):
        began = clock()
        for _ in range(times):
            work()
        found.append((clock() - began) / times)
    return median(found)


def climb(ladder: Ladder, clock: Callable[[], float], repeats: int = 5, patience: float = 4.0) -> dict[str, Any]:
    """Measure one ladder; it ends early where the next rung would take longer than twice the patience."""
    points: list[tuple[int, float]] = []
    for size in ladder.sizes:
        if len(points) > 1:
            (a, before), (b, now) = points[-2:]
            steep = math.log(max(now, 1e-9) / max(before, 1e-9)) / math.log(b / a)
            if now * (size / b) ** max(steep, 0) > 2 * patience and len(points) > 3:
                break
        points.append((size, seconds(ladder.prepare(size), clock, repeats, patience)))
    must = ladder.must() if callable(ladder.must) else ladder.must
    return judged(ladder.what, ladder.against, [(size, 1e3 * s) for size, s in points], must, ladder.why)


def judged(what: str, against: str, points: Sequence[tuple[int, float]], must: float, why: str) -> dict[str, Any]:
    """One row of the results: points in milliseconds, the exponent, and whether it is more than it must be."""
    slope = exponent(points)
    return {
        "what": what,
        "against": against,
        "points": [[size, ms] for size, ms in points],
        "exponent": slope.value,
        "low": slope.low,
        "high": slope.high,
        "must": must,
        "why": why,
        "faster": slope.low > must + ROOM,
    }


def timer(device: str) -> Callable[[], float]:
    """Processor time on a CPU, which others may use too; on a GPU wall time, once it has nothing left to do."""
    if device == "cpu":
        return time.process_time
    import torch

    def now() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return now
