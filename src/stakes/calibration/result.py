"""The result of a calibration: the policy, the curves that it rests on, and the checks that were made."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from stakes.budgets.curve import Curve
from stakes.budgets.harm import HarmReport, harm_report
from stakes.budgets.plan import Plan
from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.adaptive.sampler import AdaptiveResult
from stakes.calibration.certify.certificate import Certificate
from stakes.calibration.escalation.step import OptionStep
from stakes.calibration.holdout import AsServed, HeldOut, as_served, estimate_served
from stakes.calibration.reading import SignalTraining
from stakes.data.trim import MarginsCut
from stakes.evaluation.runner import Run
from stakes.evaluation.samples import Excluded
from stakes.evaluation.savings import ms_per_thousand_tokens
from stakes.notebooks import CalibrationView
from stakes.tiers import expected_costs


@dataclass(frozen=True)
class Calibration(CalibrationView):
    """The policy and what it rests on."""

    policy: Policy
    curves: Mapping[str, Curve]
    fitted: Mapping[str, Curve]
    """The estimator's curves; ``plan`` rests on these."""
    plan: Plan
    run: Run
    excluded: Excluded
    """Samples that the model could not be asked."""
    native_tokens: int
    """What every sample once would take at full resolution, whole; ``spent`` is what the policy takes."""
    margins: MarginsCut | None = None
    """How much of the images was cut off before they were measured; None: nothing, they are whole."""
    held_out: HeldOut | None = None
    why_not_held_out: str = ""
    certificate: Certificate | None = None
    """Where one was requested: the policy has its budgets, chosen on a quarter of the documents, not the plan's."""
    beside_budgets: OptionStep = field(default_factory=OptionStep)
    """Second attempts and review: why not considered, why not taken, or what ships and the evidence for it."""
    adaptive: AdaptiveResult | None = None
    """With adaptive sampling: the decision, and on how many of the answers."""
    served: AsServed | None = None
    """Where the signal does not read every label: what the budgets give as it reads them, mistakes at label's cost."""
    request_errors: Mapping[str, float] | None = None
    """With per-request costs: by label, the mean error of the budgets that requests get, on the fitted curves."""
    training: SignalTraining | None = None
    """Where the policy's signal was trained on the samples' labels."""

    @cached_property
    def harm(self) -> HarmReport | None:
        """Tiers whose error rises by more than 25 points over uniform, and what a limit would cost; None: none does.

        Not of a policy with thresholds, whose tiers have no single budget.
        """
        if not self.policy.fixed:
            return None
        return harm_report(self.fitted, self.plan, self.policy.floor, self.policy.budgets, self.request_errors)

    @property
    def measured_tokens(self) -> int:
        """Tokens that all answers of the calibration took."""
        return round(sum(outcome.spent for outcome in self.run.outcomes.values()))

    @property
    def spent(self) -> int:
        """Tokens that the policy's budgets come to over all samples; second attempts as on held-out documents."""
        tokens = {
            tier: plan.budget if plan.evidence is None else plan.evidence.tokens
            for tier, plan in self.policy.tiers.items()
        }
        return round(sum(self.plan.counts[tier] * mean for tier, mean in tokens.items()))

    def by_labels(self, readings: Mapping[str, str], *, known: bool = True) -> "Calibration":
        """The same where its tiers are labels, with how the signal reads each sample instead.

        Where they differ, or where that is not ``known`` (the signal was trained on these samples), a certificate holds
        for named tiers only, and says so.
        """
        same = all(readings[outcome.sample] == outcome.tier for outcome in self.run.outcomes.values())
        if same and known:
            return self
        served = None if same else self._served(readings, by_reading=False)
        if self.certificate is None:
            return replace(self, served=served)
        certificate = replace(self.certificate, tiers="named")
        policy = self.policy.model_copy(update={"certificate": certificate.record()})
        return replace(self, policy=policy, certificate=certificate, served=served)

    def with_labels(self, labels: Mapping[str, str]) -> "Calibration":
        """The same where its tiers are readings and the labels of the samples are known."""
        same = all(labels[outcome.sample] == outcome.tier for outcome in self.run.outcomes.values())
        return self if same else replace(self, served=self._served(labels, by_reading=True))

    def _served(self, other: Mapping[str, str], *, by_reading: bool) -> AsServed:
        """CWE as read, costs by label; ``other``: labels where the outcomes' tiers are readings, else readings."""
        outcomes, policy = list(self.run.outcomes.values()), self.policy
        tiers = {outcome.sample: outcome.tier for outcome in outcomes}
        readings, labels = (tiers, other) if by_reading else (other, tiers)
        if self.adaptive is None:
            return as_served(outcomes, policy.options, readings, policy.costs, labels)
        pairs = [(readings[sample], labels[sample]) for sample in tiers]
        return estimate_served(self.fitted, policy.budgets, pairs, policy.costs, by_reading=by_reading)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each tier and budget: the measured error with its interval, the fitted one, and the choice."""
        return [
            {
                "tier": tier,
                "budget": budget,
                "error": error,
                "low": curve.interval(budget)[0],
                "high": curve.interval(budget)[1],
                "fitted": self.fitted[tier].error(budget),
                "count": count,
                "chosen": budget == self.policy.budgets[tier],
            }
            for tier, curve in self.curves.items()
            for budget, error, count in zip(curve.budgets, curve.errors, curve.counts, strict=True)
        ]

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            "fingerprint": self.policy.fingerprint,
            "basis": self.policy.basis,
            "excluded": self.excluded.record(),
            "margins": None if self.margins is None else asdict(self.margins),
            "budgets": self.policy.budgets,
            "curves": {tier: asdict(curve) for tier, curve in self.curves.items()},
            "estimator": self.policy.estimator,
            "fitted": {tier: asdict(curve) for tier, curve in self.fitted.items()},
            "certificate": self.policy.certificate,
            "beside_budgets": self.beside_budgets.record(),
            "adaptive": None if self.adaptive is None else self.adaptive.record(),
            "plan": self.plan.record(),
            "harm": None if self.harm is None else self.harm.record(),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "why_not_held_out": self.why_not_held_out,
            "as_served": None if self.served is None else asdict(self.served),
            "training": None if self.training is None else self.training.record(),
            "tokens": {
                "full_resolution": self.native_tokens,
                "policy": self.spent,
                "calibration": self.measured_tokens,
            },
            "ms_per_thousand_tokens": ms_per_thousand_tokens(self.run.outcomes.values()),
            "answers": {
                "total": len(self.run.outcomes),
                "new": self.run.answered,
                "changed": self.run.changed,
                "seconds": self.run.seconds,
                "per_second": self.run.answered / self.run.seconds if self.run.seconds else 0.0,
            },
        }


def tier_plans(
    costs: Mapping[str, float],
    questions: Mapping[str, Mapping[str, int]],
    budgets: Mapping[str, int],
    curves: Mapping[str, Curve],
    fitted: Mapping[str, Curve],
    disagreement: Mapping[str, float],
) -> dict[str, TierPlan]:
    """The tiers of a policy with fixed budgets."""
    expected = expected_costs(questions, costs)
    return {
        tier: TierPlan(
            cost=costs[tier],
            budget=budgets[tier],
            curve=curve,
            fitted=None if fitted[tier] == curve else fitted[tier],
            disagreement=disagreement.get(tier),
            expected_cost=None if expected[tier] == costs[tier] else expected[tier],
            questions=dict(questions[tier]),
        )
        for tier, curve in curves.items()
    }
