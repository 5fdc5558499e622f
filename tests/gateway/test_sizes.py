"""Sizes are stable: the same for a repeated request, and for an image over the turns of its conversation."""

import hashlib
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.budgets.controllers import policy as calibrated
from tests.gateway.gateways import (
    PAGE,
    Gateway,
    ask,
    blank,
    encoded,
    gateway,
    image_part,
    page,
    policy,
    text_part,
    url_of,
)
from tests.gateway.upstream import Upstream, image_sizes, until

from stakes import Policy
from stakes.budgets.controller import GrantedSize
from stakes.gateway.proxy.request import ClientHints
from stakes.gateway.sizes import SizeMemory, place_of

HIGH, LOW = "What is the total?", "Who signed it?"
COSTS = {"high": 5.0, "low": 1.0}


def post(front: Gateway, http: httpx.Client, body: dict[str, Any], **headers: str) -> httpx.Headers:
    reply = http.post(f"{front.base_url}/chat/completions", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.headers


def turns(*questions: str, images: tuple[str, ...] = (PAGE,)) -> dict[str, Any]:
    """A conversation about images of the first turn, and as many questions."""
    first = [*(image_part(url) for url in images), text_part(questions[0])]
    messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
    for question in questions[1:]:
        messages += [{"role": "assistant", "content": "42"}, {"role": "user", "content": question}]
    return {"model": "tiny", "messages": messages}


def test_ten_repetitions_of_one_request_get_one_size_among_other_traffic(
    upstream: Upstream, http: httpx.Client
) -> None:
    """At a mean of 200 the optimum mixes two budgets for the high tier; other pages get either."""
    others = [blank(n) for n in range(40)]
    with gateway(upstream.url, calibrated(mean_budget=200)) as front:
        again, new = [], []
        for n, other in enumerate(others):
            reply = post(front, http, ask((HIGH, LOW)[n % 2], other))
            new += [reply["x-stakes-budget"]] if reply["x-stakes-tier"] == "high" else []
            if n % 4 == 0:
                again.append(post(front, http, ask(HIGH, blank(100)))["x-stakes-budget"])
        assert len(set(again)) == 1
        assert len(set(new)) > 1


def test_an_image_keeps_its_size_over_six_turns(upstream: Upstream, http: httpx.Client) -> None:
    """Questions of the low tier do not shrink it: the engine would compute the whole conversation again."""
    asked = (HIGH, LOW, "And which colour is it?", HIGH, LOW, LOW)
    with gateway(upstream.url, policy(mean_budget=300)) as front:
        replies = [post(front, http, turns(*asked[: n + 1])) for n in range(len(asked))]
        sizes = [image_sizes(one.json) for one in upstream.posts()]
    assert [one["x-stakes-tier"] for one in replies] == ["high", "low", "low", "high", "low", "low"]
    assert len(set(map(str, sizes))) == 1
    assert "kept" not in replies[0]["x-stakes-why"]
    assert replies[1]["x-stakes-why"].endswith("; size kept from an earlier request")


def test_a_question_of_a_more_expensive_tier_enlarges_the_image_for_good(
    upstream: Upstream, http: httpx.Client
) -> None:
    asked = (LOW, "And which colour is it?", HIGH, LOW)
    with gateway(upstream.url, policy(mean_budget=300)) as front:
        budgets = [post(front, http, turns(*asked[: n + 1]))["x-stakes-budget"] for n in range(len(asked))]
    assert budgets == ["64", "64", "256", "256"]


def test_a_new_question_about_the_page_has_the_size_of_its_own_tier(upstream: Upstream, http: httpx.Client) -> None:
    """It begins a conversation of its own, and a client may name a tier for the same question."""
    with gateway(upstream.url, policy(mean_budget=300)) as front:
        assert post(front, http, ask(HIGH))["x-stakes-budget"] == "256"
        assert post(front, http, ask(LOW))["x-stakes-budget"] == "64"
        assert post(front, http, ask(HIGH), **{"x-stakes-tier": "low"})["x-stakes-budget"] == "64"


def test_a_new_image_in_a_later_turn_leaves_the_first_as_it_was(upstream: Upstream, http: httpx.Client) -> None:
    small = url_of(encoded(page(84, 84)))
    with gateway(upstream.url, policy(mean_budget=300)) as front:
        first = post(front, http, turns(HIGH))["x-stakes-budget"]
        body = turns(HIGH, HIGH)
        body["messages"][-1]["content"] = [image_part(small), text_part(HIGH)]
        assert post(front, http, body)["x-stakes-budget"] == f"{first},9"  # its rest would go to the larger image


def test_responses_and_tool_results_are_conversations_too(upstream: Upstream, http: httpx.Client) -> None:
    user = {
        "role": "user",
        "content": [{"type": "input_image", "image_url": PAGE}, {"type": "input_text", "text": HIGH}],
    }
    call = {"type": "function_call", "call_id": "c", "name": "zoom", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}
    low = {"role": "user", "content": [{"type": "input_text", "text": LOW}]}
    with gateway(upstream.url, policy(mean_budget=300)) as front:
        for items in ([user], [user, call, output, low]):
            reply = http.post(f"{front.base_url}/responses", json={"model": "tiny", "input": items})
            assert (reply.status_code, reply.headers["x-stakes-budget"]) == (200, "256")
        assert reply.headers["x-stakes-tier"] == "low"


@pytest.mark.parametrize("keys", [(), ("alpha-key-1", "beta-key-22")], ids=["passed on", "own"])
def test_no_client_learns_what_another_has_sent(upstream: Upstream, http: httpx.Client, keys: tuple[str, ...]) -> None:
    with gateway(upstream.url, policy(mean_budget=300), client_keys=keys) as front:
        alpha, beta = ({"authorization": f"Bearer {key}"} for key in ("alpha-key-1", "beta-key-22"))
        assert post(front, http, turns(HIGH), **alpha)["x-stakes-budget"] == "256"
        assert post(front, http, turns(HIGH, LOW), **beta)["x-stakes-budget"] == "64"
        assert post(front, http, turns(HIGH, LOW), **alpha)["x-stakes-budget"] == "256"


def test_a_new_policy_forgets_the_sizes_of_the_old(upstream: Upstream, http: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    policy(mean_budget=300).save(path)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        assert post(front, http, turns(HIGH))["x-stakes-budget"] == "256"
        policy(mean_budget=301, fingerprint="second").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: front.served.rules.policy.fingerprint == "second")
        assert post(front, http, turns(HIGH, LOW))["x-stakes-budget"] == "64"


def test_the_memory_is_bounded_and_holds_digests_only() -> None:
    memory, part = SizeMemory(most=20), {"type": "image_url"}
    dice = random.Random(1)
    for n in range(100):
        data = dice.randbytes(50)
        keys = memory.keys("sender", "high", [{"role": "user", "content": [part]}], [(part, data)])
        memory.store(keys, [GrantedSize("high", 576, n)])
    assert len(memory._sizes) == 20
    assert {len(digest) for digest in memory._sizes} == {16}
    assert memory.find(keys, "high", COSTS)[0].before == GrantedSize("high", 576, 99)
    assert not {*memory._sizes} & {*SizeMemory()._sizes}
    other = SizeMemory().keys("sender", "high", [{"role": "user", "content": [part]}], [(part, data)])
    assert other[0].page != keys[0].page  # of another process: digests cannot be compared with those of known pages
    assert other[0].place == keys[0].place == place_of(hashlib.blake2b(data, digest_size=32).digest())


def test_places_are_spread_evenly() -> None:
    dice = random.Random(2)
    places = sorted(place_of(hashlib.blake2b(dice.randbytes(20)).digest()) for _ in range(1000))
    assert max(abs(place - n / 1000) for n, place in enumerate(places)) < 0.05


def test_the_sender_is_a_digest_of_the_credentials() -> None:
    one, other = (ClientHints.from_headers({b"x-api-key": key}) for key in (b"first-key", b"other-key"))
    assert one.sender != other.sender
    assert "first-key" not in one.sender
    assert "sender" not in repr(one)
    assert ClientHints.from_headers({}).sender == ""
