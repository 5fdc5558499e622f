"""In chat completions and responses too, an image that is not read, or a parameter that changes one, is refused."""

import base64
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import HIGH, PAGE, ask, encoded, gateway, image_part, page, policy, text_part, url_of
from tests.gateway.upstream import Upstream, image_sizes

RAW = base64.b64encode(encoded(page(56, 56))).decode()
FRAMES = f"data:video/jpeg;base64,{RAW},{RAW}"

PARTS: list[dict[str, Any]] = [
    {"type": "video_url", "video_url": {"url": PAGE}},
    {"type": "video_url", "video_url": {"url": FRAMES}},
    {"video_url": "https://videos.example/a.mp4"},
    {"type": "video_url", "image_url": {"url": url_of(encoded(page(56, 56)))}, "video_url": {"url": FRAMES}},
    {"type": "input_video", "video": FRAMES},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": RAW}},
    {"type": "image", "data": RAW, "mimeType": "image/png"},
    {"type": "image", "image": PAGE},
    {"image": RAW},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERi0xLjQ="}},
    {"type": "input_file", "file_id": "file-1"},
    {"type": "input_image", "file_id": "file-1"},
    {"type": "image_url", "uuid": "page-1"},
    {"type": "image_url", "image_url": None, "uuid": "page-1"},
    {"type": "image_embeds", "image_embeds": RAW},
    {"type": "video_embeds", "video_embeds": {"x": RAW}},
    {"type": "prompt_embeds", "data": RAW},
    {"type": "tool_result", "content": [{"type": "image", "source": {"data": RAW}}]},
    {"type": "input_blob", "blob": PAGE},
    {"type": "input_blob", "blobs": [RAW]},
]


def chat(*parts: Any, **more: Any) -> dict[str, Any]:
    content = [*parts, text_part("What is the total?")]
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], **more}


@pytest.mark.parametrize("part", PARTS, ids=range(len(PARTS)))
@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_a_part_that_is_not_read_is_refused_or_passed_and_counted(
    upstream: Upstream, http: httpx.Client, part: dict[str, Any], role: str
) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    body = chat(part)
    body["messages"][0]["role"] = role
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")
        assert not upstream.seen
    with gateway(upstream.url, unread="pass") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert reply.headers["x-stakes-outcome"] == ("fitted" if part.get("image_url") else "uncompressed")
        assert front.metric("apart_images_total", why="uncompressed") == 1


RESPONSES: list[dict[str, Any]] = [
    {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file", "file_id": "f"}]}]},
    {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f"}}]},
    {"input": [{"type": "image_generation_call", "id": "i", "status": "completed", "result": RAW}]},
    {"input": "hi", "prompt": {"id": "p", "variables": {"page": {"type": "input_image", "image_url": PAGE}}}},
    {"input": "hi", "messages": [{"role": "user", "content": [image_part()]}]},
    {"input": "hi", "image_url": PAGE},
]


@pytest.mark.parametrize("body", RESPONSES, ids=range(len(RESPONSES)))
def test_images_beside_the_input_of_a_response_are_refused(
    upstream: Upstream, http: httpx.Client, body: dict[str, Any]
) -> None:
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/responses", json={"model": "tiny", **body})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")
    assert not upstream.seen


def test_images_in_tool_outputs_of_a_response_are_fitted(upstream: Upstream, http: httpx.Client) -> None:
    output = [{"type": "input_image", "image_url": PAGE}]
    shot = {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": PAGE}}
    called = {"type": "computer_call", "id": "c", "action": {"type": "screenshot"}}
    body = {"model": "tiny", "input": [{"type": "function_call_output", "output": output}, called, shot]}
    with gateway(upstream.url) as front:
        assert http.post(f"{front.base_url}/responses", json=body).headers["x-stakes-outcome"] == "fitted"
    assert all(width * height // 784 <= HIGH for width, height in image_sizes(upstream.last.json))
    assert len(image_sizes(upstream.last.json)) == 2


TEXTS: list[dict[str, Any]] = [
    chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"properties": {"image": {}}}}}]),
    chat(response_format={"type": "json_schema", "json_schema": {"schema": {"properties": {"image_url": {}}}}}),
    chat(mm_processor_kwargs={"max_pixels": 12845056}),
    chat(metadata={"image": "no", "file": "no"}),
    {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": '{"image": "a.png"}'}}]}]},
    {"messages": [{"role": "tool", "content": f'{{"type": "image", "data": "{RAW}"}}'}]},
    {"messages": [{"role": "user", "content": PAGE}]},
]


@pytest.mark.parametrize("body", TEXTS, ids=range(len(TEXTS)))
def test_text_that_names_images_passes_as_text(upstream: Upstream, http: httpx.Client, body: dict[str, Any]) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
    assert (reply.status_code, reply.headers.get("x-stakes-outcome")) == (200, None)
    assert upstream.last.json == body


PARAMETERS: list[dict[str, Any]] = [
    {"mm_processor_kwargs": {"min_pixels": 12845056}},
    {"mm_processor_kwargs": {"size": {"shortest_edge": 10**7, "longest_edge": 10**7}}},
    {"media_io_kwargs": {"image": {"x": 1}}},
    {"chat_template_kwargs": {"processor_kwargs": {"size": {"shortest_edge": 10**7}}}},
    {"vl_high_resolution_images": True},
]


@pytest.mark.parametrize("parameter", PARAMETERS, ids=range(len(PARAMETERS)))
@pytest.mark.parametrize("actuator", ["pixels", "vllm"])
def test_an_engine_parameter_from_the_client_is_refused_or_passed_and_counted(
    upstream: Upstream, http: httpx.Client, parameter: dict[str, Any], actuator: str
) -> None:
    body = ask("What is the total?", **parameter)
    with gateway(upstream.url, actuator=actuator) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")
        assert "sets how many tokens an image takes" in reply.json()["error"]["message"]
        assert front.state()["images"] == 0
    with gateway(upstream.url, actuator=actuator, unread="pass") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
        assert reply.headers["x-stakes-outcome"] == "uncompressed"
        assert upstream.last.json == body
        assert front.metric("apart_images_total", why="uncompressed") == 1
        assert http.post(f"{front.base_url}/chat/completions", json=ask(mm_processor_kwargs={})).status_code == 200


@pytest.mark.parametrize("key", ["min_pixels", "max_pixels", "max_dynamic_patch", "media_resolution"])
@pytest.mark.parametrize("beside", ["part", "address"])
def test_an_engine_parameter_of_one_image_is_refused(
    upstream: Upstream, http: httpx.Client, key: str, beside: str
) -> None:
    body = ask()
    part = body["messages"][0]["content"][0]
    (part if beside == "part" else part["image_url"])[key] = 999
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "unread_image")


GROUNDING = {"x-stakes-tier": "grounding"}


def test_grounding_is_paid_from_the_total_and_refused_beyond_it(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(mean_budget=200, burst=3000)) as front:
        statuses = []
        for n in range(1, 9):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers=GROUNDING)
            statuses.append(reply.status_code)
            assert front.state()["tokens_spent"] <= 200 * n + 3000
        assert statuses[:2] == [200, 200]
        assert set(statuses[3:]) == {429}
        assert reply.json()["error"]["code"] == "grounding_over_budget"
        assert front.state()["tokens_spent"] == 1260 * statuses.count(200)
        assert front.metric("tokens_total", tier="grounding", kind="predicted") == 1260 * statuses.count(200)
        assert front.state()["images_outstanding"] == 0
        assert all(size == (840, 1176) for seen in upstream.seen for size in image_sizes(seen.json))
        assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 200


def test_grounding_can_pass_uncapped_or_be_refused(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(mean_budget=200, burst=0), grounding="pass") as front:
        for _ in range(3):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers=GROUNDING)
            assert reply.headers["x-stakes-outcome"] == "grounding"
        assert front.metric("apart_tokens_total", why="grounding") == 3 * 1260
        assert front.state()["images"] == 0
    with gateway(upstream.url, grounding="refuse") as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask(), headers=GROUNDING)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "grounding_forbidden")
