"""A policy with per-request costs gives each request its own budget, and the gateway's total still holds."""

import httpx
import numpy as np
import pytest
from benchmarks.scenarios import published
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import ask, encoded, gateway, page, url_of
from tests.gateway.upstream import Upstream

from stakes.budgets.controller import Controller
from stakes.budgets.curve import Curve
from stakes.budgets.per_request import PerRequestPlan
from stakes.budgets.policy import Policy, TierPlan
from stakes.commands.serve import describe_policy, format_start
from stakes.gateway.proxy.decide import TierChoice, choose_tier, images_digest
from stakes.gateway.proxy.request import Call, ClientHints
from stakes.signals import Prompt


def policy(price: float) -> Policy:
    tiers = {
        tier: TierPlan(cost=cost, budget=304, curve=published()[tier]) for tier, cost in (("high", 5.0), ("low", 1.0))
    }
    return Policy(mean_budget=304, tiers=tiers, soft=PerRequestPlan(price=price), burst=3040)


def choose(rules: Policy, question: str, digest: str = "", tiers: tuple[str, ...] = ()) -> TierChoice:
    return choose_tier(rules, Call({}, prompt=Prompt(question)), ClientHints(tiers=tiers), digest)


def test_the_request_gets_the_budget_of_its_expected_cost() -> None:
    rules = policy(0.0021)
    high_cost, cheap = (choose(rules, text) for text in ("What is the total?", "Who signed?"))
    assert (high_cost.budget, cheap.budget) == (576, 32)
    controller = Controller.from_policy(rules)
    assert [controller.grant("high", [1520], budget).budgets for budget in (high_cost.budget, 96)] == [(576,), (96,)]
    assert choose(rules, "Who signed?", tiers=("high",)).budget is None  # a named tier has its fixed budget
    hard = Policy.from_record({**rules.model_dump(by_alias=True), "soft": None})
    assert choose(hard, "Who signed?").budget is None


def test_a_price_that_is_too_low_cannot_break_the_total() -> None:
    rules = policy(0.0)
    controller, spent = Controller.from_policy(rules), 0
    rng = np.random.default_rng(0)
    for number in range(1, 600):
        text = "What is the total?" if rng.random() < 0.7 else "Who signed?"
        choice = choose(rules, text)
        grant = controller.grant(choice.tier, [1520], choice.budget)
        controller.settle(grant, sum(grant.budgets))
        spent += sum(grant.budgets)
        assert spent <= 304 * number + 3040
    assert spent > 0.9 * 304 * 600


def tied(small: int, large: int, share: float) -> Policy:
    """A policy whose two budgets cost the same at its price, for every question of either tier."""
    curve = Curve([small, large], [0.9, 0.5], 300)
    tiers = {tier: TierPlan(cost=1, budget=large, curve=curve) for tier in ("high", "low")}
    soft = PerRequestPlan(price=0.4 / (large - small), share=share)
    return Policy(mean_budget=large, tiers=tiers, soft=soft, burst=100 * large)


def test_one_question_about_many_images_is_drawn_for_each() -> None:
    rules, names = tied(32, 576, 0.4), [images_digest([f"image {i}"]) for i in range(600)]
    taken = [choose(rules, "What is the total?", name).budget for name in names]
    assert set(taken) == {32, 576}
    assert np.mean([budget == 576 for budget in taken]) == pytest.approx(0.4, abs=0.06)
    assert taken == [choose(rules, "What is the total?", name).budget for name in names]
    assert images_digest(["ab", "c"]) != images_digest(["a", "bc"]) != images_digest(["abc"])


def test_a_repeated_request_gets_the_same_budget_and_another_image_may_not(
    upstream: Upstream, http: httpx.Client
) -> None:
    images = [url_of(encoded(page(280 + i, 280))) for i in range(10)]
    with gateway(upstream.url, tied(25, 64, 0.5)) as front:
        budgets = [
            http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", image)).headers[
                "x-stakes-budget"
            ]
            for image in [*images, *images]
        ]
    assert budgets[:10] == budgets[10:]
    assert set(budgets) == {"25", "64"}


def test_a_stated_cost_sets_the_budget_and_is_refused_by_a_policy_with_fixed_costs(
    upstream: Upstream, http: httpx.Client
) -> None:
    image = url_of(encoded(page(1680, 2240)))
    with gateway(upstream.url, policy(0.0021)) as front:
        url, body = f"{front.base_url}/chat/completions", ask("Who signed?", image)

        def budget(*, header: str = "", metadata: object = None) -> str:
            request = body if metadata is None else {**body, "metadata": {"stakes_cost": metadata}}
            answer = http.post(url, json=request, headers={"x-stakes-cost": header} if header else {})
            return answer.headers["x-stakes-budget"] if answer.is_success else answer.json()["error"]["code"]

        assert [budget(), budget(header="20"), budget(metadata=20), budget(metadata="20")] == ["32", *["576"] * 3]
        assert budget(header="0.01", metadata=20) == "32"  # headers win
        assert {budget(header=word) for word in ("0", "-1", "nan", "inf", "high_cost")} == {"bad_cost"}
        assert {budget(metadata=word) for word in (True, [20], 10**400)} == {"bad_cost"}
    hard = Policy.from_record({**policy(0.0021).model_dump(by_alias=True), "soft": None})
    with gateway(upstream.url, hard) as front:
        answer = http.post(f"{front.base_url}/chat/completions", json=body, headers={"x-stakes-cost": "20"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "cost_needs_soft_stakes")


def test_of_a_named_tier_and_a_stated_cost_the_larger_budget_counts(upstream: Upstream, http: httpx.Client) -> None:
    image = url_of(encoded(page(1680, 2240)))
    record = policy(0.0021).model_dump(by_alias=True)
    record["tiers"]["low"]["budget"] = 96
    with gateway(upstream.url, Policy.from_record(record)) as front:

        def granted(metadata: dict[str, object], **headers: str) -> tuple[int, str]:
            sent = {f"x-stakes-{name}": value for name, value in headers.items()}
            body = {**ask("Who signed?", image), "metadata": metadata}
            answer = http.post(f"{front.base_url}/chat/completions", json=body, headers=sent)
            assert answer.headers["x-stakes-tier"] == "low"
            return int(answer.headers["x-stakes-budget"]), answer.headers["x-stakes-why"]

        budget, why = granted({}, tier="low", cost="1000")
        assert budget == 576
        assert why.startswith(
            "header x-stakes-cost 1000: 576 tokens, more than the 96 of tier low (header x-stakes-tier)"
        )
        budget, why = granted({"stakes_tier": "low", "stakes_cost": 1000})
        assert budget == 576
        assert why.startswith(
            "metadata stakes_cost 1000: 576 tokens, more than the 96 of tier low (metadata stakes_tier)"
        )
        _, alone = granted({}, tier="low")
        budget, why = granted({}, tier="low", cost="0.01")
        assert alone == "header x-stakes-tier"
        assert budget < 576
        assert why.startswith("header x-stakes-tier: 96 tokens, no fewer than the 32 of header x-stakes-cost 0.01")


@given(st.floats(1e-3, 1e4), st.sampled_from(["high", "low"]), st.sampled_from([32, 96, 304, 576]))
def test_a_stated_cost_never_lowers_the_budget_of_a_named_tier(cost: float, tier: str, fixed: int) -> None:
    record = policy(0.0021).model_dump(by_alias=True)
    record["tiers"][tier]["budget"] = fixed
    rules, call = Policy.from_record(record), Call({}, prompt=Prompt("Who signed?"))
    alone = choose_tier(rules, call, ClientHints(cost=str(cost))).budget
    both = choose_tier(rules, call, ClientHints(tiers=(tier,), cost=str(cost)))
    assert alone is not None
    assert (both.tier, both.budget) == (tier, alone if alone > fixed else None)  # None: the tier's own budget


def test_the_mean_budget_at_the_start_is_shown_for_tiers_only() -> None:
    hard = Policy.from_record({**policy(0.0021).model_dump(by_alias=True), "soft": None})
    about = {"address": "here", "upstream": "there", "mode": "enforce"}
    assert describe_policy(hard)["begins_with"] != hard.budgets
    assert "at first, images get on average: high" in format_start({**about, **describe_policy(hard)})
    assert "on average" not in format_start({**about, **describe_policy(policy(0.0021))})
