"""A router learns tier, budget and size without sending an image, and gets what the gateway would give the image."""

from typing import Any

import httpx
import pytest
from tests.gateway.gateways import HIGH, PAGE, Gateway, ask, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream, image_sizes

from stakes import count_tokens


def decide(front: Gateway, http: httpx.Client, **body: Any) -> Any:
    reply = http.post(f"{front.address}/stakes/decide", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("size", [(840, 1176), (1000, 300), (112, 84), (301, 907)])
@pytest.mark.parametrize(("question", "tier"), [("What is the total?", "high"), ("Who signed it?", "low")])
def test_it_says_what_the_gateway_does_with_such_an_image(
    front: Gateway, upstream: Upstream, http: httpx.Client, size: tuple[int, int], question: str, tier: str
) -> None:
    told = decide(front, http, question=question, images=[size])
    reply = http.post(f"{front.base_url}/chat/completions", json=ask(question, url_of(encoded(page(*size)))))
    (image,) = told["images"]
    assert told["tier"] == reply.headers["x-stakes-tier"] == tier
    assert told["why"] == reply.headers["x-stakes-why"]
    assert str(image["budget"]) == reply.headers["x-stakes-budget"]
    assert str(image["tokens"]) == reply.headers["x-stakes-predicted-tokens"]
    assert [(image["width"], image["height"])] == image_sizes(upstream.last.json)
    assert (told["policy"], told["family"], told["actuator"], told["parameters"]) == (
        "f1nger",
        "qwen2.5-vl",
        "pixels",
        {},
    )


def test_the_total_changes_only_where_tokens_are_booked(front: Gateway, http: httpx.Client) -> None:
    asked: dict[str, Any] = {"question": "What is the total?", "images": [[840, 1176], [840, 1176]]}
    assert decide(front, http, **asked)["booked"] == 0
    assert front.state()["images"] == front.state()["tokens_spent"] == 0
    told = decide(front, http, **asked, book=True)
    assert told["booked"] == sum(image["tokens"] for image in told["images"]) == front.state()["tokens_spent"]
    assert front.state()["images"] == 2
    assert front.metric("requests_total", tier="high", outcome="decided") == 2
    assert front.metric("tokens_total", tier="high", kind="predicted") == told["booked"]


def test_a_request_body_a_named_tier_and_grounding_are_read(front: Gateway, http: httpx.Client) -> None:
    body = ask("Who signed the letter?", PAGE)
    body["messages"][0]["content"][0]["image_url"]["url"] = ""
    assert decide(front, http, request=body, images=[[840, 1176]])["tier"] == "low"
    turns = [{"role": "user", "content": [{"type": "text", "text": "What is the total?"}]}]
    assert decide(front, http, request={"messages": turns}, api="messages", images=[[840, 1176]])["tier"] == "high"
    named = decide(front, http, question="Who?", tier=["low", "high"], images=[[840, 1176]])
    assert (named["tier"], named["images"][0]["budget"]) == ("high", HIGH)
    grounded = decide(front, http, question="Where?", tier="grounding", images=[[840, 1176]])
    assert grounded["images"] == [{"native": 1260, "budget": 1260, "tokens": 1260, "width": 840, "height": 1176}]


def test_it_names_the_parameter_of_another_actuator(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(family="gemma4", floor=64), actuator="vllm") as front:
        told = decide(front, http, question="What is the total?", images=[[1654, 2339]])
    assert told["parameters"] == {"mm_processor_kwargs": {"max_soft_tokens": 140}}
    assert told["images"][0]["tokens"] <= 256
    assert (told["images"][0]["width"], told["images"][0]["height"]) == (1654, 2339)
    gpt = policy(
        family="gpt-4o", mean_budget=1105, tiers={"high": {"cost": 5, "budget": 1105}, "low": {"cost": 1, "budget": 85}}
    )
    with gateway(upstream.url, gpt, actuator="detail") as front:
        assert decide(front, http, question="Who?", images=[[1654, 2339]])["images"][0]["detail"] == "low"
    assert count_tokens("gpt-4o", 1654, 2339) == 1105


BAD: list[dict[str, Any]] = [
    {"question": "Total?"},
    {"question": "Total?", "images": []},
    {"question": "Total?", "images": [[840]]},
    {"question": "Total?", "images": [[0, 5]]},
    {"question": "Total?", "images": [[10**6, 10**6]]},
    {"question": "Total?", "images": [["a", 5]]},
    {"question": "Total?", "images": [[840, 1176]] * 51},
    {"question": "Total?", "images": [[840, 1176]], "tier": "highest"},
    {"question": "Total?", "images": [[840, 1176]], "cost": -1},
    {"question": "Total?", "request": {}, "images": [[840, 1176]]},
    {"question": 7, "images": [[840, 1176]]},
    {"questions": "Total?", "images": [[840, 1176]]},
]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_nonsense_is_refused_and_books_nothing(front: Gateway, http: httpx.Client, body: dict[str, Any]) -> None:
    reply = http.post(f"{front.address}/stakes/decide", json=body)
    assert reply.status_code in (400, 422)
    assert reply.json()["error"]["message"]
    assert front.state()["images"] == 0


def test_it_needs_a_key_where_the_gateway_has_keys_and_their_limits_hold(
    upstream: Upstream, http: httpx.Client
) -> None:
    body = {"question": "What is the total?", "images": [[840, 1176]], "book": True}
    with gateway(upstream.url, client_keys=("team-a correct-horse tpm=300",)) as front:
        url, key = f"{front.address}/stakes/decide", {"authorization": "Bearer correct-horse"}
        assert http.post(url, json=body).status_code == 401
        assert http.post(url, json=body, headers=key).status_code == 200
        assert http.post(url, json=body, headers=key).status_code == 429
        assert front.state()["images"] == 1
