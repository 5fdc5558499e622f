"""Certify a policy: budgets chosen on a quarter of the documents, guarantees from the others.

* no harm: tiered budgets ship only if the lower confidence bound of their CWE gain over uniform, at no more tokens, is
  above zero on documents that they were not chosen on; otherwise uniform ships, and the certificate says why;
* ceilings: budgets at which a tier's error stays under a stated rate (``ceiling``);
* an upper confidence bound of every tier's error at the budget that ships.

Conditions: documents (or groups, where the samples name them) are the independent units, drawn like those that the
policy will serve; the bounds include one document that was lost altogether and not seen (``ceiling``); no few documents
hold many of the questions (``check_even``). Each of the three statements is wrong with a probability of at most
``1 - confidence``; the bounds of all tiers, and all ceilings, hold together. No estimator and no shape of a curve is
relied upon: those only propose.

Tiers are those that decide the budget. Where a signal reads them and the samples' labels are known, a mistake costs
what its label says: a high-cost question that is read as cheap gets few tokens and counts in full. Ceilings and bounds
are of the questions read as the tier. ``Certificate.covers`` states which of these holds.

    certificate = certify(by_document(outcomes), {"high": 5, "low": 1}, 304, Certification(ceilings={"high": 0.2}))
    certificate.budgets, certificate.shipped, certificate.why
"""

import json
import math
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import Ceiling, check_ceilings, check_even, lower_ratio, typical, upper_error
from stakes.calibration.estimators import DEFAULT, ChosenBudgets, Terms, choose
from stakes.calibration.holdout import uniform_budget
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.statistics import check_confidence

CONFIDENCE = 0.95
COVERS = {
    "labelled": "tiers as read by the signal, costs by the label; misreading is counted",
    "read": "tiers as read by the signal; misreading not covered",
    "named": "tiers named by the client; the signal's reading not covered",
}
"""By how the tiers came about: what a certificate covers."""


@dataclass(frozen=True)
class Certification:
    """What a certificate is asked for: its confidence, and the error rates by tier to be kept with it.

    ``max_per_document``: at most so many questions of a document count, chosen by a digest of their ids. All claims are
    then of that rate, in which a document counts by at most so many questions.
    """

    confidence: float = CONFIDENCE
    ceilings: Mapping[str, float] = field(default_factory=dict)
    max_per_document: int | None = None

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        if self.max_per_document is not None and self.max_per_document < 1:
            raise BadInput(f"at least one question of a document must count, not {self.max_per_document}")


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
    """Of that bound: above the requested confidence where ceilings left several choices to certify."""


@dataclass(frozen=True)
class UpperError:
    """A tier's error at its budget, on the certifying documents, and the rate that it stays under."""

    budget: int
    error: float
    upper: float


@dataclass(frozen=True)
class Certificate:
    """The guarantees, and the evidence for them."""

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
    """Documents in each part."""
    estimator: str
    tiers: Literal["labelled", "read", "named"] = "read"
    max_per_document: int | None = None
    unit: Literal["document", "group"] = "document"

    @property
    def covers(self) -> str:
        """How the tiers came about, and what of it is covered."""
        return COVERS[self.tiers]

    @property
    def rate(self) -> str:
        """Of which rate the claims are, where that is not every question's; else empty."""
        if self.max_per_document is None:
            return ""
        return f"all rates count at most {self.max_per_document} questions of a {self.unit}"

    def record(self) -> dict[str, object]:
        """As JSON, and the same when read back: keys are strings."""
        return dict(json.loads(json.dumps({**asdict(self), "covers": self.covers, "rate": self.rate})))


def certify(
    measured: ByDocument,
    costs: Mapping[str, float],
    mean_budget: int,
    certification: Certification | None = None,
    *,
    estimator: str = DEFAULT,
    floor: int | None = None,
    chosen: ChosenBudgets | None = None,
    chosen_on: Collection[str] = (),
) -> Certificate:
    """Choose on a quarter of the documents, certify on the others, and decide what ships."""
    goal = certification or Certification()
    confidence = goal.confidence
    if chosen is None:
        check_even(measured, goal.max_per_document)
    first, second = measured.split() if chosen is None else measured.divide(chosen_on)
    uniform = uniform_budget(measured.budgets, mean_budget)
    ceilings = check_ceilings(measured, goal.ceilings, confidence)
    required = {tier: ceiling.budget for tier, ceiling in ceilings.items() if ceiling.budget is not None}
    # At no more tokens than uniform takes, so that the comparison is at equal tokens or in uniform's favor.
    terms = Terms(first.expected_costs(costs), measured.counts, uniform * sum(measured.counts.values()), floor)
    # A ceiling that is not met requires nothing, but might have: it counts among the possible choices.
    floors = {tier: required.get(tier, measured.budgets[0]) for tier in ceilings}
    possible_choices = [] if chosen is None else [chosen]
    if chosen is None:
        chosen, possible_choices = _choices(first, terms, estimator, floors)
    if chosen is None:
        raise InfeasibleBudget(_unaffordable(measured, required, uniform, mean_budget))
    # Which choice is certified depends, through the ceilings, on answers of the second part too: all of those that
    # could have come up share the probability of a mistake.
    rivals = {tuple(choice.budgets[tier] for tier in costs) for choice in possible_choices}
    even = tuple(uniform for _ in costs)
    level = 1 - (1 - confidence) / max(1, len(rivals - {even}))
    budgets = dict(chosen.budgets)
    test = None if set(budgets.values()) == {uniform} else _no_harm(second, costs, budgets, uniform, level)
    shipped, why = _verdict(test, required, uniform, confidence)
    if shipped == "uniform":
        budgets = dict.fromkeys(costs, uniform)
    possible = {(tier, choice[i]) for choice in rivals | {even} for i, tier in enumerate(costs)}
    bounds = {tier: _upper(second, tier, budgets[tier], 1 - (1 - confidence) / len(possible)) for tier in costs}
    return Certificate(
        confidence=confidence,
        shipped=shipped,
        budgets=budgets,
        why=why,
        no_harm=test,
        ceilings=ceilings,
        upper_errors=bounds,
        chosen_on=len(first),
        certified_on=len(second),
        estimator=estimator,
        tiers="read" if measured.labelled is None else "labelled",
        max_per_document=goal.max_per_document,
    )


def _unaffordable(measured: ByDocument, required: Mapping[str, int], uniform: int, mean_budget: int) -> str:
    """That the ceilings take more tokens than uniform, and which mean budget would do."""
    every, smallest = sum(measured.counts.values()), measured.budgets[0]
    least = sum(count * max(required.get(tier, 0), smallest) for tier, count in measured.counts.items())
    mean = math.ceil(least / every)
    # Uniform is a measured budget, so a mean between two of them affords no more than the lower.
    enough = next(budget for budget in measured.budgets if budget * every >= least)
    unless = "" if enough == mean else f", or of {mean} if that is in the grid"
    return (
        f"the ceilings take {', '.join(f'{b} tokens for {tier}' for tier, b in required.items())}, which uniform at "
        f"{uniform}, the largest measured budget within the mean of {mean_budget}, does not pay for; give a mean "
        f"budget of at least {enough}{unless}, or allow more errors"
    )


def _choices(
    first: ByDocument, terms: Terms, estimator: str, required: Mapping[str, int]
) -> tuple[ChosenBudgets | None, list[ChosenBudgets]]:
    """The choice on the first part under the ceilings' smallest budgets, and every one that others could have led to.

    Raising a tier's smallest budget changes nothing until it passes the budget chosen, so only that next step is tried,
    tier by tier: about as many allocations as there are choices, and not budgets to the power of ceilings.
    """
    free = choose(first, terms, estimator)

    def under(floors: tuple[int, ...]) -> ChosenBudgets | None:
        if all(free.budgets[tier] >= least for tier, least in zip(required, floors, strict=True)):
            return free
        bound = replace(terms, floors=dict(zip(required, floors, strict=True)))
        try:
            return replace(free, budgets=dict(bound.allocate(free.curves).budgets))
        except InfeasibleBudget:
            return None

    grid = first.budgets
    tried: dict[tuple[int, ...], ChosenBudgets | None] = {}
    todo = [tuple(grid[0] for _ in required)]
    while todo:
        floors = todo.pop()
        if floors in tried:
            continue
        choice = tried[floors] = under(floors)
        if choice is not None:
            steps = [bisect_right(grid, choice.budgets[tier]) for tier in required]
            todo += [(*floors[:i], grid[step], *floors[i + 1 :]) for i, step in enumerate(steps) if step < len(grid)]
    return under(tuple(required.values())), [choice for choice in tried.values() if choice is not None]


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
    """The cost of a lost document: the typical cost at stake, and no less than one of the most expensive questions."""
    return max(typical(weight), *costs.values())


def saved_by_document(
    measured: ByDocument, costs: Mapping[str, float], budgets: Mapping[str, int], uniform: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cost that ``budgets`` save over ``uniform``, and cost at stake, for each document.

    The tier decides the budget; a mistake costs what its label says, where labels are known, else what its tier says.
    """
    saved, weight = np.zeros(len(measured)), np.zeros(len(measured))
    if measured.labelled is not None:
        for label, part in measured.labelled.items():
            more = saved_by_document(part, dict.fromkeys(budgets, costs[label]), budgets, uniform)
            saved, weight = saved + more[0], weight + more[1]
        return saved, weight
    even = measured.column(uniform)
    for tier, budget in budgets.items():
        tiered = measured.column(budget)
        asked = measured.asked[tier]
        if (asked[:, tiered] != asked[:, even]).any():
            raise BadInput(
                f"not every question of tier {tier!r} was answered at both {budget} and {uniform} tokens; "
                "a certificate needs both"
            )
        saved += costs[tier] * (measured.wrong[tier][:, even] - measured.wrong[tier][:, tiered])
        weight += costs[tier] * asked[:, tiered]
    return saved, weight


def _upper(second: ByDocument, tier: str, budget: int, level: float) -> UpperError:
    column = second.column(budget)
    wrong, asked = second.wrong[tier][:, column], second.asked[tier][:, column]
    return UpperError(budget, float(wrong.sum() / asked.sum()), upper_error(wrong, asked, level))


def _verdict(
    test: NoHarm | None, required: Mapping[str, int], uniform: int, confidence: float
) -> tuple[Literal["tiered", "uniform"], str]:
    sure = f"{confidence:.4g} confidence"
    if test is None:
        return "uniform", f"the budgets chosen are uniform, {uniform} tokens for every tier"
    if test.lower > 0:
        return "tiered", f"on documents they were not chosen on, CWE falls by at least {test.lower:.3f} with {sure}"
    short = f"their gain of {test.gain:+.3f} may be chance: with {sure} it is only known to be above {test.lower:+.3f}"
    above = [tier for tier, budget in required.items() if budget > uniform]
    if above:
        return "tiered", f"the ceiling of {' and '.join(above)} takes more than uniform's {uniform} tokens; {short}"
    return "uniform", f"tiered budgets are not certified to help, {short}"
