"""Through a real server: answers in order, images at exactly their budget, options as they were given."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import pytest
from PIL import Image, ImageChops
from tests.models.endpoint.chat_server import (
    ScriptedReply,
    Server,
    completion,
    honest,
    image_usage,
    parts,
    received,
    seen_tokens,
)
from tests.models.endpoint.endpoints import PAGE, Ask, ask

from stakes import models
from stakes.errors import BadInput, StakesError, UnknownFamily, UnreadableImage
from stakes.models import VLM, Answer, Request
from stakes.models.endpoint import EndpointVLM
from stakes.models.identity import family_of, identity, native_tokens
from stakes.vision.geometry import count_tokens
from stakes.vision.image.resize import fit

# The scripted server drops connections on purpose; its own half-closed sockets are not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def test_the_server_gets_the_fitted_pixels_and_the_question_at_temperature_0(server: Server, endpoint: Ask) -> None:
    answer = ask(endpoint(api_key="sk-1"), 64)
    (body,) = server.bodies
    fitted = fit(PAGE, 64)
    assert received(body).size == fitted.image.size
    assert ImageChops.difference(received(body), fitted.image).getbbox() is None
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("reader", 0, 16)
    assert parts(body)[1] == "What? Answer briefly."
    assert set(server.authorization) == {"Bearer sk-1"}
    assert (answer.text, answer.budget, answer.truncated) == ("re: What? Answer briefly.", 64, False)
    assert (answer.realised_tokens, answer.native_tokens) == (fitted.tokens, fitted.native)
    assert min(answer.timings.values()) > 0


def test_log_probabilities_are_asked_for_only_on_request_and_become_the_confidence(
    server: Server, endpoint: Ask
) -> None:
    assert ask(endpoint()).confidence is None
    assert "logprobs" not in server.bodies[0]
    for logprobs, confidence in (
        ({"content": [{"token": "4", "logprob": math.log(0.25)}, {"token": "<|im_end|>", "logprob": 0.0}]}, 0.5),
        ({"content": []}, None),
        ({"content": [{"token": "4", "logprob": None}]}, None),
        ({"content": [{"token": "4", "logprob": math.nan}]}, None),
        (None, None),
    ):

        def listed(body: dict[str, Any], n: int, logprobs: Any = logprobs) -> ScriptedReply:
            reply = json.loads(honest(body, n).text)
            reply["choices"][0]["logprobs"] = logprobs
            return ScriptedReply(json.dumps(reply))

        server.script = listed
        assert ask(endpoint(logprobs=True)).confidence == confidence
        assert server.bodies[-1]["logprobs"] is True
    assert identity(endpoint(logprobs=True)) == identity(endpoint()), "no answer depends on it"


def test_without_a_budget_the_image_goes_as_it_is_and_the_servers_bounds_hold(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("yes", image_usage(100))
    answer = ask(endpoint(), None)
    assert ImageChops.difference(received(server.bodies[0]), PAGE).getbbox() is None
    assert (answer.budget, answer.native_tokens, answer.realised_tokens) == (None, 100, 100)


def test_an_image_too_large_for_the_service_is_sent_as_large_as_it_takes(server: Server, endpoint: Ask) -> None:
    tokens = count_tokens("claude", 8000, 38)
    server.script = lambda body, n: completion("yes", image_usage(tokens))
    model = endpoint(family="claude")
    assert native_tokens(model, 8400, 40, "resolution") == tokens
    model.answer([Request(Image.new("RGB", (8400, 40)), "What is it?")])
    assert received(server.bodies[-1]).size == (8000, 38)


def test_answers_come_in_the_order_of_requests_and_no_more_at_once_than_allowed(server: Server, endpoint: Ask) -> None:
    def some_overtake(body: dict[str, Any], n: int) -> ScriptedReply:
        time.sleep(0.05 if n % 3 == 0 else 0.01)
        return honest(body, n)

    server.script = some_overtake
    model = endpoint(concurrency=3)
    questions = [f"Question {i}?" for i in range(12)]
    caught: list[list[Answer]] = []
    requests = [Request(PAGE, question, (16, 64)[i % 2]) for i, question in enumerate(questions)]
    other = threading.Thread(target=lambda: caught.append(model.answer(requests)))
    other.start()
    caught.append(model.answer(requests))
    other.join()
    for answers in caught:
        assert [answer.text for answer in answers] == [f"re: {question} Answer briefly." for question in questions]
    assert server.most_at_once == 3
    assert sum(answer.timings["host"] > 0 for answer in caught[0]) == 2, (
        "fitted once for each budget, not each question"
    )
    assert model.answer([]) == []
    assert isinstance(model, VLM)


def test_an_answer_that_was_cut_says_so(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("one two", image_usage(seen_tokens(body)), "length")
    assert ask(endpoint(max_new_tokens=2)).truncated
    assert server.bodies[0]["max_tokens"] == 2


def test_extra_fields_are_sent_and_none_removes_one(server: Server, endpoint: Ask) -> None:
    model = endpoint(extra={"max_tokens": None, "max_completion_tokens": 16, "seed": 1})
    ask(model)
    assert "max_tokens" not in server.bodies[0]
    assert (server.bodies[0]["max_completion_tokens"], server.bodies[0]["seed"]) == (16, 1)
    assert identity(model) != identity(endpoint())


def test_the_only_model_is_taken_and_several_are_listed(server: Server, endpoint: Ask) -> None:
    assert endpoint().model == "reader"
    assert identity(endpoint()) == identity(endpoint(model="reader"))
    server.models = json.dumps({"data": [{"id": "reader"}, {"id": "writer"}]})
    with pytest.raises(BadInput, match=r"has 2 models \(reader, writer\); name the one to ask"):
        endpoint()
    assert endpoint(model="writer").model == "writer"
    server.models = json.dumps({"data": []})
    with pytest.raises(BadInput, match=r"has 0 models \(none\)"):
        endpoint()
    server.models = "[]"
    with pytest.raises(StakesError, match="no list of models"):
        endpoint(tries=2)


def test_what_a_server_cannot_do_is_refused_before_it_is_asked(server: Server, endpoint: Ask) -> None:
    model = endpoint()
    for refused in ("deletion", "zero-mask"):
        with pytest.raises(BadInput, match=f"{refused} works inside a model, and this one is behind http"):
            model.answer([Request(PAGE, "What?", 64), Request(PAGE, "What?", 64, refused)])
    with pytest.raises(BadInput, match="deletion works inside"):
        native_tokens(model, 500, 400, "deletion")
    with pytest.raises(UnreadableImage, match="0 bytes"):
        model.answer([Request(b"", "What?", 64)])
    with pytest.raises(BadInput, match="internvl: not controllable by resizing"):
        ask(endpoint(family="internvl"))
    assert server.bodies == []
    assert native_tokens(model, 500, 400, "resolution") == fit(PAGE, 64).native
    assert family_of(model) == "qwen2.5-vl"


def test_options_are_checked(server: Server) -> None:
    for options, error, message in (
        ({"concurrency": 0}, BadInput, "at least one request"),
        ({"max_new_tokens": 0}, BadInput, "at least one token long"),
        ({"tries": 0}, BadInput, "at least one try"),
        ({"timeout_s": 0}, BadInput, "timeout_s must be above 0"),
        ({"check": "maybe"}, BadInput, "check is error or record"),
        ({"api_key": "a\nb"}, BadInput, "no header can carry"),
        ({"family": "qwen"}, UnknownFamily, "unknown family 'qwen'"),
    ):
        with pytest.raises(error, match=message):
            EndpointVLM(server.url, **options)
    with pytest.raises(BadInput, match="is not an http"):
        EndpointVLM("ftp://somewhere/v1")


def test_load_takes_an_address(server: Server) -> None:
    with models.load(server.url, family="qwen3-vl", concurrency=2, max_new_tokens=5) as model:
        assert isinstance(model, EndpointVLM)
        assert (model.family, model.max_new_tokens) == ("qwen3-vl", 5)
        server.script = lambda body, n: completion("yes", image_usage(seen_tokens(body, 32)))
        assert ask(model, 80).realised_tokens == fit(PAGE, 80, "qwen3-vl").tokens
