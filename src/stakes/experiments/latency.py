"""Latency: does a token saved save time? Milliseconds of one answer at each budget, by resizing, beside the error.

One question at a time, as a user waits for it; the median over questions after a warm-up. The deployed pair (576, 32)
and the mixed workload's tiers are means of what they are made of. Times are of this machine and this model: only ratios
can be set beside the published ones. Paper, table "Full latency sweep".
"""

import statistics
import time
from collections.abc import Sequence

from stakes.evaluation.asked import Asked
from stakes.evaluation.fingerprint import Setting
from stakes.experiments import mixed
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.models.base import Request
from stakes.published import figures

BUDGETS = (576, 448, 304, 160, 96, 32)
DEPLOYED = {"high": 576, "low": 32}
TIMED = 12  # questions timed one at a time at each budget
COLUMNS = ("source", "budget", "tokens", "error", "ms", "share of full")


def answers(study: Study) -> int:
    """How many answers it takes."""
    return len(BUDGETS) * 2 * study.per_tier + (len(BUDGETS) + 1 + 3 * len(mixed.BUDGETS)) * (TIMED + 1)


def table(study: Study) -> Table:
    """Time and error at each budget; the deployed pair; the mixed workload."""
    source = study.source("docvqa")
    asked = study.questions(source)
    setting = Setting("resolution", None, study.metric)
    found = study.answers(source, asked, [[budget] * len(asked) for budget in BUDGETS], setting)
    clock = {budget: timed(study, asked[:TIMED], budget) for budget in (None, *BUDGETS)}
    full = clock[None]
    rows: list[tuple[Cell, ...]] = [(study.name, "full", None, None, full, 1.0)]
    for budget in BUDGETS:
        of = [found[one.id, budget] for one in asked]
        tokens = sum(outcome.realised for outcome in of) / len(of)
        error = 1 - sum(outcome.correct for outcome in of) / len(of)
        rows.append((study.name, str(budget), round(tokens), error, clock[budget], clock[budget] / full))
    pair = (clock[DEPLOYED["high"]] + clock[DEPLOYED["low"]]) / 2
    rows.append((study.name, "(576, 32)", 304, None, pair, pair / full))
    workload = _mixed(study)
    rows += [
        (study.name, f"mixed workload, {name}", None, None, ms, ms / workload["full"]) for name, ms in workload.items()
    ]
    return Table(
        name="latency",
        title=f"Latency of one answer: {study.name} on {source}, by resolution",
        columns=COLUMNS,
        rows=(*rows, *_theirs()),
        findings=(
            f"32 tokens take {clock[32] / full:.0%} of the time at full resolution; the pair (576, 32) takes "
            f"{1 - pair / full:.0%} less (published: about 21 % less, on an A100 with a 7B model)",
        ),
        meta={"model": study.name, "data": source, "timed_questions": TIMED, "mechanism": "resolution"},
    )


def timed(study: Study, asked: Sequence[Asked], budget: int | None) -> float:
    """Median milliseconds of one question at a time."""
    took = []
    for k, one in enumerate([asked[0], *asked]):  # the first is a warm-up
        request = Request(one.load(), one.question, budget, "resolution")
        began = time.perf_counter()
        study.model.answer([request])
        if k:
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def _mixed(study: Study) -> dict[str, float]:
    """Mean over the three tasks of the median time: at full size, at uniform 288, and by tier."""
    asked = mixed.questions(study)
    of = {tier: [one for one in asked if one.tier == tier][:TIMED] for tier in mixed.BUDGETS}
    plans: dict[str, dict[str, int | None]] = {
        "full": dict.fromkeys(of),
        "uniform": dict.fromkeys(of, sum(mixed.BUDGETS.values()) // len(mixed.BUDGETS)),
        "tiered": dict(mixed.BUDGETS),
    }
    return {
        name: statistics.mean(timed(study, of[tier], budgets[tier]) for tier in of) for name, budgets in plans.items()
    }


def _theirs() -> list[tuple[Cell, ...]]:
    printed = figures()["latency_a100_resolution_ms"]
    full = printed["full"]["ms"]
    return [
        ("published", name, row["tokens"], None, row["ms"], row["ms"] / full)
        for name, row in printed.items()
        if isinstance(row, dict)
    ]
