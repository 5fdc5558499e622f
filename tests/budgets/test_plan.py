"""The plan of two and of three tiers: thresholds, ratio rows, and the check before anything is measured."""

import math
from typing import Any

import pytest

from stakes import Curve, StakesError
from stakes.aliases import with_old_keys
from stakes.budgets.plan import check_feasible, make_plan

BUDGETS = [32, 96, 160, 304, 448, 512, 576]
HIGH = Curve(BUDGETS, [0.903, 0.837, 0.670, 0.300, 0.160, 0.133, 0.100], counts=300)
LOW = Curve(BUDGETS, [0.910, 0.843, 0.687, 0.373, 0.163, 0.130, 0.093], counts=300)


def test_thresholds_do_not_depend_on_whether_two_costs_are_equal() -> None:
    both, counts, pair = {"high": HIGH, "low": LOW}, {"high": 300, "low": 300}, {"high": 512, "low": 96}
    equal = make_plan(both, {"high": 1, "low": 1}, counts, 182_400, pair=pair)
    nearly = make_plan(both, {"high": 1.0001, "low": 1}, counts, 182_400, pair=pair)
    assert (equal.most_expensive, equal.cheapest) == ("high", "low")
    assert equal.changes == nearly.changes
    assert equal.pair is not None
    assert nearly.pair is not None
    assert equal.pair.break_even == pytest.approx(nearly.pair.break_even)


def test_a_tier_between_keeps_its_rank_at_every_cost_ratio() -> None:
    curves, counts = {"high": HIGH, "medium": LOW, "low": LOW}, {"high": 100, "medium": 100, "low": 100}
    costs = {"high": 16.0, "medium": 4.0, "low": 1.0}
    rows = {row.ratio: row for row in make_plan(curves, costs, counts, 91_200).ratios}
    alone = make_plan(curves, {"high": 9.0, "medium": 3.0, "low": 1.0}, counts, 91_200, ratios=[9])
    assert make_plan(curves, costs, counts, 91_200, ratios=[9]).ratios[0].cwe == pytest.approx(alone.allocation.cwe)
    assert rows[1].cwe == pytest.approx(make_plan(curves, dict.fromkeys(curves, 1.0), counts, 91_200).allocation.cwe)


@pytest.mark.parametrize(
    "change",
    [
        {"costs": {"high": 5}},
        {"costs": {"high": 5, "low": 1, "medium": 3}},
        {"costs": {"high": math.nan, "low": 1}},
        {"costs": {"high": 0, "low": 1}},
        {"costs": {"high": 1e200, "low": 1}},
        {"costs": {"high": 5, "low": 1e-200}},
        {"counts": {"high": 300}},
        {"counts": {"high": 300, "low": 0}},
        {"counts": {"high": 10**18, "low": 1}, "total": 10**20},
        {"total": 32 * 600 - 1},
        {"total": 304.5},
        {"floor": 577},
        {"floor": 304, "total": 304 * 600 - 1},
        {"floor": 1.5},
    ],
)
def test_what_a_plan_would_refuse_is_refused_before_any_answer(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"costs": {"high": 5, "low": 1}, "counts": {"high": 300, "low": 300}, "total": 182_400}
    given = {"floor": None, **good, **change}
    with pytest.raises(StakesError) as planned:
        make_plan(dict.fromkeys(given["costs"], HIGH), **given)
    with pytest.raises(StakesError) as checked:
        check_feasible(budgets=BUDGETS, **given)
    assert (type(checked.value), str(checked.value)) == (type(planned.value), str(planned.value))
    check_feasible(budgets=BUDGETS, **good)


def test_the_record_also_has_the_keys_of_version_0_1_when_printed() -> None:
    counts = {"high": 300, "low": 300}
    made = make_plan({"high": HIGH, "low": LOW}, {"high": 20, "low": 1}, counts, 182_400, pair={"high": 512, "low": 96})
    record = with_old_keys(made.record())
    assert 0 < record["sureness"] == record["required_confidence"] < 1
    assert record["pair"]["sureness"] == record["pair"]["required_confidence"]
    assert record["dearest"] == record["most_expensive"] == "high"
