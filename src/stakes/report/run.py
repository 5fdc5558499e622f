"""What is there to report? A policy, the log of answers behind it, and the evaluation beside it, where they exist.

    run = read_run("policy.json")          # also a folder that holds one
    run.curves, run.outcomes, run.evaluation

Nothing is guessed: what is missing is named in ``notes``, and the report says so where it would have stood.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.evaluate import Evaluation, regrade
from stakes.budgets.policy import Policy
from stakes.errors import BadInput, StakesError
from stakes.evaluation.outcomes import Outcome, read_outcomes
from stakes.report.sentences import OTHER_SIGNAL, soft_stakes


@dataclass(frozen=True)
class Run:
    """A calibration, its evaluation, or both."""

    name: str
    policy: Policy
    outcomes: tuple[Outcome, ...]
    """Of the calibration: every sample at every budget."""
    evaluation: Evaluation | None
    arm_outcomes: tuple[Outcome, ...]
    """Of the evaluation's log."""
    notes: tuple[str, ...]

    @property
    def curves(self) -> dict[str, Curve]:
        """Measured curves by tier; tiers that were never measured have none."""
        return {tier: plan.curve.curve() for tier, plan in self.policy.tiers.items() if plan.curve is not None}

    @property
    def fitted(self) -> dict[str, Curve]:
        """The curves that budgets were chosen on: the estimator's, or the measured ones themselves."""
        made = {tier: plan.fitted.curve() for tier, plan in self.policy.tiers.items() if plan.fitted is not None}
        return {**self.curves, **made}

    @property
    def costs(self) -> dict[str, float]:
        """Cost of a mistake by tier."""
        return self.policy.costs

    @property
    def counts(self) -> dict[str, int]:
        """Samples by tier, as measured."""
        asked: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            asked.setdefault(outcome.tier, set()).add(outcome.sample)
        return {tier: len(asked[tier]) if tier in asked else max(curve.counts) for tier, curve in self.curves.items()}

    @property
    def by_sample(self) -> Mapping[str, list[Outcome]]:
        """Outcomes of each sample by rising budget; of the evaluation where there is no calibration log."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self.outcomes or self.arm_outcomes:
            found.setdefault(outcome.sample, []).append(outcome)
        return {sample: sorted(rows, key=lambda o: o.budget) for sample, rows in found.items()}


def read_run(path: str | Path, outcomes: str | Path | None = None, evaluation: str | Path | None = None) -> Run:
    """Read a policy and the logs beside it, or those named; a log that was named must be there."""
    file = Path(path)
    if file.is_dir():
        file = file / "policy.json"
    if file.suffix == ".jsonl":
        raise BadInput(f"{file} is a log; give the policy that it belongs to, and the log with --outcomes")
    policy = Policy.load(file)
    notes = [told] if (told := soft_stakes(policy)) else []
    answers = _answers(file, outcomes, notes)
    if answers:
        _same_curves(policy, answers, notes)
    judged, arm_outcomes = _arms(file, evaluation, policy, notes)
    again = {outcome.document for outcome in answers} & {outcome.document for outcome in arm_outcomes}
    if judged is not None and again:
        notes.append(f"NOT held out: the policy was calibrated on {len(again)} of the evaluation's documents.")
    elif judged is not None and judged.held_out is False:
        notes.append("NOT held out: the policy was calibrated on some of the evaluation's documents.")
    elif judged is not None and judged.held_out is None and not answers:
        notes.append("Whether the evaluation is held out is not known: nothing says what the policy was calibrated on.")
    if judged is not None and judged.same_signal is False:
        notes.append(OTHER_SIGNAL)
    return Run(file.stem, policy, tuple(answers), judged, tuple(arm_outcomes), tuple(notes))


def _answers(file: Path, outcomes: str | Path | None, notes: list[str]) -> list[Outcome]:
    log = file.with_suffix(".outcomes.jsonl") if outcomes is None else Path(outcomes)
    if outcomes is None and not log.is_file():
        notes.append(f"There is no {log.name} beside the policy, so single answers and latency cannot be shown.")
        return []
    return read_outcomes(log)


def _arms(
    file: Path, evaluation: str | Path | None, policy: Policy, notes: list[str]
) -> tuple[Evaluation | None, list[Outcome]]:
    log = file.with_suffix(".evaluation.jsonl") if evaluation is None else Path(evaluation)
    if evaluation is None and not log.is_file():
        notes.append("No evaluation stands beside the policy; stakes evaluate answers arms of equal tokens.")
        return None, []
    answered = read_outcomes(log)
    try:
        return regrade(log, {outcome.sample: () for outcome in answered}, policy), answered
    except StakesError as error:
        if evaluation is not None:
            raise
        notes.append(f"The evaluation beside the policy cannot be shown: {error}.")
        return None, []


def _same_curves(policy: Policy, answers: list[Outcome], notes: list[str]) -> None:
    """A log of other answers than the policy's curves would make a report that contradicts itself."""
    found = curves_from_outcomes(answers)
    for tier, plan in policy.tiers.items():
        if plan.curve is not None and (tier not in found or found[tier] != plan.curve.curve()):
            notes.append(
                f"The log does not give the policy's curve of tier {tier}: it is unfinished or of another run. "
                "Curves below are the policy's; answers and latency are the log's."
            )
            return
