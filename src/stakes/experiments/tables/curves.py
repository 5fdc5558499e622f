"""Error at 13 budgets by both mechanisms, and whether the tiers' slopes differ.

Token-response curves for each tier. Paper, table "Token-response curves" (by deletion); resolution is set beside it.
"""

from dataclasses import replace

from stakes.budgets.curve import PAPER_GRID
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.errors import InfeasibleBudget
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table, format_slopes
from stakes.experiments.tables import frontier
from stakes.models.base import Mechanism
from stakes.published import figures

OPTIONS, DATASETS = MEASURED, ("docvqa",)
MECHANISMS: tuple[Mechanism, ...] = ("resolution", "deletion")
TIERS = ("high", "low")
COLUMNS = ("source", "by", "tier", *(str(budget) for budget in PAPER_GRID))


def answers(study: Study) -> int:
    """The number of answers."""
    return len(MECHANISMS) * frontier.answers(study)


def table(study: Study) -> Table:
    """One row for each mechanism and tier: ours, then the published errors."""
    rows: list[Row] = []
    findings, tokens = [], {}
    for mechanism in MECHANISMS:
        try:
            samples, outcomes = frontier.measure(replace(study, mechanism=mechanism))
        except InfeasibleBudget as error:  # the smallest size of an AnyRes model takes more
            findings.append(f"by {mechanism}: not measured: {error}")
            continue
        curves = curves_from_outcomes(outcomes)
        rows += [(study.name, mechanism, tier, *(curves[tier].error(b) for b in PAPER_GRID)) for tier in TIERS]
        test = frontier.compare_slopes(samples, frontier.by_tier(samples, outcomes))
        findings.append(f"by {mechanism}: " + ("no slopes can be compared" if test is None else format_slopes(test)))
        spent = {budget: [o.realised for o in outcomes if o.budget == budget] for budget in PAPER_GRID}
        tokens[mechanism] = {budget: round(sum(each) / len(each), 1) for budget, each in spent.items()}
    printed = figures()["curves_docvqa"]
    rows += [("published", "deletion", tier, *(printed[tier].get(str(b)) for b in PAPER_GRID)) for tier in TIERS]
    return Table(
        name="curves",
        title=f"Token-response curves: {study.name} on {study.source('docvqa')}",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(*findings, "published: the slopes do not differ significantly"),
        meta={
            "model": study.name,
            "data": study.source("docvqa"),
            "split": study.split,
            "per_tier": study.per_tier,
            "metric": study.metric,
            "mean realised tokens": tokens,
        },
    )
