"""A tier that escalates reserves both attempts; the total holds whatever they take, and what is left goes back."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budgets.controllers import DOCVQA, FLOOR, MEAN, PAGE

from stakes import Policy
from stakes.budgets.controller import Controller, Grant
from stakes.budgets.options.tier_plan import Escalation, OptionEvidence, TierPlan
from stakes.errors import LedgerBreach
from stakes.models.base import CONFIDENCE


def evidence(tokens: float, error: float = 0.1) -> OptionEvidence:
    return OptionEvidence(
        questions=300, documents=60, tokens=tokens, escalated=0.25, flagged=0, error=error, upper=0.2, level=0.95
    )


def policy(
    *, first: int = 224, to: int = 576, curves: bool = True, tokens: float | None = 368, **more: object
) -> Policy:
    plans = {
        "high": TierPlan(
            cost=5, budget=first, curve=DOCVQA["high"] if curves else None, escalate=Escalation(to=to, below=0.9),
            evidence=None if tokens is None else evidence(tokens),
        ),
        "low": TierPlan(cost=1, budget=96, curve=DOCVQA["low"] if curves else None),
    }  # fmt: skip
    record = {"mean_budget": MEAN, "floor": FLOOR, "tiers": plans, "confidence": CONFIDENCE}
    return Policy.model_validate(record)


def test_both_attempts_of_all_images_are_reserved_and_the_rest_goes_back() -> None:
    controller = Controller.from_policy(policy())
    before = controller.state()["allowance"]
    grant = controller.grant("high", [PAGE, PAGE, 400], second=True)
    assert grant.budgets == (224, 224, 224)
    assert sum(grant.second) == 3 * 576  # what the small image leaves over goes to the others
    assert grant.second[2] == 400
    assert controller.state()["allowance"] == before - (3 * (224 + 576) - 3 * MEAN)
    assert controller.state()["tokens_reserved"] == 3 * 800
    controller.settle(grant, 3 * 224)  # the first attempt was sure
    assert controller.state()["allowance"] == before + 3 * (MEAN - 224)
    both = controller.grant("high", [PAGE], second=True)
    controller.settle(both, 800)
    third = controller.grant("high", [PAGE], second=True)
    with pytest.raises(LedgerBreach):
        controller.settle(third, 801)
    controller.cancel(third)
    assert controller.state()["tokens_spent"] == 3 * 224 + 800


def test_a_route_that_cannot_ask_again_reserves_one_attempt() -> None:
    controller = Controller.from_policy(policy())
    grant = controller.grant("high", [PAGE])
    assert (grant.budgets, grant.second, grant.reserved) == ((224,), (), (224,))


def test_an_image_whose_native_size_the_first_attempt_sees_is_not_asked_about_again() -> None:
    grant = Controller.from_policy(policy()).grant("high", [200], second=True)
    assert (grant.budgets, grant.second) == ((200,), ())


def test_without_allowance_the_first_attempt_is_the_only_one() -> None:
    controller = Controller.from_policy(policy(), burst=400)
    grants = [controller.grant("high", [PAGE], second=True) for _ in range(2)]
    assert [grant.second for grant in grants] == [(), ()]  # 496 beyond the mean
    assert "does not pay for a second of 576 tokens" in grants[0].reason
    larger = Controller.from_policy(policy(), burst=3000)
    held = [larger.grant("high", [PAGE], second=True) for _ in range(8)]
    assert [len(grant.second) for grant in held] == [1] * 6 + [0] * 2  # 6 * 496 are below 3000
    assert {grant.budgets for grant in held} == {(224,)}


def test_reservations_do_not_lower_the_budgets_of_others() -> None:
    """What outstanding grants will return counts for the rate, though not for the hard total."""
    settled, busy = (Controller.from_policy(policy()) for _ in range(2))
    for _ in range(12):
        settled.settle(settled.grant("high", [PAGE], second=True), 368)  # what its evidence says
        busy.grant("high", [PAGE], second=True)
    assert busy.state()["allowance"] < settled.state()["allowance"] - 12 * 400
    for controller in (settled, busy):
        controller.cancel(controller.grant("low", [PAGE]))  # it plans anew
    assert busy.state()["budget_low"] == pytest.approx(settled.state()["budget_low"], abs=1)


def test_the_plan_follows_what_both_attempts_take_on_average() -> None:
    """At a rate that cannot pay for it, a part of the images gets no second attempt, and the mean holds."""
    controller = Controller.from_policy(policy(tokens=700), burst=20_000)
    dice, taken = random.Random(1), 0
    again = []
    for number in range(4000):
        tier = "high" if number % 2 else "low"
        grant = controller.grant(tier, [PAGE], second=True)
        spent = grant.budgets[0] + (grant.second[0] if grant.second and dice.random() < 0.9 else 0)
        again += [bool(grant.second)] if tier == "high" else []
        controller.settle(grant, spent)
        taken += spent
    assert taken <= MEAN * 4000 + 20_000
    assert taken > 0.93 * MEAN * 4000
    assert 0.2 < sum(again[500:]) / len(again[500:]) < 0.9


@given(st.booleans(), st.sampled_from([None, 368.0]), st.sampled_from([0, 100, 700, 5000, None]), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_no_prefix_exceeds_the_mean_and_the_burst_whatever_attempts_are_made(
    curves: bool, tokens: float | None, burst: int | None, seed: int
) -> None:
    controller = Controller.from_policy(policy(curves=curves, tokens=tokens), burst)
    limit, dice = 32 * MEAN if burst is None else burst, random.Random(seed)
    spent: dict[Grant, tuple[int, ...]] = {}
    outstanding: list[Grant] = []
    for _ in range(dice.choice([20, 120])):
        action = dice.choice(["high", "high", "low", "settle", "cancel", "settle"])
        if action in ("high", "low"):
            natives = [dice.choice([PAGE, dice.randint(1, 600)]) for _ in range(dice.choice([1, 1, 3]))]
            grant = controller.grant(action, natives, second=dice.random() < 0.8)
            outstanding.append(grant)
            spent[grant] = grant.reserved
        elif outstanding:
            grant = outstanding.pop(dice.randrange(len(outstanding)))
            if action == "cancel":
                controller.cancel(grant)
                del spent[grant]
            else:  # after the first attempt, or after both
                spent[grant] = dice.choice([grant.budgets, grant.reserved])
                controller.settle(grant, spent[grant])
        total = images = 0
        for tokens_of in spent.values():
            for one in tokens_of:
                total, images = total + one, images + 1
                assert total <= MEAN * images + limit
    for grant in outstanding:
        controller.settle(grant, grant.budgets)
        spent[grant] = grant.budgets
    state = controller.state()
    assert state["tokens_reserved"] == 0
    assert state["tokens_spent"] == sum(map(sum, spent.values()))
    assert state["allowance"] == limit + MEAN * state["images"] - state["tokens_spent"]
