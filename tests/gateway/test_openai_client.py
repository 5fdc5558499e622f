"""The official client works through the gateway unchanged: sync, async, streamed, chat and responses."""

import asyncio
import json
from typing import Any

import openai
import pytest
from tests.gateway.gateways import HIGH, LOW, PAGE, Gateway, ask, gateway
from tests.gateway.upstream import Upstream, image_sizes

RESPONSES_INPUT: Any = [
    {"role": "user", "content": [{"type": "input_image", "image_url": PAGE}, {"type": "input_text", "text": "Total?"}]}
]


def client(front: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=front.base_url, api_key="sk-client", max_retries=0)


def test_a_question_about_a_page_is_answered_at_its_tiers_budget(front: Gateway, upstream: Upstream) -> None:
    with client(front) as one:
        raw = one.chat.completions.with_raw_response.create(**ask("What is the invoice total?"))
        cheap = one.chat.completions.with_raw_response.create(**ask("Who signed the letter?"))
    answer = raw.parse()
    assert answer.choices[0].message.content == "42"
    ((width, height),) = image_sizes(upstream.posts()[0].json)
    tokens = width * height // 784
    assert 0.9 * HIGH < tokens <= HIGH
    assert raw.headers["x-stakes-tier"] == "high"
    assert raw.headers["x-stakes-why"] == 'keyword "total"'
    assert raw.headers["x-stakes-budget"] == str(HIGH)
    assert raw.headers["x-stakes-native-tokens"] == "1260"
    assert raw.headers["x-stakes-predicted-tokens"] == str(tokens)
    assert raw.headers["x-stakes-scale"] == f"{width / 840:.4f}x{height / 1176:.4f}"
    assert raw.headers["x-stakes-policy"] == "f1nger"
    assert raw.headers["x-stakes-mode"] == "enforce"
    assert cheap.headers["x-stakes-budget"] == str(LOW)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 10 + tokens
    assert front.metric("usage_checks_total", result="agreed") == 2


def test_a_text_conversation_is_forwarded_byte_for_byte(front: Gateway, upstream: Upstream) -> None:
    with client(front) as one:
        raw = one.chat.completions.with_raw_response.create(
            model="tiny", messages=[{"role": "user", "content": "What is 6 × 7? Ünïcode and \u2028 too"}]
        )
    assert raw.parse().choices[0].message.content == "42"
    assert raw.http_request.content == upstream.last.body
    assert not [name for name in raw.headers if name.startswith("x-stakes")]
    assert upstream.last.header("authorization") == "Bearer sk-client"


def test_a_stream_arrives_whole_with_the_headers_first(front: Gateway) -> None:
    with client(front) as one, one.chat.completions.with_streaming_response.create(**ask(), stream=True) as raw:
        assert raw.headers["x-stakes-tier"] == "high"
        stream = raw.parse()
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "42"
    assert chunks[-1].usage is not None
    assert front.metric("usage_checks_total", result="agreed") == 1


def test_responses_are_fitted_too_whole_and_streamed(front: Gateway, upstream: Upstream) -> None:
    with client(front) as one:
        response = one.responses.create(model="tiny", input=RESPONSES_INPUT)
        events: list[Any] = list(one.responses.create(model="tiny", input=RESPONSES_INPUT, stream=True))
    assert response.output_text == "42"
    assert [event.type for event in events] == ["response.completed"]
    for seen in upstream.posts():
        ((width, height),) = image_sizes(seen.json)
        assert width * height // 784 <= HIGH
    assert front.metric("usage_checks_total", result="agreed") == 2


def test_sixteen_concurrent_requests_of_the_async_client(front: Gateway, upstream: Upstream) -> None:
    async def all_of_them() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=front.base_url, api_key="k", max_retries=0) as one:
            answers = await asyncio.gather(
                *(one.chat.completions.create(**ask(f"Number {i}?")) for i in range(8)),
                *(
                    one.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "?"}])
                    for _ in "12345678"
                ),
            )
            stream = await one.chat.completions.create(**ask(), stream=True)
            pieces = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
        assert pieces == ["4", "2"]
        return [answer.choices[0].message.content for answer in answers]

    assert asyncio.run(all_of_them()) == ["42"] * 16
    assert front.state()["images"] == 9
    assert front.state()["images_outstanding"] == 0


def test_models_and_unknown_paths_are_forwarded(front: Gateway, upstream: Upstream) -> None:
    with client(front) as one:
        assert [model.id for model in one.models.list()] == ["tiny"]
        assert one.get("/some/new/path?x=1", cast_to=dict) == {"path": "/v1/some/new/path?x=1", "method": "GET"}


def test_an_upstreams_error_reaches_the_client_unchanged(front: Gateway, upstream: Upstream) -> None:
    upstream.script = lambda seen, wire: wire.reply(
        json.dumps({"error": {"message": "slow down", "type": "rate", "code": "rate_limit"}}).encode(),
        429, "application/json", "retry-after: 7",
    )  # fmt: skip
    with client(front) as one, pytest.raises(openai.RateLimitError, match="slow down") as caught:
        one.chat.completions.create(**ask())
    assert caught.value.response.headers["retry-after"] == "7"
    assert front.state()["tokens_spent"] == 0  # no model read the image, so nothing was spent
    assert front.state()["images_outstanding"] == 0


def test_the_gateways_own_refusal_is_an_openai_error(upstream: Upstream) -> None:
    with gateway(upstream.url, client_keys=("correct-horse",)) as front, client(front) as one:
        with pytest.raises(openai.AuthenticationError) as caught:
            one.chat.completions.create(**ask())
        assert caught.value.code == "invalid_api_key"
        allowed = one.with_options(api_key="correct-horse").chat.completions.create(**ask())
    assert allowed.choices[0].message.content == "42"
    assert upstream.last.header("authorization") is None  # the upstream never sees the gateway's key
