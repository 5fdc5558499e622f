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
    plan = make_plan(curves, costs, counts, 91_200)
    rows = {row.ratio: row for row in plan.ratios}
    alone = make_plan(curves, {"high": 10.0, "medium": 10**0.5, "low": 1.0}, counts, 91_200)
    assert rows[10].cwe == pytest.approx(alone.allocation.cwe)
    assert rows[1].cwe == pytest.approx(make_plan(curves, dict.fromkeys(curves, 1.0), counts, 91_200).allocation.cwe)
    assert (rows[16].budgets, rows[16].cwe) == (plan.allocation.budgets, plan.allocation.cwe), "the stated costs"


def test_uniform_has_the_tokens_of_what_it_is_compared_with() -> None:
    both, counts = {"high": HIGH, "low": LOW}, {"high": 300, "low": 300}
    plan = make_plan(both, {"high": 5, "low": 1}, counts, 400 * 600, pair={"high": 576, "low": 96})
    mean = plan.allocation.spent / 600
    assert plan.allocation.budgets == {"high": 448, "low": 304}
    assert (plan.uniform_budget, plan.uniform_interpolated) == (376, True), "not 304, the measured one within 400"
    share = (mean - 304) / (448 - 304)
    errors = {tier: (1 - share) * curve.error(304) + share * curve.error(448) for tier, curve in both.items()}
    assert plan.uniform_cwe == pytest.approx((5 * errors["high"] + errors["low"]) / 6)
    for row in plan.ratios:
        assert row.tokens == sum(300 * budget for budget in row.budgets.values()) / 600
    share = ((576 + 96) / 2 - 304) / (448 - 304)
    high, low = ((1 - share) * curve.error(304) + share * curve.error(448) for curve in (HIGH, LOW))
    assert plan.pair is not None
    assert plan.pair.break_even == pytest.approx((LOW.error(96) - low) / (high - HIGH.error(576)))
    on_grid = make_plan(both, {"high": 5, "low": 1}, counts, 182_400)
    assert (on_grid.uniform_budget, on_grid.uniform_interpolated) == (304, False)


def test_where_labels_differ_budgets_are_chosen_at_mean_costs_and_r_is_the_stated_ratio() -> None:
    both = {"high": HIGH, "low": LOW}
    questions = {"high": {"high": 180, "low": 20}, "low": {"high": 30, "low": 270}}
    plan = make_plan(both, {"high": 5.0, "low": 1.0}, questions, 304 * 500, pair={"high": 512, "low": 96})
    means = {"high": 4.6, "low": 1.4}
    assert plan.costs_as_read == pytest.approx(means)
    alone = make_plan(both, means, {"high": 200, "low": 300}, 304 * 500)
    assert (plan.allocation, plan.uniform_cwe) == (alone.allocation, alone.uniform_cwe)
    assert alone.costs_as_read is None
    rows = {row.ratio: row for row in plan.ratios}
    assert (rows[5].budgets, rows[5].cwe) == (plan.allocation.budgets, plan.allocation.cwe)
    at_20 = make_plan(both, {"high": 18.1, "low": 2.9}, {"high": 200, "low": 300}, 304 * 500)
    assert rows[20].budgets == at_20.allocation.budgets
    assert rows[20].cwe == pytest.approx(at_20.allocation.cwe)
    assert plan.changes is not None
    assert plan.changes
    for change in plan.changes:  # just below and above each stated ratio, the means give the budgets before and after
        for r, pair in ((change.ratio * (1 - 1e-6), change.before), (change.ratio * (1 + 1e-6), change.after)):
            at = {"high": 0.9 * r + 0.1, "low": 0.1 * r + 0.9}
            found = make_plan(both, at, {"high": 200, "low": 300}, 304 * 500).allocation.budgets
            assert found == {"high": pair.high, "low": pair.low}


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
