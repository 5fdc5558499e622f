"""A real model class behind a real server: the model's own answers, an engine's counts, OpenAI's errors."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from PIL import Image
from starlette.applications import Starlette
from tests.gateway.upstream import until
from tests.models.tiny import image_processor, picture, tiny

from stakes.gateway.local_server import app as local_server
from stakes.gateway.local_server.app import create_model_app
from stakes.gateway.run import running
from stakes.models.base import Request
from stakes.models.endpoint import EndpointVLM
from stakes.models.endpoint.chat import chat_body
from stakes.models.local.image_cache import EncodedCache

PAGE = picture(280, 224)  # 80 tokens, on the grid
MODEL = replace(tiny("qwen2_5_vl"), cache=EncodedCache())


def url_of(image: Image.Image, kind: str = "PNG") -> str:
    data = io.BytesIO()
    image.save(data, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(data.getvalue()).decode()}"


def body_of(image: Image.Image = PAGE, question: str = "What?", **more: Any) -> dict[str, Any]:
    return {**chat_body("tiny", question, url_of(image), 8), **more}


@pytest.fixture(scope="module")
def app() -> Starlette:
    return create_model_app(MODEL, "tiny", batch=6, wait_s=0.0)


@pytest.fixture(scope="module")
def client(app: Starlette) -> Iterator[httpx.Client]:
    with running(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as made:
        yield made


def chat(client: httpx.Client, body: Any) -> Any:
    reply = client.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_an_answer_is_the_models_own_with_an_engines_counts(client: httpx.Client) -> None:
    (local,) = MODEL.answer([Request(PAGE, "What?", 80)])
    reply = chat(client, body_of())
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": local.text}
    assert choice["finish_reason"] == ("length" if local.truncated else "stop")
    assert (reply["object"], reply["model"]) == ("chat.completion", "tiny")
    usage = reply["usage"]
    assert usage["prompt_tokens"] == len(MODEL.processor.ids("What?", 80))
    assert usage["prompt_tokens_details"]["multimodal_tokens"] == {"image": 80}
    assert usage["completion_tokens"] == 8, "it was cut there"
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    short = chat(client, body_of(max_tokens=None, max_completion_tokens=2))
    assert short["usage"]["completion_tokens"] == 2
    assert local.text.startswith(short["choices"][0]["message"]["content"])
    assert MODEL.max_new_tokens == 8
    assert client.get("/v1/models").json()["data"] == [{"id": "tiny", "object": "model", "owned_by": "stakes"}]


def test_the_prompt_suffix_is_added_once(client: httpx.Client) -> None:
    with_suffix, without = body_of(), body_of()
    without["messages"][0]["content"][1]["text"] = "What?"
    assert with_suffix["messages"][0]["content"][1]["text"] == "What? Answer briefly."
    assert chat(client, with_suffix)["usage"] == chat(client, without)["usage"]


@pytest.mark.parametrize("with_usage", [True, False])
def test_a_stream_holds_the_same_answer(client: httpx.Client, with_usage: bool) -> None:
    whole = chat(client, body_of())
    body = body_of(stream=True, stream_options={"include_usage": with_usage})
    with client.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in reply.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("chat.completion.chunk", "tiny")}
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(c["delta"].get("content", "") for c in choices) == whole["choices"][0]["message"]["content"]
    assert choices[0]["delta"]["role"] == "assistant"
    assert [c["finish_reason"] for c in choices] == [None, None, whole["choices"][0]["finish_reason"]]
    assert [chunk["usage"] for chunk in chunks if chunk.get("usage")] == ([whole["usage"]] if with_usage else [])


def test_requests_at_once_share_a_batch_and_get_their_own_answers() -> None:
    app = create_model_app(MODEL, "tiny", batch=6, wait_s=30.0)  # the sixth ends the wait
    requests = [Request(picture(280, 224, seed), q, 80) for seed in range(3) for q in ("What?", "Who signed it?")]
    with running(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        with ThreadPoolExecutor(6) as pool:
            bodies = [body_of(request.image, request.question) for request in requests]
            replies = list(pool.map(lambda body: chat(client, body), bodies))
        assert app.state.batcher.sizes == [6]
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    assert texts == [answer.text for answer in MODEL.answer(requests)]
    assert len(set(texts)) > 3


def test_a_bad_question_fails_alone_and_the_rest_of_its_batch_is_answered() -> None:
    app = create_model_app(MODEL, "tiny", batch=3, wait_s=30.0)
    questions = ["What?", "What is <|image_pad|>?", "Who?"]
    with running(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        with ThreadPoolExecutor(3) as pool:
            post = [pool.submit(client.post, "/v1/chat/completions", json=body_of(PAGE, q)) for q in questions]
        assert [one.result().status_code for one in post] == [200, 400, 200]
        assert "a prompt has one image" in post[1].result().json()["error"]["message"]
        assert app.state.batcher.sizes[0] == 3


def test_images_are_used_as_sent_unless_the_checkpoint_cannot() -> None:
    processor = image_processor("qwen2_5_vl")
    processor.size = {"shortest_edge": 30 * 784, "longest_edge": 60 * 784}
    model = replace(MODEL, processor=replace(MODEL.processor, images=processor), cache=EncodedCache())
    with running(create_model_app(model, "tiny")) as address, httpx.Client(base_url=address, timeout=60) as client:

        def tokens(width: int, height: int) -> int:
            usage = chat(client, body_of(picture(width, height)))["usage"]
            return int(usage["prompt_tokens_details"]["multimodal_tokens"]["image"])

        assert tokens(112, 84) >= 30, "enlarged, on the grid too, as every engine does"
        assert tokens(111, 85) >= 30, "off the grid the processor's own bounds hold"
        assert tokens(280, 168) == 60
        assert tokens(560, 560) <= 60
        assert tokens(28, 28) >= 30, "smaller than the family takes"


def part(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [*body_of()["messages"][0]["content"], more]}]}


def image_url(url: Any, text: str = "What?", **more: Any) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": url, **more}}, {"type": "text", "text": text}]
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize(
    ("change", "status", "code", "message"),
    [
        ({"model": "gpt-4o"}, 404, "model_not_found", "no model 'gpt-4o' here, only 'tiny'"),
        ({"temperature": 0.7}, 400, "unsupported_value", "temperature is 0.7"),
        ({"n": 2}, 400, "unsupported_value", "n is 2"),
        ({"tools": [{}]}, 400, "unsupported_value", "tools is"),
        ({"stop": ["\n"]}, 400, "unsupported_value", "stop is"),
        ({"mm_processor_kwargs": {"max_pixels": 9}}, 400, "unsupported_value", "mm_processor_kwargs"),
        ({"max_tokens": 0}, 400, "invalid_value", "max_tokens is 0"),
        ({"max_tokens": "8"}, 400, "invalid_value", "max_tokens is '8'"),
        ({"max_tokens": 100_000}, 400, "bad_request", "more than the 4096 that this model can hold"),
        ({"stream": "yes"}, 400, "invalid_value", "stream is true or false"),
        ({"messages": []}, 400, "invalid_value", "no message is the user's"),
        ({"messages": None}, 400, "invalid_value", "the messages are NoneType; give a list of messages"),
        ({"messages": ["What?"]}, 400, "invalid_value", "a message is 'What?'; give messages"),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, 400, "invalid_value", "no message is the user's"),
        ({"messages": [{"role": "tool", "content": "7"}]}, 400, "invalid_value", "role is 'tool'; give user, "),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "invalid_value", "neither a text nor a list"),
        (
            {"messages": [{"role": "user", "content": "What?"}]},
            400,
            "image_missing",
            "reader answers questions about a",
        ),
        (image_url(url_of(PAGE), text=" "), 400, "invalid_value", "has no text; ask something about the image"),
        (part(type="input_audio"), 400, "invalid_value", "is 'input_audio'"),
        (part(type="image_url", image_url={"url": "data:"}), 400, "too_many_images", "about one image, not about 2;"),
        (image_url("https://example.com/a.png"), 400, "invalid_image", "nothing is fetched here"),
        (image_url("file:///etc/passwd"), 400, "invalid_image", "nothing is fetched here"),
        (image_url(None), 400, "invalid_value", "has no address"),
        (image_url("data:image/png;base64,????"), 400, "invalid_image", "base64 is damaged"),
        (image_url("data:image/png;base64,AAAA"), 400, "invalid_image", "cannot be read"),
        (image_url(url_of(PAGE), detail="low"), 400, "unsupported_value", "used as sent"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(
    client: httpx.Client, change: dict[str, Any], status: int, code: str, message: str
) -> None:
    reply = client.post("/v1/chat/completions", json=body_of() | change)
    assert (reply.status_code, list(reply.json()), list(reply.json()["error"])) == (
        status, ["error"], ["message", "type", "code"],
    )  # fmt: skip
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (code, "not_found_error" if status == 404 else "invalid_request_error")
    assert message in error["message"]
    assert len(error["message"]) < 300, "and never the image"


def test_a_malformed_request_gets_an_error_of_the_same_shape(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reply, status in (
        (client.post("/v1/chat/completions", content=b"{"), 400),
        (client.post("/v1/chat/completions", content=b"[" * 100_000), 400),
        (client.post("/v1/chat/completions", json=[1]), 400),
        (client.get("/v1/chat/completions"), 405),
        (client.get("/v1/nothing"), 404),
    ):
        assert (reply.status_code, list(reply.json()["error"])) == (status, ["message", "type", "code"])
    monkeypatch.setattr(local_server, "MOST_BYTES", 1 << 20)
    reply = client.post("/v1/chat/completions", content=b"[" + b" " * (2 << 20))
    assert (reply.status_code, reply.json()["error"]["message"]) == (
        413, "the request is larger than 1 MB; send a smaller image",
    )  # fmt: skip


def test_a_failing_model_is_a_500_without_its_message_and_a_full_queue_a_429() -> None:
    broken = replace(MODEL)
    go = threading.Event()

    def answer(requests: Any) -> Any:
        go.wait(10)
        raise RuntimeError("secret at 0x7f00")

    broken.answer = answer  # type: ignore[method-assign]
    app = create_model_app(broken, "tiny", batch=1, waiting=1)
    body = body_of()
    with running(app) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        with ThreadPoolExecutor(6) as pool:
            post = [pool.submit(client.post, "/v1/chat/completions", json=body) for _ in range(6)]
            assert until(lambda: sum(one.done() for one in post) >= 4, 20)
            go.set()
        replies = sorted((one.result() for one in post), key=lambda reply: reply.status_code)
    assert [reply.status_code for reply in replies] == [429] * 4 + [500] * 2
    assert replies[0].headers["retry-after"] == "1"
    assert replies[0].json()["error"]["type"] == "rate_limit_error"
    assert replies[-1].json()["error"] == {
        "message": "the model failed; the server's log says why", "type": "server_error", "code": "model_failed",
    }  # fmt: skip


def test_a_disconnected_client_is_not_answered() -> None:
    slow, go = replace(MODEL), threading.Event()
    questions: list[str] = []

    def answer(requests: Any) -> Any:
        questions.extend(request.question for request in requests)
        go.wait(10)
        return MODEL.answer(requests)

    slow.answer = answer  # type: ignore[method-assign]
    with running(create_model_app(slow, "tiny", batch=1)) as address, ThreadPoolExecutor(1) as pool:

        def post(question: str, timeout: float) -> httpx.Response:
            with httpx.Client(base_url=address, timeout=timeout, trust_env=False) as client:
                return client.post("/v1/chat/completions", json=body_of(PAGE, question))

        first = pool.submit(post, "First?", 60)
        assert until(lambda: bool(questions), 20)
        with pytest.raises(httpx.ReadTimeout):
            post("Gone?", 0.3)
        threading.Event().wait(3 * local_server.DISCONNECT_POLL_S)
        go.set()
        assert first.result().status_code == 200
        assert post("Last?", 60).status_code == 200
    assert questions == ["First?", "Last?"]


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_the_endpoint_model_agrees_with_it_on_every_token(family: str) -> None:
    local = tiny(family)
    page = picture(500, 400)
    requests = [Request(page, question, budget) for question in ("What?", "Who?") for budget in (70, 80, 90)]
    with (
        running(create_model_app(local, "tiny")) as address,
        EndpointVLM(f"{address}/v1", family=local.family, max_new_tokens=8, tries=1, empty="answer") as model,
    ):
        ours, theirs = model.answer(requests), local.answer(requests)
        assert model.server_counts == {"agreed": len(requests)}
    for one, other in zip(ours, theirs, strict=True):
        for same in ("text", "native_tokens", "budget", "realised_tokens", "truncated"):
            assert getattr(one, same) == getattr(other, same)
