"""Dense pages against solid colors.

Cross-task diagnostic: a content allocator wins without any cost label. With a sensitivity gap and no real cost gap
nothing can be attributed to consequences. Paper, table "Cross-task diagnostic".
"""

from collections.abc import Mapping
from dataclasses import replace

from stakes.data.sample import Sample
from stakes.experiments.study import Study
from stakes.experiments.table import ARM_COLUMNS, EITHER_MECHANISM, Table, arm_rows, published_arm_rows
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.published import figures

TASKS = {"docvqa": "high", "solid_color": "low"}
OPTIONS, DATASETS = EITHER_MECHANISM, tuple(TASKS)
PER_TASK = 60


def answers(study: Study) -> int:
    """The number of answers."""
    return 4 * 2 * min(PER_TASK, study.per_tier)


def workload(study: Study, tasks: Mapping[str, str] = TASKS, per_task: int = PER_TASK) -> tuple[str, list[Sample]]:
    """The name and the samples of some tasks, each of one tier, whatever is asked: dense pages high, colors low."""
    samples = [
        replace(sample, tier=tier)
        for dataset, tier in tasks.items()
        for sample in one_task(study, study.source(dataset), min(per_task, study.per_tier))
    ]
    return "+".join(map(study.source, tasks)), samples


def one_task(study: Study, source: str, count: int) -> list[Sample]:
    """``count`` samples of one data set, of both tiers as they come."""
    return study.questions(source, -(-count // 2) if source != "swatches" else count)[:count]


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
