"""Nothing with an image passes as text: what is not read and budgeted is refused, or passed and counted if allowed."""

import base64
import gzip
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import PAGE, ask, dumped, encoded, gateway, image_part, page, text_part
from tests.gateway.upstream import Upstream

from stakes.gateway.proxy.checks import count_unread
from stakes.gateway.proxy.request import parse, read_call
from stakes.gateway.proxy.scan import may_hold_image, route_of

RAW = base64.b64encode(encoded(page(56, 56))).decode()
JPEG = base64.b64encode(encoded(page(56, 56), "JPEG")).decode()
SOURCE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": RAW}}
FORM = b'--x\r\ncontent-disposition: form-data; name="f"\r\n\r\n' + encoded(page(56, 56)) + b"\r\n--x--\r\n"


def turn(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


OTHER_PATHS: list[tuple[str, Any]] = [
    ("/v1/threads/t1/messages", {"role": "user", "content": [image_part()]}),
    ("/v1/messages/m1", {"messages": turn(SOURCE, text_part("Total?"))}),
    ("/v1/messages/m1", {"messages": turn({"type": "tool_result", "tool_use_id": "t", "content": [SOURCE]})}),
    ("/v1/messages/m1", {"messages": turn({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}})}),
    ("/v1/messages/batches", {"requests": [{"custom_id": "a", "params": {"messages": turn(SOURCE)}}]}),
    ("/invocations", ask()),
    ("/v1/chat/completions/batch", {"model": "tiny", "messages": [turn(image_part()), turn(image_part())]}),
    ("/v1/chat/completions/render", ask()),
    ("/v1/chat/completions/c1", ask()),
    ("/v1/responses/r1/cancel", ask()),
    ("/v1/my-responses", ask()),
    ("/v1/completions", {"prompt": "hi", "multi_modal_data": {"image": [RAW]}}),
    ("/v1/completions", {"prompt": "hi", "prompt_embeds": RAW}),
    ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [RAW]}}),
    ("/generate", {"text": "hi", "image_data": RAW}),
    ("/generate", {"inputs": f"![](data:image/png;base64,{RAW}) What is it?"}),
    ("/generate", {"inputs": "![](https://images.example/p.png) What is it?"}),
    ("/inference/v1/generate", {"token_ids": [1], "features": {"kwargs_data": {"image": [RAW]}}}),
    ("/v1/embeddings", {"input": PAGE}),
    ("/v1/embeddings", {"input": [{"image": RAW}]}),
    ("/v1/embeddings", {"messages": turn(image_part())}),
    ("/v2/embed", {"images": [PAGE]}),
    ("/tokenize", ask()),
    ("/pooling", {"data": [JPEG], "task": "embed"}),
    ("/v1/score", {"text_1": "hi", "text_2": {"content": [image_part()]}}),
    ("/rerank", {"query": "hi", "documents": [PAGE]}),
    ("/classify", {"messages": turn(image_part())}),
    ("/v1/moderations", {"input": [image_part()]}),
    ("/v1/conversations/c/items", {"items": turn({"type": "input_image", "image_url": PAGE})}),
    ("/v1beta/models/g:generateContent", {"contents": [{"parts": [{"inlineData": {"data": RAW}}]}]}),
    ("/v1beta/models/g:generateContent", {"contents": [{"parts": [{"fileData": {"fileUri": "gs://a"}}]}]}),
    ("/model/m/converse", {"messages": turn({"image": {"format": "png", "source": {"bytes": RAW}}})}),
    ("/api/chat", {"messages": [{"role": "user", "content": "hi", "images": [RAW]}]}),
    ("/v2/models/m/infer", {"inputs": [{"name": "x", "datatype": "BYTES", "data": [JPEG]}]}),
    ("/whatever", [{"anything": {"deep": [{"blob": RAW}]}}]),
    ("/whatever", dumped(ask()).decode().encode("utf-16")),
    ("/whatever", b"\xef\xbb\xbf" + dumped(ask())),
    ("/whatever", dumped(ask()) + b"\n" + dumped(ask())),
    ("/whatever", encoded(page(56, 56))),
    ("/v1/images/edits", FORM),
    ("/whatever", b"prompt=hi&image=data%3Aimage%2Fpng%3Bbase64%2C" + RAW.encode()),
    ("/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/chat/completions"}),
]
IDS = [f"{path} {number}" for number, (path, _) in enumerate(OTHER_PATHS)]


def content(body: Any) -> bytes:
    return body if isinstance(body, bytes) else dumped(body)


@pytest.mark.parametrize(("path", "body"), OTHER_PATHS, ids=IDS)
def test_an_image_on_a_path_that_is_not_read_is_refused(
    upstream: Upstream, http: httpx.Client, path: str, body: Any
) -> None:
    with gateway(upstream.url, fail="open") as front:
        reply = http.post(front.address + path, content=content(body))
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")
        assert "--unread pass" in reply.json()["error"]["message"]
        assert not upstream.seen
        assert front.metric("rejects_total", reason="unread_image") == 1


@pytest.mark.parametrize(("path", "body"), OTHER_PATHS, ids=IDS)
def test_it_is_passed_and_counted_where_that_is_allowed(
    upstream: Upstream, http: httpx.Client, path: str, body: Any
) -> None:
    with gateway(upstream.url, unread="pass") as front:
        reply = http.post(front.address + path, content=content(body))
        assert (reply.status_code, reply.headers["x-stakes-outcome"]) == (200, "uncompressed")
        assert upstream.last.body == content(body)
        assert front.metric("requests_total", tier="", outcome="text") == 0
        assert front.metric("requests_total", tier="", outcome="uncompressed") == 1
        assert front.metric("apart_images_total", why="uncompressed") >= 1


TEXTS: list[tuple[str, Any]] = [
    ("/v1/messages", {"max_tokens": 1, "messages": turn(text_part("Describe the image_url field"))}),
    ("/v1/messages", {
        "max_tokens": 1,
        "tools": [{"name": "shoot", "input_schema": {"properties": {"image": {"type": "string"}}}}],
        "messages": [*turn(text_part("hi")), {"role": "assistant", "content": [
            {"type": "tool_use", "id": "t", "name": "shoot", "input": {"image": "/tmp/a.png"}}]}],
    }),
    ("/v1/messages/count_tokens", {
        "messages": turn({"type": "document", "source": {"type": "text", "data": "An invoice"}}),
    }),
    ("/v1/completions", {"prompt": "![badge](https://img.example/b.svg) Summarise this file and its image"}),
    ("/v1/completions", {"prompt": f"<img src='data:image/png;base64,{RAW}'>"}),
    ("/v1/embeddings", {"input": ["a photo of a cat", "image"], "encoding_format": "base64"}),
    ("/rerank", {"query": "images", "documents": ["a document about video", "a file"]}),
    ("/tokenize", {"messages": turn(text_part("an image"))}),
    ("/detokenize", {"tokens": [1, 2]}),
    ("/v1/files", FORM),
    ("/v1/audio/transcriptions", FORM),
    ("/v1/load_lora_adapter", {"lora_name": "image", "lora_path": "/models/image"}),
    ("/v1/images/generations", {"prompt": "a cat", "n": 1, "size": "256x256"}),
    ("/whatever", b"plain words about an image"),
    ("/whatever", b"\x01\x02 binary without a header"),
    ("/whatever", b""),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), TEXTS, ids=[f"{path} {n}" for n, (path, _) in enumerate(TEXTS)])
def test_text_on_other_paths_passes_as_text(upstream: Upstream, http: httpx.Client, path: str, body: Any) -> None:
    with gateway(upstream.url) as front:
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        reply = http.post(front.address + path, content=content(body), headers=headers)
        assert (reply.status_code, reply.headers.get("x-stakes-outcome")) == (200, None)
        assert upstream.last.body == content(body)
        assert front.metric("requests_total", tier="", outcome="text") == 1


def test_a_packed_body_of_another_path_is_looked_into(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url) as front:
        for encoding, status in (("gzip", 422), ("br", 415)):
            packed = gzip.compress(dumped({"messages": turn(SOURCE)}))
            reply = http.post(f"{front.base_url}/messages/m1", content=packed, headers={"content-encoding": encoding})
            assert reply.status_code == status
    assert not upstream.seen


@pytest.mark.parametrize("method", ["PUT", "PATCH", "GET", "DELETE"])
def test_other_methods_carry_no_image_either(upstream: Upstream, http: httpx.Client, method: str) -> None:
    with gateway(upstream.url) as front:
        reply = http.request(method, f"{front.base_url}/chat/completions", json=ask())
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")


def test_observing_passes_what_it_would_refuse_and_bypass_is_counted(upstream: Upstream, http: httpx.Client) -> None:
    body = {"messages": turn(SOURCE)}
    with gateway(upstream.url, mode="observe") as front:
        assert http.post(f"{front.base_url}/messages/m1", json=body).status_code == 200
        assert front.metric("would_reject_total", reason="unread_image") == 1
        assert front.metric("apart_images_total", why="uncompressed") == 1
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/messages/m1", json=body, headers={"x-stakes-bypass": "1"})
        assert reply.headers["x-stakes-outcome"] == "bypassed"
        assert front.metric("apart_images_total", why="bypassed") == 1
    with gateway(upstream.url, allow_bypass=False) as front:
        reply = http.post(f"{front.base_url}/messages/m1", json=body, headers={"x-stakes-bypass": "1"})
        assert reply.json()["error"]["code"] == "bypass_forbidden"


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("POST", "/v1/chat/completions", "chat"),
        ("POST", "/V1/CHAT/Completions/", "chat"),
        ("POST", "/x/chat;a=b/completions;c", "chat"),
        ("GET", "/v1/chat/completions", "scan"),
        ("POST", "/v1/Responses", "responses"),
        ("POST", "/v1/responses/r1/input_items", "scan"),
        ("POST", "/v1/messages", "messages"),
        ("POST", "/v1/Messages/", "messages"),
        ("GET", "/v1/messages", "scan"),
        ("POST", "/v1/messages/count_tokens", "count"),
        ("POST", "/v1/threads/t1/messages", "scan"),
        ("POST", "/v1/my-messages", "scan"),
        ("POST", "/v1/files", "pass"),
        ("POST", "/v1/uploads/u1/parts", "pass"),
        ("POST", "/v1/audio/transcriptions", "pass"),
        ("POST", "/v1/profiles", "scan"),
        ("POST", "/v1/batches", "refuse"),
        ("GET", "/v1/batches", "scan"),
        ("POST", "/v1/messages/batches", "scan"),
    ],
)
def test_one_table_decides_by_path(method: str, path: str, action: str) -> None:
    assert route_of(method, path) == action


def test_the_cheap_check_never_misses_an_image() -> None:
    plain = dumped(ask())
    escaped = plain.replace(b"image_url", b"\\u0069mage_url")
    assert may_hold_image(plain)
    assert may_hold_image(escaped)
    assert len(read_call("chat", parse(escaped)).images) == 1
    assert may_hold_image(plain.decode().encode("utf-16"))
    assert not may_hold_image(b'{"messages": [{"role": "user", "content": "plain words"}]}')


WRAPPERS = st.sampled_from(["items", "data", "input", "messages", "content", "x", "parts", "source"])


@given(path=st.lists(st.tuples(WRAPPERS, st.booleans()), max_size=8), shape=st.sampled_from(OTHER_PATHS[:41:2]))
def test_an_image_is_found_however_deep_it_is(path: list[tuple[str, bool]], shape: tuple[str, Any]) -> None:
    value = shape[1]
    if isinstance(value, bytes):
        return
    for key, listed in path:
        value = [{key: value}] if listed else {key: value}
    assert count_unread(json.dumps(value).encode()) >= 1
