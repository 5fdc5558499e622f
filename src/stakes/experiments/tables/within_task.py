"""Within-task attribution: one task, two tiers of equal sensitivity. Does spending by cost help, and only that?

Pre-specified (512, 96) against uniform 304, content and anti, at one realised total. Never the optimum of the same
sample. Paper, table "Within-task attribution result".
"""

from stakes.experiments.study import Arms, Study
from stakes.experiments.table import COLUMNS, Table, measured_rows, published_rows, spell_interval, spell_p
from stakes.published import figures

BUDGETS, COSTS = {"high": 512, "low": 96}, {"high": 5.0, "low": 1.0}


def answers(study: Study) -> int:
    """How many answers it takes."""
    return 4 * 2 * study.per_tier


def measure(study: Study, dataset: str = "docvqa") -> Arms:
    """The four arms."""
    source = study.source(dataset)
    return study.arms(source, study.questions(source), BUDGETS, COSTS)


def table(study: Study) -> Table:
    """Ours above the published ones."""
    source, found = study.source("docvqa"), measure(study)
    printed = figures()["within_task_docvqa"]
    gain = spell_interval(printed["delta_cwe_ci_r5"])
    theirs = published_rows(printed["arms"], printed["total_budget"], {"cost": (gain, printed["break_even"])})
    return Table(
        name="within-task",
        title=f"Within-task attribution: {study.name} on {source}, by {found.plan.mechanism}",
        columns=COLUMNS,
        rows=(*measured_rows(found.comparison, study.name), *theirs),
        findings=findings(found),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "questions": dict(found.comparison.counts),
            "documents": found.comparison.documents,
            "budgets": BUDGETS,
            "total": found.plan.total,
            "deviation": found.deviation,
            "mechanism": found.plan.mechanism,
        },
    )


def findings(found: Arms) -> tuple[str, ...]:
    """What the arms say, in the paper's order of claims."""
    rows = {row.arm: row for row in found.comparison.rows}
    dear = found.comparison.dearest
    before = rows["uniform"].errors[dear]
    said = []
    for arm, claim in (("cost", "lower"), ("content", "indistinguishable"), ("anti", "higher")):
        row = rows[arm]
        assert row.dear is not None
        after = row.errors[dear]
        seen = "indistinguishable" if row.dear.p >= 0.05 else "lower" if after < before else "higher"
        agrees = "as published" if seen == claim else f"published: {claim}"
        said.append(
            f"{arm}: {dear}-tier error {before:.3f} -> {after:.3f}, {seen} (p = {spell_p(row.dear.p)}; {agrees})"
        )
    return tuple(said)
