"""Metric robustness: the same answers graded anew. Do direction and significance hold under stricter metrics?

Uniform against cost, high tier and CWE, under relaxed containment, exact match and ANLS at 0.5; no model is asked
again. Paper, table "Metric robustness".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stakes.calibration.arms.comparison import Comparison, compare
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.items import Asked
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import mcnemar
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table, spell_p
from stakes.experiments.tables.cross_dataset import DATASETS
from stakes.experiments.tables.within_task import BUDGETS, COSTS, measure
from stakes.published import figures

METRICS = ("relaxed", "exact", "anls")
COLUMNS = ("source", "data", "metric", "high: uniform", "cost", "CWE: uniform", "cost", "b:c", "p")


def answers(study: Study) -> int:
    """How many answers it takes beyond the cross-dataset table's: none."""
    return len(DATASETS) * 4 * 2 * study.per_tier


def table(study: Study) -> Table:
    """Three data sets under three metrics, ours above the published ones."""
    rows: list[tuple[Cell, ...]] = []
    failing = []
    for dataset in DATASETS:
        source = study.source(dataset)
        asked, found = study.questions(source), measure(study, dataset)
        for metric in METRICS:
            compared = regraded(found.outcomes, asked, metric)
            uniform, cost = (next(r for r in compared.rows if r.arm == arm) for arm in ("uniform", "cost"))
            assert cost.dear is not None
            if not (cost.errors["high"] < uniform.errors["high"] and cost.dear.p < 1e-4):
                failing.append(f"{source} under {metric} (p = {spell_p(cost.dear.p)})")
            balance = f"{cost.dear.b}:{cost.dear.c}"
            high, both = (uniform.errors["high"], cost.errors["high"]), (uniform.cwe, cost.cwe)
            rows.append((study.name, source, metric, *high, *both, balance, spell_p(cost.dear.p)))
    said = "every one lowers high-tier error with p < 1e-4, as the paper says of its own"
    return Table(
        name="metrics",
        title=f"Metric robustness: {study.name}, by {study.mechanism}",
        columns=COLUMNS,
        rows=(*rows, *_theirs()),
        findings=(f"not so, at p < 1e-4: {'; '.join(failing)}" if failing else said,),
        meta={"model": study.name, "budgets": BUDGETS, "costs": COSTS},
    )


def regraded(arms: Mapping[str, Sequence[Outcome]], asked: Sequence[Asked], metric: str) -> Comparison:
    """The arms' answers under another metric."""
    answers = {one.id: one.answers for one in asked}

    def again(outcome: Outcome) -> Outcome:
        score = grade(outcome.prediction, answers[outcome.sample], metric, truncated=outcome.truncated)
        return replace(outcome, score=score, correct=is_correct(score), metric=metric)

    return compare({arm: [again(outcome) for outcome in outcomes] for arm, outcomes in arms.items()}, COSTS)


def _theirs() -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for dataset in DATASETS:
        for metric in METRICS:
            row = figures()["metric_robustness"][dataset][metric]
            b, c = row["mcnemar"]
            rows.append(("published", dataset, metric, *row["high"], *row["cwe"], f"{b}:{c}", spell_p(mcnemar(b, c))))
    return rows
