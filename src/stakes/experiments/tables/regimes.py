"""The two-axis map: sensitivity gap or not, cost gap or not, and who wins in each of the four cells.

Images are dense pages or solid colours; a mistake costs 5 or 1. Where half of the images are colours, which need next
to nothing, the total is halved, or there would be nothing to share out. In each workload: uniform, content (reads only
the image), cost (reads only the label), and their composition, ``budget ~ density x the tier's budget``.
The paper tested three cells and left the fourth, both gaps together, as a hypothesis. Paper, section "A Two-Axis Map".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stakes.calibration.arms import by_tier, content, uniform
from stakes.calibration.arms.comparison import Comparison, Ledger, compare
from stakes.calibration.arms.plan import densities
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.evaluation.statistics import Gain, cwe_gain
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table, spell_p
from stakes.experiments.tables.within_task import BUDGETS
from stakes.models.identity import native_tokens

FLOOR = 16
YES = {True: "yes", False: "no"}
COLUMNS = ("sensitivity gap", "cost gap", "arm", "dear error", "cheap error", "CWE", "CWE gain", "p on dear")


def answers(study: Study) -> int:
    """How many answers it takes."""
    return 4 * 4 * 2 * study.per_tier


def table(study: Study) -> Table:
    """The four cells, by deletion, where totals are exact."""
    dense, plain = study.source("docvqa"), study.source("solid_color")
    pages, colours = study.questions(dense), study.questions(plain)
    half = study.per_tier // 2
    cells: dict[tuple[bool, bool], tuple[list[Asked], dict[str, float]]] = {
        (False, False): (_labelled(colours, ("high", "low")), {"high": 1.0, "low": 1.0}),
        (True, False): (_both(pages, colours, study.per_tier), {"high": 1.0, "low": 1.0}),
        (False, True): (pages, {"high": 5.0, "low": 1.0}),
        (True, True): ([*_tiers(pages, half), *_labelled(colours[: 2 * half], ("high", "low"))],
                       {"high": 5.0, "low": 1.0}),
    }  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    findings = []
    for (sensitivity, cost), (asked, costs) in cells.items():
        budgets = {tier: budget // 2 for tier, budget in BUDGETS.items()} if sensitivity else BUDGETS
        found, over = _cell(study, f"{dense}+{plain}-{sensitivity}-{cost}", asked, costs, budgets)
        for row in found.rows:
            dear = None if row.dear is None else spell_p(row.dear.p)
            gain = None if row.gain is None else str(row.gain)
            errors = (row.errors["high"], row.errors["low"])
            rows.append((YES[sensitivity], YES[cost], row.arm, *errors, row.cwe, gain, dear))
        findings.append(_finding(sensitivity, cost, found, over))
    return Table(
        name="map",
        title=f"The two-axis map: {study.name} on {dense} and {plain}, by deletion",
        columns=COLUMNS,
        rows=tuple(rows),
        findings=tuple(findings),
        meta={"model": study.name, "data": [dense, plain], "budgets": BUDGETS, "floor": FLOOR, "split": study.split},
    )


def _cell(
    study: Study, name: str, asked: Sequence[Asked], costs: Mapping[str, float], budgets: Mapping[str, int]
) -> tuple[Comparison, dict[str, Gain]]:
    """The arms, and what the composition saves over content and over cost."""
    tiers = [one.tier for one in asked]
    native = [native_tokens(study.model, *one.size, "deletion") for one in asked]
    shares = by_tier(tiers, budgets)
    total = sum(shares)
    measured, _ = densities(asked, study.model)
    both = [density * share for density, share in zip(measured, shares, strict=True)]
    arms = {
        "uniform": uniform(len(asked), total),
        "content": content(measured, total, native=native, floor=FLOOR),
        "cost": shares,
        "composition": content(both, total, native=native, floor=FLOOR),
    }
    Ledger(tuple(one.id for one in asked), native, "deletion").check_planned(arms)
    found = study.answers(name, asked, list(arms.values()), Setting("deletion", None, study.metric))
    told = {
        arm: [found[one.id, budget] for one, budget in zip(asked, given, strict=True)] for arm, given in arms.items()
    }
    prices = [costs[tier] for tier in tiers]
    right = {arm: [outcome.correct for outcome in outcomes] for arm, outcomes in told.items()}
    documents = [one.document for one in asked]
    over = {arm: cwe_gain(right[arm], right["composition"], prices, documents) for arm in ("content", "cost")}
    return compare(told, costs), over


def _finding(sensitivity: bool, cost: bool, found: Comparison, over: Mapping[str, Gain]) -> str:
    """Which arms beat uniform beyond doubt in this cell, beside what the paper says of it; then both against each."""
    claims = {
        (False, False): "published: no allocator helps",
        (True, False): "published: content wins",
        (False, True): "published: cost wins, content cannot",
        (True, True): "the paper left this cell untested",
    }
    better = [row.arm for row in found.rows if row.gain is not None and row.gain.low > 0]
    best = min(found.rows, key=lambda row: row.cwe)
    what = f"sensitivity gap {YES[sensitivity]}, cost gap {YES[cost]}"
    helped = f"{', '.join(better)} lower CWE" if better else "no arm lowers CWE beyond doubt"
    gains = f"composition against content {over['content']}, against cost {over['cost']}"
    return f"{what}: {helped}; lowest {best.arm} ({best.cwe:.3f}); {gains}; {claims[sensitivity, cost]}"


def _both(pages: Sequence[Asked], colours: Sequence[Asked], count: int) -> list[Asked]:
    """Dense pages as high and colours as low, at one cost."""
    return [replace(one, tier="high") for one in pages[:count]] + [replace(one, tier="low") for one in colours[:count]]


def _labelled(asked: Sequence[Asked], tiers: Sequence[str]) -> list[Asked]:
    """Tiers in turn: a label that says nothing about the image."""
    return [replace(one, tier=tiers[i % len(tiers)]) for i, one in enumerate(asked)]


def _tiers(asked: Sequence[Asked], count: int) -> list[Asked]:
    """The first ``count`` of each tier."""
    return [one for tier in ("high", "low") for one in [a for a in asked if a.tier == tier][:count]]
