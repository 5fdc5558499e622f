"""A plan says what its numbers say: no fall of 0.000, no ratio that nobody gave, no uniform that never pays."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_certify import typed

from stakes import Curve
from stakes.budgets.plan import make_plan
from stakes.budgets.policy import Policy
from stakes.commands.output.plan import print_plan
from stakes.errors import BadInput

COSTS, COUNTS = {"high": 5.0, "low": 1.0}, {"high": 300, "low": 300}


def summary(capsys: pytest.CaptureFixture[str], high: list[float], low: list[float], pair: dict[str, int]) -> str:
    """The summary of two curves at 100, 200 and 300 tokens with a mean of 200."""
    curves = {tier: Curve([100, 200, 300], errors, counts=300) for tier, errors in (("high", high), ("low", low))}
    print_plan(make_plan(curves, COSTS, COUNTS, 200 * 600, pair=pair), curves, "made up")
    return capsys.readouterr().out


def test_a_gain_that_rounds_to_zero_is_not_reported_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    page = summary(capsys, [0.5, 0.3, 0.2996], [0.5, 0.3, 0.3], {"high": 300, "low": 100})
    assert "0.000 lower" not in page
    page = summary(capsys, [0.5, 0.3, 0.2996], [0.3, 0.3, 0.3], {"high": 300, "low": 100})
    assert "these budgets are no lower: keep uniform." in page
    page = summary(capsys, [0.5, 0.3, 0.299], [0.3, 0.3, 0.3], {"high": 300, "low": 100})
    assert "these budgets are 0.001 lower." in page


def test_a_pair_that_is_uniform_is_called_uniform(capsys: pytest.CaptureFixture[str]) -> None:
    page = summary(capsys, [0.5, 0.3, 0.3], [0.5, 0.3, 0.3], {"high": 200, "low": 200})
    assert "these budgets are uniform itself." in page
    assert "The pair is uniform itself: high 200, low 200." in page
    assert "never pays" not in page
    assert "never pays" in summary(capsys, [0.5, 0.3, 0.3], [0.5, 0.3, 0.3], {"high": 300, "low": 100})


def test_the_default_cost_ratio_is_called_the_default() -> None:
    page = typed("plan", "--published", "docvqa").stdout
    assert "The cost ratio is 5 (the default; set yours with --cost); these budgets are the best at ratios from" in page
    page = typed("plan", "--published", "docvqa", "--cost", "high=5", "--cost", "low=1").stdout
    assert "The cost ratio is 5; these budgets are the best at ratios from" in page


def policy_file(folder: Path, **changes: Any) -> Path:
    """A policy of 20 : 1 whose curves were fitted, at a mean of 400, with one question in ten misread."""
    curve = {"budgets": [32, 304, 448, 576], "errors": [0.9, 0.4, 0.2, 0.1], "counts": [300] * 4}
    fitted = {**curve, "errors": [0.9, 0.3, 0.25, 0.1]}
    tiers = {
        tier: {"cost": cost, "budget": budget, "curve": curve, "fitted": fitted}
        | {"expected_cost": mean, "questions": read}
        for tier, cost, budget, mean, read in (
            ("high", 20.0, 448, 18.1, {"high": 270, "low": 30}),
            ("low", 1.0, 304, 2.9, {"high": 30, "low": 270}),
        )
    }
    record = {"schema": 2, "mean_budget": 400, "floor": 304, "estimator": "pooled", "tiers": tiers, **changes}
    path = folder / "policy.json"
    path.write_text(json.dumps(record))
    return path


def test_a_policys_plan_is_at_its_own_costs_mean_floor_counts_and_curves(tmp_path: Path) -> None:
    path = policy_file(tmp_path)
    plan = json.loads(typed("plan", "--curves", path, "--json").stdout)
    assert plan["costs"] == {"high": 20.0, "low": 1.0}
    assert plan["costs_as_read"] == {"high": 18.1, "low": 2.9}
    assert (plan["counts"], plan["allocation"]["total"]) == ({"high": 300, "low": 300}, 400 * 600)
    assert plan["allocation"]["budgets"] == {"high": 448, "low": 304}, "the floor permits no smaller one"
    assert plan["allocation"]["errors"] == {"high": 0.25, "low": 0.3}, "the curves that budgets were chosen on"
    assert plan["estimator"] == "pooled"
    assert 20.0 in [row["ratio"] for row in plan["ratios"]]
    raw = json.loads(typed("plan", "--curves", path, "--estimator", "raw", "--json").stdout)
    assert raw["allocation"]["errors"] == {"high": 0.2, "low": 0.4}
    other = json.loads(
        typed("plan", "--curves", path, "--cost", "high=2", "--cost", "low=1", "--mean-budget", "304", "--json").stdout
    )
    assert other["costs_as_read"] == {"high": 1.9, "low": 1.1}
    assert other["allocation"]["budgets"] == {"high": 304, "low": 304}
    page = typed("plan", "--curves", path).stdout
    assert "high 18.1 (stated 20), low 2.9 (stated 1)" in page
    assert "The policy itself serves" not in page
    page = typed("plan", "--curves", path, "--mean-budget", "304").stdout
    assert "The policy itself serves high 448, low 304." in page


def test_the_labels_of_a_policys_questions_are_its_tiers(tmp_path: Path) -> None:
    path = policy_file(tmp_path)
    record = json.loads(path.read_text())
    record["tiers"]["high"]["questions"] = {"medium": 3}
    path.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="the questions of tier 'high' name 'medium', which is no tier of this policy"):
        Policy.load(path)
    kept = Policy.load(policy_file(tmp_path))
    kept.save(tmp_path / "again.json")
    assert Policy.load(tmp_path / "again.json").tiers == kept.tiers
    assert kept.costs_as_read() == {"high": 18.1, "low": 2.9} == kept.costs_as_read(20)
    assert kept.costs_as_read(10) == pytest.approx({"high": 9.1, "low": 1.9})
    assert kept.counts == {"high": 300, "low": 300}


def test_a_pair_that_only_the_cheap_tier_gains_from_pays_below_a_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    page = summary(capsys, [0.5, 0.3, 0.3], [0.5, 0.3, 0.1], {"high": 100, "low": 300})
    assert "beats uniform at the same tokens at cost ratios below 1.00." in page
    page = summary(capsys, [0.3, 0.3, 0.3], [0.5, 0.3, 0.1], {"high": 100, "low": 300})
    assert "beats uniform at the same tokens at every cost ratio." in page
