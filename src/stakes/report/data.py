"""The measurements behind one report: a policy, its calibration log and its evaluation.

    run = read_run("policy.json")          # or the folder that holds it
    report_data(run)                       # the numbers that the report's script draws from

Anything that is missing is named in ``MeasuredRun.notes``, which the report prints.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve, above_floor, proportion_interval
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.harm import NOTED, within_limits
from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import ArmRow
from stakes.calibration.estimators import Terms
from stakes.calibration.evaluate import Evaluation, regrade
from stakes.errors import BadInput, InfeasibleBudget, StakesError
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.statistics import RATIOS
from stakes.report.sentences import SIGNAL_CHANGED, describe_per_request, note_on_unsure
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
        """Questions by tier that the budgets were chosen for: the policy's, or in older files those of the log."""
        logged = Counter({outcome.sample: outcome.tier for outcome in self.outcomes}.values())
        known, plans = self.policy.counts, self.policy.tiers
        return {tier: known[tier] if plans[tier].questions else logged[tier] or known[tier] for tier in self.curves}

    def terms(self, ratio: float | None = None) -> Terms:
        """What budgets are chosen for: at the policy's costs, or at another cost ratio."""
        costs, floor = self.policy.costs_as_read(ratio), self.policy.floor
        return Terms(
            costs={tier: costs[tier] for tier in self.curves},
            counts=self.counts,
            total=self.policy.mean_budget * sum(self.counts.values()),
            floor=None if floor == 1 else floor,
            max_harm={tier: limit for tier, limit in (self.policy.max_harm or {}).items() if tier in self.curves},
        )

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
        answers, note = _of_the_policy(policy, read_outcomes(log))
        notes += [note] if note else []
        notes += [*_curve_mismatch(policy, answers), *filter(None, [note_on_unsure(policy, answers)])]
    judged, arm_outcomes = _read_evaluation(file, evaluation, policy, notes)
    if judged is not None:
        notes += _evaluation_notes(judged, answers, arm_outcomes)
    return MeasuredRun(file.stem, policy, tuple(answers), judged, tuple(arm_outcomes), tuple(notes))


def _read_evaluation(
    file: Path, evaluation: str | Path | None, policy: Policy, notes: list[str]
) -> tuple[Evaluation | None, list[Outcome]]:
    log = file.with_suffix(".evaluation.jsonl") if evaluation is None else Path(evaluation)
    if evaluation is None and not log.is_file():
        notes.append("This policy has not been tested on other pages; stakes evaluate does that, at equal tokens.")
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


def _of_the_policy(policy: Policy, answers: list[Outcome]) -> tuple[list[Outcome], str]:
    """The answers at the budgets of the policy's curves, and a note where the log holds others.

    A calibration that was resumed with a smaller grid leaves the answers of the larger one in its log.
    """
    grids = {tier: plan.curve.budgets for tier, plan in policy.tiers.items() if plan.curve is not None}
    mine = [answer for answer in answers if answer.tier in grids and answer.budget in grids[answer.tier]]
    if len(mine) == len(answers) or not mine or _curve_mismatch(policy, mine):
        return answers, ""
    others = sorted({answer.budget for answer in answers} - {answer.budget for answer in mine})
    return mine, (
        f"The log also holds answers at {', '.join(map(str, others)) or 'further'} tokens, of a calibration with "
        "another grid. They are not part of this policy and are not shown."
    )


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
        "max_harm": policy.max_harm,
        "noted_rise": NOTED,
        "budgets": policy.budgets,
        "certified": policy.certificate is not None,
        "most_expensive": most_expensive,
        "cheapest": cheapest,
        "mean": policy.mean_budget,
        "floor": None if policy.floor == 1 else policy.floor,
        "ratios": list(RATIOS),
        "native": _native_by_tier(run),
        "arms": None if run.evaluation is None else _arms(run.evaluation, run.arm_outcomes),
        # What OCR read comes from a cache: its times say nothing of a model's.
        "latency": [] if policy.basis == "legibility" else _latency(run.outcomes or run.arm_outcomes),
    }


def _tier(run: MeasuredRun, tier: str) -> dict[str, Any]:
    curve, fitted = run.curves[tier], run.fitted[tier]
    low, high = zip(*(curve.interval(budget) for budget in curve.budgets), strict=True)
    return {
        "name": tier,
        "cost": run.policy.tiers[tier].chosen_at,  # the mean by label of what is read as this tier
        "n": run.counts[tier],
        "questions": run.policy.tiers[tier].questions or {tier: run.counts[tier]},
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
    label = {} if plan.labels is None else dict(zip(plan.samples, plan.labels, strict=True))

    def by_document(rows: Sequence[Outcome]) -> list[list[int]]:
        """A table of documents x tiers, by label where labels are known."""
        counts = Counter((outcome.document, label.get(outcome.sample, outcome.tier)) for outcome in rows)
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
            "paired": None if row.high_cost is None else asdict(row.high_cost),
            "pays": row.pays,
            "wrong": by_document([outcome for outcome in answered[row.arm] if not outcome.correct]),
        }

    return {
        "rows": [arm(row) for row in comparison.rows],
        "tiers": tiers,
        "costs": comparison.costs,
        "most_expensive": comparison.most_expensive,
        "documents": len(documents),
        "unit": comparison.unit,
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


def frontier_rows(curves: Mapping[str, Curve], terms: Terms, top: str) -> list[dict[str, Any]]:
    """CWE at every permitted budget of tier ``top``, with the others at their optimum under the remaining total.

    The least CWE of the rows is that of the optimum on these terms.
    """
    permitted = within_limits(curves, terms.max_harm or {}, terms.total // sum(terms.counts.values()))
    permitted = above_floor(permitted, terms.floor)
    rest = [tier for tier in curves if tier != top]
    weight = {tier: terms.counts[tier] * terms.costs[tier] for tier in curves}
    rows = []
    for budget, error in zip(permitted[top].budgets, permitted[top].errors, strict=True):
        left = terms.total - terms.counts[top] * budget
        try:
            others = allocate(
                {tier: permitted[tier] for tier in rest},
                {tier: terms.costs[tier] for tier in rest},
                {tier: terms.counts[tier] for tier in rest},
                left,
            )
        except InfeasibleBudget:
            continue
        lost = weight[top] * error + others.cwe * sum(weight[tier] for tier in rest)
        label = ", ".join(f"{tier} {tokens}" for tier, tokens in others.budgets.items())
        rows.append({"budget": budget, "cwe": lost / sum(weight.values()), "others": label})
    return rows
