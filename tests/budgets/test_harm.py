"""A harm limit is kept on the curves of the choice, costs as little as possible, and off it changes nothing."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.harm import NOTED, allocate_within, check_limits, harm_report, uniform_of, within_limits
from stakes.budgets.plan import make_plan
from stakes.errors import BadInput, InfeasibleBudget

TIERS = ("high", "mid", "low")
COSTS = {"high": 5.0, "low": 1.0}
COUNTS = {"high": 300, "low": 300}
TOTAL = 304 * 600


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """One to three tiers on one grid, any curves, and a total that pays for at least the smallest budget for all."""
    tiers = TIERS[: draw(st.integers(1, 3))]
    grid = sorted(draw(st.lists(st.integers(1, 600), min_size=1, max_size=5, unique=True)))
    rate = st.integers(0, 20).map(lambda k: k / 20) if draw(st.booleans()) else st.floats(0, 1)
    curves = {t: Curve(grid, draw(st.lists(rate, min_size=len(grid), max_size=len(grid))), 20) for t in tiers}
    counts = {t: draw(st.integers(1, 4)) for t in tiers}
    return {
        "curves": curves,
        "costs": {t: draw(st.sampled_from([1, 2, 5, 0.1, 20.0])) for t in tiers},
        "counts": counts,
        "total": sum(counts.values()) * draw(st.integers(grid[0], 700)),
    }


limits_of_tiers = st.dictionaries(st.sampled_from(TIERS), st.floats(0, 1))


def of(limits: dict[str, float], world: dict[str, Any]) -> dict[str, float]:
    return {tier: limit for tier, limit in limits.items() if tier in world["curves"]}


@given(worlds(), limits_of_tiers)
def test_every_limited_tier_stays_within_its_limit_and_nobody_is_worse_off_than_uniform(
    world: dict[str, Any], limits: dict[str, float]
) -> None:
    curves, counts = world["curves"], world["counts"]
    best = allocate_within(**world, limits=of(limits, world))
    uniform = uniform_of(curves, world["total"] // sum(counts.values()))
    for tier, limit in of(limits, world).items():
        assert curves[tier].error(best.budgets[tier]) <= curves[tier].error(uniform) + limit + 1e-9
    assert best.spent <= world["total"]
    assert best.cwe <= cwe_at(curves, dict.fromkeys(curves, uniform), world["costs"], counts) + 1e-9


@given(worlds(), limits_of_tiers)
def test_it_is_the_best_of_all_choices_within_the_limits(world: dict[str, Any], limits: dict[str, float]) -> None:
    curves, costs, counts = world["curves"], world["costs"], world["counts"]
    kept, grid = of(limits, world), next(iter(curves.values())).budgets
    uniform = uniform_of(curves, world["total"] // sum(counts.values()))
    every = (dict(zip(curves, choice, strict=True)) for choice in product(grid, repeat=len(curves)))
    permitted = [
        cwe_at(curves, budgets, costs, counts)
        for budgets in every
        if sum(counts[t] * b for t, b in budgets.items()) <= world["total"]
        and all(curves[t].error(budgets[t]) <= curves[t].error(uniform) + limit + 1e-9 for t, limit in kept.items())
    ]
    assert allocate_within(**world, limits=kept).cwe == pytest.approx(min(permitted), abs=1e-11)


@given(worlds(), limits_of_tiers, st.floats(0, 1))
def test_a_looser_limit_never_has_a_higher_cwe(world: dict[str, Any], limits: dict[str, float], more: float) -> None:
    looser = {tier: min(1.0, limit + more) for tier, limit in limits.items()}
    strict, loose = (allocate_within(**world, limits=of(which, world)).cwe for which in (limits, looser))
    assert loose <= strict + 1e-12
    assert allocate(**world).cwe <= loose + 1e-12


@given(worlds())
def test_without_a_limit_and_with_one_that_forbids_nothing_it_is_allocate(world: dict[str, Any]) -> None:
    for limits in (None, {}, dict.fromkeys(world["curves"], 1.0)):
        assert allocate_within(**world, limits=limits) == allocate(**world)


@given(worlds(), limits_of_tiers)
def test_a_tier_that_mixes_two_budgets_stays_within_its_limit_on_average(
    world: dict[str, Any], limits: dict[str, float]
) -> None:
    curves = world["curves"]
    best = allocate_within(**world, limits=of(limits, world), mix=True)
    uniform = uniform_of(curves, world["total"] // sum(world["counts"].values()))
    for tier, limit in of(limits, world).items():
        assert best.errors[tier] <= curves[tier].error(uniform) + limit + 1e-9


def test_the_paper_gives_up_the_low_tier_and_a_limit_does_not() -> None:
    assert allocate(DOCVQA, COSTS, COUNTS, TOTAL).budgets == {"high": 576, "low": 32}
    for limits, budgets in (
        ({"high": 0.15, "low": 0.15}, {"high": 384, "low": 224}),
        ({"low": 0.15}, {"high": 384, "low": 224}),
        ({"low": 0.32}, {"high": 448, "low": 160}),
        ({"low": 0.1}, {"high": 304, "low": 304}),
        ({"high": 0.0}, {"high": 576, "low": 32}),
    ):
        assert allocate_within(DOCVQA, COSTS, COUNTS, TOTAL, limits=limits).budgets == budgets


def test_budgets_that_a_limit_forbids_are_no_edge_of_the_grid() -> None:
    assert allocate(DOCVQA, COSTS, COUNTS, TOTAL).on_edge == {"high": "largest", "low": "smallest"}
    assert allocate_within(DOCVQA, COSTS, COUNTS, TOTAL, limits={"low": 0.15}).on_edge == {}
    assert allocate_within(DOCVQA, COSTS, COUNTS, TOTAL, limits={"high": 0.15}).on_edge == {
        "high": "largest",
        "low": "smallest",
    }


@pytest.mark.parametrize(
    ("given_limits", "message"),
    [
        (15, "15 points are 0.15"),
        ({"low": 25.0}, "'low' is 25; .*25 points are 0.25"),
        (-0.1, "0 to 1"),
        (math.nan, "0 to 1"),
        (True, "0 to 1"),
        ({"low": "0.1"}, "'0.1'"),
        ({"medium": 0.1}, "'medium'; the tiers are high, low"),
    ],
)
def test_what_is_no_limit_is_refused_with_advice(given_limits: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_limits(given_limits, ["high", "low"])


def test_one_number_is_for_all_tiers() -> None:
    assert check_limits(0.15, ["high", "low"]) == {"high": 0.15, "low": 0.15}
    assert check_limits({"low": 0}, ["high", "low"]) == {"low": 0.0}
    assert check_limits(None, ["high", "low"]) == {}


def test_uniform_is_the_largest_budget_of_all_tiers_within_the_mean() -> None:
    curves = {"high": Curve([32, 200, 400], [0.9, 0.5, 0.1], 10), "low": Curve([32, 300, 400], [0.9, 0.5, 0.1], 10)}
    assert uniform_of(curves, 399) == 32
    assert within_limits(curves, {"low": 0.0}, 399)["low"].budgets == (32, 300, 400)
    assert within_limits(curves, {"low": 0.0}, 400)["low"].budgets == (400,)
    with pytest.raises(BadInput, match="share no measured budget"):
        uniform_of({"high": curves["high"], "low": Curve([33], [0.9], 10)}, 400)
    with pytest.raises(InfeasibleBudget, match="too small"):
        allocate_within(curves, COSTS, COUNTS, 20 * 600, limits={"low": 0.1})


def test_a_floor_that_leaves_nothing_within_the_limit_says_so() -> None:
    curves = {"high": Curve([304, 450], [0.3, 0.2], 10), "low": Curve([304, 500], [0.3, 0.9], 10)}
    one = {"high": 1, "low": 1}
    assert allocate_within(curves, COSTS, one, 960, 400).budgets == {"high": 450, "low": 500}
    with pytest.raises(InfeasibleBudget, match="tier 'low' from the floor of 400 up is within its harm limit of 0.1"):
        allocate_within(curves, COSTS, one, 960, 400, {"low": 0.1})


@pytest.mark.parametrize("limit", [0.05, 0.15, 0.33])
def test_the_ratio_table_and_the_changes_of_a_plan_keep_the_limit(limit: float) -> None:
    plan = make_plan(DOCVQA, COSTS, COUNTS, TOTAL, max_harm={"low": limit})
    low = DOCVQA["low"]
    budgets = [row.budgets["low"] for row in plan.ratios] + [change.after.low for change in plan.changes or ()]
    assert len(budgets) >= 6
    assert all(low.error(budget) <= low.error(304) + limit + 1e-9 for budget in budgets)
    assert plan.max_harm == {"low": limit}
    assert plan.record()["max_harm"] == {"low": limit}


def test_a_plan_without_limits_is_the_same_as_before() -> None:
    assert make_plan(DOCVQA, COSTS, COUNTS, TOTAL, max_harm={}) == make_plan(DOCVQA, COSTS, COUNTS, TOTAL)


def test_a_large_rise_is_reported_with_what_a_limit_would_cost() -> None:
    report = harm_report(DOCVQA, make_plan(DOCVQA, COSTS, COUNTS, TOTAL))
    assert report is not None
    assert set(report.rises) == {"low"}
    assert (report.rises["low"].before, report.rises["low"].after) == (
        DOCVQA["low"].error(304),
        DOCVQA["low"].error(32),
    )
    limited = allocate_within(DOCVQA, COSTS, COUNTS, TOTAL, limits={"high": 0.15, "low": 0.15})
    assert report.limited_budgets == limited.budgets
    assert report.cwe < report.limited_cwe == limited.cwe < report.uniform_cwe
    words = str(report)
    for part in ("from 37.3% at uniform's 304 tokens to 91.0% at 32", "--max-harm 0.15", "high 384, low 224"):
        assert part in words
    assert f"{report.limited_cwe:.3f} in place of {report.cwe:.3f}" in words
    assert report.record()["note"] == words


def test_only_a_rise_of_more_than_25_points_is_reported() -> None:
    low = Curve([32, 304, 576], [0.65, 0.4, 0.1], 300)
    for error, reported in ((0.64, False), (0.4 + NOTED, False), (0.66, True)):
        curves = {"high": DOCVQA["high"], "low": Curve(low.budgets, [error, 0.4, 0.1], 300)}
        plan = make_plan(curves, {"high": 20.0, "low": 1.0}, COUNTS, TOTAL)
        assert plan.allocation.budgets["low"] == 32
        assert (harm_report(curves, plan) is not None) == reported


def test_what_is_served_counts_and_not_what_was_planned() -> None:
    plan = make_plan(DOCVQA, COSTS, COUNTS, TOTAL)
    assert harm_report(DOCVQA, plan, budgets={"high": 304, "low": 304}) is None
    by_request = harm_report(DOCVQA, plan, errors={"high": 0.1, "low": 0.8})
    assert by_request is not None
    assert "to 80.0% on average over requests" in str(by_request)
    assert "--max-harm 0.15 without --per-request" in str(by_request)


def test_the_suggested_limit_keeps_stricter_ones() -> None:
    plan = make_plan(DOCVQA, COSTS, COUNTS, TOTAL, max_harm={"low": 0.4})
    assert (report := harm_report(DOCVQA, plan)) is not None
    assert report.limited_budgets == {"high": 384, "low": 224}
    strict = replace(plan, max_harm={"low": 0.05})
    assert (stricter := harm_report(DOCVQA, strict)) is not None
    assert stricter.limited_budgets == {"high": 304, "low": 304}
