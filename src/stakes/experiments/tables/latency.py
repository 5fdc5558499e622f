"""Time of one answer at each budget.

Milliseconds by resolution, beside the error. One question at a time, each on a page of its own with an empty cache, as
a user waits for it; the median over pages after a warm-up. The deployed pair (576, 32) and the mixed workload's tiers
are means of their parts. Times are of this machine and this model: only ratios compare with the published ones. Paper,
table "Full latency sweep".
"""

import statistics
import time
from collections.abc import Sequence

from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table
from stakes.experiments.tables import mixed
from stakes.experiments.tables.cross_task import workload
from stakes.models.base import Request
from stakes.published import figures

OPTIONS, DATASETS = MEASURED, mixed.DATASETS
BUDGETS = (576, 448, 304, 160, 96, 32)
DEPLOYED = {"high": 576, "low": 32}
TIMED = 12  # pages timed one at a time at each budget
COLUMNS = ("source", "budget", "tokens", "error", "ms", "share of full")


def answers(study: Study) -> int:
    """The number of answers."""
    return len(BUDGETS) * 2 * study.per_tier + (len(BUDGETS) + 1 + 3 * len(mixed.BUDGETS)) * (TIMED + 1)


def table(study: Study) -> Table:
    """Time and error at each budget; the deployed pair; the mixed workload."""
    source = study.source("docvqa")
    samples = study.questions(source)
    setting = Setting("resolution", None, study.metric)
    outcomes = study.answers(source, samples, [[budget] * len(samples) for budget in BUDGETS], setting)
    ms = {budget: median_ms(study, samples, budget) for budget in (None, *BUDGETS)}
    full = ms[None]
    rows: list[Row] = [(study.name, "full", None, None, full, 1.0)]
    spent = {}
    for budget in BUDGETS:
        given = [outcomes[sample.id, budget] for sample in samples]
        spent[budget] = statistics.mean(outcome.realised for outcome in given)
        error = 1 - statistics.mean(outcome.correct for outcome in given)
        rows.append((study.name, str(budget), round(spent[budget]), error, ms[budget], ms[budget] / full))
    pair = statistics.mean(ms[budget] for budget in DEPLOYED.values())
    tokens = statistics.mean(spent[budget] for budget in DEPLOYED.values())
    rows.append((study.name, "(576, 32)", round(tokens), None, pair, pair / full))
    tasks_ms = _mixed_ms(study)
    rows += [
        (study.name, f"mixed workload, {name}", None, None, t, t / tasks_ms["full"]) for name, t in tasks_ms.items()
    ]
    printed = figures()["latency_a100_resolution_ms"]
    rows += [
        ("published", name, row["tokens"], None, row["ms"], row["ms"] / printed["full"]["ms"])
        for name, row in printed.items()
        if isinstance(row, dict)
    ]
    return Table(
        name="latency",
        title=f"Latency of one answer: {study.name} on {source}, by resolution",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(
            f"32 tokens take {ms[32] / full:.0%} of the time at full resolution; the pair (576, 32) takes "
            f"{1 - pair / full:.0%} less (published: about 21 % less, on an A100 with a 7B model)",
        ),
        meta={"model": study.name, "data": source, "timed_pages": TIMED, "mechanism": "resolution"},
    )


def median_ms(study: Study, samples: Sequence[Sample], budget: int | None) -> float:
    """Median milliseconds of one question on each of the first pages, its image new to the model."""
    forget = getattr(study.model, "forget", None)
    pages = list({sample.document: sample for sample in reversed(samples)}.values())[::-1][:TIMED]
    times = []
    for sample in (pages[0], *pages):  # the first is a warm-up
        request = Request(sample.load(), sample.question, budget, "resolution")
        if forget is not None:
            forget()
        began = time.perf_counter()
        study.model.answer([request])
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times[1:])


def _mixed_ms(study: Study) -> dict[str, float]:
    """Mean over the three tasks of the median time: at full size, at uniform 288, and by tier."""
    _, samples = workload(study, mixed.TASKS, mixed.PER_TASK)
    by_tier = {tier: [sample for sample in samples if sample.tier == tier] for tier in mixed.BUDGETS}
    plans: dict[str, dict[str, int | None]] = {
        "full": dict.fromkeys(by_tier),
        "uniform": dict.fromkeys(by_tier, sum(mixed.BUDGETS.values()) // len(mixed.BUDGETS)),
        "tiered": dict(mixed.BUDGETS),
    }
    return {
        name: statistics.mean(median_ms(study, by_tier[tier], budgets[tier]) for tier in by_tier)
        for name, budgets in plans.items()
    }
