"""Sensitivity gap or not, cost gap or not.

The two-axis map, and which arm wins in each of its four cells. Images are dense pages or solid colors; a mistake costs
5 or 1. Where half of the images are colors, which need next to nothing, the total is halved, or there would be nothing
to share. In each workload: uniform, content (reads only the image), cost (reads only the label), and their composition,
``budget ~ density x the tier's budget``. The paper tested three cells and left the fourth, both gaps together, as a
hypothesis. Paper, section "A Two-Axis Map".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stakes.calibration.arms import by_tier, content, uniform
from stakes.calibration.arms.comparison import Comparison, EqualTotals, compare
from stakes.calibration.arms.plan import densities
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.statistics import Gain, cwe_gain
from stakes.experiments.study import FLOOR, Study, first_of_each_tier
from stakes.experiments.table import MEASURED, Row, Table, format_both_p, gain_cell
from stakes.experiments.tables.within_task import BUDGETS
from stakes.models.identity import native_tokens

OPTIONS, DATASETS = MEASURED, ("docvqa", "solid_color")
YES = {True: "yes", False: "no"}
COLUMNS = (
    "sensitivity gap", "cost gap", "arm", "high-cost error", "low-cost error", "CWE", "CWE gain", "p on high-cost",
)  # fmt: skip
CLAIMS = {
    (False, False): "published: no allocator helps",
    (True, False): "published: content wins",
    (False, True): "published: cost wins, content cannot",
    (True, True): "the paper left this cell untested",
}


def answers(study: Study) -> int:
    """The number of answers."""
    return 4 * 4 * 2 * study.per_tier


def table(study: Study) -> Table:
    """The four cells, by deletion, where totals are exact."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    pages, colors = study.questions(dense), study.questions(plain)
    count, half = study.per_tier, study.per_tier // 2
    cells: dict[tuple[bool, bool], list[Sample]] = {
        (False, False): _alternating(colors),
        (True, False): [
            *(replace(sample, tier="high") for sample in pages[:count]),
            *(replace(sample, tier="low") for sample in colors[:count]),
        ],
        (False, True): pages,
        (True, True): [*_by_tier(first_of_each_tier(pages, half)), *_alternating(colors[: 2 * half])],
    }
    rows: list[Row] = []
    findings = []
    for (sensitivity, cost), samples in cells.items():
        costs = {"high": 5.0 if cost else 1.0, "low": 1.0}
        budgets = {tier: budget // 2 for tier, budget in BUDGETS.items()} if sensitivity else BUDGETS
        compared, over = _cell(study, f"{dense}+{plain}-{sensitivity}-{cost}", samples, costs, budgets)
        for row in compared.rows:
            p = None if row.high_cost is None else format_both_p(row.high_cost)
            errors = (row.errors["high"], row.errors["low"])
            rows.append((YES[sensitivity], YES[cost], row.arm, *errors, row.cwe, gain_cell(row), p))
        findings.append(_finding(sensitivity, cost, compared, over))
    return Table(
        name="map",
        title=f"The two-axis map: {study.name} on {dense} and {plain}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=tuple(findings),
        meta={"model": study.name, "data": [dense, plain], "budgets": BUDGETS, "floor": FLOOR, "split": study.split},
    )


def _cell(
    study: Study, name: str, samples: Sequence[Sample], costs: Mapping[str, float], budgets: Mapping[str, int]
) -> tuple[Comparison, dict[str, Gain]]:
    """The arms, and what the composition saves over content and over cost."""
    tiers = [sample.tier for sample in samples]
    native = [native_tokens(study.model, *sample.size, "deletion") for sample in samples]
    by_cost = by_tier(tiers, budgets)
    total = sum(by_cost)
    measured, _ = densities(samples, study.model)
    both = [density * budget for density, budget in zip(measured, by_cost, strict=True)]
    arms = {
        "uniform": uniform(len(samples), total),
        "content": content(measured, total, native=native, floor=FLOOR),
        "cost": by_cost,
        "composition": content(both, total, native=native, floor=FLOOR),
    }
    EqualTotals(tuple(sample.id for sample in samples), native, "deletion").check_planned(arms)
    outcomes = study.answer_arms(name, samples, arms, Setting("deletion", None, study.metric))
    right = {arm: [outcome.correct for outcome in given] for arm, given in outcomes.items()}
    prices, documents = [costs[tier] for tier in tiers], [sample.document for sample in samples]
    over = {arm: cwe_gain(right[arm], right["composition"], prices, documents) for arm in ("content", "cost")}
    return compare(outcomes, costs), over


def _finding(sensitivity: bool, cost: bool, compared: Comparison, over: Mapping[str, Gain]) -> str:
    """Which arms beat uniform significantly in this cell, beside the paper's claim; then the composition's gains."""
    better = [row.arm for row in compared.rows if row.gain is not None and row.gain.low > 0]
    best = min(compared.rows, key=lambda row: row.cwe)
    cell = f"sensitivity gap {YES[sensitivity]}, cost gap {YES[cost]}"
    helps = f"{', '.join(better)} lower CWE" if better else "no arm lowers CWE significantly"
    gains = f"composition against content {over['content']}, against cost {over['cost']}"
    return f"{cell}: {helps}; lowest {best.arm} ({best.cwe:.3f}); {gains}; {CLAIMS[sensitivity, cost]}"


def _alternating(samples: Sequence[Sample]) -> list[Sample]:
    """High and low by turns: a label that says nothing about the image."""
    return [replace(sample, tier=("high", "low")[i % 2]) for i, sample in enumerate(samples)]


def _by_tier(samples: Sequence[Sample]) -> list[Sample]:
    """The high tier first."""
    return sorted(samples, key=lambda sample: sample.tier != "high")
