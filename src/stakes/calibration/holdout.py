"""Would the choice hold on documents that it was not made on? Choose on one half, test on the other.

Documents are numbered in the order in which they first appear; budgets are chosen on the odd ones and compared on the
even ones with the uniform budget, the largest measured one within the mean, at no more tokens than that takes: by CWE
gain with an interval over whole documents. Questions on one page share its print, so a split by question would test on
pages that the choice has seen.

The two halves need not hold tiers in the same proportion, so the choice may spend another mean on the second half than
on the first: both means are given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import Pair, frontier
from stakes.calibration.by_document import by_document
from stakes.calibration.estimators.choose import Terms, choose
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import RATIOS, Discordant, Gain, cwe_gain, discordant


@dataclass(frozen=True)
class HeldOut:
    """``gain``: CWE of uniform minus CWE of the chosen budgets, on the other half; above 0 the choice helps there."""

    budgets: Mapping[str, int]
    uniform_budget: int
    gain: Gain
    dear: Discordant
    """Answers in the dearest tier that the chosen budgets put right and put wrong."""
    chosen_on: int
    tested_on: int
    """Documents in each half."""
    mean_tokens: float
    uniform_mean_tokens: float
    """Realised tokens per image on the second half."""


def held_out(
    outcomes: Sequence[Outcome],
    costs: Mapping[str, float],
    mean_budget: int,
    floor: int | None = None,
    estimator: str = "raw",
) -> HeldOut:
    """Split by document, choose, test; BadInput or InfeasibleBudget where the halves are too small for that."""
    documents = list(dict.fromkeys(outcome.document for outcome in outcomes))
    first = set(documents[::2])
    fit = [outcome for outcome in outcomes if outcome.document in first]
    test = [outcome for outcome in outcomes if outcome.document not in first]
    for half, name in ((fit, "first"), (test, "second")):
        for tier in costs:
            if not any(outcome.tier == tier for outcome in half):
                raise BadInput(f"the {name} half of the {len(documents)} documents has no question of tier {tier!r}")
    curves = curves_from_outcomes(fit)
    counts = {tier: max(curves[tier].counts) for tier in costs}
    grid = curves[next(iter(costs))].budgets  # the same for all tiers
    uniform = max((budget for budget in grid if budget <= mean_budget), default=None)
    if uniform is None:
        raise InfeasibleBudget(f"the smallest measured budget is {grid[0]}, above the mean budget of {mean_budget}")
    # At no more tokens than uniform takes: a mean between two budgets would let the choice spend more than uniform.
    terms = Terms(costs, counts, uniform * sum(counts.values()), floor)
    best = choose(by_document(fit, costs), terms, estimator, {outcome.document for outcome in test})
    answers = {(outcome.sample, outcome.budget): outcome for outcome in test}
    chosen = [outcome for outcome in test if outcome.budget == best.budgets[outcome.tier]]
    even = [answers[outcome.sample, uniform] for outcome in chosen]
    dearest = max(costs, key=costs.__getitem__)
    dear = [i for i, outcome in enumerate(chosen) if outcome.tier == dearest]
    return HeldOut(
        budgets=best.budgets,
        uniform_budget=uniform,
        gain=cwe_gain(
            [outcome.correct for outcome in even],
            [outcome.correct for outcome in chosen],
            [costs[outcome.tier] for outcome in chosen],
            [outcome.document for outcome in chosen],
        ),
        dear=discordant([even[i].correct for i in dear], [chosen[i].correct for i in dear]),
        chosen_on=len(first),
        tested_on=len(documents) - len(first),
        mean_tokens=sum(outcome.spent for outcome in chosen) / len(chosen),
        uniform_mean_tokens=sum(outcome.spent for outcome in even) / len(even),
    )


# Does a choice made on one half of the samples hold on the other? The paper's split-half calibration.
#
# Curves are fitted on the odd-numbered samples of each tier; the pair that is best there is then ranked among all
# pairs of the same total by its CWE on the even-numbered ones. Rank 1 means that the held-out half would have chosen
# the
# same; the gap is what the choice loses against the held-out best. Paper, end of section "Allocation Frontier".


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
