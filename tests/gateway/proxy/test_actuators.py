"""Where resizing does not work, the engine's parameter is set to the most tokens within the budgets."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import PAGE, ask, gateway, policy
from tests.gateway.upstream import Upstream

from stakes import BadInput, InfeasibleBudget, count_tokens
from stakes.gateway.proxy import actuators
from stakes.gateway.proxy.actuators import choose_setting, engine_settings


@pytest.mark.parametrize(
    ("actuator", "family", "expected"),
    [
        ("vllm", "qwen2.5-vl", {"min_pixels": 3136, "max_pixels": 256 * 784}),
        ("vllm", "gemma4", {"max_soft_tokens": 140}),
        ("lmdeploy", "qwen2.5-vl", {"image": {"min_pixels": 3136, "max_pixels": 256 * 784}}),
        ("lmdeploy", "internvl", {"image": {"max_dynamic_patch": 1}}),
    ],
)
def test_an_engines_parameter_is_written_flat_or_nested(
    upstream: Upstream, http: httpx.Client, actuator: str, family: str, expected: dict[str, Any]
) -> None:
    with gateway(upstream.url, policy(family=family), actuator=actuator) as front:
        body = ask("What is the total?", mm_processor_kwargs={"other": 1})
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
    assert reply.status_code == 200
    sent = upstream.last.json
    assert sent["mm_processor_kwargs"] == {"other": 1, **expected}
    assert sent["messages"] == body["messages"]  # the image itself is unchanged
    assert int(reply.headers["x-stakes-predicted-tokens"]) <= 256


@pytest.mark.parametrize(
    ("family", "actuator", "budget", "put"),
    [
        ("gpt-4o", "detail", 300, {"detail": "low"}),
        ("gpt-4o", "detail", 1200, {"detail": "high"}),
        ("gemini-3", "detail", 300, {"detail": "low"}),
        ("gemini-3", "detail", 1200, {"detail": "high"}),
    ],
)
def test_detail_is_set_on_each_image(
    upstream: Upstream, http: httpx.Client, family: str, actuator: str, budget: int, put: dict[str, str]
) -> None:
    rules = policy(
        family=family,
        mean_budget=budget,
        tiers={"high": {"cost": 5, "budget": budget}, "low": {"cost": 1, "budget": budget}},
    )
    with gateway(upstream.url, rules, actuator=actuator) as front:
        assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 200
    assert upstream.last.json["messages"][0]["content"][0]["image_url"] == {"url": PAGE, **put}


def test_gemini_gets_a_media_resolution(upstream: Upstream, http: httpx.Client) -> None:
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family="gemini-3", mean_budget=600, tiers=tiers), actuator="gemini") as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
        assert upstream.last.json["messages"][0]["content"][0]["media_resolution"] == {
            "level": "MEDIA_RESOLUTION_MEDIUM"
        }
        http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?"))
        assert upstream.last.json["messages"][0]["content"][0]["media_resolution"] == {"level": "MEDIA_RESOLUTION_LOW"}


def test_pixels_set_high_detail_for_gpt_and_keep_low_unchanged(upstream: Upstream, http: httpx.Client) -> None:
    tiers = {"high": {"cost": 5, "budget": 600}, "low": {"cost": 1, "budget": 300}}
    with gateway(upstream.url, policy(family="gpt-4o", mean_budget=600, tiers=tiers)) as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?"))
        sent = upstream.last.json["messages"][0]["content"][0]["image_url"]
        assert sent["detail"] == "high"
        assert sent["url"] != PAGE
        low = ask("Who signed it?")
        low["messages"][0]["content"][0]["image_url"]["detail"] = "low"
        reply = http.post(f"{front.base_url}/chat/completions", json=low)
        assert reply.headers["x-stakes-outcome"] == "uncompressed"
        assert upstream.last.json == low


def test_a_budget_below_every_setting_is_refused(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(family="internvl"), actuator="vllm") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?"))
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "infeasible_budget")
    assert reply.json()["error"]["message"] == "no setting takes 64 tokens or fewer; the least is 256"


@pytest.mark.parametrize(
    ("actuator", "family"),
    [("pixels", "smolvlm"), ("vllm", "gpt-4o"), ("detail", "qwen2.5-vl"), ("gemini", "gpt-4o"), ("vllm", "gemma3")],
)
def test_an_actuator_that_does_not_fit_the_family_is_refused_at_the_start(actuator: Any, family: str) -> None:
    with pytest.raises(BadInput):
        actuators.check(actuator, family)


@given(
    st.lists(st.tuples(st.integers(60, 3000), st.integers(60, 3000)), min_size=1, max_size=4),
    st.integers(8, 4000),
    st.sampled_from(["qwen2.5-vl", "qwen3-vl", "internvl", "gemma4", "idefics3", "smolvlm"]),
)
def test_the_setting_is_the_largest_within_the_budget(sizes: list[tuple[int, int]], total: int, family: str) -> None:
    settings = engine_settings(family, total)
    every = [sum(one.formula.tokens(*size) for size in sizes) for one in settings]
    within = [tokens for tokens in every if tokens <= total]
    if not within:
        with pytest.raises(InfeasibleBudget):
            choose_setting(settings, sizes, total)
        return
    setting, tokens = choose_setting(settings, sizes, total)
    assert sum(tokens) == max(within)
    if family.startswith("qwen"):
        pixels = setting.value["max_pixels"]
        assert tokens == [count_tokens(family, *size, max_pixels=pixels) for size in sizes]
