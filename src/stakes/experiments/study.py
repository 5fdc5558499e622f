"""A study: one model, its questions and the folder of its answers, from which every table is measured.

    study = Study(load("embedded"), "embedded", Path("runs/reproduce"), per_tier=300)
    samples = study.questions("forms")
    arms = study.arms("forms", samples, {"high": 512, "low": 96}, {"high": 5, "low": 1})

Answers are logged per data set, mechanism and selector, and every (question, budget) is answered once, whichever tables
need it: the frontier's 13 budgets serve the arms, the metrics and the map. A stopped study resumes where it was.

A source is a family of synthetic pages (``forms``), a benchmark of the hub by the paper's protocol (``docvqa``,
``sampling``), a samples file, or ``sroie``: real receipts, which may replace the documents of the paper with
``data={"docvqa": "sroie", "sroie": "questions.jsonl"}``. Tiers of files are as labelled, unless a signal reads them.
Receipts with fewer than 640 tokens are enlarged to that many, so that every budget of the paper is feasible. With
``trim`` margins are cut off before, of other pages only where 640 tokens are left; such answers have logs of their own.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.arms.comparison import ArmRow, Comparison, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, densities, plan_arms
from stakes.data import synthetic as pages
from stakes.data.hub.sources import SOURCES
from stakes.data.sample import Sample, read_samples
from stakes.data.trim import trim_samples
from stakes.errors import BadInput
from stakes.evaluation.batching import BatchAnswerer
from stakes.evaluation.fingerprint import Setting, model_digest, save_json
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Assignments, Key, RunOptions, run
from stakes.evaluation.samples import digest, draw_samples, prepare_samples
from stakes.experiments.sampling import PER_TIER, Draw, first_of_each_tier, of_task, tiered
from stakes.models.base import VLM, Answer, Mechanism, Request
from stakes.models.identity import family_of
from stakes.models.loading import off_gpu
from stakes.signals import Judge, KeywordRule, Signal
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import Picture
from stakes.vision.image.resize import resample

if TYPE_CHECKING:
    from stakes.experiments.results import Recording

OFFLINE = {
    "docvqa": "forms",
    "chartqa": "charts",
    "infographicvqa": "infographics",
    "textvqa": "signs",
    "vqav2": "shapes",
    "solid_color": "swatches",
}
"""The paper's data sets, and the synthetic families that replace them offline."""
RECEIPTS, RECEIPTS_METRIC = "sroie", "fields"
LEAST_TOKENS = 640  # of a page, as in the paper
FLOOR = 32  # the smallest measured budget of the paper; its content arm gives no image less


@dataclass(frozen=True)
class Arms:
    """Arms of one total: the comparison, the plan and every answer."""

    comparison: Comparison
    plan: ArmPlan
    outcomes: Mapping[str, Sequence[Outcome]]
    deviation: float
    """The largest relative difference between the realised totals of two arms, in what the plan counts."""

    @property
    def rows(self) -> dict[str, ArmRow]:
        """The comparison's rows by arm."""
        return {row.arm: row for row in self.comparison.rows}


class NotLoaded:
    """In place of the model before it is loaded: what a table will ask is known without it."""

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        """No answer."""
        raise BadInput(f"the model is not loaded, and cannot answer {len(requests)} requests")


@dataclass(frozen=True)
class Other:
    """Another model that a table measures beside the study's own."""

    name: str
    load: Callable[[], VLM]
    workers: Callable[[VLM], BatchAnswerer | None] = lambda _: None


@dataclass(frozen=True)
class Study:
    """A model, a number of questions of each tier, and a folder of logs."""

    model: VLM
    name: str
    folder: Path
    per_tier: int = PER_TIER
    mechanism: Mechanism = "deletion"
    metric: str = "relaxed"
    data: Mapping[str, str] = field(default_factory=dict)
    """The source of each of the paper's data sets; the synthetic family (``OFFLINE``) where none is given."""
    copies: Mapping[str, Path] = field(default_factory=dict)
    """Local parquet copies of benchmarks; the hub where none is given."""
    split: str = "test"
    signal: Signal | None = None
    """How tiers are read; None takes the samples' own labels."""
    trim: bool = False
    selectors: tuple[str, ...] = ()
    """The selectors that ``invariance`` measures; the paper's if empty."""
    others: Mapping[str, Other] = field(default_factory=dict)
    """The models of ``invariance`` and ``models``, by axis: scale and architecture."""
    progress: Progress | None = None
    workers: BatchAnswerer | None = None
    """What answers in the model's place, such as copies of it on a cluster."""
    judge: Judge | None = None
    """Whose labels the table ``labels`` compares with the rule's, if any."""
    recording: "Recording | None" = None
    """Where samples and answers are recorded for a results file, if any."""

    def source(self, dataset: str) -> str:
        """The source of one of the paper's data sets."""
        return self.data.get(dataset, OFFLINE.get(dataset, dataset))

    def count(self, source: str) -> int:
        """Questions of each tier in a source: at most the paper's number where it is a benchmark."""
        return tiered(source, self.per_tier).count if source in SOURCES else self.per_tier

    def questions(self, source: str, per_tier: int | None = None) -> list[Sample]:
        """``per_tier`` samples of each tier, the same ones every time."""
        count = self.per_tier if per_tier is None else per_tier
        if source in pages.FAMILIES:
            return self._recorded(f"{source}-{count}", draw_samples(source, self.split, count, self.signal))
        if source in SOURCES:
            return self._drawn(tiered(source, count))
        samples = first_of_each_tier(self._of_file(source), count)
        if source != RECEIPTS:
            return self.without_margins(samples)
        return [enlarged(sample, family_of(self.model)) for sample in self.without_margins(samples, 0)]

    def first(self, source: str, count: int, workload: str) -> list[Sample]:
        """The first ``count`` samples of a task, of both tiers as they come; half of each on synthetic pages."""
        if source in SOURCES:
            return self._drawn(of_task(source, workload, count))
        if source in pages.FAMILIES:
            return self.questions(source, count if source == "swatches" else -(-count // 2))[:count]
        return self.without_margins(self._of_file(source)[:count])

    def without_margins(self, samples: list[Sample], least: int = LEAST_TOKENS) -> list[Sample]:
        """With ``trim`` the samples without their margins, where ``least`` tokens are left; else as they are."""
        enough = lambda x, y: count_tokens(family_of(self.model), x, y) >= least  # noqa: E731
        return trim_samples(samples, enough) if self.trim else samples

    def _of_file(self, source: str) -> list[Sample]:
        path = Path(self.data.get(source, source))
        if not path.is_file():
            raise BadInput(f"no data is called {source!r}; give one of {', '.join(pages.FAMILIES)}, or a samples file")
        return prepare_samples(read_samples(path), path.parent, self.signal)

    def _drawn(self, draw: Draw) -> list[Sample]:
        path = draw.fetch(self.folder / "data", self.copies.get(draw.dataset))
        signal = self.signal or KeywordRule()  # by which the rows were scanned
        return self._recorded(draw.name, prepare_samples(read_samples(path), path.parent, signal), draw)

    def _recorded(self, name: str, samples: list[Sample], draw: Draw | None = None) -> list[Sample]:
        samples = self.without_margins(samples)
        if self.recording is not None:
            self.recording.add_samples(name, samples, None if draw is None else draw.record(self.folder / "data"))
        return samples

    @contextmanager
    def other(self, axis: str) -> "Iterator[Study]":
        """The same study of another model; its own model leaves the GPU meanwhile."""
        other = self.others[axis]
        with off_gpu(self.model):
            model = other.load()
            yield replace(self, model=model, name=other.name, workers=other.workers(model))

    def answers(
        self, source: str, samples: Sequence[Sample], assignments: Assignments, setting: Setting | None = None
    ) -> Mapping[Key, Outcome]:
        """Every sample at every budget that an assignment gives it."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        log = self.log(source, samples, setting)
        options = RunOptions(self.progress, self.workers, other_log="give another --folder")
        outcomes = run(self.model, samples, assignments, setting, log, options).outcomes
        if self.recording is not None:
            self.recording.add_answers(self.log_name(source, samples, setting), self, samples, outcomes)
        return outcomes

    def answer_arms(
        self, source: str, samples: Sequence[Sample], arms: Mapping[str, Sequence[int]], setting: Setting
    ) -> dict[str, list[Outcome]]:
        """The outcomes of each arm, in the order of the samples; ``arms`` has one budget per sample."""
        outcomes = self.answers(source, samples, list(arms.values()), setting)
        return {
            arm: [outcomes[sample.id, budget] for sample, budget in zip(samples, budgets, strict=True)]
            for arm, budgets in arms.items()
        }

    def log(self, source: str, samples: Sequence[Sample], setting: Setting) -> Path:
        """The log of the answers to these samples."""
        return self.folder / f"{self.log_name(source, samples, setting)}.jsonl"

    def log_name(self, source: str, samples: Sequence[Sample], setting: Setting) -> str:
        """The name of that log: model, source, number of samples, setting, and whether margins are cut off."""
        parts = [self.name, source, len(samples), setting.requested, setting.selector, setting.metric]
        name = "-".join(str(part) for part in (*parts, "trimmed" * self.trim) if part)
        return "".join(c if c.isalnum() or c in "-._" else "_" for c in name)

    def arms(
        self,
        source: str,
        samples: Sequence[Sample],
        budgets: Mapping[str, int],
        costs: Mapping[str, float],
        names: Sequence[str] = ARMS,
        setting: Setting | None = None,
    ) -> Arms:
        """The arms at the total of ``budgets``, answered and compared."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        tiers = [sample.tier for sample in samples]
        policy = fixed_policy(family_of(self.model), setting.mechanism, budgets, costs, tiers, floor=FLOOR)
        density = self.densities(samples) if "content" in names else None
        plan = plan_arms(samples, policy, self.model, setting, names, density)
        return self.compared(source, samples, plan, costs, setting)

    def compared(
        self, source: str, samples: Sequence[Sample], plan: ArmPlan, costs: Mapping[str, float], setting: Setting
    ) -> Arms:
        """The arms of a plan, answered and compared."""
        outcomes = self.answer_arms(source, samples, plan.budgets, setting)
        return Arms(compare(outcomes, costs), plan, outcomes, plan.check_realised(outcomes))

    def densities(self, samples: Sequence[Sample]) -> list[float]:
        """Each sample's information density by this model's features; kept in the folder for the next table."""
        path = self.folder / f"densities-{model_digest(self.model)}.json"
        known: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        new = {sample.digest: sample for sample in samples if sample.digest not in known}
        if new:
            known |= dict(zip(new, densities(list(new.values()), self.model), strict=True))
            save_json(path, known)
        found = [known[sample.digest] for sample in samples]
        if self.recording is not None:
            self.recording.densities |= {sample.digest: value for sample, value in zip(samples, found, strict=True)}
        return found

    def regrade(self, outcome: Outcome, sample: Sample, metric: str) -> Outcome:
        """The same answer under another metric."""
        score = grade(outcome.prediction, sample.answers, metric, truncated=outcome.truncated)
        return replace(outcome, score=score, correct=is_correct(score), metric=metric)


def scale_page(sample: Sample, side: int) -> Sample:
    """The sample on a page whose longer side has ``side`` pixels."""
    longer = max(sample.size)
    width, height = (max(1, round(length * side / longer)) for length in sample.size)
    if (width, height) == sample.size:
        return sample
    name = digest(f"{sample.digest} at {width}x{height}".encode())
    return replace(
        sample, size=(width, height), digest=name, load=lambda: resample(Picture(sample.load()), width, height)
    )


def enlarged(sample: Sample, family: str) -> Sample:
    """The sample on a page of at least ``LEAST_TOKENS``; a larger page is left as it is."""
    page = sample
    while (tokens := count_tokens(family, *page.size)) < LEAST_TOKENS:
        page = scale_page(sample, 1 + round(max(page.size) * math.sqrt(LEAST_TOKENS / tokens)))
    return page


def fixed_policy(
    family: str,
    mechanism: str,
    budgets: Mapping[str, int],
    costs: Mapping[str, float],
    tiers: Sequence[str],
    *,
    floor: int = 1,
) -> Policy:
    """Budgets specified beforehand, as a policy without curves."""
    mean = sum(budgets[tier] for tier in tiers) // len(tiers)
    return Policy(
        family=family,
        mechanism="deletion" if mechanism == "deletion" else "resolution",
        mean_budget=mean,
        floor=floor,
        tiers={tier: TierPlan(cost=costs[tier], budget=budgets[tier]) for tier in budgets},
        fingerprint="specified beforehand",
    )
