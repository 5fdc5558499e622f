"""Anthropic's official client works through the gateway unchanged: plain, streamed, asynchronous, with tool results."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from tests.gateway.gateways import HIGH, LOW, PAGE, Gateway, encoded, gateway, page, policy, text_part, url_of
from tests.gateway.messages import events, framed, image_block
from tests.gateway.upstream import Upstream, image_sizes

from stakes.signals import RequestSignal, to_dict

WIDE = url_of(encoded(page(1176, 840), "JPEG"), "image/jpeg")


def client(front: Gateway, **more: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=front.address, **{"api_key": "sk-client", "max_retries": 0, **more})


@pytest.fixture
def one(front: Gateway) -> Iterator[anthropic.Anthropic]:
    with client(front) as made:
        yield made


def asked(question: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    content = [*(blocks or (image_block(PAGE),)), text_part(question)]
    return {"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": content}], **more}


def test_a_question_about_a_page_is_answered_at_its_tiers_budget(
    one: anthropic.Anthropic, upstream: Upstream, front: Gateway
) -> None:
    raw = one.messages.with_raw_response.create(**asked("What is the invoice total?"))
    cheap = one.messages.with_raw_response.create(**asked("Who signed the letter?"))
    message = raw.parse()
    assert [block.text for block in message.content if block.type == "text"] == ["42"]
    ((width, height),) = image_sizes(upstream.posts()[0].json)
    tokens = width * height // 784
    assert 0.9 * HIGH < tokens <= HIGH
    assert message.usage.input_tokens == 10 + tokens
    assert raw.headers["x-stakes-tier"] == "high"
    assert raw.headers["x-stakes-predicted-tokens"] == str(tokens)
    assert raw.headers["request-id"] == "req_1"
    assert cheap.headers["x-stakes-budget"] == str(LOW)
    assert front.state()["tokens_spent"] == tokens + int(cheap.headers["x-stakes-predicted-tokens"])
    source = upstream.posts()[0].json["messages"][0]["content"][0]["source"]
    assert (source["type"], source["media_type"]) == ("base64", "image/png")


def test_a_stream_arrives_whole(one: anthropic.Anthropic, upstream: Upstream) -> None:
    with one.messages.stream(**asked("What is the total?")) as stream:
        assert stream.response.headers["x-stakes-tier"] == "high"
        assert "".join(stream.text_stream) == "42"
        assert stream.get_final_message().usage.output_tokens == 2
    kinds = [event.type for event in one.messages.create(**asked("What is the total?"), stream=True)]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    assert all(width * height // 784 <= HIGH for seen in upstream.posts() for width, height in image_sizes(seen.json))


def test_images_in_tool_results_are_fitted_and_the_question_before_them_counts(
    one: anthropic.Anthropic, upstream: Upstream
) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "scan", "input": {"image": "page.png"}}
    result = {
        "type": "tool_result", "tool_use_id": "t1",
        "content": [text_part("scanned"), image_block(PAGE), image_block(WIDE, cache_control={"type": "ephemeral"})],
    }  # fmt: skip
    body = asked("Who signed the letter?", text_part("Use the scanner."))
    body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    raw = one.messages.with_raw_response.create(**body)
    assert raw.headers["x-stakes-tier"] == "low"
    assert raw.headers["x-stakes-budget"] == f"{LOW},{LOW}"
    sent = upstream.last.json
    assert [width * height // 784 <= LOW for width, height in image_sizes(sent)] == [True, True]
    assert sent["messages"][2]["content"][0]["content"][2]["cache_control"] == {"type": "ephemeral"}
    assert sent["messages"][1] == body["messages"][1]


def test_system_blocks_are_read_where_the_question_does_not_decide(upstream: Upstream) -> None:
    system = [{"type": "text", "text": "Extract the IBAN.", "cache_control": {"type": "ephemeral"}}]
    with gateway(upstream.url, policy(signal=to_dict(RequestSignal()))) as front, client(front) as one:
        decided = one.messages.with_raw_response.create(**asked("Process this document.", system=system))
        plain = one.messages.with_raw_response.create(**asked("Who signed the letter?", system="Be brief."))
    assert (decided.headers["x-stakes-tier"], plain.headers["x-stakes-tier"]) == ("high", "low")
    assert upstream.posts()[0].json["system"] == system


def test_text_passes_byte_for_byte_and_tokens_are_counted_by_the_upstream(
    one: anthropic.Anthropic, upstream: Upstream, front: Gateway
) -> None:
    text = {"model": "tiny", "max_tokens": 16, "messages": [{"role": "user", "content": "What is 6 × 7?"}]}
    raw = one.messages.with_raw_response.create(**text)  # type: ignore[call-overload]
    assert raw.http_request.content == upstream.last.body
    assert not [name for name in raw.headers if name.startswith("x-stakes")]
    body = asked("What is the total?")
    del body["max_tokens"]
    counted = one.messages.with_raw_response.count_tokens(**body)
    assert counted.parse().input_tokens == 10 + 1260  # at the image's own size: nothing is fitted
    assert counted.http_request.content == upstream.last.body
    assert front.state()["images"] == 0
    assert front.metric("requests_total", tier="", outcome="text") == 2


def test_the_clients_key_and_version_reach_the_upstream_as_they_are(
    one: anthropic.Anthropic, front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    beta = {"anthropic-beta": "files-api-2025-04-14"}
    raw = one.messages.with_raw_response.create(**asked("What is the total?"), extra_headers=beta)
    assert upstream.last.header("authorization") == "Bearer sk-client"
    assert upstream.last.header("anthropic-version") == raw.http_request.headers["anthropic-version"]
    assert upstream.last.header("anthropic-beta") == "files-api-2025-04-14"
    older = {"x-api-key": "sk-client", "anthropic-version": "2023-06-01"}  # older clients send it so
    assert http.post(f"{front.base_url}/messages", json=asked("Total?"), headers=older).status_code == 200
    assert upstream.last.header("x-api-key") == "sk-client"
    assert upstream.last.header("authorization") is None


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [("bearer", "authorization", "Bearer sk-up"), ("x-api-key", "x-api-key", "sk-up"), ("api-key", "api-key", "sk-up")],
)
def test_the_upstreams_own_key_is_sent_as_it_expects(upstream: Upstream, auth: str, header: str, value: str) -> None:
    knobs: dict[str, Any] = {"client_keys": ("correct-horse",), "upstream_key": "sk-up", "upstream_auth": auth}
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    with gateway(upstream.url, **knobs) as front, client(front, api_key="correct-horse") as one:
        one.messages.with_raw_response.create(**asked("What is the total?"))
    sent = {name: upstream.last.header(name) for name in ("authorization", "x-api-key", "api-key")}
    assert {name: key for name, key in sent.items() if key} == {header: value}


def test_the_gateways_refusals_have_the_apis_own_form(upstream: Upstream) -> None:
    with gateway(upstream.url, client_keys=("correct-horse rpm=2",), upstream_key="sk-up") as front:
        with client(front) as one, pytest.raises(anthropic.AuthenticationError) as wrong:
            one.messages.create(**asked("What is the total?"))
        assert wrong.value.body["type"] == "error"  # type: ignore[index]
        assert wrong.value.type == "authentication_error"
        with client(front, api_key="correct-horse") as one:
            with pytest.raises(anthropic.UnprocessableEntityError, match="unread_image|may be an image"):
                one.messages.create(**asked("Total?", {"type": "document", "source": {"type": "file", "file_id": "f"}}))
            one.messages.create(**asked("What is the total?"))
            with pytest.raises(anthropic.RateLimitError) as limited:
                one.messages.create(**asked("What is the total?"))
    assert limited.value.type == "rate_limit_error"
    assert limited.value.response.json()["error"]["code"] == "request_limit"


def test_an_upstreams_error_passes_and_books_nothing(one: anthropic.Anthropic, front: Gateway) -> None:
    body = asked("What is the total?")
    with pytest.raises(anthropic.BadRequestError, match="anthropic-version"):
        one.messages.create(**body, extra_headers={"anthropic-version": anthropic.Omit()})
    assert front.state()["tokens_spent"] == 0


def test_a_stream_that_is_cut_off_ends_with_an_error(one: anthropic.Anthropic, upstream: Upstream) -> None:
    def cut(_: object, wire: Any) -> None:
        wire.begin_stream()
        for event in events(10)[:-1]:
            wire.chunk(framed(event))
        wire.end()

    upstream.script = cut
    with pytest.raises(anthropic.APIStatusError, match="before the last event"):
        list(one.messages.create(**asked("What is the total?"), stream=True))


def test_eight_concurrent_requests_of_the_async_client(front: Gateway) -> None:
    async def all_of_them() -> list[Any]:
        async with anthropic.AsyncAnthropic(base_url=front.address, api_key="k", max_retries=0) as made:
            return await asyncio.gather(*(made.messages.create(**asked(f"Number {i}?")) for i in range(8)))

    assert [answer.content[0].text for answer in asyncio.run(all_of_them())] == ["42"] * 8
    assert front.state()["images"] == 8
    assert front.state()["images_outstanding"] == 0


BAD: list[dict[str, Any]] = [
    {"type": "base64", "media_type": "image/png", "data": 7},
    {"type": "base64", "media_type": ["image/png"], "data": "iVBORw0KGgo="},
    {"type": "base64", "media_type": "image/png", "data": "no base64!"},
    {"type": "base64", "media_type": "text/html", "data": "iVBORw0KGgo="},
    {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=", "url": "https://images.example/a.png"},
    {"type": "url", "url": "http://127.0.0.1/a.png"},
    {"type": "url", "url": "file:///etc/passwd"},
    {"type": "url"},
    {"type": "file", "file_id": "file_1"},
]


@pytest.mark.parametrize("source", BAD, ids=range(len(BAD)))
def test_a_bad_source_is_refused(
    front: Gateway, upstream: Upstream, http: httpx.Client, source: dict[str, Any]
) -> None:
    body = asked("What is the total?", {"type": "image", "source": source})
    reply = http.post(f"{front.base_url}/messages", json=body)
    assert (reply.status_code, reply.json()["type"]) == (422, "error")
    assert not upstream.seen


def test_an_address_passes_and_is_counted_but_never_a_private_one(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    body = asked("Total?", {"type": "image", "source": {"type": "url", "url": "https://images.example/a.png"}})
    assert http.post(f"{front.base_url}/messages", json=body).headers["x-stakes-outcome"] == "uncompressed"
    assert upstream.last.json == body
    assert http.post(f"{front.base_url}/messages/count_tokens", json=body).status_code == 200
    body["messages"][0]["content"][0]["source"]["url"] = "http://10.0.0.1/a.png"
    reply = http.post(f"{front.base_url}/messages/count_tokens", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "private_image_url")


def test_a_parameter_of_an_engine_does_not_reach_this_api(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, actuator="vllm") as front:
        reply = http.post(f"{front.base_url}/messages", json=asked("What is the total?"))
    assert reply.status_code == 422
    assert "no parameter for the actuator vllm" in reply.json()["error"]["message"]
