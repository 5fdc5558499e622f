"""Cross-task diagnostic: dense pages against solid colours. A content allocator wins without any cost label.

With a sensitivity gap and no real cost gap nothing can be attributed to consequences. Paper, table "Cross-task
diagnostic".
"""

from dataclasses import replace

from stakes.evaluation.items import Asked
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import COLUMNS, Table, measured_rows, published_rows
from stakes.experiments.tables.within_task import BUDGETS, COSTS
from stakes.published import figures

PER_TASK = 60


def answers(study: Study) -> int:
    """How many answers it takes."""
    return 4 * 2 * min(PER_TASK, study.per_tier)


def questions(study: Study, dense: str, plain: str, count: int) -> list[Asked]:
    """``count`` of each task; the dense one is called high and the other low, whatever is asked."""
    pages = [replace(one, tier="high") for one in one_task(study, dense, count)]
    return pages + [replace(one, tier="low") for one in one_task(study, plain, count)]


def one_task(study: Study, source: str, count: int) -> list[Asked]:
    """``count`` questions of one data set, of both tiers as they come."""
    return study.questions(source, -(-count // 2) if source != "swatches" else count)[:count]


def measure(study: Study) -> Arms:
    """The four arms over both tasks."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    asked = questions(study, dense, plain, min(PER_TASK, study.per_tier))
    return study.arms(f"{dense}+{plain}", asked, BUDGETS, COSTS)


def table(study: Study) -> Table:
    """Ours above the published ones."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    found, printed = measure(study), figures()["cross_task"]
    rows = {row.arm: row for row in found.comparison.rows}
    content, cost = rows["content"], rows["cost"]
    better = "lower" if content.cwe < cost.cwe else "not lower"
    high = [found.plan.nominal["content"][i] for i in range(len(found.plan.samples) // 2)]
    return Table(
        name="cross-task",
        title=f"Cross-task diagnostic: {study.name} on {dense} and {plain}, by {found.plan.mechanism}",
        columns=COLUMNS,
        rows=(
            *measured_rows(found.comparison, study.name),
            *published_rows(printed["arms"], printed["total_budget"], {}),
        ),
        findings=(
            f"content, which reads no label, has {better} CWE than cost: {content.cwe:.3f} against {cost.cwe:.3f} "
            "(published: lower, 0.042 against 0.097)",
            f"content gives {dense} {sum(high) / len(high):.0f} tokens on average, uniform "
            f"{found.plan.total / len(found.plan.samples):.0f}",
        ),
        meta={
            "model": study.name,
            "data": [dense, plain],
            "questions": len(found.plan.samples),
            "total": found.plan.total,
            "deviation": found.deviation,
        },
    )
