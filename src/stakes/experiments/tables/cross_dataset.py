"""Three data sets of rising density.

Cross-dataset replication with the tier rule frozen: the denser the pages, the larger the gain. Paper, tables
"Cross-dataset replication" and "Full cross-dataset results".
"""

from stakes.experiments.estimate import Ask
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import (
    EITHER_MECHANISM,
    Row,
    Table,
    discordant_cells,
    format_interval,
    gain_cell,
    published_pair,
)
from stakes.experiments.tables import within_task
from stakes.experiments.tables.within_task import BUDGETS, COSTS, measure
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, ("chartqa", "docvqa", "infographicvqa")  # by rising density
COLUMNS = (
    "source", "data", "high: uniform", "cost", "anti", "content", "low: uniform", "cost", "b:c", "p", "CWE gain",
    "pays from r =",
)  # fmt: skip
HIGH_ARMS, LOW_ARMS = ("uniform", "cost", "anti", "content"), ("uniform", "cost")


def asks(study: Study) -> set[Ask]:
    """The four arms of each data set."""
    return {ask for dataset in DATASETS for ask in within_task.asks(study, dataset)}


def table(study: Study) -> Table:
    """One row per data set, ours above the published rows."""
    measured = {dataset: measure(study, dataset) for dataset in DATASETS}
    falls = {
        dataset: arms.rows["uniform"].errors["high"] - arms.rows["cost"].errors["high"]
        for dataset, arms in measured.items()
    }
    printed = figures()["printed_reductions"]["absolute"]
    order = sorted(DATASETS, key=lambda dataset: falls[dataset])
    listed = ", ".join(f"{study.source(dataset)} {falls[dataset]:.3f}" for dataset in DATASETS)
    return Table(
        name="cross-dataset",
        title=f"Cross-dataset replication: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=(*(_measured_row(study, dataset, arms) for dataset, arms in measured.items()), *map(_published, DATASETS)),
        findings=(
            f"fall of high-tier error from uniform to cost: {listed} (published: "
            f"{', '.join(f'{dataset} {printed[dataset]:.3f}' for dataset in DATASETS)}, rising with density)",
            "it rises with density, as published"
            if tuple(order) == DATASETS and len(set(falls.values())) == len(DATASETS)
            else "it does not rise with density as published: " + " < ".join(study.source(d) for d in order),
        ),
        meta={
            "model": study.name,
            "data": {dataset: study.source(dataset) for dataset in DATASETS},
            "budgets": BUDGETS,
            "costs": COSTS,
            "deviation": {study.source(dataset): arms.deviation for dataset, arms in measured.items()},
        },
    )


def _measured_row(study: Study, dataset: str, arms: Arms) -> Row:
    rows, cost = arms.rows, arms.rows["cost"]
    high, low = (rows[arm].errors["high"] for arm in HIGH_ARMS), (rows[arm].errors["low"] for arm in LOW_ARMS)
    cells = discordant_cells(cost.high_cost)
    return (study.name, study.source(dataset), *high, *low, *cells, gain_cell(cost), cost.break_even)


def _published(dataset: str) -> Row:
    printed = figures()["cross_dataset"][dataset]
    high, low = (printed["arms"][arm][0] for arm in HIGH_ARMS), (printed["arms"][arm][1] for arm in LOW_ARMS)
    gain = format_interval(printed["delta_cwe_ci_r5"])
    return ("published", dataset, *high, *low, *published_pair(printed["mcnemar_cost"]), gain, printed["break_even"])
