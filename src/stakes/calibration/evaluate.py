"""Evaluate a policy: arms of one total on held-out samples, answered once and compared with their statistics.

    evaluation = evaluate(model, samples, policy, log="evaluation.jsonl")
    evaluation.comparison.rows[1].gain
    regrade("evaluation.jsonl", answers, policy, metric="exact")          # no model

The log holds each (sample, budget) once, whichever arms it serves. Which arm asked for what stands beside it in
``LOG.arms.json``, written before the first answer, so that saved outcomes can be compared again under another metric or
other costs without a model.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stakes.budgets.policy import Policy, is_held_out
from stakes.calibration.arms.comparison import Comparison, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, decisions, plan_arms
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import (
    Fingerprint,
    Setting,
    fingerprint_of,
    json_digest,
    resumable_outcomes,
    save_json,
    sidecar,
)
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.runner import RunOptions, run
from stakes.evaluation.samples import Excluded, answerable, basis_of
from stakes.evaluation.statistics import RATIOS
from stakes.models.base import VLM


@dataclass(frozen=True)
class Evaluation:
    """The comparison, and what it cost."""

    comparison: Comparison
    plan: ArmPlan
    deviation: float
    """The largest relative difference between two arms' realised totals, in what the plan says is ``counted``."""
    held_out: bool | None
    """False: the policy was calibrated on some of these documents; None: it is not known what it was calibrated on."""
    same_model: bool | None
    """Whether the model is the one that the policy was calibrated with."""
    answered: int
    seconds: float
    basis: str = "answers"
    """``legibility``: what can be read, not a VLM's error."""
    excluded: Excluded = field(default_factory=lambda: Excluded({}, {}))
    """Samples that the model could not be asked."""
    same_signal: bool | None = None
    """False: the policy's signal was changed since; None: it is not known which one it had."""

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            **self.comparison.record(),
            "total": self.plan.total,
            "counted": self.plan.counted,
            "deviation": self.deviation,
            "rounding": self.plan.rounding,
            "density": self.plan.density,
            "per_request": self.plan.per_request,
            "held_out": self.held_out,
            "same_model": self.same_model,
            "same_signal": self.same_signal,
            "answered": self.answered,
            "seconds": self.seconds,
            "basis": self.basis,
            "excluded": self.excluded.record(),
        }


@dataclass(frozen=True)
class EvaluationOptions:
    """How an evaluation is made; without a ``setting``, as the policy was calibrated."""

    arms: Sequence[str] = ARMS
    setting: Setting | None = None
    ratios: Sequence[float] = RATIOS
    calibrated_on: Collection[str] = ()
    """Documents that the policy has seen, for an older one that does not keep them itself; without either,
    ``held_out`` is None, unless these are the calibration's very questions."""
    run: RunOptions = field(default_factory=RunOptions)


def evaluate(
    model: VLM,
    samples: Sequence[Sample],
    policy: Policy,
    *,
    log: str | Path,
    options: EvaluationOptions | None = None,
) -> Evaluation:
    """Spend the policy's total in every arm and compare; the log resumes like a calibration's."""
    options = options or EvaluationOptions()
    setting = options.setting or Setting(policy.mechanism, policy.selector)
    if setting.mechanism != policy.mechanism:
        raise BadInput(f"the policy was calibrated by {policy.mechanism}; evaluate it by that, not {setting.mechanism}")
    if policy.selector is not None and setting.selector != policy.selector:
        raise BadInput(
            f"the policy was calibrated with {policy.selector!r}; evaluate it with that, not with {setting.selector!r}"
        )
    samples, excluded = answerable(model, samples, log)
    documents = {sample.document for sample in samples}
    if len(documents) < 2:
        raise BadInput("arms are compared over whole documents, and these samples have fewer than two; give more pages")
    fingerprint = fingerprint_of(samples, model, setting)
    resumable_outcomes(Path(log), fingerprint)  # a log of another experiment is refused before its plan is replaced
    key = _plan_key(samples, policy, fingerprint, options.arms)
    path = sidecar(Path(log), "arms")
    if path.exists() and _read(path).get("key") == key:
        plan = _read_plan(path)
    else:
        plan = plan_arms(samples, policy, model, setting, options.arms)
        save_json(path, {"key": key, **plan.record()})  # on disk before anything is answered
    ran = run(model, samples, list(plan.budgets.values()), setting, log, options.run)
    outcomes = {
        arm: [ran.outcomes[sample.id, budget] for sample, budget in zip(samples, budgets, strict=True)]
        for arm, budgets in plan.budgets.items()
    }
    images = {sample.digest for sample in samples}
    same_data = f"data:{fingerprint.data}" in policy.fingerprint
    return Evaluation(
        comparison=compare(outcomes, policy.costs, options.ratios),
        plan=plan,
        deviation=plan.check_realised(outcomes),
        held_out=False if same_data else is_held_out(policy, documents, images, options.calibrated_on),
        same_model=f"model:{fingerprint.model}" in policy.fingerprint,
        answered=ran.answered,
        seconds=ran.seconds,
        basis=basis_of(model),
        excluded=excluded,
        same_signal=True,
    )


def regrade(
    log: str | Path,
    answers: Mapping[str, Sequence[str]],
    policy: Policy,
    *,
    metric: str | None = None,
    costs: Mapping[str, float] | None = None,
    ratios: Sequence[float] = RATIOS,
) -> Evaluation:
    """Compare the arms of a finished log again, under another metric, other costs or other ratios, without a model.

    ``answers``: the acceptable answers of every sample, by id. Images are not read, so ``held_out`` goes by the
    documents' names. Arms of other budgets than the policy's are refused: it was calibrated again since.
    """
    path = sidecar(Path(log), "arms")
    plan, same_signal = _read_plan(path), _same_signal(path, policy)
    if plan.per_request != (policy.per_request is not None):
        kinds = ("per-request costs", "one budget per tier")
        was, now = kinds if plan.per_request else kinds[::-1]
        raise BadInput(
            f"the arms of {log} were planned with {was}, and this policy has {now}; give the policy that they were "
            "planned with, or evaluate this one into a new log"
        )
    outcomes: dict[tuple[str, int], Outcome] = {}
    for outcome in read_outcomes(log):
        if outcome.sample not in answers:
            raise BadInput(f"the log holds sample {outcome.sample!r}, which the samples file does not; give its file")
        if metric is not None:
            score = grade(outcome.prediction, answers[outcome.sample], metric, truncated=outcome.truncated)
            outcome = replace(outcome, score=score, correct=is_correct(score), metric=metric)
        outcomes.setdefault((outcome.sample, outcome.budget), outcome)
    arms: dict[str, list[Outcome]] = {}
    for arm, budgets in plan.budgets.items():
        keys = list(zip(plan.samples, budgets, strict=True))
        missing = sum(key not in outcomes for key in keys)
        if missing:
            raise BadInput(f"the log lacks {missing} of arm {arm!r}'s {len(keys)} answers; finish the evaluation first")
        arms[arm] = [outcomes[key] for key in keys]
    return Evaluation(
        comparison=compare(arms, costs or policy.costs, ratios),
        plan=plan,
        deviation=plan.check_realised(arms),
        held_out=is_held_out(policy, {outcome.document for outcome in outcomes.values()}),
        same_model=None,
        answered=0,
        seconds=0.0,
        basis=policy.basis,
        same_signal=same_signal,
    )


def _plan_key(
    samples: Sequence[Sample], policy: Policy, fingerprint: Fingerprint, arms: Sequence[str]
) -> dict[str, object]:
    """Everything that a plan of arms depends on; with an equal key a saved plan is used again."""
    key: dict[str, object] = {
        "run": fingerprint.run,
        "floor": policy.floor,
        "arms": list(arms),
        "tiers": {tier: [plan.cost, plan.budget] for tier, plan in policy.tiers.items()},
        "signal": json_digest(policy.signal),
    }
    if policy.per_request is not None:
        key["decided"] = [[decision.budget, decision.cost] for decision in decisions(samples, policy)]
        key["price"] = policy.per_request.price
    return key


def _read_plan(path: Path) -> ArmPlan:
    if not path.exists():
        raise BadInput(f"there is no {path}, which says what each arm asked; it stands beside the log of an evaluation")
    record = _read(path)
    record.pop("key", None)
    try:
        return ArmPlan.from_record(record)
    except (TypeError, ValueError, AttributeError):
        raise _not_a_plan(path) from None


def _same_signal(path: Path, policy: Policy) -> bool | None:
    """Refuse arms of other budgets than the policy's; then, whether they were of its signal. None: an older file."""
    key = _read(path).get("key")
    if key is None:
        return None
    try:
        planned, signal = {tier: int(budget) for tier, (_, budget) in key["tiers"].items()}, key.get("signal")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise _not_a_plan(path) from None
    if planned != policy.budgets:
        was, now = (", ".join(f"{tier} {b}" for tier, b in budgets.items()) for budgets in (planned, policy.budgets))
        raise BadInput(f"this evaluation is of budgets {was}; the policy's are {now}; run stakes evaluate again")
    if policy.per_request is not None and key.get("price", policy.per_request.price) != policy.per_request.price:
        raise BadInput(
            f"this evaluation used a price of {key['price']} per token; the policy's is {policy.per_request.price}; "
            "run stakes evaluate again"
        )
    return None if signal is None else bool(signal == json_digest(policy.signal))


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read ({error}); remove it and evaluate again") from None
    if not isinstance(record, dict):
        raise _not_a_plan(path)
    return record


def _not_a_plan(path: Path) -> BadInput:
    return BadInput(f"{path} is not a plan of arms; remove it and evaluate again")
