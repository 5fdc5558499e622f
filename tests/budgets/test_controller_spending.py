"""The mean budget is spent nearly as in hindsight: the low-cost tiers give way first, savings are spent later."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA, FLOOR, MEAN, PAGE, policy, spend

from stakes import Curve, Policy, allocate
from stakes.budgets.controller import Controller, share
from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.curve import PAPER_GRID, cwe_at
from stakes.budgets.policy import TierPlan


@given(
    st.lists(
        st.tuples(st.floats(0.1, 20), st.lists(st.floats(0, 1), min_size=13, max_size=13)), min_size=2, max_size=3
    ),
    st.lists(st.integers(20, 1000), min_size=3, max_size=3),
    st.integers(FLOOR, 600),
)
def test_the_path_holds_the_optimum_of_allocate_for_every_mix(
    drawn: list[tuple[float, list[float]]], shares: list[int], mean: int
) -> None:
    names = ["high", "low", "rest"][: len(drawn)]
    curves = {n: Curve(PAPER_GRID, errors, 300) for n, (_, errors) in zip(names, drawn, strict=True)}
    costs = {n: cost for n, (cost, _) in zip(names, drawn, strict=True)}
    counts = dict(zip(names, shares, strict=False))
    images = sum(counts.values())
    best = allocate(curves, costs, counts, mean * images, mix=True)
    path = BudgetPath.of(policy(costs, curves))
    result = path.solve([counts[n] / images for n in names], mean)
    low = dict(zip(names, result.budgets, strict=True))
    cwe = (1 - result.part) * cwe_at(curves, low, costs, counts)
    if result.mixed >= 0:
        cwe += result.part * cwe_at(curves, {**low, names[result.mixed]: result.upper}, costs, counts)
    assert sum(counts[n] * result.mean(i) for i, n in enumerate(names)) <= mean * images + 1e-6
    assert best.cwe - best.gap - 1e-9 <= cwe <= best.cwe + 1e-9


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_steady_mix_comes_within_two_percent_of_hindsight(part: float) -> None:
    costs, dice, warm_up, images = {"high": 5.0, "low": 1.0}, random.Random(1), 2000, 12_000
    controller = Controller.from_policy(policy(costs))
    lost = whole = 0.0
    counts, begun_with = {"high": 0, "low": 0}, 0.0
    for i in range(warm_up + images):
        if i == warm_up:
            begun_with = controller.state()["allowance"]
        tier = "high" if dice.random() < part else "low"
        budget = spend(controller, tier)
        if i >= warm_up:
            counts[tier] += 1
            lost += costs[tier] * DOCVQA[tier].error(budget)  # so only measured budgets are granted
            whole += costs[tier]
    best = allocate(DOCVQA, costs, counts, int(MEAN * images + begun_with), mix=True)
    assert lost / whole <= 1.02 * (best.cwe - best.gap)


def test_low_cost_tiers_give_way_first_while_the_total_allows() -> None:
    """Highs come as often as calibrated, then nothing but highs."""
    controller = Controller.from_policy(policy(mean_budget=400))
    for tier in ["high", "low"] * 50:
        spend(controller, tier)
    state = controller.state()
    assert state["budget_high"] == 576
    assert state["budget_low"] > 200
    images = 0
    while controller.state()["budget_high"] == 576:
        assert spend(controller, "high") == 576
        images += 1
    assert images > 10
    assert controller.state()["budget_low"] == FLOOR  # nothing was left to take from them
    more = [spend(controller, "high") for _ in range(5000)]
    assert sum(more[-1000:]) / 1000 == pytest.approx(400, rel=0.02)
    assert controller.state()["budget_low"] == FLOOR


def test_savings_of_a_low_cost_phase_are_spent_on_a_high_cost_one_and_drawn_down_slowly() -> None:
    controller = Controller.from_policy(policy(), burst=0)
    for _ in range(100):
        spend(controller, "low")
    saved = controller.state()["allowance"]
    assert saved > 50 * MEAN  # the calibration saw as many highs, so lows are not given everything at once
    assert [spend(controller, "high") for _ in range(10)] == [576] * 10
    for _ in range(20_000):
        spend(controller, "low")
    assert controller.state()["allowance"] < saved / 2
    assert controller.state()["mean"] == pytest.approx(MEAN, rel=0.01)


def test_small_images_leave_tokens_that_the_others_get() -> None:
    controller = Controller.from_policy(policy())
    dice = random.Random(2)
    for _ in range(8000):
        spend(controller, dice.choice(["high", "low"]), dice.choice([60, PAGE]))
    assert controller.state()["mean"] == pytest.approx(MEAN, rel=0.03)
    assert controller.state()["budget_low"] > 300


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 3000)), min_size=1, max_size=8))
def test_leftovers_go_to_the_larger_images_and_none_is_lost(images: list[tuple[int, int]]) -> None:
    budgets, natives = [b for b, _ in images], [n for _, n in images]
    shares = share(budgets, natives)
    assert sum(shares) == min(sum(budgets), sum(natives))
    assert all(min(b, n) <= s <= n for s, b, n in zip(shares, budgets, natives, strict=True))


def test_a_request_of_several_images_shares_by_native_size() -> None:
    grant = Controller.from_policy(policy(mean_budget=400)).grant("high", [100, 1000, 10_000])
    assert grant.budgets[0] == 100  # its native count, although the tier has 576
    assert 576 < grant.budgets[1] < grant.budgets[2]
    assert sum(grant.budgets) == 3 * 576
    assert grant.reason == "budgets shared by native size"


def test_what_one_image_leaves_over_never_goes_to_an_earlier_one_beyond_the_total() -> None:
    controller = Controller.from_policy(policy(), burst=30)
    budgets = controller.grant("high", [PAGE, PAGE, 10, 10]).budgets
    assert budgets[:2] == (MEAN + 30, MEAN)
    assert budgets[2:] == (10, 10)


def test_an_old_mix_is_forgotten() -> None:
    controller = Controller.from_policy(policy())
    for tier in ("high", "low"):
        for _ in range(10_000):
            spend(controller, tier)
    assert controller.state()["mix_low"] > 0.98


def test_budgets_come_from_the_curve_that_the_policy_was_chosen_by() -> None:
    curve = Curve([32, 304, 576], [0.9, 0.9, 0.9], 10)
    fitted = Curve([32, 304, 576], [0.9, 0.3, 0.1], 10)
    tiers = {t: TierPlan(cost=1, budget=304, curve=curve, fitted=fitted) for t in ("high", "low")}
    controller = Controller.from_policy(Policy(mean_budget=MEAN, floor=FLOOR, tiers=tiers))
    assert spend(controller, "low") == 304


def test_a_cut_is_reported_and_takes_nearly_all_that_can_be_paid() -> None:
    controller = Controller.from_policy(policy(mean_budget=400), burst=100)
    grant = controller.grant("high", [PAGE])
    assert grant.budgets == (496,)  # of 500 that could be paid, in steps of 16
    assert grant.reason == "576 tokens cut to 496 by the allowance"


def test_a_policy_without_curves_keeps_its_budgets_and_takes_from_the_cheapest_first() -> None:
    tiers = {"high": TierPlan(cost=5, budget=576), "low": TierPlan(cost=1, budget=64)}
    controller = Controller.from_policy(Policy(mean_budget=350, floor=16, tiers=tiers))
    assert [spend(controller, tier) for tier in ["high", "low"] * 50] == [576, 64] * 50
    while controller.state()["budget_high"] == 576:
        spend(controller, "high")
    assert controller.state()["budget_low"] == 16
