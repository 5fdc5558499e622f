"""What a certificate promised is what is served, wherever the total pays for it."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA, FLOOR, MEAN, PAGE, spend

from stakes import Policy
from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import Path
from stakes.budgets.policy import CurveRecord, TierPlan
from stakes.gateway.reload import Served, cautions

GRID = DOCVQA["low"].budgets  # of both tiers


def certified(high: int, low: int, shipped: str = "tiered", ceilings: dict[str, int] | None = None) -> Policy:
    budgets = {"high": high, "low": low}
    tiers = {
        tier: TierPlan(cost=cost, budget=budgets[tier], curve=CurveRecord.of(DOCVQA[tier]))
        for tier, cost in (("high", 5.0), ("low", 1.0))
    }
    held = {tier: {"tier": tier, "budget": budget} for tier, budget in (ceilings or {}).items()}
    certificate: dict[str, Any] = {"shipped": shipped, "budgets": budgets, "ceilings": held}
    return Policy(mean_budget=MEAN, floor=FLOOR, tiers=tiers, certificate=certificate)


def served(policy: Policy, share: float, images: int = 3000) -> dict[str, list[int]]:
    controller, dice = Controller.from_policy(policy), random.Random(1)
    found: dict[str, list[int]] = {"high": [], "low": []}
    for _ in range(images):
        tier = "high" if dice.random() < share else "low"
        found[tier].append(spend(controller, tier))
    return found


def part_from(least: int, budgets: list[int]) -> float:
    return sum(budget >= least for budget in budgets) / len(budgets)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_where_tiers_are_not_certified_to_help_everybody_gets_the_same(share: float) -> None:
    assert {budget for budgets in served(certified(304, 304, "uniform"), share).values() for budget in budgets} == {304}


def test_what_small_images_leave_over_makes_no_tiers_of_uniform() -> None:
    found: dict[str, set[int]] = {}
    for shipped in ("uniform", "tiered"):
        controller = Controller.from_policy(certified(304, 304, shipped))
        taken = [spend(controller, tier, native) for tier in ("high", "low") * 500 for native in (100, PAGE)]
        found[shipped] = {*taken[1::2]}
    assert found["uniform"] == {304}
    assert max(found["tiered"]) > 304  # where tiers are certified to help, it is spent


def test_certified_budgets_are_served_at_the_mix_that_they_were_certified_on() -> None:
    found = served(certified(480, 96), 0.5)
    assert part_from(480, found["high"]) > 0.99
    assert part_from(96, found["low"]) > 0.95  # a run of highs by chance is paid for by the cheap


def test_a_ceiling_is_kept_when_the_cheap_have_to_give_way_and_before_what_is_dearer() -> None:
    assert part_from(448, served(certified(448, 160, ceilings={"high": 448}), 0.6)["high"]) > 0.98
    assert part_from(448, served(certified(448, 448, ceilings={"low": 448}), 0.5)["low"]) > 0.98
    assert part_from(448, served(certified(448, 448), 0.5)["low"]) < 0.1  # without one the cheap do


@given(st.sampled_from(GRID), st.sampled_from(GRID), st.floats(0.05, 0.95), st.sampled_from(["high", "low", ""]))
def test_the_path_passes_by_the_budgets_that_ship_whatever_the_mix(
    high: int, low: int, share: float, held: str
) -> None:
    policy = certified(high, low, ceilings={held: {"high": high, "low": low}[held]} if held else {})
    path = Path.of(policy.model_copy(update={"mean_budget": 576}))
    found = path.solve([share, 1 - share], share * high + (1 - share) * low + 1e-6)
    assert found.budgets == [high, low]
    assert found.part < 1e-3


def test_a_certificate_of_other_budgets_is_not_kept_and_that_is_said() -> None:
    policy = certified(480, 96)
    assert not cautions(policy)
    tiers = {**policy.tiers, "low": policy.tiers["low"].model_copy(update={"budget": 64})}
    edited = policy.model_copy(update={"tiers": tiers})
    assert [sentence.partition(":")[0] for sentence in cautions(edited)] == ["NOT CERTIFIED"]
    assert Path.of(edited) == Path.of(policy.model_copy(update={"certificate": None}))
    assert Path.of(policy) != Path.of(policy.model_copy(update={"certificate": None}))


def test_a_file_that_gains_or_loses_its_certificate_is_served_otherwise_from_then_on() -> None:
    policy = certified(304, 304, "uniform")
    found = [policy, policy, policy.model_copy(update={"certificate": None})]
    rules = Served.start(lambda: found[0], (), lambda _: None)
    told = []
    for one in found[1:]:
        found[0], rules._stamp = one, ((1, 1, 1),)
        told.append(rules.look())
    assert told == ["same", "loaded"]
