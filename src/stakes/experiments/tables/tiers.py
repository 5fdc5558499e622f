"""One, two, three and four tiers at one total.

Four groups of questions of one task, whose mistakes cost 10, 5, 2 and 1. They differ in nothing else: groups go by
turns within the pages' own tiers. A policy of four tiers has a budget for each group, one of three or two merges
neighbors, one of one tier is uniform at 304. What is merged, and the budgets, are chosen on the error curve of one half
of the documents and tested on the other half, and the reverse. The paper has two tiers within a task, and three only
across tasks. By deletion, where totals are exact.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

from stakes.budgets.curve import PAPER_GRID
from stakes.calibration.arms.comparison import compare
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.runner import Key
from stakes.evaluation.statistics import cwe_gain
from stakes.experiments.estimate import Ask
from stakes.experiments.study import Study
from stakes.experiments.table import MEASURED, Row, Table, discordant_cells, gain_cell
from stakes.experiments.tables import frontier

OPTIONS, DATASETS = MEASURED, ("docvqa",)
COSTS = {"first": 10.0, "second": 5.0, "third": 2.0, "fourth": 1.0}
TOTAL = len(COSTS) * frontier.UNIFORM
POLICIES = {"two tiers": 2, "three tiers": 3, "four tiers": 4}
COLUMNS = (
    "source", "policy", "budgets of each half", *(f"error at cost {cost:g}" for cost in COSTS.values()), "CWE",
    "b:c at cost 10", "p", "CWE gain", "gain over two tiers", "tokens",
)  # fmt: skip


def asks(study: Study) -> set[Ask]:
    """All questions at the 13 budgets: curves to choose from."""
    return frontier.asks(replace(study, mechanism="deletion"))


def table(study: Study) -> Table:
    """One row for each policy."""
    source, setting = study.source("docvqa"), Setting("deletion", None, study.metric)
    samples = study.questions(source)
    answered = study.answers(source, samples, [[budget] * len(samples) for budget in PAPER_GRID], setting)
    halves = groups(samples)
    curves = [error_curve(half, answered) for half in halves]
    chosen = {"uniform": [(frontier.UNIFORM,) * len(COSTS)] * 2}
    chosen |= {name: [choose(curve, count) for curve in reversed(curves)] for name, count in POLICIES.items()}
    chosen["four tiers, reversed"] = [budgets[::-1] for budgets in chosen["four tiers"]]
    outcomes = {name: _outcomes(halves, budgets, answered) for name, budgets in chosen.items()}
    compared = compare(outcomes, COSTS)
    right = {name: [outcome.correct for outcome in given] for name, given in outcomes.items()}
    tested = [sample for half in halves for sample in half]
    prices, documents = [COSTS[sample.tier] for sample in tested], [sample.document for sample in tested]
    over = {name: str(cwe_gain(right["two tiers"], each, prices, documents)) for name, each in right.items()}
    rows: list[Row] = [
        (study.name, row.arm, "; ".join(", ".join(map(str, budgets)) for budgets in dict.fromkeys(chosen[row.arm])),
         *(row.errors[tier] for tier in COSTS), row.cwe, *discordant_cells(row.high_cost), gain_cell(row),
         None if row.arm == "two tiers" else over[row.arm], row.realised)
        for row in compared.rows
    ]  # fmt: skip
    order = sorted(compared.rows, key=lambda row: row.cwe)
    return Table(
        name="tiers",
        title=f"One to four tiers: {study.name} on {source}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=("CWE from low to high: " + ", ".join(f"{row.arm} {row.cwe:.3f}" for row in order),),
        meta={
            "model": study.name,
            "data": source,
            "split": study.split,
            "costs": COSTS,
            "questions": dict(compared.counts),
            "documents": compared.documents,
        },
    )


def groups(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Two halves of the documents, each in four groups of one size by turns within the samples' own tiers.

    A few samples at the end of a half are left out, so that groups are equal and budgets that add up spend one total.
    """
    half_of = {document: i % 2 for i, document in enumerate(dict.fromkeys(sample.document for sample in samples))}
    names = list(COSTS)
    whole = {
        key: count // len(names) * len(names)
        for key, count in Counter((half_of[sample.document], sample.tier) for sample in samples).items()
    }
    halves: tuple[list[Sample], list[Sample]] = [], []
    turns: Counter[tuple[int, str]] = Counter()
    for sample in samples:
        half = half_of[sample.document]
        key = half, sample.tier
        if turns[key] < whole[key]:
            halves[half].append(replace(sample, tier=names[turns[key] % len(names)]))
        turns[key] += 1
    if not all(halves):
        raise BadInput("two halves with four groups need four questions of a tier on each; raise --per-tier")
    return halves


def error_curve(samples: Sequence[Sample], answered: Mapping[Key, Outcome]) -> dict[int, float]:
    """The error of all samples together at each budget."""
    return {
        budget: sum(not answered[sample.id, budget].correct for sample in samples) / len(samples)
        for budget in PAPER_GRID
    }


def choose(curve: Mapping[int, float], tiers: int) -> tuple[int, ...]:
    """The budget of each group with the lowest CWE on a curve, in at most ``tiers`` tiers, ``TOTAL`` in all.

    >>> choose({budget: 1 - budget / 600 for budget in PAPER_GRID}, 2)
    (576, 576, 32, 32)
    """
    falling = combinations_with_replacement(sorted(curve, reverse=True), len(COSTS))
    fitting = [budgets for budgets in falling if sum(budgets) == TOTAL and len(set(budgets)) <= tiers]
    return min(fitting, key=lambda each: sum(cost * curve[b] for cost, b in zip(COSTS.values(), each, strict=True)))


def _outcomes(
    halves: Sequence[Sequence[Sample]], budgets: Sequence[Sequence[int]], answered: Mapping[Key, Outcome]
) -> list[Outcome]:
    """The answers of both halves, each at budgets of its own, in the groups of the samples."""
    given = []
    for half, own in zip(halves, budgets, strict=True):
        by_group = dict(zip(COSTS, own, strict=True))
        given += [replace(answered[sample.id, by_group[sample.tier]], tier=sample.tier) for sample in half]
    return given
