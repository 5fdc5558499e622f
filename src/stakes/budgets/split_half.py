"""Does a choice made on one half of the samples hold on the other? The paper's split-half calibration.

Curves are fitted on the odd-numbered samples of each tier; the pair that is best there is then ranked among all
pairs of the same total by its CWE on the even-numbered ones. Rank 1 means that the held-out half would have chosen the
same; the gap is what the choice loses against the held-out best. Paper, end of section "Allocation Frontier".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.budgets.curve import Curve
from stakes.budgets.frontier import Pair, frontier
from stakes.errors import BadInput
from stakes.evaluation.statistics import RATIOS


@dataclass(frozen=True)
class HalfResult:
    """One cost ratio: the pair chosen on the odd half, and how it does on the even one."""

    ratio: float
    chosen: tuple[int, int]
    rank: int
    of: int
    gap: float


def split_half(
    correct: Mapping[str, ArrayLike],
    budgets: Sequence[int],
    total: int,
    *,
    dear: str = "high",
    cheap: str = "low",
    ratios: Iterable[float] = RATIOS,
) -> dict[float, HalfResult]:
    """Choose on odd samples, test on even ones, for each cost ratio.

    ``correct[tier]`` is a table of samples × budgets, samples in the order in which they were drawn. ``total`` is the
    sum of the two tiers' budgets; at equal CWE the pair with less for the dear tier is chosen, as nearer to uniform.
    """
    halves = [{tier: _half(correct, tier, budgets, odd) for tier in (dear, cheap)} for odd in (1, 0)]
    fit, test = (frontier(half[dear], half[cheap], total) for half in halves)
    if not fit:
        raise BadInput(f"no two of the budgets {', '.join(map(str, budgets))} add up to {total}")
    found = {}
    for ratio in ratios:
        chosen = min(fit, key=lambda pair: (round(pair.cwe(ratio), 12), pair.high))
        held_out = {(pair.high, pair.low): pair.cwe(ratio) for pair in test}
        mine, best = held_out[_name(chosen)], min(held_out.values())
        rank = 1 + sum(value < mine - 1e-12 for value in held_out.values())
        found[ratio] = HalfResult(ratio, _name(chosen), rank, len(test), mine - best)
    return found


def _half(correct: Mapping[str, ArrayLike], tier: str, budgets: Sequence[int], odd: int) -> Curve:
    if tier not in correct:
        raise BadInput(f"tier {tier!r} has no outcomes; the tiers are {', '.join(correct)}")
    table: NDArray[np.float64] = np.asarray(correct[tier], dtype=float)
    if table.ndim != 2 or table.shape[1] != len(budgets) or len(table) < 2:
        raise BadInput(f"tier {tier!r} needs at least two samples × {len(budgets)} budgets, not a table {table.shape}")
    rows = table[1 - odd :: 2]  # the first sample is number 1, so it is odd
    return Curve(budgets, list(1 - rows.mean(axis=0)), len(rows))


def _name(pair: Pair) -> tuple[int, int]:
    return pair.high, pair.low
