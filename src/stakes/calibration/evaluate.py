"""Evaluate a policy: arms of one total on held-out samples, answered once and compared with their statistics.

    evaluation = evaluate(model, samples, policy, log="evaluation.jsonl")
    evaluation.comparison.rows[1].gain
    regrade("evaluation.jsonl", answers, policy, metric="exact")          # no model

The log holds each (sample, budget) once, whichever arms it serves. Which arm asked for what stands beside it in
``LOG.arms.json``, written before the first answer, so that saved outcomes can be compared again under another metric or
other costs without a model.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stakes.budgets.digests import is_held_out
from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import Comparison, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, plan_arms
from stakes.calibration.arms.plan_file import (
    check_planned,
    labels_and_unit,
    plan_key,
    read_about,
    read_plan,
    read_record,
)
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import (
    Fingerprint,
    Setting,
    fingerprint_of,
    resumable_outcomes,
    save_json,
    sidecar,
)
from stakes.evaluation.grading import DEFAULT_METRIC, grade, is_correct
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.runner import RunOptions, run
from stakes.evaluation.samples import Excluded, answerable, basis_of, trimmed
from stakes.evaluation.statistics import RATIOS
from stakes.models.base import VLM
from stakes.models.identity import model_name
from stakes.notebooks import EvaluationView


@dataclass(frozen=True)
class Evaluation(EvaluationView):
    """The comparison, and what it cost."""

    comparison: Comparison
    plan: ArmPlan
    deviation: float
    """The largest relative difference between two arms' realised totals, in what the plan says is ``counted``."""
    held_out: bool | None
    """False: the policy was calibrated on some of these documents; None: it is not known what it was calibrated on."""
    same_model: bool | None
    """Whether the model is the one that the policy was calibrated with; None: not known."""
    answered: int
    seconds: float
    basis: str = "answers"
    """``legibility``: what can be read, not a VLM's error."""
    excluded: Excluded = field(default_factory=lambda: Excluded({}, {}))
    """Samples that the model could not be asked."""
    same_signal: bool | None = None
    """False: the policy's signal was changed since; None: it is not known which one it had."""
    model: str | None = None
    """How the model that answered was named."""
    differences: tuple[str, ...] = ()
    """What was not as in the calibration (model, metric, signal), in sentences that come before any conclusion."""

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            "differences": list(self.differences),
            "model": self.model,
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
    read_by: str = ""
    """How the samples' tiers were read, where not by the policy's signal, such as ``as labelled``."""
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
    if policy.reads_confidence:
        raise BadInput(
            "arms are budgets of one total, and this policy asks again or hands over where an answer is unsure; "
            "its evidence on held-out documents is in the file; to compare arms, calibrate with --no-escalate"
        )
    setting = options.setting or policy_setting(policy)
    if setting.mechanism != policy.mechanism:
        raise BadInput(f"the policy was calibrated by {policy.mechanism}; evaluate it by that, not {setting.mechanism}")
    if policy.selector is not None and setting.selector != policy.selector:
        raise BadInput(
            f"the policy was calibrated with {policy.selector!r}; evaluate it with that, not with {setting.selector!r}"
        )
    images = {sample.digest for sample in samples}
    if policy.trim:
        known = [policy.trims_above, *(budget for plan in policy.tiers.values() for budget in plan.known_budgets)]
        samples = trimmed(samples, model, setting.mechanism, known)
    samples, excluded = answerable(model, samples, log)
    documents = {sample.document for sample in samples}
    if len(documents) < 2:
        raise BadInput("arms are compared over whole documents, and these samples have fewer than two; give more pages")
    fingerprint = fingerprint_of(samples, model, setting)
    resumable_outcomes(Path(log), fingerprint)  # a log of another experiment is refused before its plan is replaced
    key = plan_key(samples, policy, fingerprint, options.arms)
    named = model_name(model)
    answered_by = {"model": None if named is None else str(named), "digest": fingerprint.model}
    about = {"key": key, "answered_by": answered_by, "read_by": options.read_by, **labels_and_unit(samples, policy)}
    path = sidecar(Path(log), "arms")
    before = read_record(path) if path.exists() else {}
    planned = before.get("key") == key
    plan = read_plan(path) if planned else plan_arms(samples, policy, model, setting, options.arms)
    if {**before, **about} != before:
        save_json(path, {**plan.record(), **about})  # on disk before anything is answered
        plan = read_plan(path)
    ran = run(model, samples, list(plan.budgets.values()), setting, log, options.run)
    outcomes = {
        arm: [ran.outcomes[sample.id, budget] for sample, budget in zip(samples, budgets, strict=True)]
        for arm, budgets in plan.budgets.items()
    }
    same_data = f"data:{fingerprint.data}" in policy.fingerprint
    same_model = is_same_model(policy, fingerprint.model)
    return Evaluation(
        comparison=compare(outcomes, policy.costs, options.ratios, labels=plan.labels, unit=plan.unit),
        plan=plan,
        deviation=plan.check_realised(outcomes),
        held_out=False if same_data else is_held_out(policy, documents, images, options.calibrated_on),
        same_model=same_model,
        answered=ran.answered,
        seconds=ran.seconds,
        basis=basis_of(model),
        excluded=excluded,
        same_signal=True,
        model=answered_by["model"],
        differences=(
            *_differences(policy, answered_by["model"], same_model, setting.metric, options.read_by),
            *_another_plugin(policy, fingerprint),
        ),
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
    plan, same_signal = read_plan(path), check_planned(path, policy)
    model, digest, read_by = read_about(path)
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
    comparison = compare(arms, costs or policy.costs, ratios, labels=plan.labels, unit=plan.unit)
    same_model = is_same_model(policy, digest)
    return Evaluation(
        comparison=comparison,
        plan=plan,
        deviation=plan.check_realised(arms),
        held_out=is_held_out(policy, {outcome.document for outcome in outcomes.values()}),
        same_model=same_model,
        answered=0,
        seconds=0.0,
        basis=policy.basis,
        same_signal=same_signal,
        model=model,
        differences=_differences(policy, model, same_model, comparison.metric, read_by),
    )


def policy_setting(policy: Policy, selector: str | None = None, metric: str | None = None) -> Setting:
    """The setting of the policy's calibration, but for what is given; code is never imported because a file names it.

    ``selector``: must be given where the policy's is ``module:Class``.
    """
    from stakes.vision.selectors import from_file

    chosen = selector or from_file(policy.selector, ())
    return Setting(policy.mechanism, chosen, metric or policy.metric or DEFAULT_METRIC)


def is_same_model(policy: Policy, digest: str | None) -> bool | None:
    """Whether the policy was calibrated with the model of this digest (``fingerprint.model_digest``); None: not known.

    A policy that was not calibrated, and the log of an older evaluation, do not say which model it was.
    """
    if digest is None or "model:" not in policy.fingerprint:
        return None
    return f"model:{digest}" in policy.fingerprint


def _another_plugin(policy: Policy, fingerprint: Fingerprint) -> tuple[str, ...]:
    """A sentence where the selector's package is not that of the calibration."""
    if not fingerprint.plugin or f"plugin:{fingerprint.plugin}" in policy.fingerprint:
        return ()
    return (f"ANOTHER SELECTOR than the policy's: the package or source of {policy.selector} has changed.",)


def _differences(
    policy: Policy, model: str | None, same_model: bool | None, metric: str, read_by: str
) -> tuple[str, ...]:
    """What was not as in the policy's calibration."""
    sentences, then = [], "another one" if policy.model is None else str(policy.model)
    if same_model is None and None not in (policy.model, model):  # a policy without a fingerprint still has the name
        same_model = model == then
    if same_model is False and model == then:
        sentences.append(
            f"ANOTHER MODEL than the policy's: {model} has other weights, another prompt or another answer length than "
            "when the policy was calibrated."
        )
    elif same_model is False:
        answered = "a model without a name" if model is None else model
        sentences.append(
            f"ANOTHER MODEL than the policy's: {answered} answered; the policy was calibrated with {then}."
        )
    if policy.metric not in (None, metric):
        sentences.append(
            f"ANOTHER METRIC than the policy's: graded {metric}; the policy was calibrated with {policy.metric}."
        )
    if read_by:
        sentences.append(f"ANOTHER SIGNAL than the policy's: tiers are {read_by}.")
    return tuple(sentences)
