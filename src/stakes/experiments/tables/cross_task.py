"""Dense pages against solid colors.

Cross-task diagnostic: a content allocator wins without any cost label. With a sensitivity gap and no real cost gap
nothing can be attributed to consequences. Paper, table "Cross-task diagnostic".
"""

from collections.abc import Mapping
from dataclasses import replace

from stakes.calibration.arms.plan import ARMS
from stakes.data.sample import Sample
from stakes.experiments.estimate import Ask, arm_asks, how
from stakes.experiments.study import Study
from stakes.experiments.table import ARM_COLUMNS, EITHER_MECHANISM, Table, arm_rows, published_arm_rows
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.published import figures

TASKS = {"docvqa": "high", "solid_color": "low"}
OPTIONS, DATASETS = EITHER_MECHANISM, tuple(TASKS)
PER_TASK = 60


def asks(study: Study) -> set[Ask]:
    """The four arms."""
    return workload_asks(study, TASKS, PER_TASK, BUDGETS)


def workload_asks(study: Study, tasks: Mapping[str, str], per_task: int, budgets: Mapping[str, int]) -> set[Ask]:
    """The four arms of a workload of tasks."""
    counts = dict.fromkeys(budgets, min(per_task, study.per_tier))
    return arm_asks("+".join(map(study.source, tasks)), counts, budgets, ARMS, how(study.mechanism))


def workload(
    study: Study, tasks: Mapping[str, str] = TASKS, per_task: int = PER_TASK, name: str = "cross_task"
) -> tuple[str, list[Sample]]:
    """The name and the samples of some tasks, each of one tier, whatever is asked: dense pages high, colors low."""
    samples = [
        replace(sample, tier=tier)
        for dataset, tier in tasks.items()
        for sample in study.first(study.source(dataset), min(per_task, study.per_tier), name)
    ]
    return "+".join(map(study.source, tasks)), samples


def table(study: Study) -> Table:
    """Ours above the published rows."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    arms, printed = study.arms(*workload(study), BUDGETS, COSTS), figures()["cross_task"]
    content, cost = arms.rows["content"], arms.rows["cost"]
    better = "lower" if content.cwe < cost.cwe else "not lower"
    count = len(arms.plan.samples)
    on_pages = arms.plan.nominal["content"][: count // 2]
    return Table(
        name="cross-task",
        title=f"Cross-task diagnostic: {study.name} on {dense} and {plain}, by {arms.plan.mechanism}",
        columns=ARM_COLUMNS,
        rows=(
            *arm_rows(arms.comparison, study.name),
            *published_arm_rows(printed["arms"], printed["total_budget"], {}),
        ),
        findings=(
            f"content, which reads no label, has {better} CWE than cost: {content.cwe:.3f} against {cost.cwe:.3f} "
            "(published: lower, 0.042 against 0.097)",
            f"content gives {dense} {sum(on_pages) / len(on_pages):.0f} tokens on average, uniform "
            f"{arms.plan.total / count:.0f}",
        ),
        meta={
            "model": study.name,
            "data": [dense, plain],
            "questions": count,
            "total": arms.plan.total,
            "deviation": arms.deviation,
        },
    )
