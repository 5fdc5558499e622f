"""The local server with the responses API and with conversations: the last question about the last image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from PIL import Image
from tests.gateway.gateways import gateway, policy
from tests.gateway.local_server.test_app import MODEL, PAGE, body_of, chat, url_of
from tests.models.tiny import picture

from stakes.gateway.local_server.app import create_model_app
from stakes.gateway.local_server.replies import Completion, response, response_events
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.shadow import answer_text
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.usage import UsageReader, compare_usage
from stakes.gateway.run import running
from stakes.models.base import Request
from stakes.models.embedded import UNSURE_BELOW, unsure
from stakes.models.identity import ModelName

OTHER = picture(280, 224, 1)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        running(create_model_app(MODEL, "tiny", wait_s=0.0)) as address,
        httpx.Client(base_url=address, timeout=60, trust_env=False) as made,
    ):
        yield made


def user(*parts: str | Image.Image, responses: bool = False) -> dict[str, Any]:
    """A user message: texts and images in the parts of either API."""
    made: list[dict[str, Any]] = []
    for one in parts:
        if isinstance(one, str):
            made.append({"type": "input_text" if responses else "text", "text": one})
        elif responses:
            made.append({"type": "input_image", "image_url": url_of(one), "detail": "auto"})
        else:
            made.append({"type": "image_url", "image_url": {"url": url_of(one)}})
    return {"role": "user", "content": made}


def body(*parts: str | Image.Image, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": [user(*parts, responses=True)], "max_output_tokens": 8, **more}


def test_a_response_has_the_text_and_counts_of_a_completion(client: httpx.Client) -> None:
    whole = chat(client, body_of())
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0) as one:
        reply: Any = one.responses.create(**body(PAGE, "What?"))
        events: list[Any] = list(one.responses.create(**body(PAGE, "What?"), stream=True))
    assert reply.output_text == whole["choices"][0]["message"]["content"] != ""
    assert (reply.object, reply.model, reply.status) == ("response", "tiny", "incomplete")
    assert reply.incomplete_details.reason == "max_output_tokens"
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (whole["usage"]["prompt_tokens"], 8)
    assert reply.usage.total_tokens == whole["usage"]["total_tokens"]
    assert reply.usage.input_tokens_details.multimodal_tokens == {"image": 80}
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.incomplete")
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == reply.output_text
    assert events[-1].response.output_text == reply.output_text
    assert events[-1].response.usage == reply.usage
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1


@pytest.mark.parametrize(("name", "warned"), [("embedded", True), ("my-vlm", False)])
def test_a_reply_states_its_confidence_and_an_embedded_reader_that_is_not_sure_says_so(name: str, warned: bool) -> None:
    """The tiny model is random, so it is never sure."""
    model = replace(MODEL, named=ModelName(name=name))
    (answer,) = model.answer([Request(PAGE, "What?", 80)])
    assert answer.confidence is not None
    assert answer.confidence < UNSURE_BELOW
    with running(create_model_app(model, "tiny")) as address, httpx.Client(base_url=address, trust_env=False) as client:
        bodies = [chat(client, body_of()), client.post("/v1/responses", json=body(PAGE, "What?")).json()]
        events = client.post("/v1/chat/completions", json=body_of(stream=True)).text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")]
    bodies += [chunk for chunk in chunks if "stakes" in chunk]
    assert len(bodies) == 3
    for reply in bodies:
        assert reply["stakes"]["confidence"] == pytest.approx(answer.confidence, abs=1e-4)
        assert reply["stakes"].get("warning") == unsure(name, answer.confidence)
    assert (unsure(name, answer.confidence) is not None) == warned


def test_an_untruncated_answer_is_completed_and_read_by_the_gateway() -> None:
    answer = Completion("$ 1,204.00", truncated=False, prompt_tokens=101, image_tokens=80, output_tokens=7)
    whole, stream = response("tiny", answer), list(response_events("tiny", answer))
    assert (whole["status"], whole["incomplete_details"]) == ("completed", None)
    assert stream[-1].startswith("event: response.completed\n")
    assert answer_text("responses", json.dumps(whole).encode(), streamed=False) == "$ 1,204.00"
    assert answer_text("responses", "".join(stream).encode(), streamed=True) == "$ 1,204.00"


def test_the_last_question_is_asked_about_the_last_image_sent(client: httpx.Client) -> None:
    answers = {
        (name, question): MODEL.answer([Request(image, question, 80)])[0].text
        for name, image in (("page", PAGE), ("other", OTHER))
        for question in ("What?", "And who signed it?")
    }
    assert len(set(answers.values())) == 4, "else the cases cannot be distinguished"
    system, assistant = {"role": "system", "content": "Be kind."}, {"role": "assistant", "content": "42"}
    last = {"role": "user", "content": "And who signed it?"}
    for turns, about in (
        ([system, user(PAGE, "What?")], ("page", "What?")),
        ([user(PAGE, "What?"), assistant, last], ("page", "And who signed it?")),
        ([user(PAGE, "What?"), assistant, user(OTHER, "What?"), assistant, last], ("other", "And who signed it?")),
        ([user(PAGE, "Who?"), assistant, user(OTHER, "What?")], ("other", "What?")),
        ([user(OTHER, PAGE, "Both?"), assistant, user(OTHER, "What?")], ("other", "What?")),
        ([user(PAGE), last], ("page", "And who signed it?")),
    ):
        reply = chat(client, {"model": "tiny", "messages": turns, "max_tokens": 8})
        assert reply["choices"][0]["message"]["content"] == answers[about]
        details = reply["usage"]["prompt_tokens_details"]
        assert details["multimodal_tokens"] == {"image": 80}
        sent = sum(part["type"] == "image_url" for turn in turns for part in turn["content"] if isinstance(part, dict))
        assert details.get("images_left_out", 0) == sent - 1


def test_a_response_continues_a_conversation(client: httpx.Client) -> None:
    first = client.post("/v1/responses", json=body(PAGE, "What?")).json()
    turns = [*body(PAGE, "What?")["input"], *first["output"], {"role": "user", "content": "And who signed it?"}]
    reply = client.post("/v1/responses", json=body() | {"input": turns, "instructions": "Be kind.", "store": True})
    assert reply.status_code == 200, reply.text
    (local,) = MODEL.answer([Request(PAGE, "And who signed it?", 80)])
    assert reply.json()["output"][0]["content"][0]["text"] == local.text


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"input": "What is the total?"}, "image_missing", "this server's reader answers questions about a page"),
        ({"input": [user(PAGE, OTHER, "What?")]}, "too_many_images", "one image, not about 2; ask about each in"),
        (
            {"input": [user(PAGE, OTHER, "What?"), {"role": "user", "content": "Who?"}]},
            "too_many_images",
            "one image, not about 2",
        ),
        ({"input": None}, "invalid_value", "the messages are NoneType"),
        ({"input": [{"type": "item_reference", "id": "m"}]}, "invalid_value", "a message is 'item_reference'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}, "What?"]}]},
            "invalid_value",
            "a part of the message is None",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, user("What?")]},
            "invalid_value",
            "has no address; give it as a data: URL, no file is kept here",
        ),
        ({"previous_response_id": "resp_1"}, "unsupported_value", "previous_response_id is 'resp_1'"),
        ({"conversation": "conv_1"}, "unsupported_value", "conversation is 'conv_1'"),
        ({"background": True}, "unsupported_value", "background is True"),
        ({"text": {"format": {"type": "json_object"}}}, "unsupported_value", "text is {'format'"),
        ({"temperature": 1}, "unsupported_value", "temperature is 1"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens is 0"),
    ],
)
def test_a_response_that_cannot_be_given_says_why(
    client: httpx.Client, change: dict[str, Any], code: str, message: str
) -> None:
    reply = client.post("/v1/responses", json=body(PAGE, "What?") | change)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, code), reply.text
    assert message in reply.json()["error"]["message"]


def test_the_gateway_fits_what_it_sends_here_by_either_api(client: httpx.Client) -> None:
    page = picture(560, 448)  # 320 tokens
    tiers = {"high": {"cost": 5, "budget": 80}, "low": {"cost": 1, "budget": 40}}
    with (
        gateway(f"{client.base_url}/v1", policy(mean_budget=80, tiers=tiers)) as front,
        httpx.Client(base_url=front.address, timeout=60, trust_env=False) as through,
    ):
        for stream in (False, True):
            reply = through.post("/v1/responses", json=body(page, "What is the total?", stream=stream))
            assert (reply.status_code, reply.headers["x-stakes-outcome"]) == (200, "fitted"), reply.text
        last = json.loads(reply.text.split("data: ")[-1])["response"]
        counted = last["usage"]["input_tokens_details"]["multimodal_tokens"]["image"]
        assert str(counted) == reply.headers["x-stakes-predicted-tokens"]
        assert front.metric("usage_checks_total", result="agreed") == 2


@pytest.mark.parametrize("responses", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_count_of_the_last_image_is_held_against_the_prediction_of_that_one(
    client: httpx.Client, responses: bool, stream: bool, mode: str
) -> None:
    assistant = {"role": "assistant", "content": "42"}
    turns = [user(picture(560, 448), "What?", responses=responses), assistant]
    turns += [user(PAGE, "What is the total?", responses=responses)]
    tiers = {"high": {"cost": 5, "budget": 40}, "low": {"cost": 1, "budget": 20}}
    body = {"model": "tiny", "input" if responses else "messages": turns, "stream": stream}
    options = {"stream_options": {"include_usage": True}} if stream and not responses else {}
    with (
        gateway(f"{client.base_url}/v1", policy(mean_budget=40, tiers=tiers), mode=mode) as front,
        httpx.Client(base_url=front.address, timeout=60, trust_env=False) as through,
    ):
        path = "/v1/responses" if responses else "/v1/chat/completions"
        reply = through.post(path, json=body | options)
        assert reply.status_code == 200, reply.text
        kind = "predicted" if mode == "enforce" else "native"
        first, last = map(int, reply.headers[f"x-stakes-{kind}-tokens"].split(","))
        assert first > 0
        front.settle()
        checks = [front.metric("usage_checks_total", result=result) for result in ("agreed", "differed")]
        assert checks == [1, 0]
        assert front.metric("tokens_total", tier="high", kind="actual") == last


@pytest.mark.parametrize("left_out", [0, 1, 2, 9, -1, "1", None])
def test_an_upstream_cannot_leave_out_more_than_all_but_one(left_out: Any) -> None:
    tap = UsageReader(streamed=False)
    details = {"multimodal_tokens": {"image": 40}, "images_left_out": left_out}
    tap.feed(json.dumps({"usage": {"prompt_tokens_details": details}}).encode())
    rules: Any = None  # nothing is decided here
    plan = RequestPlan("chat", rules, tier="high", outcome="fitted", natives=[320, 160], predicted=[80, 40])
    metrics = Metrics()
    assert compare_usage(metrics, plan, tap) == 40
    agreed = left_out in (1, 2, 9)
    assert plan.expected == (40 if agreed else 120)
    assert metrics.usage.labels("agreed")._value.get() == agreed
