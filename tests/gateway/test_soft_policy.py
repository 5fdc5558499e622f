"""A policy with soft stakes gives each request its own budget, and the gateway's total holds all the same."""

import httpx
import numpy as np
import pytest
from tests.gateway.gateways import ask, encoded, gateway, page, url_of
from tests.gateway.upstream import Upstream

from stakes.budgets.controller import Controller
from stakes.budgets.curve import Curve
from stakes.budgets.per_request import SoftPlan
from stakes.budgets.policy import CurveRecord, Policy, TierPlan
from stakes.budgets.scenarios import published
from stakes.commands.serve_rules import about_policy, first_words
from stakes.gateway.proxy.decide import choose, images_digest


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


def torn_between(small: int, large: int, share: float) -> Policy:
    """At this price every question of either tier is worth as much with few tokens as with many."""
    curve = CurveRecord.of(Curve([small, large], [0.9, 0.5], 300))
    tiers = {tier: TierPlan(cost=1, budget=large, curve=curve) for tier in ("high", "low")}
    soft = SoftPlan(price=0.4 / (large - small), share=share)
    return Policy(mean_budget=large, tiers=tiers, soft=soft, burst=100 * large)


def test_one_question_about_many_images_is_many_draws() -> None:
    rules, names = torn_between(32, 576, 0.4), [images_digest([f"image {i}"]) for i in range(600)]
    taken = [choose(rules, ("What is the total?",), None, (), "", name).budget for name in names]
    assert set(taken) == {32, 576}
    assert np.mean([budget == 576 for budget in taken]) == pytest.approx(0.4, abs=0.06)
    assert taken == [choose(rules, ("What is the total?",), None, (), "", name).budget for name in names]
    assert images_digest(["ab", "c"]) != images_digest(["a", "bc"]) != images_digest(["abc"])


def test_a_request_asked_again_gets_the_same_and_another_image_may_not(upstream: Upstream, http: httpx.Client) -> None:
    images = [url_of(encoded(page(280 + i, 280))) for i in range(10)]
    with gateway(upstream.url, torn_between(25, 64, 0.5)) as front:
        budgets = [
            http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", image)).headers[
                "x-stakes-budget"
            ]
            for image in [*images, *images]
        ]
    assert budgets[:10] == budgets[10:]
    assert set(budgets) == {"25", "64"}


def test_a_told_cost_buys_tokens_and_is_refused_where_it_means_nothing(upstream: Upstream, http: httpx.Client) -> None:
    image = url_of(encoded(page(1680, 2240)))
    with gateway(upstream.url, policy(0.0021)) as front:
        place, body = f"{front.base_url}/chat/completions", ask("Who signed?", image)

        def budget(*, header: str = "", metadata: object = None) -> str:
            said = body if metadata is None else {**body, "metadata": {"stakes_cost": metadata}}
            answer = http.post(place, json=said, headers={"x-stakes-cost": header} if header else {})
            return answer.headers["x-stakes-budget"] if answer.is_success else answer.json()["error"]["code"]

        assert [budget(), budget(header="20"), budget(metadata=20), budget(metadata="20")] == ["32", *["576"] * 3]
        assert budget(header="0.01", metadata=20) == "32"  # headers win
        assert {budget(header=word) for word in ("0", "-1", "nan", "inf", "dear")} == {"bad_cost"}
        assert {budget(metadata=word) for word in (True, [20], 10**400)} == {"bad_cost"}
    hard = Policy.from_record({**policy(0.0021).model_dump(by_alias=True), "soft": None})
    with gateway(upstream.url, hard) as front:
        answer = http.post(f"{front.base_url}/chat/completions", json=body, headers={"x-stakes-cost": "20"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "cost_needs_soft_stakes")


def test_what_images_get_at_first_is_said_of_tiers_and_not_of_soft_stakes() -> None:
    hard = Policy.from_record({**policy(0.0021).model_dump(by_alias=True), "soft": None})
    about = {"address": "here", "upstream": "there", "mode": "enforce"}
    assert about_policy(hard)["begins_with"] != hard.budgets
    assert "at first, images get on average: high" in first_words({**about, **about_policy(hard)})
    assert "on average" not in first_words({**about, **about_policy(policy(0.0021))})
