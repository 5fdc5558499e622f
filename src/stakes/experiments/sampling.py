"""Which rows of each benchmark the paper's tables take, as published; every model gets the same ones.

    tiered("docvqa", 300)               # from row 257 on, 300 questions of each tier by the keyword rule
    of_task("docvqa", "mixed", 120)     # from row 1184 on, the first 120 questions of whatever tier

Paper, "Datasets and disjoint sampling". The 640 native tokens that a page needs are counted for the paper's model, so
that a model of another family answers the same questions.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.data.hub import FILE, scan, write
from stakes.data.sample import Sample
from stakes.published import figures
from stakes.signals import TaskIdentity

FAMILY = "qwen2.5-vl"
PER_TIER = 300  # questions of each tier in the paper's largest sample


@dataclass(frozen=True)
class Draw:
    """Samples of one benchmark: ``count`` of each tier from row ``start`` on, or the first ``count`` of the task."""

    dataset: str
    count: int
    start: int = 0
    by_tier: bool = True
    published_stop: int | None = None
    """The row before which the paper's scan ended, where it is published."""

    @property
    def name(self) -> str:
        """The folder that it is fetched into."""
        return f"{self.dataset}-{self.start}-{self.count}" + ("" if self.by_tier else "-task")

    @property
    def samples(self) -> int:
        """How many samples it has."""
        return 2 * self.count if self.by_tier else self.count

    def fetch(self, folder: Path, parquet: Path | None) -> Path:
        """The samples file, fetched once into ``folder`` from the hub or from a local copy."""
        where = folder / self.name
        path = where / "samples.jsonl"
        if not path.exists():
            signal = None if self.by_tier else TaskIdentity({self.dataset: "high"})
            scanned = scan(self.dataset, FAMILY, per_tier=self.count, start=self.start, signal=signal, parquet=parquet)
            write(scanned, where)
        return path

    def record(self, folder: Path) -> dict[str, Any]:
        """Which rows were scanned, and where the paper's own scan ended."""
        scanned = json.loads((folder / self.name / FILE).read_text(encoding="utf-8"))
        kept = ("dataset", "split", "repo", "start", "stop", "taken", "small", "surplus")
        return {**{key: scanned[key] for key in kept}, "published_stop": self.published_stop}


def tiered(dataset: str, most: int) -> Draw:
    """The tiered sample of a data set, with at most ``most`` questions of each tier."""
    published = figures()["sampling"]
    if dataset == "docvqa":
        own = published["docvqa_validation"]["confirmatory"]
    elif dataset in ("chartqa", "infographicvqa"):
        own = published[f"{dataset}_{'test' if dataset == 'chartqa' else 'validation'}"]
    else:  # the paper has no tiered sample of photographs
        return Draw(dataset, most)
    whole = most >= own["high"]
    return Draw(dataset, min(most, own["high"]), own.get("skip", 0), published_stop=own["scanned"] if whole else None)


def of_task(dataset: str, workload: str, most: int) -> Draw:
    """The first ``most`` questions of a task in a workload: ``mixed`` or ``cross_task``."""
    own = figures()["sampling"][workload].get(dataset)
    start = own.get("skip", 0) if isinstance(own, dict) else 0
    return Draw(dataset, most, start, by_tier=False)


def paper_draws(most: int = PER_TIER) -> list[Draw]:
    """Every sample of a benchmark whose number of questions is published, at most ``most`` of a tier or task."""
    published = figures()["sampling"]
    tasks = [("mixed", dataset) for dataset in ("docvqa", "textvqa", "vqav2")] + [("cross_task", "docvqa")]
    draws = [tiered(dataset, most) for dataset in ("docvqa", "chartqa", "infographicvqa")]
    for workload, dataset in tasks:
        own = published[workload][dataset]
        draws.append(of_task(dataset, workload, min(most, own["n"] if isinstance(own, dict) else own)))
    return draws


def first_of_each_tier(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The first ``count`` samples of each tier, in the file's order."""
    seen: Counter[str] = Counter()
    first = []
    for sample in samples:
        seen[sample.tier] += 1
        if seen[sample.tier] <= count:
            first.append(sample)
    return first
