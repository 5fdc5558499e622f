"""Time of one answer at each budget.

Milliseconds by resolution, beside the error. One question at a time, each on a page of its own with an empty cache, as
a user waits for it; mean (as in the paper) and median over pages after a warm-up. The deployed pair (576, 32) and the
mixed workload's tiers are means of their parts. Times are of this machine and this model: only ratios compare with the
published ones. Paper, table "Full latency sweep".
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.estimate import NATIVE, Ask, grid_asks
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table
from stakes.experiments.tables import mixed
from stakes.experiments.tables.cross_task import workload
from stakes.models.base import Request
from stakes.published import figures

OPTIONS, DATASETS = MEASURED - {"--trim"}, mixed.DATASETS
BUDGETS = (576, 448, 304, 160, 96, 32)
DEPLOYED = {"high": 576, "low": 32}
TIMED = 12  # pages timed one at a time at each budget
COLUMNS = ("source", "budget", "tokens", "error", "mean ms", "share of full", "median ms", "share of full")


def asks(study: Study) -> set[Ask]:
    """Both tiers at each budget for the error; a few pages at each for the time, and three tasks in three ways."""
    source = study.source("docvqa")
    groups = {f"{source} {tier}": study.count(source) for tier in DEPLOYED}
    pages = 1 + min(TIMED, study.per_tier)
    timed = {Ask(f"{source} timed", pages, "resolution", b or "full", b or NATIVE) for b in (None, *BUDGETS)}
    timed.add(Ask("mixed timed", 3 * len(mixed.BUDGETS) * pages, "resolution", "three ways", NATIVE // 2))
    return grid_asks(groups, "resolution", BUDGETS) | timed


def table(study: Study) -> Table:
    """Time and error at each budget; the deployed pair; the mixed workload."""
    source = study.source("docvqa")
    samples = study.questions(source)
    setting = Setting("resolution", None, study.metric)
    outcomes = study.answers(source, samples, [[budget] * len(samples) for budget in BUDGETS], setting)
    ms = {budget: time_pages(study, samples, budget) for budget in (None, *BUDGETS)}
    full = ms[None]
    native = round(statistics.mean(outcomes[sample.id, BUDGETS[0]].native for sample in samples))
    rows: list[Row] = [(study.name, "full", native, None, *_cells(full, full))]
    spent = {}
    for budget in BUDGETS:
        given = [outcomes[sample.id, budget] for sample in samples]
        spent[budget] = statistics.mean(outcome.realised for outcome in given)
        error = 1 - statistics.mean(outcome.correct for outcome in given)
        rows.append((study.name, str(budget), round(spent[budget]), error, *_cells(ms[budget], full)))
    pair = mean_of([ms[budget] for budget in DEPLOYED.values()])
    tokens = statistics.mean(spent[budget] for budget in DEPLOYED.values())
    rows.append((study.name, "(576, 32)", round(tokens), None, *_cells(pair, full)))
    tasks = _mixed_times(study)
    rows += [
        (study.name, f"mixed workload, {name}", None, None, *_cells(taken, tasks["full"]))
        for name, taken in tasks.items()
    ]
    printed, saved = figures()["latency_a100_resolution_ms"], figures()["printed_latency_reductions"]
    rows += [
        ("published", name, row["tokens"], None, row["ms"], 1 - saved[name] if name in saved else None, None, None)
        for name, row in printed.items()
        if isinstance(row, dict)
    ]
    deployed = printed["deployed_576_32_reduction"]
    return Table(
        name="latency",
        title=f"Latency of one answer: {study.name} on {source}, by resolution",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"32 tokens take {ms[32].mean / full.mean:.0%} of the mean time at full resolution; the pair (576, 32) "
            f"takes {1 - pair.mean / full.mean:.0%} less (published: about {deployed:.0%} less, 7B on an A100)",
        ),
        meta={
            "model": study.name,
            "data": source,
            "timed_pages": min(TIMED, study.per_tier),
            "mechanism": "resolution",
        },
    )


@dataclass(frozen=True)
class PageTimes:
    """Milliseconds of one answer over pages."""

    mean: float
    median: float


def time_pages(study: Study, samples: Sequence[Sample], budget: int | None) -> PageTimes:
    """Milliseconds of one question on each of the first pages, its image new to the model."""
    forget = getattr(study.model, "forget", None)
    pages = list({sample.document: sample for sample in reversed(samples)}.values())[::-1][: min(TIMED, study.per_tier)]
    times = []
    for sample in (pages[0], *pages):  # the first is a warm-up
        request = Request(sample.load(), sample.question, budget, "resolution")
        if forget is not None:
            forget()
        began = time.perf_counter()
        study.model.answer([request])
        times.append((time.perf_counter() - began) * 1e3)
    return PageTimes(statistics.mean(times[1:]), statistics.median(times[1:]))


def mean_of(parts: Sequence[PageTimes]) -> PageTimes:
    """The mean of each statistic."""
    return PageTimes(statistics.mean(p.mean for p in parts), statistics.mean(p.median for p in parts))


def _cells(taken: PageTimes, full: PageTimes) -> tuple[float, ...]:
    return taken.mean, taken.mean / full.mean, taken.median, taken.median / full.median


def _mixed_times(study: Study) -> dict[str, PageTimes]:
    """Means over the three tasks: at full size, at uniform 288, and by tier."""
    _, samples = workload(study, mixed.TASKS, mixed.PER_TASK, "mixed")
    by_tier = {tier: [sample for sample in samples if sample.tier == tier] for tier in mixed.BUDGETS}
    plans: dict[str, dict[str, int | None]] = {
        "full": dict.fromkeys(by_tier),
        "uniform": dict.fromkeys(by_tier, sum(mixed.BUDGETS.values()) // len(mixed.BUDGETS)),
        "tiered": dict(mixed.BUDGETS),
    }
    return {
        name: mean_of([time_pages(study, by_tier[tier], budgets[tier]) for tier in by_tier])
        for name, budgets in plans.items()
    }
