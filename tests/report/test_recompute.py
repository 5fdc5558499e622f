"""When a control moves, the report's script computes what Python computes for the same costs and mean."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.runs import make_run
from tests.report.test_allocate_js import in_node, needs_node

from stakes.budgets.harm import uniform_of
from stakes.budgets.uniform import uniform_at
from stakes.report.data import frontier_rows, read_run, report_data
from stakes.tiers import expected_costs

THREE = {"urgent": 5.0, "plain": 1.0, "idle": 0.5}


@needs_node
@pytest.mark.parametrize("limit", [None, 0.15], ids=["no limit", "a limit"])
@pytest.mark.parametrize("misread", [False, True], ids=["read as labelled", "misread"])
@pytest.mark.parametrize("costs", [{"high": 5.0, "low": 1.0}, THREE], ids=["two tiers", "three tiers"])
def test_moved_controls_give_the_budgets_and_frontier_of_allocate(
    tmp_path: Path, costs: dict[str, float], misread: bool, limit: float | None
) -> None:
    path = make_run(tmp_path, costs, seed=3)
    if misread:
        record = json.loads(path.read_text())
        for i, (tier, plan) in enumerate(record["tiers"].items()):
            plan["questions"] = {other: 20 if other == tier else 3 + i for other in costs}
        questions = {tier: plan["questions"] for tier, plan in record["tiers"].items()}
        for tier, cost in expected_costs(questions, costs).items():
            record["tiers"][tier]["expected_cost"] = cost
        path.write_text(json.dumps(record))
    run = read_run(path)
    limits = None if limit is None else dict.fromkeys(costs, limit)
    settings = [(ratio, mean) for ratio in (1, 1.7, 5, 20) for mean in (40, 96, 160, 200, 288)]
    given: dict[str, Any] = {"data": report_data(run), "settings": settings}
    given["limits"] = limits
    code = """given.settings.map(([r, m]) => ({now: allocationAt(given.data, r, m, 'fitted', given.limits),
        rows: frontierAt(given.data, m, 'fitted', [r], given.limits)}))"""
    found = in_node(code, given, "allocate.js", "recompute.js")
    most_expensive = max(costs, key=costs.__getitem__)
    noted = 0
    for (ratio, mean), page in zip(settings, found, strict=True):
        total = mean * sum(run.counts.values())
        terms = replace(run.terms(ratio), total=total, max_harm=limits)
        best = terms.allocate(run.fitted)
        assert page["now"]["best"]["budgets"] == best.budgets
        assert math.isclose(page["now"]["best"]["cwe"], best.cwe, abs_tol=1e-12)
        even = uniform_at(run.fitted, best.spent / sum(run.counts.values()))
        assert even is not None
        seen = page["now"]["uniform"]
        assert (seen["tokens"], seen["interpolated"]) == (even.tokens, even.interpolated)
        assert math.isclose(seen["cwe"], even.cwe(terms.costs, run.counts), abs_tol=1e-12)
        within = uniform_of(run.fitted, mean)
        rises = {
            tier: best.errors[tier] - curve.error(within)
            for tier, curve in run.fitted.items()
            if best.errors[tier] - curve.error(within) > 0.25
        }
        assert {rise["name"]: rise["after"] - rise["before"] for rise in page["now"]["rises"]} == rises
        noted += len(rises)
        assert limits is None or not rises
        rows = frontier_rows(run.fitted, terms, most_expensive)
        assert [(row["budget"], row["others"]) for row in page["rows"]] == [(r["budget"], r["others"]) for r in rows]
        assert np.allclose([row["cwe"] for row in page["rows"]], [row["cwe"] for row in rows], atol=1e-12, rtol=0)
        assert math.isclose(min(row["cwe"] for row in rows), best.cwe, abs_tol=2e-12)
    assert bool(noted) == (limits is None)


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
