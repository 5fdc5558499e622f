"""What is there to report? A policy, the log of answers behind it, and the evaluation beside it, where they exist.

    run = read_run("policy.json")          # also a folder that holds one
    run.curves, run.outcomes, run.evaluation

Nothing is guessed: what is missing is named in ``notes``, and the report says so where it would have stood.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.budgets.policy import Policy
from stakes.calibration.evaluate import Evaluation, regrade
from stakes.errors import BadInput, StakesError
from stakes.evaluation.outcome_log import Outcome, read_outcomes
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


# Where do a run's questions and pages come from? A samples file, or synthetic pages drawn again from their names.
#
# source = from_samples("questions.jsonl", run)       # or from_pages("forms", run)
# source["inv-17"].question, source["inv-17"].load()


@dataclass(frozen=True)
class Asking:
    """One question of the run. ``tier``: as labelled in the file or on the page, where it is. ``load``: its image."""

    question: str
    answers: tuple[str, ...]
    task: str | None
    tier: str | None
    load: Callable[[], Any]


def from_samples(path: str | Path, run: Run) -> dict[str, Asking]:
    """The run's samples that a file holds; a file that holds none of them is the wrong one."""
    from stakes.data.images import image_source
    from stakes.data.sample import read_samples

    wanted = run.by_sample
    found = {
        sample.id: Asking(
            sample.question,
            sample.answers,
            sample.task,
            sample.tier,
            partial(image_source, sample, Path(path).parent),
        )
        for sample in read_samples(path)
        if sample.id in wanted
    }
    return _some(found, wanted, str(path))


def from_pages(family: str, run: Run) -> dict[str, Asking]:
    """The run's samples drawn again: their names say which page and which question."""
    from stakes.data.synthetic import draw

    found: dict[str, Asking] = {}
    pages: dict[str, Any] = {}
    for sample in run.by_sample:
        document, _, number = sample.rpartition("/")
        parts = document.split("/")
        if len(parts) != 3 or parts[0] != family or not (parts[2].isdigit() and number.isdigit()):
            continue
        if document not in pages:
            pages[document] = draw(family, int(parts[2]), parts[1]).questions
        if int(number) < len(pages[document]):
            asked = pages[document][int(number)]
            load = partial(_drawn, family, int(parts[2]), parts[1])
            found[sample] = Asking(asked.text, asked.answers, None, asked.tier, load)
    return _some(found, run.by_sample, f"{family} pages")


def _drawn(family: str, seed: int, split: str) -> Any:
    from stakes.data.synthetic import draw

    return draw(family, seed, split).image


def _some(found: dict[str, Asking], wanted: Mapping[str, object], where: str) -> dict[str, Asking]:
    if wanted and not found:
        raise BadInput(
            f"none of the run's {len(wanted)} samples is in {where}; the first is {next(iter(wanted))!r}. Give the "
            "file or the page family that the run was made with"
        )
    return found
