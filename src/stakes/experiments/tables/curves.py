"""Error at 13 budgets by both mechanisms, whether the tiers' slopes differ, and whether tokens ever harm.

Token-response curves for each tier. Paper, table "Token-response curves" (by deletion); resolution is set beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import PAPER_GRID
from stakes.budgets.curve_files import curves_from_outcomes
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.statistics import discordant
from stakes.experiments.estimate import Ask
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table, format_p, format_slopes
from stakes.experiments.tables import frontier
from stakes.models.base import Mechanism
from stakes.published import figures

OPTIONS, DATASETS = MEASURED, ("docvqa",)
MECHANISMS: tuple[Mechanism, ...] = ("resolution", "deletion")
TIERS = ("high", "low")
COLUMNS = ("source", "by", "tier", *(str(budget) for budget in PAPER_GRID))


def asks(study: Study) -> set[Ask]:
    """Both tiers at the 13 budgets, by both mechanisms."""
    return {ask for mechanism in MECHANISMS for ask in frontier.asks(replace(study, mechanism=mechanism))}


def table(study: Study) -> Table:
    """One row for each mechanism and tier: ours, then the published errors."""
    rows: list[Row] = []
    findings, tokens = [], {}
    for mechanism in MECHANISMS:
        try:
            samples, outcomes = frontier.measure(replace(study, mechanism=mechanism))
        except (BadInput, InfeasibleBudget) as error:
            # The smallest size of an AnyRes model takes more tokens than some budgets; a server cannot delete.
            findings.append(f"by {mechanism}: not measured: {error}")
            continue
        curves = curves_from_outcomes(outcomes)
        rows += [(study.name, mechanism, tier, *(curves[tier].error(b) for b in PAPER_GRID)) for tier in TIERS]
        correct = frontier.by_tier(samples, outcomes)
        test = frontier.compare_slopes(samples, correct)
        findings.append(f"by {mechanism}: " + ("no slopes can be compared" if test is None else format_slopes(test)))
        findings.append(f"by {mechanism}: {_reversal(samples, correct)}")
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


def _reversal(samples: Sequence[Sample], correct: Mapping[str, NDArray[np.bool_]]) -> str:
    """Whether more tokens make a tier worse: of all pairs of budgets, the rise that is least likely by chance."""
    rises = []
    pairs = list(combinations(range(len(PAPER_GRID)), 2))
    for tier, right in correct.items():
        documents = [sample.document for sample in samples if sample.tier == tier]
        for few, many in pairs:
            if right[:, many].sum() < right[:, few].sum():
                p = discordant(right[:, few], right[:, many], documents).p_by_document
                rises.append((1.0 if p is None else p, tier, few, many))
    if not rises:
        return "the error never rises with more tokens"
    p, tier, few, many = min(rises)
    before, after = (1 - correct[tier][:, at].mean() for at in (few, many))
    tests = len(correct) * len(pairs)
    adjusted = min(1.0, tests * p)
    verdict = "rises" if adjusted < 0.05 else "does not rise significantly"
    return (
        f"the error {verdict} with more tokens; the strongest rise is {tier} from {PAPER_GRID[few]} to "
        f"{PAPER_GRID[many]}, {before:.3f} -> {after:.3f}, p = {format_p(p)} by document, {format_p(adjusted)} by "
        f"Bonferroni for {tests} pairs of budgets"
    )
