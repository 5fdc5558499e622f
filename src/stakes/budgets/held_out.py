"""Would the choice hold on documents that it was not made on? Choose on one half, test on the other.

Documents are numbered in the order in which they first appear; budgets are chosen on the odd ones and compared on the
even ones with the uniform budget, the largest measured one within the mean, at no more tokens than that takes: by CWE
gain with an interval over whole documents. Questions on one page share its print, so a split by question would test on
pages that the choice has seen.

The two halves need not hold tiers in the same proportion, so the choice may spend another mean on the second half than
on the first: both means are given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stakes.budgets.by_document import by_document
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.estimators.choose import Terms, choose
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.outcomes import Outcome
from stakes.evaluation.statistics import Discordant, Gain, cwe_gain, discordant


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
