"""The measurements behind one report: a policy, its calibration log and its evaluation.

    run = read_run("policy.json")          # or the folder that holds it
    report_data(run)                       # the numbers that the report's script draws from

Anything that is missing is named in ``MeasuredRun.notes``, which the report prints.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve, proportion_interval
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import ArmRow
from stakes.calibration.evaluate import Evaluation, regrade
from stakes.errors import BadInput, InfeasibleBudget, StakesError
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.statistics import RATIOS
from stakes.report.sentences import SIGNAL_CHANGED, describe_per_request
from stakes.tiers import extremes


@dataclass(frozen=True)
class MeasuredRun:
    """A calibration, its evaluation, or both."""

    name: str
    policy: Policy
    outcomes: tuple[Outcome, ...]
    """From the calibration log: every sample at every budget."""
    evaluation: Evaluation | None
    arm_outcomes: tuple[Outcome, ...]
    """From the evaluation log."""
    notes: tuple[str, ...]

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """The measured curve of each tier that has one."""
        return {tier: plan.curve for tier, plan in self.policy.tiers.items() if plan.curve is not None}

    @cached_property
    def fitted(self) -> dict[str, Curve]:
        """The curves that budgets were chosen on: the estimator's where it has one, else the measured ones."""
        return {tier: curve for tier, plan in self.policy.tiers.items() if (curve := plan.chosen_on)}

    @cached_property
    def counts(self) -> dict[str, int]:
        """Measured samples by tier."""
        logged = Counter({outcome.sample: outcome.tier for outcome in self.outcomes}.values())
        return {tier: logged[tier] or max(curve.counts) for tier, curve in self.curves.items()}

    @cached_property
    def by_sample(self) -> dict[str, list[Outcome]]:
        """Outcomes of each sample by rising budget, from the evaluation log if there is no calibration log."""
        rows: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in self.outcomes or self.arm_outcomes:
            rows[outcome.sample].append(outcome)
        return {sample: sorted(mine, key=lambda outcome: outcome.budget) for sample, mine in rows.items()}


def read_run(path: str | Path, outcomes: str | Path | None = None, evaluation: str | Path | None = None) -> MeasuredRun:
    """Read a policy and the logs beside it. A log that is named here must exist."""
    file = Path(path)
    if file.is_dir():
        file = file / "policy.json"
    if file.suffix == ".jsonl":
        raise BadInput(f"{file} is a log; give the policy that it belongs to, and the log with --outcomes")
    policy = Policy.load(file)
    notes = [note] if (note := describe_per_request(policy)) else []
    log = file.with_suffix(".outcomes.jsonl") if outcomes is None else Path(outcomes)
    answers: list[Outcome] = []
    if outcomes is None and not log.is_file():
        notes.append(f"There is no {log.name} beside the policy, so single answers and latency cannot be shown.")
    else:
        answers = read_outcomes(log)
        notes += _curve_mismatch(policy, answers)
    judged, arm_outcomes = _read_evaluation(file, evaluation, policy, notes)
    if judged is not None:
        notes += _evaluation_notes(judged, answers, arm_outcomes)
    return MeasuredRun(file.stem, policy, tuple(answers), judged, tuple(arm_outcomes), tuple(notes))


def _read_evaluation(
    file: Path, evaluation: str | Path | None, policy: Policy, notes: list[str]
) -> tuple[Evaluation | None, list[Outcome]]:
    log = file.with_suffix(".evaluation.jsonl") if evaluation is None else Path(evaluation)
    if evaluation is None and not log.is_file():
        notes.append("There is no evaluation beside the policy; stakes evaluate compares arms of equal tokens.")
        return None, []
    outcomes = read_outcomes(log)
    try:
        return regrade(log, {outcome.sample: () for outcome in outcomes}, policy), outcomes
    except StakesError as error:
        if evaluation is not None:
            raise
        notes.append(f"The evaluation beside the policy cannot be shown: {error}.")
        return None, []


def _evaluation_notes(judged: Evaluation, answers: Sequence[Outcome], arm_outcomes: Sequence[Outcome]) -> list[str]:
    notes = []
    shared = {outcome.document for outcome in answers} & {outcome.document for outcome in arm_outcomes}
    if shared or judged.held_out is False:
        which = f"{len(shared)}" if shared else "some"
        notes.append(f"NOT held out: the policy was calibrated on {which} of the evaluation's documents.")
    elif judged.held_out is None and not answers:
        notes.append("Whether the evaluation is held out is not known: nothing says what the policy was calibrated on.")
    return [*notes, SIGNAL_CHANGED] if judged.same_signal is False else notes


def _curve_mismatch(policy: Policy, answers: Sequence[Outcome]) -> list[str]:
    """A warning where the log does not give the policy's curves, so that the report would contradict itself."""
    logged = curves_from_outcomes(answers) if answers else {}
    for tier, plan in policy.tiers.items():
        if answers and plan.curve is not None and logged.get(tier) != plan.curve:
            return [
                f"The log does not give the policy's curve of tier {tier}: it is unfinished or of another run. "
                "Curves below are the policy's; answers and latency are the log's."
            ]
    return []


def report_data(run: MeasuredRun) -> dict[str, Any]:
    """The record that the report's script reads, as plain JSON values.

    It has everything that the controls recompute: curves as measured, isotonic and as estimated, each arm's wrong
    answers by document and tier (CWE and its interval follow the costs), latency by budget, and native tokens.
    """
    policy = run.policy
    most_expensive, cheapest = extremes(policy.costs)
    return {
        "tiers": [_tier(run, tier) for tier in policy.tiers if tier in run.curves],
        "costs": policy.costs,
        "budgets": policy.budgets,
        "most_expensive": most_expensive,
        "cheapest": cheapest,
        "mean": policy.mean_budget,
        "floor": None if policy.floor == 1 else policy.floor,
        "ratios": list(RATIOS),
        "native": _native_by_tier(run),
        "arms": None if run.evaluation is None else _arms(run.evaluation, run.arm_outcomes),
        "latency": _latency(run.outcomes or run.arm_outcomes),
    }


def _tier(run: MeasuredRun, tier: str) -> dict[str, Any]:
    curve, fitted = run.curves[tier], run.fitted[tier]
    low, high = zip(*(curve.interval(budget) for budget in curve.budgets), strict=True)
    return {
        "name": tier,
        "cost": run.policy.costs[tier],
        "n": run.counts[tier],
        "budgets": curve.budgets,
        "errors": curve.errors,
        "counts": curve.counts,
        "low": low,
        "high": high,
        "isotonic": curve.isotonic().errors,
        "fitted": fitted.errors if fitted.budgets == curve.budgets else curve.errors,
    }


def _native_by_tier(run: MeasuredRun) -> dict[str, float]:
    """Mean native tokens of each tier's samples."""
    native: dict[str, list[int]] = defaultdict(list)
    for rows in run.by_sample.values():
        native[rows[0].tier].append(rows[0].native)
    return {tier: sum(tokens) / len(tokens) for tier, tokens in native.items()}


def _arms(judged: Evaluation, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Each arm's row with its intervals, and questions and wrong answers by document and tier."""
    comparison, plan = judged.comparison, judged.plan
    answers = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    answered = {
        arm: [answers[key] for key in zip(plan.samples, budgets, strict=True)] for arm, budgets in plan.budgets.items()
    }
    tiers, documents = list(comparison.counts), list(dict.fromkeys(one.document for one in answered["uniform"]))

    def by_document(rows: Sequence[Outcome]) -> list[list[int]]:
        """A table of documents x tiers."""
        counts = Counter((outcome.document, outcome.tier) for outcome in rows)
        return [[counts[document, tier] for tier in tiers] for document in documents]

    def arm(row: ArmRow) -> dict[str, Any]:
        return {
            "arm": row.arm,
            "errors": row.errors,
            "intervals": {tier: proportion_interval(row.errors[tier], comparison.counts[tier]) for tier in tiers},
            "average": row.average,
            "average_interval": proportion_interval(row.average, len(plan.samples)),
            "cwe": row.cwe,
            "gain": None if row.gain is None else [row.gain.value, row.gain.low, row.gain.high],
            "few": "" if row.gain is None else row.gain.few,
            "mcnemar": None if row.high_cost is None else [row.high_cost.b, row.high_cost.c, row.high_cost.p],
            # "never" where no cost ratio makes it pay: JSON has no infinity
            "break_even": "never" if row.break_even == float("inf") else row.break_even,
            "wrong": by_document([outcome for outcome in answered[row.arm] if not outcome.correct]),
        }

    return {
        "rows": [arm(row) for row in comparison.rows],
        "tiers": tiers,
        "costs": comparison.costs,
        "most_expensive": comparison.most_expensive,
        "documents": len(documents),
        "questions": by_document(answered["uniform"]),
        "metric": comparison.metric,
        "total": plan.total,
        "counted": plan.counted,
        "deviation": judged.deviation,
    }


def _latency(outcomes: Sequence[Outcome]) -> list[dict[str, float]]:
    """Quartiles of the logged milliseconds at each budget; more than 40 budgets are rounded to multiples of 32."""
    import numpy as np

    timed = [outcome for outcome in outcomes if outcome.ms > 0]
    rounded = len({outcome.budget for outcome in timed}) > 40
    times: dict[int, list[float]] = defaultdict(list)
    for outcome in timed:
        times[max(1, round(outcome.budget / 32) * 32) if rounded else outcome.budget].append(outcome.ms)
    rows = []
    for budget, ms in sorted(times.items()):
        p25, median, p75 = map(float, np.percentile(ms, [25, 50, 75]))
        rows.append({"budget": budget, "n": len(ms), "p25": p25, "median": median, "p75": p75})
    return rows


def frontier_rows(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    ratio: float,
    floor: int | None = None,
) -> list[dict[str, Any]]:
    """CWE at every budget of the most expensive tier, with the others at their optimum under the remaining total.

    The most expensive tier costs ``ratio`` times the cheapest. The least CWE of the rows is ``allocate``'s optimum.
    """
    top, cheapest = extremes(costs)
    prices = {**costs, top: ratio * costs[cheapest]}
    rest = {tier: curve for tier, curve in curves.items() if tier != top}
    weight = {tier: counts[tier] * prices[tier] for tier in curves}
    rows = []
    for budget, error in zip(curves[top].budgets, curves[top].errors, strict=True):
        if floor is not None and budget < floor:
            continue
        left = total - counts[top] * budget
        try:
            others = allocate(rest, {t: prices[t] for t in rest}, {t: counts[t] for t in rest}, left, floor)
        except InfeasibleBudget:
            continue
        lost = weight[top] * error + others.cwe * sum(weight[tier] for tier in rest)
        label = ", ".join(f"{tier} {tokens}" for tier, tokens in others.budgets.items())
        rows.append({"ratio": f"{ratio:.6g}", "budget": budget, "cwe": lost / sum(weight.values()), "others": label})
    return rows
