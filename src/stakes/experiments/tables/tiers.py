"""One, two, three and four tiers at one total.

Four groups of questions of one task, whose mistakes cost 10, 5, 2 and 1. They differ in nothing else: groups go by
turns within the pages' own tiers. A policy of four tiers has a budget for each, one of three or two merges neighbors,
one of one tier is uniform. Budgets are specified beforehand, on the paper's grid, with a mean of 304. The paper has two
tiers within a task, and three only across tasks. By deletion, where totals are exact.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stakes.calibration.arms import by_tier
from stakes.calibration.arms.comparison import compare
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.statistics import cwe_gain
from stakes.experiments.estimate import Ask, grid_asks, how
from stakes.experiments.sampling import first_of_each_tier
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells, gain_cell

OPTIONS, DATASETS = MEASURED, ("docvqa",)
COSTS = {"first": 10.0, "second": 5.0, "third": 2.0, "fourth": 1.0}
POLICIES = {
    "uniform": (304, 304, 304, 304),
    "two tiers": (512, 512, 96, 96),
    "three tiers": (512, 304, 304, 96),
    "four tiers": (544, 384, 224, 64),
    "four tiers, reversed": (64, 224, 384, 544),
}
COLUMNS = (
    "source", "policy", "budgets", *(f"error at cost {cost:g}" for cost in COSTS.values()), "CWE", "b:c at cost 10",
    "p", "CWE gain", "gain over two tiers", "tokens",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """Each group at every budget that a policy gives it."""
    source = study.source("docvqa")
    count = _group_size(study.count(source))
    return {
        ask
        for i, group in enumerate(COSTS)
        for ask in grid_asks({f"{source} {group}": count}, how("deletion"), {each[i] for each in POLICIES.values()})
    }


def _group_size(per_tier: int) -> int:
    """Questions of a group: a quarter of both tiers, in whole turns."""
    return 2 * (per_tier // len(COSTS))


def groups(samples: Sequence[Sample], per_tier: int) -> list[Sample]:
    """The samples in four groups by turns within their own tiers, so that no group is easier than another."""
    turns: Counter[str] = Counter()
    names, grouped = list(COSTS), []
    for sample in first_of_each_tier(samples, per_tier // len(names) * len(names)):
        grouped.append(replace(sample, tier=names[turns[sample.tier] % len(names)]))
        turns[sample.tier] += 1
    if not grouped:
        raise BadInput(f"four groups need at least four questions of each tier, not {per_tier}; raise --per-tier")
    return grouped


def table(study: Study) -> Table:
    """One row for each policy."""
    source = study.source("docvqa")
    samples = groups(study.questions(source), study.count(source))
    tiers, documents = [sample.tier for sample in samples], [sample.document for sample in samples]
    arms = {name: by_tier(tiers, dict(zip(COSTS, budgets, strict=True))) for name, budgets in POLICIES.items()}
    outcomes = study.answer_arms(source, samples, arms, Setting("deletion", None, study.metric))
    right = {arm: [outcome.correct for outcome in given] for arm, given in outcomes.items()}
    prices = [COSTS[tier] for tier in tiers]
    over = {arm: cwe_gain(right["two tiers"], each, prices, documents) for arm, each in right.items()}
    compared = compare(outcomes, COSTS)
    rows: list[Row] = [
        (study.name, row.arm, ", ".join(map(str, POLICIES[row.arm])), *(row.errors[tier] for tier in COSTS), row.cwe,
         *discordant_cells(row.high_cost), gain_cell(row), None if row.arm == "two tiers" else str(over[row.arm]),
         row.realised)
        for row in compared.rows
    ]  # fmt: skip
    return Table(
        name="tiers",
        title=f"One to four tiers: {study.name} on {source}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=(_finding({row.arm: row.cwe for row in compared.rows}),),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "costs": COSTS,
            "questions": dict(compared.counts),
            "documents": compared.documents,
        },
    )


def _finding(cwe: Mapping[str, float]) -> str:
    order = sorted(cwe, key=lambda name: cwe[name])
    return "CWE from low to high: " + ", ".join(f"{name} {cwe[name]:.3f}" for name in order)
