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
from stakes.data.sample import Sample
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.statistics import Gain, cwe_gain
from stakes.experiments.estimate import Ask
from stakes.experiments.sampling import first_of_each_tier
from stakes.experiments.study import FLOOR, Study
from stakes.experiments.table import MEASURED, Row, Table, format_both_p, gain_cell
from stakes.experiments.tables.within_task import BUDGETS
from stakes.models.identity import native_tokens

OPTIONS, DATASETS = MEASURED, ("docvqa", "solid_color")
Gaps = tuple[bool, bool]
"""Whether there is a gap in sensitivity, and in cost."""
YES = {True: "yes", False: "no"}
COLUMNS = (
    "sensitivity gap", "cost gap", "arm", "high-cost error", "low-cost error", "CWE", "CWE gain", "p on high-cost",
)  # fmt: skip
CLAIMS: dict[Gaps, str] = {
    (False, False): "published: no allocator helps",
    (True, False): "published: content wins",
    (False, True): "published: cost wins, content cannot",
    (True, True): "the paper left this cell untested",
}


def asks(study: Study) -> set[Ask]:
    """Four arms in four cells, of which two have half of the total."""
    count, mean = 2 * study.per_tier, sum(BUDGETS.values()) // 2
    return {
        Ask(group(cell), count, "deletion redundancy", arm, mean // 2 if cell[0] else mean)
        for cell in CLAIMS
        for arm in ("uniform", "content", "cost", "composition")
    }


def group(cell: Gaps) -> str:
    """The questions of a cell as an ask has them."""
    return f"map {cell}"


def table(study: Study) -> Table:
    """The four cells, by deletion, where totals are exact."""
    measured = [measure(study, cell) for cell in CLAIMS]
    data = [study.source(name) for name in DATASETS]
    return Table(
        name="map",
        title=f"The two-axis map: {study.name} on {' and '.join(data)}, by deletion",
        columns=COLUMNS,
        rows=tuple(row for rows, _ in measured for row in rows),
        findings=tuple(finding for _, finding in measured),
        meta={"model": study.name, "data": data, "budgets": BUDGETS, "floor": FLOOR, "split": study.split},
    )


def measure(study: Study, cell: Gaps) -> tuple[list[Row], str]:
    """The rows of one cell, and what they show."""
    (sensitivity, cost), (dense, plain) = cell, (study.source(name) for name in DATASETS)
    costs = {"high": 5.0 if cost else 1.0, "low": 1.0}
    budgets = {tier: budget // 2 for tier, budget in BUDGETS.items()} if sensitivity else BUDGETS
    samples = _samples(cell, study.questions(dense), study.questions(plain), study.per_tier)
    compared, over = _cell(study, f"{dense}+{plain}-{sensitivity}-{cost}", samples, costs, budgets)
    rows: list[Row] = []
    for row in compared.rows:
        p = None if row.high_cost is None else format_both_p(row.high_cost)
        errors = (row.errors["high"], row.errors["low"])
        rows.append((YES[sensitivity], YES[cost], row.arm, *errors, row.cwe, gain_cell(row), p))
    return rows, _finding(sensitivity, cost, compared, over)


def _samples(cell: Gaps, pages: Sequence[Sample], colors: Sequence[Sample], count: int) -> list[Sample]:
    """Pages and colors as a cell has them, ``count`` questions of each tier."""
    if cell == (False, False):
        return _alternating(colors)
    if cell == (True, False):
        dense = [replace(sample, tier="high") for sample in pages[:count]]
        return dense + [replace(sample, tier="low") for sample in colors[:count]]
    if cell == (False, True):
        return list(pages)
    half = count // 2
    return [*_by_tier(first_of_each_tier(pages, half)), *_alternating(colors[: 2 * half])]


def _cell(
    study: Study, name: str, samples: Sequence[Sample], costs: Mapping[str, float], budgets: Mapping[str, int]
) -> tuple[Comparison, dict[str, Gain]]:
    """The arms, and what the composition saves over content and over cost."""
    tiers = [sample.tier for sample in samples]
    native = [native_tokens(study.model, *sample.size, "deletion") for sample in samples]
    by_cost = by_tier(tiers, budgets)
    total = sum(by_cost)
    measured = study.densities(samples)
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
