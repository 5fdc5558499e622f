"""From labelled questions to a policy: answer all of them at every budget, draw the curves, choose the budgets.

    found = calibrate(model, asked, {"high": 5, "low": 1}, 304, KeywordRule(), log="outcomes.jsonl")
    found.policy.save("policy.json")
    found.held_out.gain                 # what the choice is worth on documents that it was not made on

The policy depends on the set of outcomes and nothing else: a run that was killed and resumed gives the same bytes.
Paper, section "Calibrate-Then-Allocate".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from stakes.budgets.curve import Curve, budgets_to_measure
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.plan import Plan, make_plan
from stakes.budgets.policy import CurveRecord, Policy, TierPlan, seen_by
from stakes.calibration.adaptive.race import Raced
from stakes.calibration.adaptive.run import raced_run
from stakes.calibration.as_served import AsServed, as_served
from stakes.calibration.by_document import by_document, check_halves
from stakes.calibration.certify.certificate import Certificate, certify
from stakes.calibration.certify.drift import disagreements
from stakes.calibration.estimators import DEFAULT, HYBRID, check_name
from stakes.calibration.estimators.choose import Choice, Terms, choose
from stakes.calibration.holdout import HeldOut, held_out
from stakes.errors import BadInput, StakesError
from stakes.evaluation.answerable import Apart, answerable, basis_of
from stakes.evaluation.batching import Answering
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Run, run
from stakes.models.base import VLM
from stakes.models.identity import family_of
from stakes.signals import Signal, to_dict
from stakes.tiers import as_tiers


@dataclass(frozen=True)
class Calibration:
    """The policy and what it rests on."""

    policy: Policy
    curves: Mapping[str, Curve]
    plan: Plan
    held_out: HeldOut | None
    why_not_held_out: str
    native_tokens: int
    """What every sample once would take at full resolution; ``plan.allocation.spent`` is what the policy takes."""
    measured_tokens: int
    """What all answers of the calibration took."""
    run: Run
    apart: Apart
    """Samples that the model could not be asked."""
    fitted: Mapping[str, Curve]
    """What the estimator made of the curves; ``plan`` rests on these."""
    certificate: Certificate | None = None
    """Where one was asked for: the policy then has its budgets, chosen on half of the documents, not the plan's."""
    raced: Raced | None = None
    """Where budgets were raced: the decision, and on how many of the answers."""
    served: AsServed | None = None
    """Where tiers are labels that the policy's signal does not always read: what the budgets give as it reads them."""

    def by_labels(self, readings: Mapping[str, str]) -> "Calibration":
        """The same, knowing that its tiers are labels and how the signal reads each sample instead.

        Where they differ, a certificate is of named tiers only, and says so.
        """
        outcomes = list(self.run.outcomes.values())
        if self.raced is not None or all(readings[outcome.sample] == outcome.tier for outcome in outcomes):
            return self
        policy = self.policy
        costs = policy.costs
        served = as_served(outcomes, policy.budgets, readings, costs, policy.mean_budget)
        if policy.certificate is not None:
            policy = policy.model_copy(update={"certificate": {**policy.certificate, "tiers": "named"}})
        return replace(self, policy=policy, served=served)

    @property
    def spent(self) -> int:
        """Tokens that the policy's budgets come to over all samples."""
        return sum(self.plan.counts[tier] * budget for tier, budget in self.policy.budgets.items())

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            "fingerprint": self.policy.fingerprint,
            "basis": self.policy.basis,
            "apart": self.apart.record(),
            "budgets": self.policy.budgets,
            "curves": {tier: asdict(curve) for tier, curve in self.curves.items()},
            "estimator": self.policy.estimator,
            "fitted": {tier: asdict(curve) for tier, curve in self.fitted.items()},
            "certificate": self.policy.certificate,
            "race": None if self.raced is None else self.raced.record(),
            "plan": self.plan.record(),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "why_not_held_out": self.why_not_held_out,
            "as_served": None if self.served is None else asdict(self.served),
            "tokens": {
                "full_resolution": self.native_tokens,
                "policy": self.spent,
                "calibration": self.measured_tokens,
            },
            "answers": {
                "total": len(self.run.outcomes),
                "new": self.run.answered,
                "changed": self.run.changed,
                "seconds": self.run.seconds,
                "per_second": self.run.answered / self.run.seconds if self.run.seconds else 0.0,
            },
        }


def calibrate(
    model: VLM,
    asked: Sequence[Asked],
    costs: Mapping[str, float],
    mean_budget: int,
    signal: Signal,
    *,
    log: str | Path,
    grid: Sequence[int] | None = None,
    setting: Setting | None = None,
    floor: int | None = None,
    progress: Progress | None = None,
    spread: Answering | None = None,
    estimator: str = DEFAULT,
    confidence: float | None = None,
    ceilings: Mapping[str, float] | None = None,
    race: float | None = None,
    passes: int | None = None,
) -> Calibration:
    """Measure every sample at every budget of the grid and choose each tier's; the policy will carry ``signal``.

    ``spread``: who answers in place of ``model`` itself, such as copies of it on a cluster. ``estimator``: how the true
    curves are guessed from the measured ones (``estimators``). With a ``confidence`` the budgets are chosen on half of
    the documents and certified on the other, and only what is certified to help ships; ``ceilings`` are error rates by
    tier to be kept with that confidence. ``race``: with this confidence leave out answers that can no longer change the
    decision (``race``), and ask at most ``passes`` in all.
    """
    check_name(estimator)
    if race is not None and confidence is not None:
        raise BadInput("a certificate needs every question at every budget, and a race leaves most out; choose one")
    if race is not None and estimator.startswith(HYBRID):
        raise BadInput("a race bets on answers that nobody has seen, and a prior may have seen them; choose one")
    if ceilings and confidence is None:
        raise BadInput("a ceiling is kept with some confidence; give one, such as 0.95")
    setting = setting or Setting()
    check_tiers(asked, costs, signal)
    budgets = budgets_to_measure(grid, mean_budget, floor)
    asked, apart = answerable(model, asked, log)
    check_tiers(asked, costs, signal)
    family = family_of(model)
    found = Counter(one.tier for one in asked)
    counts = {tier: found[tier] for tier in costs}
    total = mean_budget * len(asked)
    # Whatever a plan would refuse of these costs and counts is told now: it does not depend on the answers.
    falling = [1 - i / len(budgets) for i in range(len(budgets))]
    make_plan({tier: Curve(budgets, falling, counts[tier]) for tier in costs}, costs, counts, total, floor)
    lanes = [[budget] * len(asked) for budget in budgets]
    if confidence is not None:
        check_halves([(one.document, one.tier) for one in asked], list(costs))
    terms, raced = Terms(costs, counts, total, floor), None
    if race is None:
        ran = run(model, asked, lanes, setting, log, progress=progress, spread=spread)
    else:
        ran, raced = raced_run(
            model, asked, budgets, terms, setting, log,
            estimator=estimator, confidence=race, passes=passes, progress=progress, spread=spread,
        )  # fmt: skip
    outcomes = list(ran.outcomes.values())
    curves_from_outcomes(outcomes)  # refuses a log of several experiments
    measured = by_document(outcomes, costs)
    curves = measured.curves()
    if raced is None:
        choice = choose(measured, terms, estimator)
    else:
        choice = Choice(raced.budgets, raced.fitted, raced.estimator)
    pair = choice.budgets if len(costs) == 2 else None
    plan = make_plan(choice.curves, costs, counts, total, floor, pair=pair)
    certificate, shipped = None, choice.budgets
    if confidence is not None:
        certificate = certify(
            measured, costs, mean_budget, estimator=estimator, floor=floor, confidence=confidence, ceilings=ceilings
        )
        shipped = certificate.budgets
    # What is watched later is a VLM's answers, each at both budgets: a race leaves some out, and legibility has none.
    differ = disagreements(outcomes, shipped) if raced is None and basis_of(model) != "legibility" else {}
    policy = Policy(
        family=family,
        mechanism="deletion" if setting.mechanism == "deletion" else "resolution",
        selector=setting.selector,
        basis="legibility" if basis_of(model) == "legibility" else "answers",
        mean_budget=mean_budget,
        floor=1 if floor is None else floor,
        tiers={
            tier: TierPlan(
                cost=costs[tier],
                budget=shipped[tier],
                curve=CurveRecord.of(curve),
                fitted=None if choice.curves[tier] == curve else CurveRecord.of(choice.curves[tier]),
                disagreement=differ.get(tier),
            )
            for tier, curve in curves.items()
        },
        signal=to_dict(signal),
        estimator=choice.estimator,
        certificate=None if certificate is None else certificate.record(),
        fingerprint=str(ran.fingerprint),
        documents=seen_by(asked),
    )
    check, why_not = None, ""
    try:
        if raced is not None:
            raise BadInput("a race does not ask every question at every budget")
        check = held_out(outcomes, costs, mean_budget, floor, estimator)
    except StakesError as error:
        why_not = str(error)
    natives = {outcome.sample: outcome.native for outcome in outcomes}
    native = round(sum(natives.values()) * len(asked) / len(natives))  # a race leaves some samples out
    spent = round(sum(outcome.spent for outcome in outcomes))
    return Calibration(
        policy, curves, plan, check, why_not, native, spent, ran, apart, choice.curves, certificate, raced
    )


def check_tiers(asked: Sequence[Asked], costs: Mapping[str, float], signal: Signal) -> None:
    """Every tier of a sample or of the signal needs a cost, and every cost a sample: said before any answer."""
    as_tiers(costs)
    found = dict.fromkeys(one.tier for one in asked)
    for tier in [*found, *signal.tiers]:
        if tier not in costs:
            whose = "a sample's" if tier in found else "one that the signal can name"
            raise BadInput(f"tier {tier!r} ({whose}) has no cost; give one for it, such as --cost {tier}=1")
    for tier in costs:
        if tier not in found:
            raise BadInput(
                f"no sample is of tier {tier!r}, so its curve cannot be measured; the samples are "
                f"{', '.join(found) or 'none'}"
            )
