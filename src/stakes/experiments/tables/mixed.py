"""Mixed workload: three tasks, three tiers by task identity (512, 256, 96) at costs 5, 3, 1, against uniform 288.

The tier is metadata that is free when a request comes. Paper, table "Three-tier mixed workload".
"""

from dataclasses import replace

from stakes.evaluation.items import Asked
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import Cell, Table, spell_interval, spell_p
from stakes.experiments.tables.cross_task import one_task
from stakes.published import figures

TASKS = {"docvqa": "high", "textvqa": "medium", "vqav2": "low"}
BUDGETS = {"high": 512, "medium": 256, "low": 96}
COSTS = {"high": 5.0, "medium": 3.0, "low": 1.0}
PER_TASK = 120
COLUMNS = ("source", "arm", "high", "medium", "low", "CWE (5, 3, 1)", "b:c on high", "p", "CWE gain", "tokens")
PUBLISHED = {"uniform": "uniform", "content": "content", "tiered": "cost", "anti": "anti"}


def answers(study: Study) -> int:
    """How many answers it takes."""
    return 4 * len(TASKS) * min(PER_TASK, study.per_tier)


def questions(study: Study) -> list[Asked]:
    """The three tasks' questions, each task of one tier."""
    count = min(PER_TASK, study.per_tier)
    return [
        replace(one, tier=tier)
        for dataset, tier in TASKS.items()
        for one in one_task(study, study.source(dataset), count)
    ]


def measure(study: Study) -> Arms:
    """The four arms over the workload."""
    name = "+".join(study.source(dataset) for dataset in TASKS)
    return study.arms(name, questions(study), BUDGETS, COSTS)


def table(study: Study) -> Table:
    """Ours above the published ones."""
    found = measure(study)
    rows = {row.arm: row for row in found.comparison.rows}
    fall = 1 - rows["cost"].cwe / rows["uniform"].cwe if rows["uniform"].cwe else 0.0
    return Table(
        name="mixed",
        title=f"Three-tier mixed workload: {study.name}, by {found.plan.mechanism}",
        columns=COLUMNS,
        rows=(*_ours(study.name, found), *_theirs()),
        findings=(f"tiers by task cut CWE by {fall:.0%} at equal tokens (published: 38 %)",),
        meta={
            "model": study.name,
            "data": {dataset: study.source(dataset) for dataset in TASKS},
            "budgets": BUDGETS,
            "costs": COSTS,
            "total": found.plan.total,
            "questions": len(found.plan.samples),
            "deviation": found.deviation,
        },
    )


def _ours(source: str, found: Arms) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for row in found.comparison.rows:
        head: tuple[Cell, ...] = (source, row.arm, *(row.errors[tier] for tier in BUDGETS), row.cwe)
        if row.dear is None:
            rows.append((*head, None, None, None, row.realised))
        else:
            rows.append((*head, f"{row.dear.b}:{row.dear.c}", spell_p(row.dear.p), str(row.gain), row.realised))
    return rows


def _theirs() -> list[tuple[Cell, ...]]:
    from stakes.evaluation.statistics import mcnemar

    printed = figures()["mixed_workload"]
    pairs = {"cost": printed["mcnemar_tiered"], "content": printed["mcnemar_content"]}
    rows: list[tuple[Cell, ...]] = []
    for name, arm in PUBLISHED.items():
        pair = pairs.get(arm)
        balance, p = (f"{pair[0]}:{pair[1]}", spell_p(mcnemar(*pair))) if pair else (None, None)
        gain = spell_interval(printed["delta_cwe_ci"]) if arm == "cost" else None
        rows.append(
            ("published", arm, *printed["arms"][name], balance, p, gain, printed["n"] * printed["uniform_budget"])
        )
    return rows
