"""When a control moves, the report's script computes what Python computes for the same costs and mean."""

import math
from pathlib import Path

import numpy as np
import pytest
from tests.report.runs import make_run
from tests.report.test_allocate_js import in_node, needs_node

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import cwe_at
from stakes.report.data import frontier_rows, read_run, report_data

THREE = {"urgent": 5.0, "plain": 1.0, "idle": 0.5}


@needs_node
@pytest.mark.parametrize("costs", [{"high": 5.0, "low": 1.0}, THREE], ids=["two tiers", "three tiers"])
def test_moved_controls_give_the_budgets_and_frontier_of_allocate(tmp_path: Path, costs: dict[str, float]) -> None:
    run = read_run(make_run(tmp_path, costs, seed=3))
    settings = [(ratio, mean) for ratio in (1, 1.7, 5, 20) for mean in (40, 96, 160, 200, 288)]
    given = {"data": report_data(run), "settings": settings}
    code = """given.settings.map(([r, m]) => ({now: allocationAt(given.data, r, m, 'fitted'),
        rows: frontierAt(given.data, m, 'fitted', [r])}))"""
    found = in_node(code, given, "allocate.js", "recompute.js")
    most_expensive, cheapest = max(costs, key=costs.__getitem__), min(costs, key=costs.__getitem__)
    for (ratio, mean), page in zip(settings, found, strict=True):
        prices = {**costs, most_expensive: ratio * costs[cheapest]}
        total = mean * sum(run.counts.values())
        best = allocate(run.fitted, prices, run.counts, total)
        assert page["now"]["best"]["budgets"] == best.budgets
        assert page["now"]["best"]["cwe"] == best.cwe
        uniform = page["now"]["uniform"]["budget"]
        assert uniform == max(b for b in run.fitted[most_expensive].budgets if b <= mean)
        even = cwe_at(run.fitted, dict.fromkeys(costs, uniform), prices, run.counts)
        assert math.isclose(page["now"]["uniform"]["cwe"], even, abs_tol=1e-12)
        rows = frontier_rows(run.fitted, costs, run.counts, total, ratio)
        assert [(row["budget"], row["others"]) for row in page["rows"]] == [(r["budget"], r["others"]) for r in rows]
        assert np.allclose([row["cwe"] for row in page["rows"]], [row["cwe"] for row in rows], atol=1e-12, rtol=0)
        assert math.isclose(min(row["cwe"] for row in rows), best.cwe, abs_tol=2e-12)


@needs_node
def test_a_mean_below_the_smallest_budgets_is_refused_with_the_least_that_works(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, {"high": 5.0, "low": 1.0}))
    found = in_node("allocationAt(given, 5, 20, 'fitted').least", report_data(run), "allocate.js", "recompute.js")
    assert found == 32


@needs_node
def test_arms_at_other_costs_have_pythons_cwe_and_a_linearized_interval(tmp_path: Path) -> None:
    costs = {"high": 5.0, "low": 1.0}
    run = read_run(make_run(tmp_path, costs, seed=5))
    assert run.evaluation is not None
    arms = report_data(run)["arms"]
    live = in_node("armsAt(given, {high: 5, low: 1})", arms, "allocate.js", "recompute.js")
    for row, page in zip(run.evaluation.comparison.rows, live, strict=True):
        assert math.isclose(page["cwe"], row.cwe, abs_tol=1e-12)
        if row.gain is not None:
            assert math.isclose(page["gain"]["value"], row.gain.value, abs_tol=1e-12)
    prices, questions = np.array([5.0, 1.0]), np.array(arms["questions"])
    saved = (np.array(arms["rows"][0]["wrong"]) - np.array(arms["rows"][1]["wrong"])) @ prices
    whole = questions @ prices
    n, value = len(whole), saved.sum() / whole.sum()
    error = math.sqrt(n / (n - 1) * ((saved - value * whole) ** 2).sum()) / whole.sum()
    assert math.isclose(live[1]["gain"]["low"], value - 1.959963984540054 * error, abs_tol=1e-12)
    gain = run.evaluation.comparison.rows[1].gain
    assert gain is not None
    assert abs(live[1]["gain"]["low"] - gain.low) < 0.1  # the bootstrap's, on 10 documents
    other = in_node("armsAt(given, {high: 20, low: 1})", arms, "allocate.js", "recompute.js")
    assert math.isclose(other[1]["cwe"], run.evaluation.comparison.rows[1].ratios[20], abs_tol=1e-12)
