"""The gateway serves deletion policies through vLLM's plugin: one budget for each image, checked against usage."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import PAGE, ask, blank, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Script, Seen, Upstream, Wire, image_sizes

from stakes import BadInput, count_tokens
from stakes.gateway.monitoring.probe import check_upstream
from stakes.gateway.monitoring.upstreams import UpstreamCheck
from stakes.gateway.proxy.actuators import check_servable
from stakes.gateway.settings import Settings
from stakes.models import Request, load

DELETION: dict[str, Any] = {"mechanism": "deletion", "selector": "divprune"}
SMALL = url_of(encoded(page(112, 112)))  # 16 tokens


def plugin(missing: bool = False, trusting: bool = True) -> Script:
    """A vLLM that counts as the plugin does; without it, budgets are ignored."""

    def reason(own: Any) -> str | None:
        if own and not trusting:
            return "Per-request mm_processor_kwargs are disabled by default"
        if own and not missing and own["stakes_budget"] == 0:
            return "a stakes_budget must be a whole number of visual tokens, at least 1, not 0"
        return None

    def answer(seen: Seen, wire: Wire) -> None:
        if seen.path.startswith("/v1/models"):
            return wire.reply(b'{"object": "list", "data": [{"id": "tiny", "object": "model", "owned_by": "vllm"}]}')
        body = seen.json
        own = body.get("mm_processor_kwargs")
        if (why := reason(own)) is not None:
            return wire.reply(json.dumps({"error": {"message": why}}).encode(), 400)
        tokens = [count_tokens("qwen2.5-vl", *size) for size in image_sizes(body)]
        if own and not missing:
            given = own["stakes_budget"]
            given = given if isinstance(given, list) else [given] * len(tokens)
            tokens = [n if one is None else one for n, one in zip(tokens, given, strict=True)]
        usage: dict[str, Any] = {"prompt_tokens": 20 + sum(tokens), "completion_tokens": 1}
        usage |= {"prompt_tokens_details": {"multimodal_tokens": {"image": sum(tokens)}}}
        choice = {"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "tiny", "choices": [choice]}
        return wire.reply(json.dumps({**reply, "usage": usage}).encode())

    return answer


def test_every_image_has_its_own_budget_and_predictions_agree(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = plugin()
    with gateway(upstream.url, policy(**DELETION), actuator="vllm-deletion") as front:
        for question, urls, budgets in (
            ("What is the total?", [PAGE], [256]),
            ("Describe the logo.", [PAGE], [64]),
            ("Describe the logo.", [PAGE, SMALL, blank(3)], [64, None, 112]),  # 48 that the small one does not take
        ):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask(question, *urls))
            assert reply.status_code == 200, reply.text
            sent = upstream.seen[-1].json
            assert sent["mm_processor_kwargs"] == {"stakes_budget": budgets, "stakes_selector": "divprune"}
            parts = [part["image_url"]["url"] for part in sent["messages"][0]["content"] if "image_url" in part]
            assert parts == urls  # not resized
            predicted = [int(n) for n in reply.headers["x-stakes-predicted-tokens"].split(",")]
            assert predicted == [16 if n is None else n for n in budgets]
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", SMALL))
        assert "mm_processor_kwargs" not in upstream.seen[-1].json
        assert front.metric("usage_checks_total", result="agreed") == 4


def test_a_vllm_that_lost_the_plugin_is_noticed(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = plugin(missing=True)
    with gateway(upstream.url, policy(**DELETION), actuator="vllm-deletion") as front:
        for _ in range(3):
            http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
        assert front.metric("usage_checks_total", result="differed") == 3


@pytest.mark.parametrize(
    ("more", "actuator", "says"),
    [
        ({}, "vllm-deletion", "calibrated by resolution"),
        (DELETION, "pixels", "serve it with --actuator vllm-deletion"),
        ({**DELETION, "selector": "fastv"}, "vllm-deletion", "--selector redundancy, divprune, random or saliency"),
        ({**DELETION, "selector": "blank+divprune"}, "vllm-deletion", "calibrate without blank"),
        (
            {**DELETION, "family": "internvl"},
            "vllm-deletion",
            "works with qwen2.5-vl, qwen3-vl, llava-onevision, not",
        ),
    ],
)
def test_a_policy_that_vllm_cannot_keep_is_refused(more: dict[str, Any], actuator: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        check_servable(policy(**more), Settings(upstream="http://127.0.0.1/v1", actuator=actuator))


def doctor(upstream: Upstream, actuator: Any) -> dict[str, UpstreamCheck]:
    settings = Settings(upstream=upstream.url, actuator=actuator)
    rules = policy(**DELETION) if actuator == "vllm-deletion" else policy()
    return {one.name: one for one in asyncio.run(check_upstream(settings, rules))}


@pytest.mark.parametrize(
    ("server", "state", "says"),
    [
        (plugin(), "good", "has the plugin"),
        (plugin(missing=True), "bad", "has no plugin"),
        (plugin(trusting=False), "bad", "takes no mm_processor_kwargs"),
    ],
)
def test_doctor_says_whether_the_upstream_has_the_plugin(
    upstream: Upstream, server: Script, state: str, says: str
) -> None:
    upstream.script = server
    found = doctor(upstream, "vllm-deletion")
    assert found["upstream plugin"].state == state
    assert says in found["upstream plugin"].found
    assert ("tokens follow" in found) == (state == "good")
    assert state != "good" or found["tokens follow"].state == "good"
    other = doctor(upstream, "pixels")["upstream plugin"]
    assert other.state == ("good" if state == "good" else "absent")


def test_an_endpoint_deletes_through_the_plugin_and_checks_the_count(upstream: Upstream) -> None:
    upstream.script = plugin()
    with load(upstream.url, actuator="vllm-deletion") as behind:
        whole, reduced = behind.answer([Request(page(), "?"), Request(page(), "?", 99, "deletion", "random", "s")])
        assert (whole.realised_tokens, reduced.realised_tokens) == (1260, 99)
        own = [seen.json.get("mm_processor_kwargs") for seen in upstream.seen if seen.path.endswith("completions")]
        assert {"stakes_budget": 99, "stakes_selector": "random", "stakes_sample": "s"} in own
        with pytest.raises(BadInput, match="use the mechanism deletion"):
            behind.answer([Request(page(), "?", 99)])
