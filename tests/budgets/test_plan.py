"""The plan of two and of three tiers: thresholds and ratio rows."""

import pytest

from stakes import Curve
from stakes.budgets.plan import make_plan

BUDGETS = [32, 96, 160, 304, 448, 512, 576]
HIGH = Curve(BUDGETS, [0.903, 0.837, 0.670, 0.300, 0.160, 0.133, 0.100], counts=300)
LOW = Curve(BUDGETS, [0.910, 0.843, 0.687, 0.373, 0.163, 0.130, 0.093], counts=300)


def test_thresholds_do_not_hang_on_whether_two_costs_are_equal() -> None:
    both, counts, pair = {"high": HIGH, "low": LOW}, {"high": 300, "low": 300}, {"high": 512, "low": 96}
    equal = make_plan(both, {"high": 1, "low": 1}, counts, 182_400, pair=pair)
    nearly = make_plan(both, {"high": 1.0001, "low": 1}, counts, 182_400, pair=pair)
    assert (equal.dearest, equal.cheapest) == ("high", "low")
    assert equal.changes == nearly.changes
    assert equal.pair is not None
    assert nearly.pair is not None
    assert equal.pair.break_even == pytest.approx(nearly.pair.break_even)


def test_a_tier_between_keeps_its_place_at_every_cost_ratio() -> None:
    curves, counts = {"high": HIGH, "medium": LOW, "low": LOW}, {"high": 100, "medium": 100, "low": 100}
    costs = {"high": 16.0, "medium": 4.0, "low": 1.0}
    found = {row.ratio: row for row in make_plan(curves, costs, counts, 91_200).ratios}
    alone = make_plan(curves, {"high": 9.0, "medium": 3.0, "low": 1.0}, counts, 91_200, ratios=[9])
    assert make_plan(curves, costs, counts, 91_200, ratios=[9]).ratios[0].cwe == pytest.approx(alone.allocation.cwe)
    assert found[1].cwe == pytest.approx(make_plan(curves, dict.fromkeys(curves, 1.0), counts, 91_200).allocation.cwe)
