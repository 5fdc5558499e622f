"""Measure: answer every sample at every budget, or adaptively only what the choice of budgets needs.

    measured = measure(model, samples, [32, 160, 304, 448, 576], "outcomes.jsonl")
    measured = measure(model, samples, grid, "outcomes.jsonl", terms=terms, sampling=AdaptiveSampling(max_passes=2700))

The log is the same either way. Stopped and started again, an adaptive run asks what it had not asked yet and comes to
the same decision; a full run resumes from the log of an adaptive one and asks the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stakes.calibration.adaptive.sampler import AdaptiveResult, AdaptiveSampling, sample_adaptively
from stakes.calibration.adaptive.units import Columns, Counts, slice_numbers
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import Terms
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key, Run, RunOptions, run
from stakes.models.base import VLM


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
    """Let the sampler ask for rows, slices of documents (``adaptive.units``), and answer them by sample and budget."""
    number = slice_numbers((sample.id, sample.document, sample.tier) for sample in samples)
    slices = sorted({(sample.document, number[sample.id]) for sample in samples})
    row_of = {name: row for row, name in enumerate(slices)}
    ids = {(row_of[sample.document, number[sample.id]], sample.tier): sample.id for sample in samples}
    sizes = {tier: np.zeros((len(slices), len(budgets)), dtype=np.int64) for tier in terms.costs}
    for row, tier in ids:
        sizes[tier][row] = 1
    runs: list[Run] = []
    outcomes: dict[Key, Outcome] = {}

    def ask(rows: Sequence[int], columns: Columns) -> dict[str, Counts]:
        keys = {
            tier: [[(ids.get((row, tier), ""), budgets[j]) for j in numbers] for row in rows]
            for tier, numbers in columns.items()
        }
        runs.append(answer({key for table in keys.values() for line in table for key in line if key[0]}))
        outcomes.update(runs[-1].outcomes)
        return {
            tier: np.array(
                [[key in outcomes and not outcomes[key].correct for key in line] for line in table], np.int64
            )
            for tier, table in keys.items()
        }

    table = ByDocument(tuple(f"{document}#{k}" for document, k in slices), tuple(budgets), sizes, sizes)
    result = sample_adaptively(table, terms, ask, sampling, owners=[document for document, _ in slices])
    every = [(sample.id, budget) for sample in samples for budget in budgets]
    whole = replace(
        runs[-1],
        outcomes={key: outcomes[key] for key in every if key in outcomes},
        answered=sum(run.answered for run in runs),
        seconds=sum(run.seconds for run in runs),
        changed=sum(run.changed for run in runs),
    )
    return Measurement(whole, result)
