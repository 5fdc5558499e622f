"""Does the policy help? Arms of one total on held-out samples, answered once, compared with their statistics.

    found = evaluate(model, asked, policy, log="evaluation.jsonl")
    found.comparison.rows[1].gain
    regrade("evaluation.jsonl", answers, policy, metric="exact")          # no model

The log holds each (sample, budget) once, whichever arms it serves; which arm asked for what stands beside it in
``LOG.arms.json``, written before the first answer, so that saved outcomes can be compared again under another metric or
other costs with no model.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from stakes.budgets.policy import Policy, unseen
from stakes.calibration.arms.comparison import Comparison, Ledger, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, decisions, plan_arms
from stakes.errors import BadInput
from stakes.evaluation.answerable import Apart, answerable, basis_of
from stakes.evaluation.batching import Answering
from stakes.evaluation.fingerprint import Fingerprint, Setting, admit, beside, name_of, save_json, take
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.items import Asked
from stakes.evaluation.layered import Layered, layered
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import run
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
    """False: the policy was calibrated on some of these documents; None: nothing says what it was calibrated on."""
    same_model: bool | None
    """Whether the model is the one that the policy was calibrated with."""
    answered: int
    seconds: float
    basis: str = "answers"
    """``legibility``: what can be read, not a VLM's error."""
    apart: Apart = field(default_factory=lambda: Apart({}, {}))
    """Samples that the model could not be asked."""
    same_signal: bool | None = None
    """False: the policy has had its signal changed since; None: nothing says which one it had."""

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        return {
            **self.comparison.record(),
            "total": self.plan.total,
            "counted": self.plan.counted,
            "deviation": self.deviation,
            "rounding": self.plan.rounding,
            "density": self.plan.density,
            "soft": self.plan.soft,
            "held_out": self.held_out,
            "same_model": self.same_model,
            "same_signal": self.same_signal,
            "answered": self.answered,
            "seconds": self.seconds,
            "basis": self.basis,
            "apart": self.apart.record(),
        }


def evaluate(
    model: VLM,
    asked: Sequence[Asked],
    policy: Policy,
    *,
    log: str | Path,
    arms: Sequence[str] = ARMS,
    setting: Setting | None = None,
    ratios: Sequence[float] = RATIOS,
    calibrated_on: Collection[str] = (),
    progress: Progress | None = None,
    spread: Answering | None = None,
) -> Evaluation:
    """Spend the policy's total in every arm and compare; the log resumes like a calibration's.

    ``calibrated_on``: the documents that the policy has seen, for an older one that does not keep them itself; without
    either, ``held_out`` is None, unless these are the calibration's very questions. ``spread``: who answers in place of
    ``model`` itself, such as copies of it on a cluster.
    """
    setting = setting or Setting(policy.mechanism, policy.selector)
    if setting.mechanism != policy.mechanism:
        raise BadInput(f"the policy was calibrated by {policy.mechanism}; evaluate it by that, not {setting.mechanism}")
    if policy.selector is not None and setting.selector != policy.selector:
        raise BadInput(
            f"the policy was calibrated with {policy.selector!r}; evaluate it so, not by {setting.selector!r}"
        )
    asked, apart = answerable(model, asked, log)
    if len({one.document for one in asked}) < 2:
        raise BadInput("arms are compared over whole documents, and these samples have fewer than two; give more pages")
    mark = take(asked, model, setting)
    plan = _planned(Path(log), mark, asked, policy, model, arms, layered(model, setting))
    lanes = list(plan.budgets.values())
    ran = run(model, asked, lanes, setting, log, progress=progress, spread=spread)
    outcomes = {
        arm: [ran.outcomes[one.id, budget] for one, budget in zip(asked, budgets, strict=True)]
        for arm, budgets in plan.budgets.items()
    }
    found = compare(outcomes, policy.costs, ratios)
    named = {one.document for one in asked}, {one.digest for one in asked}
    return Evaluation(
        comparison=found,
        plan=plan,
        deviation=_balanced(plan, outcomes),
        held_out=False if f"data:{mark.data}" in policy.fingerprint else unseen(policy, *named, calibrated_on),
        same_model=f"model:{mark.model}" in policy.fingerprint,
        answered=ran.answered,
        seconds=ran.seconds,
        basis=basis_of(model),
        apart=apart,
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
    """Compare the arms of a finished log again, under another metric, other costs or other ratios, with no model.

    ``answers``: the acceptable answers of every sample, by id. Images are not looked at, so ``held_out`` goes by the
    documents' names. Arms of other budgets than the policy's are refused: it was calibrated again since.
    """
    path = beside(Path(log), "arms")
    plan, same_signal = _saved(path), _same_signal(path, policy)
    _same_stakes(plan, policy, log)
    found: dict[tuple[str, int], Outcome] = {}
    for outcome in read_outcomes(log):
        if outcome.sample not in answers:
            raise BadInput(f"the log holds sample {outcome.sample!r}, which the samples file does not; give its file")
        if metric is not None:
            score = grade(outcome.prediction, answers[outcome.sample], metric, truncated=outcome.truncated)
            outcome = replace(outcome, score=score, correct=is_correct(score), metric=metric)
        found.setdefault((outcome.sample, outcome.budget), outcome)
    arms: dict[str, list[Outcome]] = {}
    for arm, budgets in plan.budgets.items():
        keys = list(zip(plan.samples, budgets, strict=True))
        missing = sum(key not in found for key in keys)
        if missing:
            raise BadInput(f"the log lacks {missing} of arm {arm!r}'s {len(keys)} answers; finish the evaluation first")
        arms[arm] = [found[key] for key in keys]
    prices = costs or policy.costs
    held_out = unseen(policy, {outcome.document for outcome in found.values()})
    seen, deviation = compare(arms, prices, ratios), _balanced(plan, arms)
    return Evaluation(seen, plan, deviation, held_out, None, 0, 0.0, policy.basis, same_signal=same_signal)


def _same_stakes(plan: ArmPlan, policy: Policy, log: str | Path) -> None:
    """Arms by tier say nothing about a policy that decides by question, nor the other way round."""
    if plan.soft != (policy.soft is not None):
        was, now = ("soft stakes", "one budget a tier") if plan.soft else ("one budget a tier", "soft stakes")
        raise BadInput(
            f"the arms of {log} were planned with {was}, and this policy has {now}; give the policy that they were "
            "planned with, or evaluate this one into a new log"
        )


def _balanced(plan: ArmPlan, arms: Mapping[str, Sequence[Outcome]]) -> float:
    """Check what was really spent against the ledger."""
    native = [outcome.native for outcome in next(iter(arms.values()))]
    ledger = Ledger(plan.samples, native, plan.mechanism, plan.rounding or 0.0)
    return ledger.check_realised({arm: [outcome.spent for outcome in rows] for arm, rows in arms.items()})


def _planned(
    log: Path,
    mark: Fingerprint,
    asked: Sequence[Asked],
    policy: Policy,
    model: Any,
    arms: Sequence[str],
    layers: Layered | None,
) -> ArmPlan:
    """The plan that this very evaluation made before, or a new one, on disk before anything is answered."""
    admit(log, mark)  # a log of another experiment is refused before its plan is replaced
    key = {"run": mark.run, "floor": policy.floor, "arms": list(arms)}
    key["tiers"] = {tier: [plan.cost, plan.budget] for tier, plan in policy.tiers.items()}
    key["signal"] = name_of(policy.signal)
    if policy.soft is not None:
        key["decided"] = [[one.budget, one.cost] for one in decisions(asked, policy)]
        key["price"] = policy.soft.price
    path = beside(log, "arms")
    if path.exists():
        record = _read(path)
        if record.get("key") == key:
            return _saved(path)
    plan = plan_arms(asked, policy, model, policy.mechanism, arms, layers)
    save_json(path, {"key": key, **asdict(plan)})
    return plan


def _saved(path: Path) -> ArmPlan:
    if not path.exists():
        raise BadInput(f"there is no {path}, which says what each arm asked; it stands beside the log of an evaluation")
    record = _read(path)
    record.pop("key", None)
    try:
        made = ArmPlan(**record)
        tables = {
            name: {arm: tuple(int(b) for b in budgets) for arm, budgets in getattr(made, name).items()}
            for name in ("nominal", "budgets")
        }
        return replace(made, samples=tuple(made.samples), nominal=tables["nominal"], budgets=tables["budgets"])
    except (TypeError, ValueError, AttributeError):
        raise BadInput(f"{path} is not a plan of arms; remove it and evaluate again") from None


def _same_signal(path: Path, policy: Policy) -> bool | None:
    """Refuse arms of other budgets than the policy's; then, whether they were of its signal. None: an older file."""
    key = _read(path).get("key")
    if key is None:
        return None
    try:
        then, signal = {tier: int(budget) for tier, (_, budget) in key["tiers"].items()}, key.get("signal")
    except (TypeError, ValueError, KeyError, AttributeError):
        raise BadInput(f"{path} is not a plan of arms; remove it and evaluate again") from None
    if then != policy.budgets:
        was, now = (", ".join(f"{tier} {b}" for tier, b in budgets.items()) for budgets in (then, policy.budgets))
        raise BadInput(f"this evaluation is of budgets {was}; the policy's are {now}; run stakes evaluate again")
    if policy.soft is not None and key.get("price", policy.soft.price) != policy.soft.price:
        raise BadInput(
            f"this evaluation is of a price of {key['price']} a token; the policy's is {policy.soft.price}; run stakes "
            "evaluate again"
        )
    return None if signal is None else bool(signal == name_of(policy.signal))


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read ({error}); remove it and evaluate again") from None
    if not isinstance(record, dict):
        raise BadInput(f"{path} is not a plan of arms; remove it and evaluate again")
    return record
