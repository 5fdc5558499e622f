"""A plan says what its numbers say: no fall of 0.000, no ratio that nobody gave, no uniform that never pays."""

import pytest
from tests.commands.test_certify import typed

from stakes import Curve
from stakes.budgets.plan import make_plan
from stakes.commands.plan_summary import print_plan

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
