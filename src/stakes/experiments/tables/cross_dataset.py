"""Cross-dataset replication: three densities, the tier rule frozen. The denser the pages, the larger the gain.

Paper, tables "Cross-dataset replication" and "Full cross-dataset results".
"""

from stakes.experiments.study import Arms, Study
from stakes.experiments.table import Cell, Table, spell_interval, spell_p
from stakes.experiments.tables.within_task import BUDGETS, COSTS, measure
from stakes.published import figures

DATASETS = ("chartqa", "docvqa", "infographicvqa")  # by rising density
COLUMNS = (
    "source", "data", "high: uniform", "cost", "anti", "content", "low: uniform", "cost", "b:c", "p", "CWE gain",
    "pays from r =",
)  # fmt: skip


def answers(study: Study) -> int:
    """How many answers it takes."""
    return len(DATASETS) * 4 * 2 * study.per_tier


def table(study: Study) -> Table:
    """One row a data set, ours above the published ones."""
    found = {dataset: measure(study, dataset) for dataset in DATASETS}
    falls = {dataset: _fall(arms) for dataset, arms in found.items()}
    order = sorted(DATASETS, key=lambda dataset: falls[dataset])
    said = ", ".join(f"{study.source(dataset)} {falls[dataset]:.3f}" for dataset in DATASETS)
    return Table(
        name="cross-dataset",
        title=f"Cross-dataset replication: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=(*(_ours(study, dataset, arms) for dataset, arms in found.items()), *map(_theirs, DATASETS)),
        findings=(
            f"fall of high-tier error from uniform to cost: {said} (published: chartqa 0.100, docvqa 0.167, "
            "infographicvqa 0.250, rising with density)",
            "it rises with density, as published"
            if tuple(order) == DATASETS
            else "it does not rise with density as published: " + " < ".join(study.source(d) for d in order),
        ),
        meta={
            "model": study.name,
            "data": {dataset: study.source(dataset) for dataset in DATASETS},
            "budgets": BUDGETS,
            "costs": COSTS,
            "deviation": {study.source(dataset): arms.deviation for dataset, arms in found.items()},
        },
    )


def _fall(arms: Arms) -> float:
    rows = {row.arm: row for row in arms.comparison.rows}
    return rows["uniform"].errors["high"] - rows["cost"].errors["high"]


def _ours(study: Study, dataset: str, arms: Arms) -> tuple[Cell, ...]:
    rows = {row.arm: row for row in arms.comparison.rows}
    cost = rows["cost"]
    assert cost.dear is not None
    return (
        study.name,
        study.source(dataset),
        *(rows[arm].errors["high"] for arm in ("uniform", "cost", "anti", "content")),
        *(rows[arm].errors["low"] for arm in ("uniform", "cost")),
        f"{cost.dear.b}:{cost.dear.c}",
        spell_p(cost.dear.p),
        str(cost.gain),
        cost.break_even,
    )


def _theirs(dataset: str) -> tuple[Cell, ...]:
    from stakes.evaluation.statistics import mcnemar

    printed = figures()["cross_dataset"][dataset]
    arms, (b, c) = printed["arms"], printed["mcnemar_cost"]
    return (
        "published",
        dataset,
        *(arms[arm][0] for arm in ("uniform", "cost", "anti", "content")),
        *(arms[arm][1] for arm in ("uniform", "cost")),
        f"{b}:{c}",
        spell_p(mcnemar(b, c)),
        spell_interval(printed["delta_cwe_ci_r5"]),
        printed["break_even"],
    )
