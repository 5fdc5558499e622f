"""The step of a calibration that considers options beside fixed budgets: refused, not taken, or shipped."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stakes.budgets.options.tier_plan import OptionEvidence, TierOption, TierPlan
from stakes.budgets.uniform import largest_within
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.certify.certificate import CONFIDENCE, Certificate, Certification
from stakes.calibration.certify.options import certify_options
from stakes.calibration.escalation.answers import Statistics, answer_table, why_no_confidence
from stakes.calibration.escalation.choose import OptionRules
from stakes.calibration.escalation.judge import OptionVerdict, consider
from stakes.calibration.estimators import Terms
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import FEWEST


@dataclass(frozen=True)
class OptionRequest:
    """Which options a calibration considers.

    ``escalate``: None considers second attempts where answers have a confidence, True requires that they have, False
    leaves second attempts out. ``review_cost``: what it costs when a person checks an answer; None: nobody does.
    ``predict``: consider budgets that are predicted from the image.
    """

    escalate: bool | None = None
    review_cost: float | None = None
    predict: bool = True

    def __post_init__(self) -> None:
        if self.review_cost is not None and not 0 < self.review_cost < float("inf"):
            raise BadInput(f"a review costs a number above 0, in units of the tiers' costs, not {self.review_cost:g}")

    @property
    def rules(self) -> OptionRules:
        """The options that are permitted."""
        return OptionRules(self.escalate is not False, self.review_cost, self.predict)

    @property
    def required(self) -> bool:
        """Whether it is an error that options cannot be considered."""
        return bool(self.escalate) or self.review_cost is not None


@dataclass(frozen=True)
class OptionStep:
    """What came of it; ``options`` is empty where fixed budgets ship."""

    why_not: str = ""
    """Why options were not considered."""
    verdict: OptionVerdict | None = None
    options: Mapping[str, TierOption] = field(default_factory=dict)
    evidence: Mapping[str, OptionEvidence] = field(default_factory=dict)
    certificate: Certificate | None = None
    """Of options that were taken, whether they passed or not."""

    def plans(self, plans: Mapping[str, TierPlan]) -> dict[str, TierPlan]:
        """The tiers with their options in place of fixed budgets."""
        return {
            tier: plan
            if tier not in self.options
            else plan.model_copy(
                update={
                    "budget": self.options[tier].budget,
                    "escalate": self.options[tier].escalate,
                    "review_below": self.options[tier].review_below,
                    "predictor": self.options[tier].predictor,
                    "evidence": self.evidence[tier],
                    "disagreement": None,
                }
            )
            for tier, plan in plans.items()
        }

    def record(self) -> dict[str, object] | None:
        """As JSON; None where nothing was considered."""
        return {"why_not": self.why_not} if self.verdict is None else self.verdict.record()


def options_step(
    outcomes: Sequence[Outcome],
    terms: Terms,
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None,
    request: OptionRequest,
    *,
    estimator: str,
    certification: Certification | None,
    statistics: Callable[[], Statistics] | None = None,
) -> OptionStep:
    """Consider options on these answers; raises where they are required and cannot be considered.

    ``statistics``: measures the images of the samples, where budgets may be predicted.
    """
    rules, unsure = request.rules, why_no_confidence(outcomes)
    if rules.fixed:
        return OptionStep(why_not="")
    measured = by_document(outcomes, costs, labels)
    if unsure and rules.predict and statistics is not None and not request.required:
        rules, unsure = replace(rules, escalate=False), ""
    if why_not := unsure or _unsuitable(measured, request, certification, terms):
        if request.required:
            raise BadInput(f"second attempts and review depend on an answer's confidence: {why_not}")
        return OptionStep(why_not=why_not)
    known = statistics() if rules.predict and statistics is not None else None
    table = answer_table(outcomes, costs, labels, known)
    chosen_on, confidence = None, CONFIDENCE
    uniform = largest_within(measured.budgets, terms.total // sum(terms.counts.values()))
    if certification is not None:
        first, confidence = measured.split()[0], certification.confidence
        chosen_on = first.documents
        terms = replace(terms, costs=first.expected_costs(costs), total=uniform * sum(terms.counts.values()))
    try:
        verdict = consider(
            measured, table, terms, rules, estimator=estimator, confidence=confidence, chosen_on=chosen_on
        )
    except (BadInput, InfeasibleBudget) as error:
        return OptionStep(why_not=str(error))
    if not verdict.taken:
        return OptionStep(verdict=verdict)
    if certification is None:
        return OptionStep("", verdict, verdict.options, verdict.evidence)
    certificate, options, evidence = certify_options(table, measured, verdict, certification, uniform, estimator)
    if certificate.shipped == "uniform":
        return OptionStep("", verdict, certificate=certificate)
    return OptionStep("", verdict, options, evidence, certificate)


def _unsuitable(measured: ByDocument, request: OptionRequest, certification: Certification | None, terms: Terms) -> str:
    """Why options cannot be considered for these documents and goals; empty where they can."""
    if len(measured) < 4 * FEWEST:
        return f"{len(measured)} documents are too few to choose options on some and judge them on others"
    if certification is None:
        return ""
    if terms.max_harm:
        return "harm limits are certified for fixed budgets only"
    if certification.ceilings and request.review_cost is None:
        return "ceilings are certified for fixed budgets, or for unflagged answers with --review-cost"
    return ""
