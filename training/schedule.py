"""What is trained when? Levels of difficulty, learning rate and sizes.

The learning rate follows the wall clock of the whole plan (``--seconds``), summed over resumed calls, so that a run
that is cut anywhere goes on where it stood. Difficulty follows what the reader can do: a level ends when its own kind
of window is mostly read, or when its share of time is up. Going by the clock alone failed: on whole pages that it
cannot read yet, the model unlearns in ten seconds what it had learnt on cards (error 0.80 back to 1.00) and stays so.
So shares of time are the exception: a reader pushed on at 0.94 on panels was at 0.98 on whole pages 400 s later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from training.examples import length
from training.images import random_grid
from training.pool import CROPS, FIRST, KINDS, WEIGHTS


@dataclass(frozen=True)
class Level:
    """A mix of kinds; over when ``judge`` at full size errs less than ``bar``, or at ``limit`` of the run."""

    mix: dict[str, float]
    judge: str = ""
    bar: float = 0.0
    limit: float = 1.0


LEVELS = [
    Level({"cards": 1.0}, "cards", 0.50, 0.30),
    Level({"cards": 0.30, "panels": 0.70}, "panels", 0.42, 0.42),
    Level(
        {"cards": 0.08, "panels": 0.25, "halves": 0.55, "charts": 0.05, "signs": 0.04, "shapes": 0.03},
        "halves",
        0.38,
        0.50,
    ),
    Level({"panels": 0.05, "halves": 0.25} | {k: 0.70 * w for k, w in WEIGHTS.items()}, "forms", 0.40, 0.60),
    # a new family is learnt at a high rate, and the bars of the old ones are met while the rate falls
    Level({"halves": 0.02} | {k: 0.98 * w for k, w in FIRST.items()}, limit=0.45),
    Level({"halves": 0.03} | {k: 0.97 * w for k, w in WEIGHTS.items()}),
]
# asked of one row: about half of what a page can be asked, so that a page teaches something new each time it is used
QUESTIONS = {"cards": 3, "panels": 4, "halves": 8, "forms": 16, "charts": 7, "infographics": 12}
QUESTIONS |= {"signs": 4, "shapes": 6, "swatches": 1, "receipts": 12, "documents": 10}
# Of a canvas, in the legible range and below; else 16 and 8. Receipts have many canvases.
GRIDS = {"receipts": (6, 3), "documents": (10, 5)}


def shares(level: int) -> list[float]:
    """Probability of each of ``KINDS``."""
    return [LEVELS[level].mix.get(k, 0.0) for k in KINDS]


def render_shares(level: int) -> list[float]:
    """What workers render: half for now, half for the level to come, so that no level starts on few pages."""
    later = shares(min(level + 1, len(LEVELS) - 1))
    return [0.5 * a + 0.5 * b for a, b in zip(shares(level), later, strict=True)]


def next_level(level: int, fraction: float, errors: dict[str, float]) -> int:
    """The level to go on with, given the latest mean error of each kind at full size."""
    now = LEVELS[level]
    passed = now.judge and errors.get(now.judge, 1.0) < now.bar
    return level + 1 if level + 1 < len(LEVELS) and (passed or fraction > now.limit) else level


def learning_rate(fraction: float, step: int, peak: float, flat: float = 0.45) -> float:
    """Warm-up over 150 steps, flat for a share of the run (short where trained weights go on), then down to 1 %."""
    decay = 1.0 if fraction < flat else max(0.01, (1 - fraction) / (1 - flat))
    return peak * min(1.0, (step + 1) / 150) * decay


def head_weight(level: int, fraction: float) -> float:
    """Of the auxiliary losses: full while windows are learnt, then less and less beside the answers."""
    return 1.0 if level < 3 else 0.8 - 0.5 * min(1.0, fraction)


def plain(fraction: float) -> float:
    """The share of pages like those that it will be asked about, without odd letters and names: most at the end."""
    return 0.15 if fraction < 0.55 else 0.6


def kind(level: int, rng: random.Random) -> str:
    """What the next batch holds."""
    return rng.choices(KINDS, shares(level))[0]


@lru_cache
def grids(width: int, height: int, low: float, high: float, n: int) -> list[tuple[int, int]]:
    """n fixed grids between two token counts; a new grid costs 50 ms of tables, so they are not drawn afresh."""
    rng = random.Random(width * 10_000 + height)
    budgets = [low * (high / low) ** ((i + 0.5) / n) for i in range(n)]
    return [random_grid(budget, width, height, rng) for budget in budgets]


def grid(kind: str, width: int, height: int, rng: random.Random) -> tuple[int, int]:
    """Rows and columns of visual tokens: the full page more often than not, else some grid from 32 tokens up."""
    full, x = (width // 28) * (height // 28), rng.random()
    if kind in CROPS:
        choices = grids(width, height, 0.5 * full, full, 4) if x > 0.8 else [(height // 28, width // 28)]
    elif x < 0.75:
        choices = [(height // 28, width // 28)]
    elif x < 0.94:  # where text is on the edge of being legible
        choices = grids(width, height, 0.3 * full, full, GRIDS.get(kind, (16, 8))[0])
    else:
        choices = grids(width, height, 32, 0.3 * full, GRIDS.get(kind, (16, 8))[1])
    return rng.choice(choices)


def batch_size(kind: str, cells: int, tokens: int) -> int:
    """Pages a step: ``tokens`` counts visual tokens plus a share of the question tokens."""
    b = int(tokens / (cells + 0.4 * questions(kind) * length(kind)))
    # small grids of whole pages teach little about reading: a cap keeps their steps short
    return max(8, min(512 if kind in CROPS else 144, b // 8 * 8)) if tokens > 8000 else max(2, b)


def questions(kind: str) -> int:
    """Questions asked of one row."""
    return QUESTIONS[kind]
