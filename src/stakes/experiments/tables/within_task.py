"""Cost, content and anti against uniform on one task.

Within-task attribution: two tiers of equal sensitivity, so that only the cost label can explain a gain. Pre-specified
(512, 96) against uniform 304, content and anti, at one realized total; never the optimum of the same sample. Paper,
table "Within-task attribution result".
"""

from stakes.calibration.arms.plan import ARMS
from stakes.experiments.estimate import Ask, arm_asks, how
from stakes.experiments.study import Arms, Study
from stakes.experiments.table import (
    ARM_COLUMNS,
    EITHER_MECHANISM,
    Table,
    arm_rows,
    format_both_p,
    format_interval,
    published_arm_rows,
)
from stakes.published import figures

OPTIONS, DATASETS = EITHER_MECHANISM, ("docvqa",)
BUDGETS, COSTS = {"high": 512, "low": 96}, {"high": 5.0, "low": 1.0}


def asks(study: Study, dataset: str = "docvqa") -> set[Ask]:
    """The four arms."""
    source = study.source(dataset)
    return arm_asks(source, dict.fromkeys(BUDGETS, study.count(source)), BUDGETS, ARMS, how(study.mechanism))


def measure(study: Study, dataset: str = "docvqa") -> Arms:
    """The four arms."""
    source = study.source(dataset)
    return study.arms(source, study.questions(source), BUDGETS, COSTS)


def table(study: Study) -> Table:
    """Ours above the published rows."""
    source, arms = study.source("docvqa"), measure(study)
    printed = figures()["within_task_docvqa"]
    extra = {"cost": (format_interval(printed["delta_cwe_ci_r5"]), printed["break_even"])}
    return Table(
        name="within-task",
        title=f"Within-task attribution: {study.name} on {source}, by {arms.plan.mechanism}",
        columns=ARM_COLUMNS,
        rows=(
            *arm_rows(arms.comparison, study.name),
            *published_arm_rows(printed["arms"], printed["total_budget"], extra),
        ),
        findings=findings(arms),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "questions": dict(arms.comparison.counts),
            "documents": arms.comparison.documents,
            "budgets": BUDGETS,
            "total": arms.plan.total,
            "deviation": arms.deviation,
            "mechanism": arms.plan.mechanism,
        },
    )


def findings(arms: Arms) -> tuple[str, ...]:
    """The effect of each arm on the most expensive tier, in the paper's order of claims."""
    tier = arms.comparison.most_expensive
    before = arms.rows["uniform"].errors[tier]
    sentences = []
    for arm, claim in (("cost", "lower"), ("content", "indistinguishable"), ("anti", "higher")):
        row = arms.rows[arm]
        assert row.high_cost is not None
        after = row.errors[tier]
        effect = "indistinguishable" if row.high_cost.p >= 0.05 else "lower" if after < before else "higher"
        agrees = "as published" if effect == claim else f"published: {claim}"
        p = format_both_p(row.high_cost)
        sentences.append(f"{arm}: {tier}-tier error {before:.3f} -> {after:.3f}, {effect} (p = {p}; {agrees})")
    return tuple(sentences)
