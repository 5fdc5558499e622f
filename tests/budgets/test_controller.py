"""The mean budget holds for every prefix of any traffic, over threads, cancellations and changes of policy."""

import random
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budgets.controllers import FLOOR, MEAN, PAGE, policy, spend

from stakes import BadInput, Curve, InfeasibleBudget, Policy
from stakes.budgets.controller import Controller, Grant
from stakes.budgets.policy import TierPlan
from stakes.errors import LedgerBreach


@st.composite
def _tiers(draw: st.DrawFn) -> dict[str, TierPlan]:
    """Two tiers (the signal names both) with any curves, or none."""
    curve = draw(st.booleans())
    plans = {}
    for tier in ("high", "low"):
        above = draw(st.sets(st.integers(FLOOR, 900), max_size=6))
        grid = sorted({draw(st.integers(FLOOR, MEAN)), *above})
        errors = draw(st.lists(st.floats(0, 1), min_size=len(grid), max_size=len(grid)))
        errors = sorted(errors, reverse=True) if draw(st.booleans()) else errors
        record = Curve(grid, errors, draw(st.integers(1, 500))) if curve else None
        plans[tier] = TierPlan(cost=draw(st.floats(0.01, 100)), budget=draw(st.sampled_from(grid)), curve=record)
    return plans


@st.composite
def _traffic(draw: st.DrawFn) -> tuple[random.Random, list[str], float]:
    """Phases of arrivals, settlements and cancellations, enough to spend any burst; some images are small."""
    phases = draw(st.lists(st.tuples(st.sampled_from(["high", "low", "settle", "cancel", "any"]), st.integers(1, 30))))
    dice = random.Random(draw(st.integers(0, 2**32)))
    kinds = [dice.choice(["high", "low", "settle", "cancel"]) if kind == "any" else kind
             for kind, length in phases for _ in range(length)]  # fmt: skip
    return dice, kinds, draw(st.sampled_from([0.0, 0.5]))


@given(_tiers(), st.sampled_from([0, 0, 30, 700, 5000, None]), _traffic())
@settings(max_examples=300)
def test_no_prefix_of_any_traffic_exceeds_the_mean_and_the_burst(
    tiers: dict[str, TierPlan], burst: int | None, traffic: tuple[random.Random, list[str], float]
) -> None:
    controller = Controller.from_policy(Policy(mean_budget=MEAN, floor=FLOOR, tiers=tiers), burst)
    limit = 32 * MEAN if burst is None else burst
    dice, kinds, small = traffic
    spent: dict[Grant, tuple[int, ...]] = {}  # in order of grants: budgets, later tokens; without cancelled ones
    outstanding: list[Grant] = []
    total = images = 0
    for kind in kinds:
        if kind in tiers:
            natives = [dice.randint(1, 60) if dice.random() < small else PAGE for _ in range(dice.choice([1, 1, 4]))]
            grant = controller.grant(kind, natives)
            assert all(min(FLOOR, n) <= b <= n for b, n in zip(grant.budgets, natives, strict=True))
            outstanding.append(grant)
            spent[grant] = grant.budgets
        elif outstanding:
            grant = outstanding.pop(dice.randrange(len(outstanding)))
            if kind == "cancel":
                controller.cancel(grant)
                del spent[grant]
            else:
                spent[grant] = tuple(dice.choice([budget, dice.randint(0, budget)]) for budget in grant.budgets)
                controller.settle(grant, spent[grant])
        total = images = 0
        for tokens in spent.values():
            for one in tokens:
                total, images = total + one, images + 1
                assert total <= MEAN * images + limit
    state = controller.state()
    assert state["images"] == images
    assert state["allowance"] >= 0
    assert state["mean"] == pytest.approx(total / images if images else 0)


def test_cancelled_lows_take_back_nothing_that_was_reserved_for_a_high() -> None:
    controller = Controller.from_policy(policy(), burst=0)
    lows = [controller.grant("low", [PAGE]) for _ in range(20)]
    assert controller.grant("high", [PAGE]).budgets == (MEAN,)  # nothing is settled, so nothing is saved
    for low in lows[:10]:
        controller.settle(low, low.budgets)
    saved = 10 * MEAN - sum(low.budgets[0] for low in lows[:10])
    assert saved > 0
    assert controller.state()["allowance"] == saved
    for low in lows[10:]:
        controller.cancel(low)
    assert controller.state()["allowance"] == saved


def test_unspent_tokens_go_back() -> None:
    controller = Controller.from_policy(policy(), burst=1000)
    grant = controller.grant("high", [PAGE])
    assert controller.state()["allowance"] == 1000 - (grant.budgets[0] - MEAN)
    controller.settle(grant, 100)
    assert controller.state()["allowance"] == 1000 + MEAN - 100


def test_the_same_calls_give_the_same_grants() -> None:
    def budgets() -> list[int]:
        dice, controller = random.Random(5), Controller.from_policy(policy())
        return [spend(controller, dice.choice(["high", "high", "low"]), dice.randint(20, 3000)) for _ in range(500)]

    assert budgets() == budgets()


def test_a_policy_that_follows_another_is_given_no_new_burst() -> None:
    first = Controller.from_policy(policy(), burst=3000)
    old = first.grant("high", [PAGE])
    for _ in range(100):
        spend(first, "high")
    second = Controller.from_policy(policy({"high": 20, "low": 1}), burst=3000, after=first)
    assert second.state()["allowance"] == first.state()["allowance"] < 600
    assert second.state()["images"] == 101
    first.settle(old, 0)
    assert second.state()["tokens_spent"] <= MEAN * 101 + 3000
    with pytest.raises(BadInput, match="another controller's"):
        second.settle(first.grant("low", [PAGE]), 0)


def test_threads_share_one_total() -> None:
    controller = Controller.from_policy(policy(), burst=0)

    def work(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(400):
            grant = controller.grant(dice.choice(["high", "low"]), [PAGE])
            controller.cancel(grant) if dice.random() < 0.2 else controller.settle(grant, sum(grant.budgets))

    threads = [Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = controller.state()
    assert state["images_outstanding"] == 0
    assert state["tokens_spent"] == state["tokens_granted"] <= MEAN * state["images"]
    assert state["allowance"] == MEAN * state["images"] - state["tokens_spent"]
    assert state["tokens_spent"] > 0.9 * MEAN * state["images"]


def test_memory_does_not_grow_with_traffic() -> None:
    controller = Controller.from_policy(policy())
    for _ in range(200):
        spend(controller, "high")
    assert not controller._outstanding
    traffic = controller._traffic
    assert len(traffic.weights) == len(traffic.seen) == len(traffic.unsent) == len(controller._credit) == 2


def test_wrong_use_is_refused_and_changes_nothing() -> None:
    controller = Controller.from_policy(policy(mean_budget=400))
    for tier, natives, words in (
        ("gold", [9], "no tier 'gold'"),
        ("high", [], "at least one"),
        ("high", [0], "not \\[0]"),
    ):
        with pytest.raises(BadInput, match=words):
            controller.grant(tier, natives)
    grant = controller.grant("high", [PAGE])
    before = controller.state()
    with pytest.raises(LedgerBreach, match="577 tokens were spent where 576"):
        controller.settle(grant, [577])
    with pytest.raises(BadInput, match="2 numbers"):
        controller.settle(grant, [1, 1])
    assert controller.state() == before
    controller.settle(grant, [576])
    settled = controller.state()
    with pytest.raises(BadInput, match="settled or cancelled before"):
        controller.settle(grant, [576])
    controller.cancel(grant)  # safe in a finally
    assert controller.state() == settled
    with pytest.raises(BadInput, match="burst"):
        Controller.from_policy(policy(), burst=-1)
    with pytest.raises(InfeasibleBudget, match="at least 32"):
        Controller.from_policy(policy().model_copy(update={"mean_budget": 20}))
    with pytest.raises(BadInput, match="above every measured budget"):
        Controller.from_policy(policy().model_copy(update={"floor": 600}))
    assert Controller.from_policy(policy(burst=7)).state()["allowance"] == 7
