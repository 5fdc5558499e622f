"""Token-response curves: error at 13 budgets, by resizing and by deletion, for each tier. Do the tiers fall alike?

Paper, table "Token-response curves" (by deletion); the second mechanism stands beside it.
"""

from dataclasses import replace

from stakes.budgets.curve import PAPER_GRID
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.errors import InfeasibleBudget
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table, spell_slopes
from stakes.experiments.tables import frontier
from stakes.models.base import Mechanism
from stakes.published import figures

BY: tuple[Mechanism, ...] = ("resolution", "deletion")
TIERS = ("high", "low")
COLUMNS = ("source", "by", "tier", *(str(budget) for budget in PAPER_GRID))


def answers(study: Study) -> int:
    """How many answers it takes."""
    return len(BY) * frontier.answers(study)


def table(study: Study) -> Table:
    """One row for each mechanism and tier: ours, then the published errors."""
    rows: list[tuple[Cell, ...]] = []
    findings, tokens = [], {}
    for mechanism in BY:
        try:
            asked, outcomes = frontier.measure(replace(study, mechanism=mechanism))
        except InfeasibleBudget as error:  # an AnyRes model has no rung so low
            findings.append(f"by {mechanism}: not measured: {error}")
            continue
        curves = curves_from_outcomes(outcomes)
        rows += [(study.name, mechanism, tier, *(curves[tier].error(b) for b in PAPER_GRID)) for tier in TIERS]
        found = frontier.slopes(asked, frontier.by_tier(asked, outcomes))
        findings.append(f"by {mechanism}: " + ("no slopes can be compared" if found is None else spell_slopes(found)))
        spent = {b: [o.realised for o in outcomes if o.budget == b] for b in PAPER_GRID}
        tokens[mechanism] = {budget: round(sum(of) / len(of), 1) for budget, of in spent.items()}
    printed = figures()["curves_docvqa"]
    rows += [("published", "deletion", tier, *(printed[tier].get(str(b)) for b in PAPER_GRID)) for tier in TIERS]
    return Table(
        name="curves",
        title=f"Token-response curves: {study.name} on {study.source('docvqa')}",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(*findings, "published: the slopes are not told apart"),
        meta={
            "model": study.name,
            "data": study.source("docvqa"),
            "split": study.split,
            "per_tier": study.per_tier,
            "metric": study.metric,
            "mean realised tokens": tokens,
        },
    )
