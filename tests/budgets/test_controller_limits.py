"""Harm limits are kept online: no image of a limited tier gets a budget that its limit forbids."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA, MEAN, PAGE, policy, spend
from tests.budgets.test_controller_certified import certified

from stakes import Curve, Policy
from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import BudgetPath
from stakes.errors import BadInput

LOW = DOCVQA["low"]


def limited(limit: float = 0.15, **more: Any) -> Policy:
    return policy(max_harm={"low": limit}, **more)


def traffic(kind: str, images: int = 4000) -> list[str]:
    dice = random.Random(3)
    shares = {
        "even": lambda i: 0.5,
        "nearly all high": lambda i: 0.98,
        "nearly all low": lambda i: 0.02,
        "late highs": lambda i: 0.0 if i < images // 2 else 1.0,
        "early highs": lambda i: 1.0 if i < images // 2 else 0.0,
        "blocks": lambda i: float(i // 200 % 2),
    }
    return ["high" if dice.random() < shares[kind](i) else "low" for i in range(images)]


@pytest.mark.parametrize("kind", ["even", "nearly all high", "nearly all low", "late highs", "early highs", "blocks"])
@pytest.mark.parametrize("limit", [0.0, 0.15, 0.35])
@pytest.mark.parametrize("burst", [0, None])
def test_no_image_of_a_limited_tier_gets_a_budget_that_the_limit_forbids(
    kind: str, limit: float, burst: int | None
) -> None:
    controller, spent, arrivals = Controller.from_policy(limited(limit), burst), 0, traffic(kind)
    allowed = controller.state()["burst"]
    for number, tier in enumerate(arrivals, 1):
        budget = spend(controller, tier)
        spent += budget
        assert spent <= MEAN * number + allowed  # the hard total holds all the same
        if tier == "low":
            assert LOW.error(budget) <= LOW.error(MEAN) + limit + 1e-9


def test_without_the_limit_the_same_traffic_gives_up_the_low_tier() -> None:
    controller = Controller.from_policy(policy())
    budgets = [spend(controller, tier) for tier in traffic("nearly all high")]
    lows = [b for b, tier in zip(budgets, traffic("nearly all high"), strict=True) if tier == "low"]
    assert sum(LOW.error(budget) > LOW.error(MEAN) + 0.15 for budget in lows) > 0.9 * len(lows)


def test_the_limited_optimum_is_served_at_the_mix_that_it_was_chosen_for() -> None:
    controller, sums = Controller.from_policy(limited()), {"high": 0, "low": 0}
    arrivals = traffic("even", 6000)
    for tier in arrivals:
        sums[tier] += spend(controller, tier)
    assert sums["high"] / arrivals.count("high") == pytest.approx(384, rel=0.06)
    assert sums["low"] / arrivals.count("low") == pytest.approx(224, rel=0.06)


@st.composite
def curves(draw: st.DrawFn) -> dict[str, Curve]:
    grid = sorted({MEAN, *draw(st.lists(st.integers(32, 700), min_size=1, max_size=5))})
    rates = st.lists(st.floats(0, 1), min_size=len(grid), max_size=len(grid))
    return {tier: Curve(grid, draw(rates), 100) for tier in ("high", "low")}


@given(curves(), st.floats(0, 1), st.sampled_from([None, "high", "low"]), st.integers(0, 10_000))
@settings(deadline=None)
def test_any_curves_any_order_the_limit_and_the_total_hold(
    drawn: dict[str, Curve], limit: float, only: str | None, seed: int
) -> None:
    rules = policy(curves=drawn, max_harm={tier: limit for tier in ("high", "low") if only in (None, tier)})
    controller, dice, spent = Controller.from_policy(rules, burst := seed % 3 * 700), random.Random(seed), 0
    for number in range(1, 200):
        tier = dice.choice(["high", "low"] if number % 50 < 25 else ["high"])
        spent += (budget := spend(controller, tier))
        assert spent <= MEAN * number + burst
        if tier in (rules.max_harm or {}):
            assert drawn[tier].error(budget) <= drawn[tier].error(MEAN) + limit + 1e-9


def test_several_images_of_one_request_get_no_less_than_the_smallest_permitted_budget() -> None:
    controller = Controller.from_policy(limited(), 0)
    smallest = BudgetPath.of(limited()).smallest[1]
    assert smallest == 224
    for natives in ([PAGE] * 5, [100, PAGE, 50], [PAGE, 20]):
        grant = controller.grant("low", natives)
        assert all(budget >= min(native, smallest) for budget, native in zip(grant.budgets, natives, strict=True))
        controller.settle(grant, grant.budgets)


@pytest.mark.parametrize(
    ("high", "low", "least"), [(480, 224, (304, 224)), (304, 304, (304, 304)), (448, 160, (304, 160))]
)
def test_under_a_certificate_a_limited_tier_gets_no_less_than_what_ships_or_uniform(
    high: int, low: int, least: tuple[int, int]
) -> None:
    rules = certified(high, low, "uniform" if high == low else "tiered")
    rules = rules.model_copy(update={"max_harm": {"high": 0.15, "low": 0.15}})
    path = BudgetPath.of(rules)
    assert path.smallest == least  # 160 tokens are beyond the limit on the curve, and certified to be within it
    assert path.solve([0.5, 0.5], (high + low) / 2 + 1e-6).budgets == [high, low]


def test_limits_need_curves_and_budgets_by_tier() -> None:
    bare = {tier: {"cost": 1, "budget": 64} for tier in ("high", "low")}
    rules = Policy.model_validate({"mean_budget": 64, "tiers": bare, "max_harm": {"low": 0.1}})
    with pytest.raises(BadInput, match="harm limits are kept by the tiers' curves"):
        Controller.from_policy(rules)
    with pytest.raises(BadInput, match="per-request costs have none"):
        Policy.from_record({**limited().model_dump(by_alias=True), "soft": {"price": 0.1}})
