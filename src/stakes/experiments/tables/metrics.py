"""The same answers under stricter metrics.

Metric robustness: uniform against cost, high tier and CWE, under relaxed containment, exact match and ANLS at 0.5. The
answers are graded again; no model is asked. Paper, table "Metric robustness".
"""

from collections.abc import Mapping, Sequence

from stakes.calibration.arms.comparison import Comparison, compare
from stakes.data.sample import Sample
from stakes.evaluation.outcome_log import Outcome
from stakes.experiments.study import Study
from stakes.experiments.table import EITHER_MECHANISM, Row, Table, discordant_cells, format_both_p
from stakes.experiments.tables import cross_dataset
from stakes.experiments.tables.within_task import BUDGETS, COSTS, measure
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, cross_dataset.DATASETS
METRICS = ("relaxed", "exact", "anls")
COLUMNS = ("source", "data", "metric", "high: uniform", "cost", "CWE: uniform", "cost", "b:c", "p")


asks = cross_dataset.asks  # the same answers, graded again


def table(study: Study) -> Table:
    """Three data sets under three metrics, ours above the published rows."""
    rows: list[Row] = []
    failing = []
    for dataset in DATASETS:
        source = study.source(dataset)
        samples, arms = study.questions(source), measure(study, dataset)
        for metric in METRICS:
            compared = {row.arm: row for row in regrade(study, arms.outcomes, samples, metric).rows}
            uniform, cost = compared["uniform"], compared["cost"]
            assert cost.high_cost is not None
            if not (cost.errors["high"] < uniform.errors["high"] and cost.high_cost.p < 1e-4):
                failing.append(f"{source} under {metric} (p = {format_both_p(cost.high_cost)})")
            high, cwe = (uniform.errors["high"], cost.errors["high"]), (uniform.cwe, cost.cwe)
            rows.append((study.name, source, metric, *high, *cwe, *discordant_cells(cost.high_cost)))
    for dataset in DATASETS:
        for metric in METRICS:
            row = figures()["metric_robustness"][dataset][metric]
            b, c = row["mcnemar"]
            rows.append(("published", dataset, metric, *row["high"], *row["cwe"], f"{b}:{c}", "< 1e-4"))
    holds = "every one lowers high-tier error with p < 1e-4, as the paper says of its own"
    return Table(
        name="metrics",
        title=f"Metric robustness: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(f"not so, at p < 1e-4: {'; '.join(failing)}" if failing else holds,),
        meta={"model": study.name, "budgets": BUDGETS, "costs": COSTS},
    )


def regrade(study: Study, arms: Mapping[str, Sequence[Outcome]], samples: Sequence[Sample], metric: str) -> Comparison:
    """The arms' answers under another metric."""
    by_id = {sample.id: sample for sample in samples}
    graded = {
        arm: [study.regrade(outcome, by_id[outcome.sample], metric) for outcome in outcomes]
        for arm, outcomes in arms.items()
    }
    return compare(graded, COSTS)
