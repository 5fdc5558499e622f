"""Latency: does a token saved save time? Milliseconds of one answer at each budget, by resizing, beside the error.

One question at a time, each on a page of its own and with nothing remembered of it, as a user waits for it; the median
over pages after a warm-up. The deployed pair (576, 32)
and the mixed workload's tiers are means of what they are made of. Times are of this machine and this model: only ratios
can be set beside the published ones. Paper, table "Full latency sweep".
"""

import statistics
import time
from collections.abc import Sequence

from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.experiments.tables import mixed
from stakes.models.base import Request
from stakes.published import figures

BUDGETS = (576, 448, 304, 160, 96, 32)
DEPLOYED = {"high": 576, "low": 32}
TIMED = 12  # pages timed one at a time at each budget
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
    clock = {budget: timed(study, asked, budget) for budget in (None, *BUDGETS)}
    full = clock[None]
    rows: list[tuple[Cell, ...]] = [(study.name, "full", None, None, full, 1.0)]
    spent = {}
    for budget in BUDGETS:
        of = [found[one.id, budget] for one in asked]
        spent[budget] = statistics.mean(outcome.realised for outcome in of)
        error = 1 - statistics.mean(outcome.correct for outcome in of)
        rows.append((study.name, str(budget), round(spent[budget]), error, clock[budget], clock[budget] / full))
    pair = statistics.mean(clock[budget] for budget in DEPLOYED.values())
    tokens = statistics.mean(spent[budget] for budget in DEPLOYED.values())
    rows.append((study.name, "(576, 32)", round(tokens), None, pair, pair / full))
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
        meta={"model": study.name, "data": source, "timed_pages": TIMED, "mechanism": "resolution"},
    )


def timed(study: Study, asked: Sequence[Asked], budget: int | None) -> float:
    """Median milliseconds of one question on each of the first pages, its image new to the model."""
    forget = getattr(study.model, "forget", None)
    pages = list({one.document: one for one in reversed(asked)}.values())[::-1][:TIMED]
    took = []
    for k, one in enumerate([pages[0], *pages]):  # the first is a warm-up
        request = Request(one.load(), one.question, budget, "resolution")
        if forget is not None:
            forget()
        began = time.perf_counter()
        study.model.answer([request])
        if k:
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def _mixed(study: Study) -> dict[str, float]:
    """Mean over the three tasks of the median time: at full size, at uniform 288, and by tier."""
    asked = mixed.questions(study)
    of = {tier: [one for one in asked if one.tier == tier] for tier in mixed.BUDGETS}
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
