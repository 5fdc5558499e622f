"""Test a choice of budgets on documents that it was not made on, or as a signal would serve it.

``held_out``: documents are numbered in the order in which they first appear; budgets are chosen on the odd ones and
compared on the even ones with the largest measured budget within the mean for all, at no more tokens than that takes:
by CWE gain with an interval over whole documents. Questions on one page share its print, so a split by question
would test on pages that the choice has seen. The halves need not hold tiers in the same proportion, so the choice may
spend another mean on the second half than on the first: both means are reported.

``split_half``: the paper's split by sample. ``as_served``: budgets chosen by labels, tiers read by a signal.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.frontier import frontier
from stakes.budgets.harm import Limits, check_limits
from stakes.budgets.options.tier_plan import TierOption
from stakes.budgets.uniform import largest_within
from stakes.calibration.by_document import by_document
from stakes.calibration.estimators import Terms, choose
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import RATIOS, Discordant, Gain, cwe, cwe_gain, discordant


@dataclass(frozen=True)
class HeldOut:
    """``gain``: CWE of uniform minus CWE of the chosen budgets, on the other half; above 0 the choice helps there."""

    budgets: Mapping[str, int]
    uniform_budget: int
    """The largest measured budget within the mean; the choice may spend no more."""
    gain: Gain
    high_cost: Discordant
    """Wins and losses of the chosen budgets on the most expensive tier, by label where labels are known."""
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
    labels: Mapping[str, str] | None = None,
    max_harm: float | Limits | None = None,
) -> HeldOut:
    """Split by document, choose, test; BadInput or InfeasibleBudget where the halves are too small for that.

    ``labels``: the true tier of each sample, where the outcomes' tiers are a signal's readings. Mistakes cost by it.
    """
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
    uniform = largest_within(curves[next(iter(costs))].budgets, mean_budget)  # the grid is the same for all tiers
    tables = by_document(fit, costs, labels)
    # At no more tokens than uniform takes: a mean between two budgets would let the choice spend more than uniform.
    limits = check_limits(max_harm, costs)
    terms = Terms(tables.expected_costs(costs), counts, uniform * sum(counts.values()), floor, max_harm=limits)
    budgets = choose(tables, terms, estimator).budgets
    answers = {(outcome.sample, outcome.budget): outcome for outcome in test}
    chosen = [outcome for outcome in test if outcome.budget == budgets[outcome.tier]]
    even = [answers[outcome.sample, uniform] for outcome in chosen]
    most_expensive = max(costs, key=costs.__getitem__)
    priced = [outcome.tier if labels is None else labels[outcome.sample] for outcome in chosen]
    high_cost = [i for i, label in enumerate(priced) if label == most_expensive]
    return HeldOut(
        budgets=budgets,
        uniform_budget=uniform,
        gain=cwe_gain(
            [outcome.correct for outcome in even],
            [outcome.correct for outcome in chosen],
            [costs[label] for label in priced],
            [outcome.document for outcome in chosen],
        ),
        high_cost=discordant(
            [even[i].correct for i in high_cost],
            [chosen[i].correct for i in high_cost],
            [chosen[i].document for i in high_cost],
        ),
        chosen_on=len(first),
        tested_on=len(documents) - len(first),
        mean_tokens=_mean_tokens(chosen),
        uniform_mean_tokens=_mean_tokens(even),
    )


def _mean_tokens(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.spent for outcome in outcomes) / len(outcomes)


@dataclass(frozen=True)
class AsServed:
    """Budgets chosen by labels where a signal reads the tiers: budget by the reading, cost by the label.

        CWE as served = sum_i c(label_i) [wrong at b(reading_i)] / sum_i c(label_i)

    A high-cost question that is read as cheap is answered with few tokens and still costs what it costs. A choice or a
    certificate made on labels holds for requests whose tier is named; this is of the others. It is not held out: the
    budgets were chosen on the same answers. Adaptive sampling leaves answers out, so there it is an estimate from the
    fitted curves and from budgets (``estimated``).
    """

    agreement: float
    """Share of questions whose reading is their label."""
    cwe: float
    by_label: float
    uniform: float
    """One budget for all at the same ``tokens``, interpolated between measured ones."""
    tokens: float
    label_tokens: float
    """Realised tokens per image, by readings and by labels."""
    estimated: bool = False


def as_served(
    outcomes: Sequence[Outcome],
    options: Mapping[str, TierOption],
    readings: Mapping[str, str],
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None = None,
) -> AsServed:
    """``outcomes``: every sample at every budget; ``readings``: a sample's tier by the signal. Review is not counted.

    ``labels``: the true tier of each sample; None: the outcomes' own tier.
    """
    answers = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    labels = {outcome.sample: labels[outcome.sample] if labels else outcome.tier for outcome in outcomes}
    grid = sorted({outcome.budget for outcome in outcomes})
    prices = [costs[tier] for tier in labels.values()]
    try:
        read = [_attempts(answers, sample, options[readings[sample]]) for sample in labels]
        named = [_attempts(answers, sample, options[tier]) for sample, tier in labels.items()]
        even = [[[answers[sample, budget]] for sample in labels] for budget in grid]
    except KeyError as missing:
        raise BadInput(f"not every sample was answered at every budget that is served ({missing} is missing)") from None
    by_reading, by_label, *by_budget = (cwe([a[-1].correct for a in arm], prices) for arm in (read, named, *even))
    tokens, label_tokens, *grid_tokens = (
        sum(outcome.spent for attempts in arm for outcome in attempts) / len(arm) for arm in (read, named, *even)
    )
    uniform = float(np.interp(tokens, grid_tokens, by_budget))
    agreed = sum(readings[sample] == tier for sample, tier in labels.items()) / len(labels)
    return AsServed(agreed, by_reading, by_label, uniform, tokens, label_tokens)


def _attempts(answers: Mapping[tuple[str, int], Outcome], sample: str, option: TierOption) -> list[Outcome]:
    """The attempts at a question, the last of which is returned."""
    first = answers[sample, option.budget]
    second = option.next_budget(first.confidence)
    return [first] if second is None else [first, answers[sample, second]]


def estimate_served(
    curves: Mapping[str, Curve],
    budgets: Mapping[str, int],
    pairs: Sequence[tuple[str, str]],
    costs: Mapping[str, float],
    *,
    by_reading: bool,
) -> AsServed:
    """The same from curves; ``pairs``: (reading, label) of each sample; ``by_reading``: the curves are of readings.

    A budget that a tier was not asked at is interpolated, and beyond the ends the nearest one stands for it.
    """

    def arm(budget_of: Mapping[str, float], named: bool) -> tuple[float, float]:
        lost = tokens = 0.0
        for reading, label in pairs:
            budget = budget_of[label if named else reading]
            curve = curves[reading if by_reading else label]
            lost += costs[label] * float(np.interp(budget, curve.budgets, curve.errors))
            tokens += budget
        return lost / sum(costs[label] for _, label in pairs), tokens / len(pairs)

    served, named = arm(budgets, named=False), arm(budgets, named=True)
    agreement = sum(reading == label for reading, label in pairs) / len(pairs)
    even = arm(dict.fromkeys(costs, served[1]), named=True)[0]
    return AsServed(agreement, served[0], named[0], even, served[1], named[1], estimated=True)


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
    ratios: Iterable[float] = RATIOS,
) -> dict[float, HalfResult]:
    """The paper's split-half calibration of tiers high and low (end of section "Allocation Frontier"), by cost ratio.

    Curves are fitted on the odd-numbered samples of each tier; the pair that is best there is then ranked among all
    pairs of the same total by its CWE on the even-numbered ones. Rank 1 means that the other half would have chosen the
    same; the gap is what the choice loses against the best there.

    ``correct[tier]`` is a table of samples × budgets, samples in the order in which they were drawn. ``total`` is the
    sum of the two tiers' budgets; at equal CWE the pair with less for the high-cost tier is chosen, nearer to uniform.
    """
    halves = [{tier: _half(correct, tier, budgets, odd) for tier in ("high", "low")} for odd in (1, 0)]
    fit, test = (frontier(half["high"], half["low"], total) for half in halves)
    if not fit:
        raise BadInput(f"no two of the budgets {', '.join(map(str, budgets))} add up to {total}")
    results = {}
    for ratio in ratios:
        best = min(fit, key=lambda pair: (round(pair.cwe(ratio), 12), pair.high))
        chosen = best.high, best.low
        on_test = {(pair.high, pair.low): pair.cwe(ratio) for pair in test}
        rank = 1 + sum(value < on_test[chosen] - 1e-12 for value in on_test.values())
        results[ratio] = HalfResult(ratio, chosen, rank, len(test), on_test[chosen] - min(on_test.values()))
    return results


def _half(correct: Mapping[str, ArrayLike], tier: str, budgets: Sequence[int], odd: int) -> Curve:
    if tier not in correct:
        raise BadInput(f"tier {tier!r} has no outcomes; the tiers are {', '.join(correct)}")
    table: NDArray[np.float64] = np.asarray(correct[tier], dtype=float)
    if table.ndim != 2 or table.shape[1] != len(budgets) or len(table) < 2:
        raise BadInput(f"tier {tier!r} needs at least two samples × {len(budgets)} budgets, not a table {table.shape}")
    rows = table[1 - odd :: 2]  # the first sample is number 1, so it is odd
    return Curve(budgets, list(1 - rows.mean(axis=0)), len(rows))
