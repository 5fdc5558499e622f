"""Measure: answer every sample at every budget, or adaptively only what the choice of budgets needs.

    measured = measure(model, samples, [32, 160, 304, 448, 576], "outcomes.jsonl")
    measured = measure(model, samples, grid, "outcomes.jsonl", terms=terms, sampling=AdaptiveSampling())

The log is the same either way. Stopped and started again, an adaptive run asks what it had not asked yet and comes to
the same decision; a full run resumes from the log of an adaptive one and asks the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stakes.calibration.adaptive.sampler import AdaptiveResult, AdaptiveSampling, Numbers, sample_adaptively
from stakes.calibration.by_document import check_split
from stakes.calibration.certify.no_harm import choosing_limits
from stakes.calibration.estimators import Terms
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key, Run, RunOptions, run
from stakes.evaluation.samples import trimmed
from stakes.models.base import VLM
from stakes.models.identity import model_name
from stakes.tiers import expected_costs


@dataclass(frozen=True)
class Measurement:
    """The run, and with adaptive sampling its decision."""

    run: Run
    adaptive: AdaptiveResult | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """All outcomes, in the samples' order."""
        return list(self.run.outcomes.values())


def measure(
    model: VLM,
    samples: Sequence[Sample],
    budgets: Sequence[int],
    log: str | Path,
    setting: Setting | None = None,
    options: RunOptions | None = None,
    *,
    terms: Terms | None = None,
    sampling: AdaptiveSampling | None = None,
) -> Measurement:
    """Answer what the log lacks; with ``sampling``, only what the choice on these ``terms`` needs."""
    assignments, setting = [[budget] * len(samples) for budget in budgets], setting or Setting()

    def answer(only: set[Key] | None = None) -> Run:
        return run(model, samples, assignments, setting, log, options, only=only)

    if sampling is None:
        return Measurement(answer())
    if terms is None:
        raise BadInput("adaptive sampling chooses budgets while it measures; give the terms of the choice")
    return _measure_adaptively(answer, samples, budgets, terms, sampling)


def _measure_adaptively(
    answer: Callable[[set[Key]], Run],
    samples: Sequence[Sample],
    budgets: Sequence[int],
    terms: Terms,
    sampling: AdaptiveSampling,
) -> Measurement:
    """Let the sampler ask, and answer by sample and budget; then what a certificate of its choice needs."""
    apart = [s for s in samples if sampling.chosen_on and s.document not in sampling.chosen_on]
    excluded = {sample.id for sample in apart}
    asked = {tier: [s for s in samples if s.tier == tier and s.id not in excluded] for tier in terms.costs}
    runs: list[Run] = []
    outcomes: dict[Key, Outcome] = {}

    def add(keys: set[Key]) -> None:
        runs.append(answer(keys))
        outcomes.update(runs[-1].outcomes)

    def ask(questions: Numbers, columns: Numbers) -> dict[str, NDArray[np.int64]]:
        keys = {
            tier: [[(asked[tier][number].id, budgets[column]) for column in columns[tier]] for number in numbers]
            for tier, numbers in questions.items()
        }
        add({key for table in keys.values() for line in table for key in line})
        return {
            tier: np.array([[not outcomes[key].correct for key in line] for line in table], np.int64)
            for tier, table in keys.items()
        }

    names = {tier: [(sample.document, sample.id) for sample in found] for tier, found in asked.items()}
    result = sample_adaptively(names, budgets, terms, ask, sampling)
    if apart:
        add({(sample.id, budget) for sample in apart for budget in (result.budgets[sample.tier], sampling.uniform)})
        result = replace(result, passes=len(outcomes), of=len(samples) * len(budgets))
    every = [(sample.id, budget) for sample in samples for budget in budgets]
    whole = replace(
        runs[-1],
        outcomes={key: outcomes[key] for key in every if key in outcomes},
        answered=sum(run.answered for run in runs),
        seconds=sum(run.seconds for run in runs),
        changed=sum(run.changed for run in runs),
    )
    return Measurement(whole, result)


def without_margins(
    samples: Sequence[Sample], model: VLM, setting: Setting, wanted: bool | None, budgets: Sequence[int]
) -> tuple[Sequence[Sample], bool]:
    """The samples as they are shown, and whether margins are cut off: as ``wanted``; None: where images are resized.

    A gateway trims the images that it resizes. Where a parameter of the engine realizes budgets, it sends images as
    they are. Deletion starts from whole pages, as in the paper.
    """
    named = model_name(model)
    actuator = None if named is None else named.actuator
    if wanted and actuator is not None:
        raise BadInput(
            f"margins are cut off where images are resized, and with --actuator {actuator} they are sent as they are; "
            "leave out --trim, or calibrate by resizing"
        )
    trim = (actuator is None and setting.mechanism == "resolution") if wanted is None else wanted
    return (trimmed(samples, model, setting.mechanism, budgets) if trim else samples), trim


def choosing_part(
    samples: Sequence[Sample],
    sampling: AdaptiveSampling,
    terms: Terms,
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None,
    uniform: int,
    confidence: float,
) -> tuple[AdaptiveSampling, Terms]:
    """Adaptive sampling of the documents that a certificate chooses on, and its terms (``certify``)."""
    first = set(check_split([(sample.document, sample.tier) for sample in samples], costs).split()[0].documents)
    prices = costs_by_label([sample for sample in samples if sample.document in first], costs, labels)
    sampling = replace(sampling, chosen_on=first, uniform=uniform)
    if terms.max_harm:
        others = Counter(sample.tier for sample in samples if sample.document not in first)
        terms = replace(terms, max_harm=choosing_limits(terms.max_harm, others, confidence))
    return sampling, replace(terms, costs=prices, total=uniform * len(samples))


def costs_by_label(
    samples: Sequence[Sample], costs: Mapping[str, float], labels: Mapping[str, str] | None
) -> dict[str, float]:
    """By tier, the mean cost of a mistake: by label where the labels are known."""
    return expected_costs(questions_by_label(samples, costs, labels), costs)


def questions_by_label(
    samples: Sequence[Sample], tiers: Iterable[str], labels: Mapping[str, str] | None
) -> dict[str, dict[str, int]]:
    """Questions by tier and by label; where labels are not known, all of a tier under its own name."""
    pairs = Counter((sample.tier, labels[sample.id] if labels else sample.tier) for sample in samples)
    return {tier: {label: count for (read, label), count in pairs.items() if read == tier} for tier in tiers}
