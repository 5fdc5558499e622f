"""Both tiers at each budget of the paper's arms, with every selector.

The paper has the high tier at 304 and 512 tokens and the low tier at 304 and 96. Here both have all three, and the
fewest tokens with which a selector reaches the error that ``redundancy`` has at 304, on lines between them.
"""

from collections.abc import Iterator, Sequence

from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.experiments.estimate import Ask, grid_asks, how
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table
from stakes.experiments.tables.invariance import SELECTORS
from stakes.experiments.tables.within_task import COSTS

OPTIONS, DATASETS = MEASURED | {"--selector"}, ("docvqa",)
BUDGETS = (96, 304, 512)
REFERENCE, AT = "redundancy", 304


def asks(study: Study) -> set[Ask]:
    """Both tiers at each budget with each selector."""
    source = study.source("docvqa")
    tiers = {f"{source} {tier}": study.count(source) for tier in COSTS}
    return {ask for name in study.selectors or SELECTORS for ask in grid_asks(tiers, how("deletion", name), BUDGETS)}


def table(study: Study) -> Table:
    """One row for each selector and tier."""
    source = study.source("docvqa")
    samples = study.questions(source)
    rows: list[Row] = []
    findings = []
    for name in study.selectors or SELECTORS:
        setting = Setting("deletion", name, study.metric)
        try:
            outcomes = study.answers(source, samples, [[budget] * len(samples) for budget in BUDGETS], setting)
        except BadInput as error:
            findings.append(f"{name}: not measured: {error}")
            continue
        for tier in COSTS:
            own = [sample.id for sample in samples if sample.tier == tier]
            errors = [sum(not outcomes[key, budget].correct for key in own) / len(own) for budget in BUDGETS]
            rows.append((study.name, name, tier, *errors))
    if not rows:
        raise BadInput(f"no selector could be measured; {findings[0]}")
    return Table(
        name="selector-curves",
        title=f"Curves of selectors: {study.name} on {source}, by deletion",
        columns=("source", "selector", "tier", *map(str, BUDGETS)),
        rows=tuple(rows),
        findings=(*_tokens_needed(rows), *findings),
        meta={"model": study.name, "data": source, "split": study.split, "per_tier": study.count(source)},
    )


def _tokens_needed(rows: Sequence[Row]) -> Iterator[str]:
    """For each tier, what every selector needs for the reference's error."""
    for tier in COSTS:
        curves = {str(row[1]): [float(cell or 0) for cell in row[3:]] for row in rows if row[2] == tier}
        if REFERENCE not in curves:
            continue
        aim = curves[REFERENCE][BUDGETS.index(AT)]
        needed = {name: reached(errors, aim) for name, errors in curves.items() if name != REFERENCE}
        most = f"more than {BUDGETS[-1]}"
        listed = ", ".join(f"{name} {most if count is None else round(count)}" for name, count in needed.items())
        if listed:
            yield f"{tier}: for the error {aim:.3f} that {REFERENCE} has at {AT} tokens: {listed}"


def reached(errors: Sequence[float], aim: float) -> float | None:
    """The fewest tokens at which a curve is at ``aim`` or below, on lines between budgets; None: at none of them.

    >>> reached((0.9, 0.5, 0.1), 0.7)
    200.0
    """
    if errors[0] <= aim:
        return float(BUDGETS[0])
    for i in range(1, len(BUDGETS)):
        if errors[i] <= aim:
            share = (errors[i - 1] - aim) / (errors[i - 1] - errors[i])
            return BUDGETS[i - 1] + share * (BUDGETS[i] - BUDGETS[i - 1])
    return None
