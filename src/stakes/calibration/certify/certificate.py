"""Certify a policy: budgets chosen on a quarter of the documents, guarantees from the others.

* no harm: tiered budgets ship only if the lower confidence bound of their CWE gain over uniform, at no more tokens, is
  above zero on documents that they were not chosen on, and the upper bound of every limited tier's rise is within its
  limit (``no_harm``); otherwise uniform ships, and the certificate says why;
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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from stakes.budgets.harm import Limits, check_limits
from stakes.budgets.uniform import largest_within
from stakes.calibration.by_document import ByDocument, check_split, limit_questions
from stakes.calibration.certify.ceiling import Ceiling, check_ceilings, check_even, upper_error
from stakes.calibration.certify.no_harm import HarmBound, NoHarm, check_no_harm, choosing_limits, harm_bounds
from stakes.calibration.estimators import DEFAULT, ChosenBudgets, Terms, choose
from stakes.data.sample import Sample
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
    then of that rate, in which a document counts by at most so many questions. ``max_harm``: how much the error of a
    tier, or of each, may rise over uniform (``budgets.harm``).
    """

    confidence: float = CONFIDENCE
    ceilings: Mapping[str, float] = field(default_factory=dict)
    max_per_document: int | None = None
    max_harm: float | Limits | None = None

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        if self.max_per_document is not None and self.max_per_document < 1:
            raise BadInput(f"at least one question of a document must count, not {self.max_per_document}")


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
    harm: Mapping[str, HarmBound] = field(default_factory=dict)
    """By tier with a harm limit: the rise of its error over uniform at the budgets that were tested."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Where tiers have thresholds (``certify.options``): what each does; errors are then of unflagged answers."""
    review_ceilings: Mapping[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether tiered budgets are certified to help, each tier within its harm limit."""
        return self.no_harm is not None and self.no_harm.lower > 0 and all(bound.kept for bound in self.harm.values())

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
        record = {**asdict(self), "covers": self.covers, "rate": self.rate}
        for name in ("harm", "options", "review_ceilings"):
            if not record[name]:
                del record[name]
        return dict(json.loads(json.dumps(record)))


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
    uniform = largest_within(measured.budgets, mean_budget)
    ceilings = check_ceilings(measured, goal.ceilings, confidence)
    required = {tier: ceiling.budget for tier, ceiling in ceilings.items() if ceiling.budget is not None}
    limits = check_limits(goal.max_harm, costs)
    # At no more tokens than uniform takes, so that the comparison is at equal tokens or in uniform's favor.
    terms = Terms(first.expected_costs(costs), measured.counts, uniform * sum(measured.counts.values()), floor)
    terms = replace(terms, max_harm=choosing_limits(limits, second.counts, confidence))
    # A ceiling that is not met requires nothing, but might have: it counts among the possible choices.
    floors = {tier: required.get(tier, measured.budgets[0]) for tier in ceilings}
    possible_choices = [] if chosen is None else [chosen]
    if chosen is None:
        chosen, possible_choices = _choices(first, terms, estimator, floors)
    if chosen is None:
        raise InfeasibleBudget(_unaffordable(measured, required, uniform, mean_budget, limits))
    # Which choice is certified depends, through the ceilings, on answers of the second part too: all of those that
    # could have come up share the probability of a mistake.
    rivals = {tuple(choice.budgets[tier] for tier in costs) for choice in possible_choices}
    even = tuple(uniform for _ in costs)
    level = 1 - (1 - confidence) / max(1, len(rivals - {even}))
    budgets = dict(chosen.budgets)
    test = None if set(budgets.values()) == {uniform} else check_no_harm(second, costs, budgets, uniform, level)
    harm = harm_bounds(second, limits, budgets, uniform, level)
    shipped, why = _verdict(test, harm, required, uniform, confidence)
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
        harm=harm,
    )


def check_certifiable(
    samples: Sequence[Sample], costs: Mapping[str, float], certification: Certification
) -> Sequence[Sample]:
    """The samples that count; what cannot be certified is refused before any answer."""
    limit = certification.max_per_document
    if limit is not None:
        counted = limit_questions([(sample.id, sample.document) for sample in samples], limit)
        samples = [sample for sample in samples if sample.id in counted]
    tiers = dict.fromkeys([*costs, *(sample.tier for sample in samples)])
    check_even(check_split([(sample.document, sample.tier) for sample in samples], tiers), limit)
    return samples


def _unaffordable(
    measured: ByDocument, required: Mapping[str, int], uniform: int, mean_budget: int, limits: Limits
) -> str:
    """That the ceilings take more tokens than uniform, and which mean budget would do."""
    takes = f"the ceilings take {', '.join(f'{b} tokens for {tier}' for tier, b in required.items())}"
    if limits:
        return (
            f"{takes}, and within the harm limits no budgets leave that much of uniform's {uniform} tokens per image; "
            "give a larger mean budget, allow more errors or raise the limits"
        )
    every, smallest = sum(measured.counts.values()), measured.budgets[0]
    least = sum(count * max(required.get(tier, 0), smallest) for tier, count in measured.counts.items())
    mean = math.ceil(least / every)
    # Uniform is a measured budget, so a mean between two of them affords no more than the lower.
    enough = next(budget for budget in measured.budgets if budget * every >= least)
    unless = "" if enough == mean else f", or of {mean} if that is in the grid"
    return (
        f"{takes}, which uniform at {uniform}, the largest measured budget within the mean of {mean_budget}, does not "
        f"pay for; give a mean budget of at least {enough}{unless}, or allow more errors"
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


def _upper(second: ByDocument, tier: str, budget: int, level: float) -> UpperError:
    column = second.column(budget)
    wrong, asked = second.wrong[tier][:, column], second.asked[tier][:, column]
    return UpperError(budget, float(wrong.sum() / asked.sum()), upper_error(wrong, asked, level))


def _verdict(
    test: NoHarm | None, harm: Mapping[str, HarmBound], required: Mapping[str, int], uniform: int, confidence: float
) -> tuple[Literal["tiered", "uniform"], str]:
    sure = f"{confidence:.4g} confidence"
    if test is None:
        return "uniform", f"the budgets chosen are uniform, {uniform} tokens for every tier"
    broken = {tier: bound for tier, bound in harm.items() if not bound.kept}
    if test.lower > 0 and not broken:
        moved = {tier: bound for tier, bound in harm.items() if bound.budget != uniform}
        rises = "".join(f" and {tier} errors rise by at most {bound.upper:.3f}" for tier, bound in moved.items())
        return (
            "tiered",
            f"on documents they were not chosen on, CWE falls by at least {test.lower:.3f}{rises} with {sure}",
        )
    short = [
        f"{tier} errors rise by {bound.rise:.3f} over uniform, and with {sure} it is only known to be at most "
        f"{bound.upper:.3f}, above the harm limit of {bound.limit:g}"
        for tier, bound in broken.items()
    ]
    if test.lower <= 0:
        known = f"with {sure} it is only known to be above {test.lower:.3f}"
        short.insert(0, f"their gain of {test.gain:.3f} may be chance: {known}")
    above = [tier for tier, budget in required.items() if budget > uniform]
    if above:
        takes = f"the ceiling of {' and '.join(above)} takes more than uniform's {uniform} tokens"
        return "tiered", "; ".join([takes, *short])
    goal = "to help" if test.lower <= 0 else "to stay within the harm limits"
    return "uniform", f"tiered budgets are not certified {goal}, {'; '.join(short)}"
