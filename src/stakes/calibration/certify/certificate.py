"""What can be promised of a policy? Chosen on one half of the documents, certified on the other.

* no harm: tiered budgets ship only if the lower confidence bound of their CWE gain over uniform, at no more tokens, is
  above zero on documents that they were not chosen on; otherwise uniform ships, and the certificate says why;
* ceilings: budgets at which a tier's error stays under a stated rate (``certificate_ceiling``);
* an upper confidence bound of every tier's error at the budget that ships.

Documents are the independent units; the bounds count in a document that was lost altogether and not seen
(``bounded_mean``). Each of the three statements is wrong with a chance of at most ``1 - confidence``; the bounds of all
tiers, and all ceilings, hold together. No estimator and no shape of a curve is relied upon: those only propose.

    certificate = certify(by_document(outcomes), {"high": 5, "low": 1}, 304, ceilings={"high": 0.2})
    certificate.budgets, certificate.shipped, certificate.why
"""

import json
import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import Ceiling, hold_ceilings, lower_ratio, typical, upper_error
from stakes.calibration.estimators import DEFAULT
from stakes.calibration.estimators.choose import Choice, Terms, choose
from stakes.errors import BadInput, InfeasibleBudget

CONFIDENCE = 0.95


@dataclass(frozen=True)
class NoHarm:
    """The tiered budgets against uniform, on the documents that they were not chosen on."""

    budgets: Mapping[str, int]
    uniform: int
    gain: float
    """CWE of uniform minus CWE of these budgets."""
    lower: float
    """Its lower confidence bound."""
    level: float
    """Of that bound: above the confidence asked for where ceilings left several choices to certify."""


@dataclass(frozen=True)
class UpperError:
    """A tier's error at its budget, on the certifying documents, and the rate that it stays under."""

    budget: int
    error: float
    upper: float


@dataclass(frozen=True)
class Certificate:
    """What is promised, on what evidence."""

    confidence: float
    shipped: Literal["tiered", "uniform"]
    budgets: Mapping[str, int]
    why: str
    no_harm: NoHarm | None
    """None where the choice is uniform itself, so that there is nothing to compare."""
    ceilings: Mapping[str, Ceiling]
    upper_errors: Mapping[str, UpperError]
    chosen_on: int
    certified_on: int
    """Documents in each half."""
    estimator: str

    def record(self) -> dict[str, object]:
        """As JSON, and the same when read back: keys are strings."""
        return dict(json.loads(json.dumps(asdict(self))))


def certify(
    measured: ByDocument,
    costs: Mapping[str, float],
    mean_budget: int,
    *,
    estimator: str = DEFAULT,
    floor: int | None = None,
    confidence: float = CONFIDENCE,
    ceilings: Mapping[str, float] | None = None,
) -> Certificate:
    """Choose on one half, certify on the other, and say what ships."""
    if not 0.5 <= confidence < 1:
        raise BadInput(f"a confidence lies between 0.5 and 1, not at {confidence}; 0.95 is usual")
    first, second = measured.halves()
    uniform = max((budget for budget in measured.budgets if budget <= mean_budget), default=None)
    if uniform is None:
        raise InfeasibleBudget(
            f"the smallest measured budget is {measured.budgets[0]}, above the mean budget of {mean_budget}"
        )
    held = hold_ceilings(measured, ceilings or {}, confidence)
    kept = {tier: ceiling.budget for tier, ceiling in held.items() if ceiling.budget is not None}
    # At no more tokens than uniform takes, so that the comparison is at equal tokens or in uniform's favour.
    terms = Terms(costs, measured.counts, uniform * sum(measured.counts.values()), floor)
    # A ceiling that is not met asks for nothing, but might have: it counts among what could have come up.
    floors = {tier: kept.get(tier, measured.budgets[0]) for tier in held}
    choice, choices = _choices(first, terms, estimator, floors, second.documents)
    if choice is None:
        every = sum(measured.counts.values())
        least = sum(measured.counts[tier] * max(kept.get(tier, 0), measured.budgets[0]) for tier in costs)
        mean = math.ceil(least / every)
        # Uniform is a measured budget, so a mean between two of them affords no more than the lower.
        enough = next(budget for budget in measured.budgets if budget * every >= least)
        unless = "" if enough == mean else f", or of {mean} if that is in the grid"
        raise InfeasibleBudget(
            f"the ceilings take {', '.join(f'{b} tokens for {tier}' for tier, b in kept.items())}, which uniform at "
            f"{uniform}, the largest measured budget within the mean of {mean_budget}, does not pay for; give a mean "
            f"budget of at least {enough}{unless}, or allow more errors"
        )
    # Which choice is certified depends, through the ceilings, on answers of the second half too: all of those that
    # could have come up share the chance of a mistake. Without ceilings there is one.
    rivals = {tuple(c.budgets[tier] for tier in costs) for c in choices}
    even = tuple(uniform for _ in costs)
    level = 1 - (1 - confidence) / max(1, len(rivals - {even}))
    budgets = dict(choice.budgets)
    test = None if set(budgets.values()) == {uniform} else _no_harm(second, costs, budgets, uniform, level)
    shipped, why = _verdict(test, kept, uniform, confidence)
    if shipped == "uniform":
        budgets = dict.fromkeys(costs, uniform)
    possible = {(tier, c[i]) for c in rivals | {even} for i, tier in enumerate(costs)}
    bounds = {tier: _upper(second, tier, budgets[tier], 1 - (1 - confidence) / len(possible)) for tier in costs}
    return Certificate(
        confidence=confidence,
        shipped=shipped,
        budgets=budgets,
        why=why,
        no_harm=test,
        ceilings=held,
        upper_errors=bounds,
        chosen_on=len(first),
        certified_on=len(second),
        estimator=choice.estimator,
    )


def _choices(
    first: ByDocument, terms: Terms, estimator: str, kept: Mapping[str, int], unseen: Collection[str]
) -> tuple[Choice | None, list[Choice]]:
    """The choice on the first half under the ceilings' smallest budgets, and every one that others could have led to.

    Raising a tier's smallest budget changes nothing until it passes the budget chosen, so only that next step is tried,
    tier by tier: as many allocations as there are choices, about, and not budgets to the power of ceilings.
    """
    free = choose(first, terms, estimator, unseen)

    def under(floors: tuple[int, ...]) -> Choice | None:
        if all(free.budgets[tier] >= least for tier, least in zip(kept, floors, strict=True)):
            return free
        bound = replace(terms, floors=dict(zip(kept, floors, strict=True)))
        try:
            return replace(free, budgets=dict(bound.allocate(free.curves).budgets))
        except InfeasibleBudget:
            return None

    grid = first.budgets
    found: dict[tuple[int, ...], Choice | None] = {}
    todo = [tuple(grid[0] for _ in kept)]
    while todo:
        floors = todo.pop()
        if floors in found:
            continue
        choice = found[floors] = under(floors)
        if choice is not None:
            steps = [bisect_right(grid, choice.budgets[tier]) for tier in kept]
            todo += [(*floors[:i], grid[step], *floors[i + 1 :]) for i, step in enumerate(steps) if step < len(grid)]
    return under(tuple(kept.values())), [choice for choice in found.values() if choice is not None]


def _no_harm(
    second: ByDocument,
    costs: Mapping[str, float],
    budgets: Mapping[str, int],
    uniform: int,
    level: float,
) -> NoHarm:
    saved, weight = saved_by_document(second, costs, budgets, uniform)
    lower = lower_ratio(saved, weight, level, lost_cost(weight, costs))
    return NoHarm(dict(budgets), uniform, float(saved.sum() / weight.sum()), lower, level)


def lost_cost(weight: NDArray[np.float64], costs: Mapping[str, float]) -> float:
    """What a lost document costs: that of the average cost at stake, and no less than one of the dearest questions."""
    return max(typical(weight), *costs.values())


def saved_by_document(
    measured: ByDocument, costs: Mapping[str, float], budgets: Mapping[str, int], uniform: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cost that ``budgets`` save over ``uniform``, and cost at stake, for each document."""
    saved, weight = np.zeros(len(measured)), np.zeros(len(measured))
    even = measured.column(uniform)
    for tier, budget in budgets.items():
        mine = measured.column(budget)
        asked = measured.asked[tier]
        if (asked[:, mine] != asked[:, even]).any():
            raise BadInput(
                f"not every question of tier {tier!r} was answered at both {budget} and {uniform} tokens; "
                "a certificate needs both"
            )
        saved += costs[tier] * (measured.wrong[tier][:, even] - measured.wrong[tier][:, mine])
        weight += costs[tier] * asked[:, mine]
    return saved, weight


def _upper(second: ByDocument, tier: str, budget: int, level: float) -> UpperError:
    column = second.column(budget)
    wrong, asked = second.wrong[tier][:, column], second.asked[tier][:, column]
    return UpperError(budget, float(wrong.sum() / asked.sum()), upper_error(wrong, asked, level))


def _verdict(
    test: NoHarm | None, kept: Mapping[str, int], uniform: int, confidence: float
) -> tuple[Literal["tiered", "uniform"], str]:
    sure = f"{confidence:.4g} confidence"
    if test is None:
        return "uniform", f"the budgets chosen are uniform, {uniform} tokens for every tier"
    if test.lower > 0:
        return "tiered", f"on documents they were not chosen on, CWE falls by at least {test.lower:.3f} with {sure}"
    short = f"their gain of {test.gain:+.3f} may be luck: with {sure} it is only known to be above {test.lower:+.3f}"
    needed = [tier for tier, budget in kept.items() if budget > uniform]
    if needed:
        return "tiered", f"the ceiling of {' and '.join(needed)} asks for more than uniform's {uniform} tokens; {short}"
    return "uniform", f"tiered budgets are not certified to help, {short}"
