"""Three tasks in three tiers.

Mixed workload: tiers by task identity (512, 256, 96) at costs 5, 3, 1, against uniform 288. The tier is metadata that
is free when a request arrives. Paper, table "Three-tier mixed workload".
"""

from stakes.experiments.estimate import Ask
from stakes.experiments.study import Study
from stakes.experiments.table import (
    EITHER_MECHANISM,
    RECOMPUTED,
    Row,
    Table,
    discordant_cells,
    format_interval,
    gain_cell,
    published_pair,
)
from stakes.experiments.tables.cross_task import workload, workload_asks
from stakes.published import figures

TASKS = {"docvqa": "high", "textvqa": "medium", "vqav2": "low"}
OPTIONS, DATASETS = EITHER_MECHANISM, tuple(TASKS)
BUDGETS = {"high": 512, "medium": 256, "low": 96}
COSTS = {"high": 5.0, "medium": 3.0, "low": 1.0}
PER_TASK = 120
COLUMNS = ("source", "arm", "high", "medium", "low", "CWE (5, 3, 1)", "b:c on high", "p", "CWE gain", "tokens")


def asks(study: Study) -> set[Ask]:
    """The four arms."""
    return workload_asks(study, TASKS, PER_TASK, BUDGETS)


def table(study: Study) -> Table:
    """Ours above the published rows."""
    arms = study.arms(*workload(study, TASKS, PER_TASK, "mixed"), BUDGETS, COSTS)
    cost, uniform = arms.rows["cost"].cwe, arms.rows["uniform"].cwe
    rows: list[Row] = [
        (study.name, row.arm, *(row.errors[tier] for tier in BUDGETS), row.cwe,
         *discordant_cells(row.high_cost), gain_cell(row), row.realised)
        for row in arms.comparison.rows
    ]  # fmt: skip
    return Table(
        name="mixed",
        title=f"Three-tier mixed workload: {study.name}, by {arms.plan.mechanism}",
        columns=COLUMNS,
        rows=(*rows, *_published()),
        findings=(
            f"tiers by task cut CWE by {1 - cost / uniform if uniform else 0:.0%} at equal tokens (published: "
            f"{figures()['mixed_workload']['cwe_reduction']:.0%})",
        ),
        meta={
            "model": study.name,
            "data": {dataset: study.source(dataset) for dataset in TASKS},
            "budgets": BUDGETS,
            "costs": COSTS,
            "total": arms.plan.total,
            "questions": len(arms.plan.samples),
            "deviation": arms.deviation,
        },
    )


def _published() -> list[Row]:
    printed = figures()["mixed_workload"]
    pairs = {"cost": printed["mcnemar_tiered"], "content": printed["mcnemar_content"]}
    gains = {"cost": format_interval(printed["delta_cwe_ci"])}
    names = {"uniform": "uniform", "content": "content", "tiered": "cost", "anti": "anti"}
    total = f"{printed['n'] * printed['uniform_budget']}{RECOMPUTED}"
    return [
        ("published", arm, *printed["arms"][name], *published_pair(pairs.get(arm)), gains.get(arm), total)
        for name, arm in names.items()
    ]
