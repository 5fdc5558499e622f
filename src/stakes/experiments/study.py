"""A study: one model, its questions and the folder of its answers, from which every table is measured.

    study = Study(load("embedded"), "embedded", Path("runs/reproduce"), per_tier=300)
    samples = study.questions("forms")
    arms = study.arms("forms", samples, {"high": 512, "low": 96}, {"high": 5, "low": 1})

Answers are logged per data set, mechanism and selector, and every (question, budget) is answered once, whichever tables
need it: the frontier's 13 budgets serve the arms, the metrics and the map. A stopped study resumes where it was.

A source is a family of synthetic pages (``forms``), a set of the hub by the paper's protocol (``hub:docvqa``, or
``hub:docvqa:FOLDER`` for a local parquet copy), a samples file, or ``sroie``: real receipts, which may replace the
documents of the paper with ``data={"docvqa": "sroie", "sroie": "questions.jsonl"}``. Their tiers are as labelled in the
file, and those with fewer than 640 tokens are enlarged to that many, so that every budget of the paper is feasible.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.arms.comparison import ArmRow, Comparison, compare
from stakes.calibration.arms.plan import ARMS, ArmPlan, plan_arms
from stakes.data import synthetic as pages
from stakes.data.sample import Sample, read_samples
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Assignments, Key, RunOptions, run
from stakes.evaluation.samples import digest, draw_samples, prepare_samples
from stakes.models.base import VLM, Mechanism
from stakes.models.identity import family_of
from stakes.signals import Judge, Signal
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import Picture
from stakes.vision.image.resize import resample

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


@dataclass(frozen=True)
class Study:
    """A model, a number of questions of each tier, and a folder of logs."""

    model: VLM
    name: str
    folder: Path
    per_tier: int = 300
    mechanism: Mechanism = "deletion"
    metric: str = "relaxed"
    data: Mapping[str, str] = field(default_factory=dict)
    """The source of each of the paper's data sets; the synthetic family (``OFFLINE``) where none is given."""
    split: str = "test"
    signal: Signal | None = None
    """How tiers are read; None takes the samples' own labels."""
    selectors: tuple[str, ...] = ()
    """The selectors that ``invariance`` measures; the paper's if empty."""
    progress: Progress | None = None
    judge: Judge | None = None
    """Whose labels the table ``labels`` compares with the rule's, if any."""

    def source(self, dataset: str) -> str:
        """The source of one of the paper's data sets."""
        return self.data.get(dataset, OFFLINE.get(dataset, dataset))

    def questions(self, source: str, per_tier: int | None = None) -> list[Sample]:
        """``per_tier`` samples of each tier, the same ones every time."""
        count = self.per_tier if per_tier is None else per_tier
        if source in pages.FAMILIES:
            return draw_samples(source, self.split, count, self.signal)
        fetched = self._fetched(source.removeprefix("hub:"), count) if source.startswith("hub:") else None
        path = fetched or Path(self.data.get(source, source))
        if not path.is_file():
            raise BadInput(f"no data is called {source!r}; give one of {', '.join(pages.FAMILIES)}, or a samples file")
        samples = first_of_each_tier(prepare_samples(read_samples(path), path.parent, self.signal), count)
        return [enlarged(sample, family_of(self.model)) for sample in samples] if source == RECEIPTS else samples

    def _fetched(self, source: str, count: int) -> Path:
        """The samples file of a set of the hub, fetched once into the folder of the logs."""
        from stakes.data.hub import scan, write

        name, _, parquet = source.partition(":")
        folder = self.folder / "data" / f"{name}-{count}"
        if not (folder / "samples.jsonl").exists():
            write(scan(name, family_of(self.model), per_tier=count, parquet=Path(parquet) if parquet else None), folder)
        return folder / "samples.jsonl"

    def answers(
        self, source: str, samples: Sequence[Sample], assignments: Assignments, setting: Setting | None = None
    ) -> Mapping[Key, Outcome]:
        """Every sample at every budget that an assignment gives it."""
        setting = setting or Setting(self.mechanism, None, self.metric)
        log = self.log(source, samples, setting)
        options = RunOptions(self.progress, other_log="give another --folder")
        return run(self.model, samples, assignments, setting, log, options).outcomes

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
        parts = [self.name, source, len(samples), setting.mechanism, setting.selector, setting.metric]
        name = "-".join(str(part) for part in parts if part)
        safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{safe}.jsonl"

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
        plan = plan_arms(samples, policy, self.model, setting, names)
        outcomes = self.answer_arms(source, samples, plan.budgets, setting)
        return Arms(compare(outcomes, costs), plan, outcomes, plan.check_realised(outcomes))


def first_of_each_tier(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The first ``count`` samples of each tier, in the file's order."""
    seen: Counter[str] = Counter()
    first = []
    for sample in samples:
        seen[sample.tier] += 1
        if seen[sample.tier] <= count:
            first.append(sample)
    return first


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
