"""Compute the tables of a results file again from its own samples and answers, and compare them cell by cell.

    for found in check(PaperResults.load(Path("paper.json"))):
        found.what, found.ok

The tables' own code runs on recorded answers in place of a model. So totals are asserted as in a measurement, paired
tests are computed from pairs, and a cell that somebody changed is found. Two tables cannot be computed again: labels
need the questions' texts, and latency is a measurement of time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from stakes.data import synthetic
from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Assignments, Key
from stakes.experiments.results import METRICS, PAPER, PaperResults, parse_answers
from stakes.experiments.sampling import PER_TIER, of_task, paper_draws, tiered
from stakes.experiments.study import OFFLINE, Other, Study
from stakes.experiments.tables import experiment
from stakes.files import clean
from stakes.models.base import Answer, Request
from stakes.vision.geometry import count_tokens

NOT_COMPUTED = {"labels": "needs the questions' texts", "latency": "is a measurement of time"}
NEEDED = ("stakes", "python", "numpy", "pillow", "torch", "transformers")


@dataclass(frozen=True)
class FileCheck:
    """One check of a file; ``ok``: None where nothing could be checked."""

    what: str
    ok: bool | None


@dataclass(frozen=True)
class RecordedModel:
    """A model of which only the arithmetic is known."""

    family: str
    native: Mapping[str, int]

    def native_tokens(self, width: int, height: int, mechanism: str) -> int:
        """Tokens of an image with no budget, as the checkpoint counted them."""
        own = self.native.get(f"{width}x{height}")
        return count_tokens(self.family, width, height) if mechanism == "resolution" or own is None else own

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """Nothing new is answered."""
        raise BadInput(f"the file lacks {len(requests)} answers that its tables need")


@dataclass(frozen=True)
class Replay(Study):
    """A study whose samples and answers are those of a results file."""

    results: PaperResults = field(kw_only=True)

    def questions(self, source: str, per_tier: int | None = None) -> list[Sample]:
        """The recorded samples of both tiers."""
        count = self.per_tier if per_tier is None else per_tier
        name = f"{source}-{count}" if source in synthetic.FAMILIES else tiered(source, count).name
        return self._read(name)

    def first(self, source: str, count: int, workload: str) -> list[Sample]:
        """The recorded samples of a task."""
        if source in synthetic.FAMILIES:
            return super().first(source, count, workload)
        return self._read(of_task(source, workload, count).name)

    def _read(self, name: str) -> list[Sample]:
        if name not in self.results.samples:
            raise BadInput(f"the file has no samples {name}")
        return [parse_sample(key, text) for key, text in self.results.samples[name].samples.items()]

    def answers(
        self, source: str, samples: Sequence[Sample], assignments: Assignments, setting: Setting | None = None
    ) -> Mapping[Key, Outcome]:
        """The recorded outcomes at the assigned budgets."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        log = self.log_name(source, samples, setting)
        held = self._parsed.get(log)
        if held is None:
            raise BadInput(f"the file has no answers {log}")
        budgets = sorted({budget for row in assignments for budget in row})
        asked = {(sample.id, row[i]) for row in assignments for i, sample in enumerate(samples)}
        outcomes = {}
        for sample in samples:
            native = self.model.native_tokens(*sample.size, setting.mechanism)  # type: ignore[attr-defined]
            for budget in (budget for budget in budgets if (sample.id, budget) in asked):
                if budget not in held.get(sample.id, {}):
                    raise BadInput(f"the answers {log} lack {sample.id!r} at {budget} tokens")
                spent, right = held[sample.id][budget]
                outcomes[sample.id, budget] = _outcome(sample, setting, budget, (native, spent, right))
        return outcomes

    @cached_property
    def _parsed(self) -> dict[str, dict[str, dict[int, tuple[int, int]]]]:
        return {
            log: {
                name: {budget: (spent, right) for budget, spent, right in parse_answers(text)}
                for name, text in held.items()
            }
            for log, held in self.results.answers.items()
        }

    def densities(self, samples: Sequence[Sample]) -> list[float]:
        """The recorded densities."""
        known = {key: text.split()[2] for one in self.results.samples.values() for key, text in one.samples.items()}
        return [float(known[sample.id]) for sample in samples]

    def regrade(self, outcome: Outcome, _: Sample, metric: str) -> Outcome:
        """The recorded grade under another metric."""
        correct = bool(int(outcome.prediction) & 2 ** METRICS.index(metric))
        return replace(outcome, score=float(correct), correct=correct, metric=metric)


def parse_sample(name: str, text: str) -> Sample:
    """A sample of a results file; it has no question and no image."""
    tier, size, _, image, document = text.split(" ", 4)
    width, height = map(int, size.split("x"))
    return Sample(name, "", (), tier=tier, label=tier, document=document, size=(width, height), digest=image)


def _outcome(sample: Sample, setting: Setting, budget: int, answered: tuple[int, int, int]) -> Outcome:
    native, spent, right = answered
    correct = bool(right & 2 ** METRICS.index(setting.metric))
    return Outcome(
        sample.id, sample.document, sample.tier, setting.requested, setting.selector, budget, native, spent, str(right),
        False, float(correct), correct, setting.metric, 0.0, "recorded",
    )  # fmt: skip


def replay_study(results: PaperResults) -> Replay:
    """The study of a results file."""
    models = {name: RecordedModel(one.family, one.native) for name, one in results.models.items()}
    if results.model not in models:
        raise BadInput(f"the file has no answers of its model {results.model!r}")
    others = {
        axis: Other(name, lambda name=name: models[name])  # type: ignore[misc]
        for axis, name in results.others.items()
        if name in models
    }
    return Replay(
        model=models[results.model],
        name=results.model,
        folder=Path(),
        per_tier=results.limit or PER_TIER,
        data={dataset: dataset for dataset in OFFLINE if dataset != "solid_color"},
        others=others,
        results=results,
    )


def check(results: PaperResults) -> Iterator[FileCheck]:
    """Every check of a file: versions, samples, which tables are present, and every table that can be computed."""
    missing = [name for name in NEEDED if name not in results.versions]
    yield FileCheck(f"versions: {', '.join(missing)} not stated" if missing else "versions are stated", not missing)
    yield from _check_samples(results)
    absent = [name for name in PAPER if name not in results.tables and name not in results.left_out]
    yield FileCheck(
        f"tables: {', '.join(absent)} missing" if absent else "every table is present or explained", not absent
    )
    study = replay_study(results)
    for name, table in results.tables.items():
        if name in NOT_COMPUTED:
            yield FileCheck(f"{name}: not computed again, as it {NOT_COMPUTED[name]}", None)
        elif name not in PAPER:
            yield FileCheck(f"{name}: not a table of the paper", False)
        else:
            yield _check_table(name, table.model_dump(), study)


def _check_samples(results: PaperResults) -> Iterator[FileCheck]:
    """Starts and counts of the draws are the paper's, and the lines are as many as the scan took."""
    for draw in paper_draws(results.limit or PER_TIER):
        found = results.samples.get(draw.name)
        if found is None or found.rows is None:
            yield FileCheck(f"samples {draw.name} are missing", False)
            continue
        taken = sum(found.rows["taken"].values())
        same = len(found.samples) == taken == draw.samples and found.rows["start"] == draw.start
        yield FileCheck(f"samples {draw.name}: {len(found.samples)} of {draw.samples}, from row {draw.start}", same)
        if draw.published_stop is not None and found.rows["stop"] != draw.published_stop:
            ended = f"the scan ended before row {found.rows['stop']}, the paper's before {draw.published_stop}"
            yield FileCheck(f"samples {draw.name}: {ended}", None)


def _check_table(name: str, written: dict[str, Any], study: Replay) -> FileCheck:
    try:
        again = clean(experiment(name).table(study).record())
    except StakesError as error:
        return FileCheck(f"{name}: cannot be computed again: {error}", False)
    if again == written:
        return FileCheck(f"{name}: {sum(map(len, written['rows']))} cells computed again, all equal", True)
    for i, (row, own) in enumerate(zip(again["rows"], written["rows"], strict=False)):
        for column, cell, theirs in zip(written["columns"], row, own, strict=False):
            if cell != theirs:
                return FileCheck(f"{name}: row {i + 1}, {column!r} says {theirs}, and the answers give {cell}", False)
    keys = [key for key in written if again.get(key) != written[key]]
    return FileCheck(f"{name}: {' and '.join(keys)} are not what the answers give", False)
