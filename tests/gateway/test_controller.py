"""The mean budget holds for every prefix of any traffic, and what it buys comes near hindsight."""

import random
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes import BadInput, Curve, InfeasibleBudget, Policy, allocate
from stakes.budgets.calibrate import PAPER_GRID
from stakes.budgets.curve import cwe_at
from stakes.budgets.policy import CurveRecord, TierPlan
from stakes.errors import LedgerBreach
from stakes.experiments.published import curves as published_curves
from stakes.gateway.controller import Controller, Grant, share
from stakes.gateway.controller_path import Path

MEAN, FLOOR, PAGE = 304, 32, 5000
DOCVQA = published_curves("docvqa")


def _policy(costs: dict[str, float] | None = None, curves: dict[str, Curve] | None = None, **more: Any) -> Policy:
    costs, curves = costs or {"high": 5, "low": 1}, curves or DOCVQA
    best = allocate(curves, costs, dict.fromkeys(costs, 300), MEAN * 300 * len(costs))
    tiers = {t: TierPlan(cost=costs[t], budget=best.budgets[t], curve=CurveRecord.of(c)) for t, c in curves.items()}
    return Policy.model_validate({"mean_budget": MEAN, "floor": FLOOR, "tiers": tiers, **more})


def _spend(controller: Controller, tier: str, native: int = PAGE) -> int:
    grant = controller.grant(tier, [native])
    controller.settle(grant, grant.budgets)
    return grant.budgets[0]


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
        record = CurveRecord.of(Curve(grid, errors, draw(st.integers(1, 500)))) if curve else None
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
    took: dict[Grant, tuple[int, ...]] = {}  # in order of grants: budgets, then what was spent; cancelled ones are gone
    outstanding: list[Grant] = []
    total = images = 0
    for kind in kinds:
        if kind in tiers:
            natives = [dice.randint(1, 60) if dice.random() < small else PAGE for _ in range(dice.choice([1, 1, 4]))]
            grant = controller.grant(kind, natives)
            assert all(min(FLOOR, n) <= b <= n for b, n in zip(grant.budgets, natives, strict=True))
            outstanding.append(grant)
            took[grant] = grant.budgets
        elif outstanding:
            grant = outstanding.pop(dice.randrange(len(outstanding)))
            if kind == "cancel":
                controller.cancel(grant)
                del took[grant]
            else:
                took[grant] = tuple(dice.choice([budget, dice.randint(0, budget)]) for budget in grant.budgets)
                controller.settle(grant, took[grant])
        total = images = 0
        for tokens in took.values():
            for one in tokens:
                total, images = total + one, images + 1
                assert total <= MEAN * images + limit
    state = controller.state()
    assert state["images"] == images
    assert state["allowance"] >= 0
    assert state["mean"] == pytest.approx(total / images if images else 0)


def test_cancelled_lows_take_back_nothing_that_a_high_was_promised() -> None:
    controller = Controller.from_policy(_policy(), burst=0)
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
    controller = Controller.from_policy(_policy(), burst=1000)
    grant = controller.grant("high", [PAGE])
    assert controller.state()["allowance"] == 1000 - (grant.budgets[0] - MEAN)
    controller.settle(grant, 100)
    assert controller.state()["allowance"] == 1000 + MEAN - 100


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
    path = Path.of(_policy(costs, curves))
    found = path.solve([counts[n] / images for n in names], mean)
    low = dict(zip(names, found.budgets, strict=True))
    cwe = (1 - found.part) * cwe_at(curves, low, costs, counts)
    if found.mixed >= 0:
        cwe += found.part * cwe_at(curves, {**low, names[found.mixed]: found.upper}, costs, counts)
    assert sum(counts[n] * found.mean(i) for i, n in enumerate(names)) <= mean * images + 1e-6
    assert best.cwe - best.gap - 1e-9 <= cwe <= best.cwe + 1e-9


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_steady_mix_comes_within_two_percent_of_hindsight(part: float) -> None:
    costs, dice, warm_up, images = {"high": 5.0, "low": 1.0}, random.Random(1), 2000, 12_000
    controller = Controller.from_policy(_policy(costs))
    lost = whole = 0.0
    counts, begun_with = {"high": 0, "low": 0}, 0.0
    for i in range(warm_up + images):
        if i == warm_up:
            begun_with = controller.state()["allowance"]
        tier = "high" if dice.random() < part else "low"
        budget = _spend(controller, tier)
        if i >= warm_up:
            counts[tier] += 1
            lost += costs[tier] * DOCVQA[tier].error(budget)  # so only measured budgets are granted
            whole += costs[tier]
    best = allocate(DOCVQA, costs, counts, int(MEAN * images + begun_with), mix=True)
    assert lost / whole <= 1.02 * (best.cwe - best.gap)


def test_the_cheap_give_way_first_and_the_dearest_keep_theirs_while_the_total_allows() -> None:
    """Highs come as often as calibrated, then nothing but highs."""
    controller = Controller.from_policy(_policy(mean_budget=400))
    for tier in ["high", "low"] * 50:
        _spend(controller, tier)
    state = controller.state()
    assert state["budget_high"] == 576
    assert state["budget_low"] > 200
    kept = 0
    while controller.state()["budget_high"] == 576:
        assert _spend(controller, "high") == 576
        kept += 1
    assert kept > 10
    assert controller.state()["budget_low"] == FLOOR  # nothing was left to take from them
    more = [_spend(controller, "high") for _ in range(5000)]
    assert sum(more[-1000:]) / 1000 == pytest.approx(400, rel=0.02)
    assert controller.state()["budget_low"] == FLOOR


def test_savings_of_a_cheap_phase_are_there_for_the_dear_one_and_are_drawn_down_slowly() -> None:
    controller = Controller.from_policy(_policy(), burst=0)
    for _ in range(100):
        _spend(controller, "low")
    saved = controller.state()["allowance"]
    assert saved > 50 * MEAN  # the calibration saw as many highs, so lows are not given everything at once
    assert [_spend(controller, "high") for _ in range(10)] == [576] * 10
    for _ in range(20_000):
        _spend(controller, "low")
    assert controller.state()["allowance"] < saved / 2
    assert controller.state()["mean"] == pytest.approx(MEAN, rel=0.01)


def test_small_images_leave_tokens_that_the_others_get() -> None:
    controller = Controller.from_policy(_policy())
    dice = random.Random(2)
    for _ in range(8000):
        _spend(controller, dice.choice(["high", "low"]), dice.choice([60, PAGE]))
    assert controller.state()["mean"] == pytest.approx(MEAN, rel=0.03)
    assert controller.state()["budget_low"] > 300


@given(st.lists(st.tuples(st.integers(1, 700), st.integers(1, 3000)), min_size=1, max_size=8))
def test_leftovers_go_to_the_larger_images_and_none_is_lost(images: list[tuple[int, int]]) -> None:
    budgets, natives = [b for b, _ in images], [n for _, n in images]
    shares = share(budgets, natives)
    assert sum(shares) == min(sum(budgets), sum(natives))
    assert all(min(b, n) <= s <= n for s, b, n in zip(shares, budgets, natives, strict=True))


def test_a_request_of_several_images_shares_by_native_size() -> None:
    grant = Controller.from_policy(_policy(mean_budget=400)).grant("high", [100, 1000, 10_000])
    assert grant.budgets[0] == 100  # its native count, although the tier has 576
    assert 576 < grant.budgets[1] < grant.budgets[2]
    assert sum(grant.budgets) == 3 * 576
    assert grant.reason == "budgets shared by native size"


def test_what_one_image_leaves_over_never_goes_to_an_earlier_one_beyond_the_total() -> None:
    controller = Controller.from_policy(_policy(), burst=30)
    budgets = controller.grant("high", [PAGE, PAGE, 10, 10]).budgets
    assert budgets[:2] == (MEAN + 30, MEAN)
    assert budgets[2:] == (10, 10)


def test_an_old_mix_is_forgotten() -> None:
    controller = Controller.from_policy(_policy())
    for tier in ("high", "low"):
        for _ in range(10_000):
            _spend(controller, tier)
    assert controller.state()["mix_low"] > 0.98


def test_budgets_come_from_the_curve_that_the_policy_was_chosen_by() -> None:
    curve = CurveRecord.of(Curve([32, 304, 576], [0.9, 0.9, 0.9], 10))
    fitted = CurveRecord.of(Curve([32, 304, 576], [0.9, 0.3, 0.1], 10))
    tiers = {t: TierPlan(cost=1, budget=304, curve=curve, fitted=fitted) for t in ("high", "low")}
    controller = Controller.from_policy(Policy(mean_budget=MEAN, floor=FLOOR, tiers=tiers))
    assert _spend(controller, "low") == 304


def test_a_cut_says_so_and_stays_on_a_measured_budget() -> None:
    controller = Controller.from_policy(_policy(mean_budget=400), burst=100)
    grant = controller.grant("high", [PAGE])
    assert grant.budgets == (480,)  # of 500 that could be paid
    assert grant.reason == "576 tokens cut to 480 by the allowance"


def test_the_same_calls_give_the_same_grants() -> None:
    def budgets() -> list[int]:
        dice, controller = random.Random(5), Controller.from_policy(_policy())
        return [_spend(controller, dice.choice(["high", "high", "low"]), dice.randint(20, 3000)) for _ in range(500)]

    assert budgets() == budgets()


def test_a_policy_without_curves_keeps_its_budgets_and_takes_from_the_cheapest_first() -> None:
    tiers = {"high": TierPlan(cost=5, budget=576), "low": TierPlan(cost=1, budget=64)}
    controller = Controller.from_policy(Policy(mean_budget=350, floor=16, tiers=tiers))
    assert [_spend(controller, tier) for tier in ["high", "low"] * 50] == [576, 64] * 50
    while controller.state()["budget_high"] == 576:
        _spend(controller, "high")
    assert controller.state()["budget_low"] == 16


def test_a_policy_that_follows_another_is_given_no_new_burst() -> None:
    first = Controller.from_policy(_policy(), burst=3000)
    old = first.grant("high", [PAGE])
    for _ in range(100):
        _spend(first, "high")
    second = Controller.from_policy(_policy({"high": 20, "low": 1}), burst=3000, after=first)
    assert second.state()["allowance"] == first.state()["allowance"] < 600
    assert second.state()["images"] == 101
    first.settle(old, 0)
    assert second.state()["tokens_spent"] <= MEAN * 101 + 3000
    with pytest.raises(BadInput, match="another controller's"):
        second.settle(first.grant("low", [PAGE]), 0)


def test_threads_share_one_total() -> None:
    controller = Controller.from_policy(_policy(), burst=0)

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
    controller = Controller.from_policy(_policy())
    for _ in range(200):
        _spend(controller, "high")
    assert not controller._outstanding
    assert len(controller._weights) == len(controller._seen) == len(controller._turns) == 2


def test_wrong_use_is_refused_and_changes_nothing() -> None:
    controller = Controller.from_policy(_policy(mean_budget=400))
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
        Controller.from_policy(_policy(), burst=-1)
    with pytest.raises(InfeasibleBudget, match="at least 32"):
        Controller.from_policy(_policy().model_copy(update={"mean_budget": 20}))
    with pytest.raises(BadInput, match="above every measured budget"):
        Controller.from_policy(_policy().model_copy(update={"floor": 600}))
    assert Controller.from_policy(_policy(burst=7)).state()["allowance"] == 7
