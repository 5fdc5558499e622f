"""The certified budgets are served wherever the total pays for them."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA, FLOOR, MEAN, PAGE, spend

from stakes import Policy
from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import BudgetPath
from stakes.budgets.policy import TierPlan
from stakes.gateway.reload import Served, policy_warnings

GRID = DOCVQA["low"].budgets  # of both tiers


def certified(high: int, low: int, shipped: str = "tiered", ceilings: dict[str, int] | None = None) -> Policy:
    budgets = {"high": high, "low": low}
    tiers = {
        tier: TierPlan(cost=cost, budget=budgets[tier], curve=DOCVQA[tier])
        for tier, cost in (("high", 5.0), ("low", 1.0))
    }
    held = {tier: {"tier": tier, "budget": budget} for tier, budget in (ceilings or {}).items()}
    certificate: dict[str, Any] = {"shipped": shipped, "budgets": budgets, "ceilings": held}
    return Policy(mean_budget=MEAN, floor=FLOOR, tiers=tiers, certificate=certificate)


def served(policy: Policy, share: float, images: int = 3000) -> dict[str, list[int]]:
    controller, dice = Controller.from_policy(policy), random.Random(1)
    result: dict[str, list[int]] = {"high": [], "low": []}
    for _ in range(images):
        tier = "high" if dice.random() < share else "low"
        result[tier].append(spend(controller, tier))
    return result


def part_from(least: int, budgets: list[int]) -> float:
    return sum(budget >= least for budget in budgets) / len(budgets)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_where_tiers_are_not_certified_to_help_everybody_gets_the_same(share: float) -> None:
    assert {budget for budgets in served(certified(304, 304, "uniform"), share).values() for budget in budgets} == {304}


def test_what_small_images_leave_over_makes_no_tiers_of_uniform() -> None:
    result: dict[str, set[int]] = {}
    for shipped in ("uniform", "tiered"):
        controller = Controller.from_policy(certified(304, 304, shipped))
        taken = [spend(controller, tier, native) for tier in ("high", "low") * 500 for native in (100, PAGE)]
        result[shipped] = {*taken[1::2]}
    assert result["uniform"] == {304}
    assert max(result["tiered"]) > 304  # where tiers are certified to help, it is spent


def test_certified_budgets_are_served_at_the_mix_that_they_were_certified_on() -> None:
    result = served(certified(480, 96), 0.5)
    assert part_from(480, result["high"]) > 0.99
    assert part_from(96, result["low"]) > 0.95  # a run of highs by chance is paid for by the low tier


def test_a_ceiling_holds_while_low_cost_tiers_give_way_and_comes_before_higher_costs() -> None:
    assert part_from(448, served(certified(448, 160, ceilings={"high": 448}), 0.6)["high"]) > 0.98
    assert part_from(448, served(certified(448, 448, ceilings={"low": 448}), 0.5)["low"]) > 0.98
    assert part_from(448, served(certified(448, 448), 0.5)["low"]) < 0.1  # without one the low tier gives way


@given(st.sampled_from(GRID), st.sampled_from(GRID), st.floats(0.05, 0.95), st.sampled_from(["high", "low", ""]))
def test_the_path_passes_by_the_budgets_that_ship_whatever_the_mix(
    high: int, low: int, share: float, held: str
) -> None:
    policy = certified(high, low, ceilings={held: {"high": high, "low": low}[held]} if held else {})
    path = BudgetPath.of(policy.model_copy(update={"mean_budget": 576}))
    result = path.solve([share, 1 - share], share * high + (1 - share) * low + 1e-6)
    assert result.budgets == [high, low]
    assert result.part < 1e-3


def test_a_certificate_of_other_budgets_is_ignored_with_a_warning() -> None:
    policy = certified(480, 96)
    assert "NOT CERTIFIED" not in " ".join(policy_warnings(policy))
    tiers = {**policy.tiers, "low": policy.tiers["low"].model_copy(update={"budget": 64})}
    edited = policy.model_copy(update={"tiers": tiers})
    assert [sentence.partition(":")[0] for sentence in policy_warnings(edited)] == ["NOT CERTIFIED"]
    assert BudgetPath.of(edited) == BudgetPath.of(policy.model_copy(update={"certificate": None}))
    assert BudgetPath.of(policy) != BudgetPath.of(policy.model_copy(update={"certificate": None}))


def test_a_file_that_gains_or_loses_its_certificate_changes_what_is_served() -> None:
    policy = certified(304, 304, "uniform")
    policies = [policy, policy, policy.model_copy(update={"certificate": None})]
    rules = Served(lambda: policies[0], (), lambda _: None)
    reports = []
    for one in policies[1:]:
        policies[0], rules._stamp = one, ((1, 1, 1),)
        reports.append(rules.reload_if_changed())
    assert reports == ["same", "loaded"]
