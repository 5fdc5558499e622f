"""A policy with soft stakes gives each request its own budget, and the gateway's total holds all the same."""

import numpy as np

from stakes.budgets.policy import CurveRecord, Policy, TierPlan
from stakes.budgets.scenarios import published
from stakes.budgets.soft_plan import SoftPlan
from stakes.gateway.controller import Controller
from stakes.gateway.decide import choose


def policy(price: float) -> Policy:
    tiers = {
        tier: TierPlan(cost=cost, budget=304, curve=CurveRecord.of(published()[tier]))
        for tier, cost in (("high", 5.0), ("low", 1.0))
    }
    return Policy(mean_budget=304, tiers=tiers, soft=SoftPlan(price=price), burst=3040)


def test_the_request_gets_the_budget_of_its_expected_cost() -> None:
    rules = policy(0.0021)
    dear, cheap = (choose(rules, (text,), None, (), "") for text in ("What is the total?", "Who signed?"))
    assert (dear.budget, cheap.budget) == (576, 32)
    controller = Controller.from_policy(rules)
    assert [controller.grant("high", [1520], wanted).budgets for wanted in (dear.budget, 96)] == [(576,), (96,)]
    assert choose(rules, ("Who signed?",), None, ("high",), "header").budget is None  # the client's word has no price
    hard = Policy.from_record({**rules.model_dump(by_alias=True), "soft": None})
    assert choose(hard, ("Who signed?",), None, (), "").budget is None


def test_a_price_that_is_too_low_cannot_break_the_total() -> None:
    rules = policy(0.0)
    controller, spent = Controller.from_policy(rules), 0
    rng = np.random.default_rng(0)
    for number in range(1, 600):
        text = "What is the total?" if rng.random() < 0.7 else "Who signed?"
        choice = choose(rules, (text,), None, (), "")
        grant = controller.grant(choice.tier, [1520], choice.budget)
        controller.settle(grant, sum(grant.budgets))
        spent += sum(grant.budgets)
        assert spent <= 304 * number + 3040
    assert spent > 0.9 * 304 * 600
