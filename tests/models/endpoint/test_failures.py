"""Through a real server that fails: what passes is retried, what stays is named and is never an answer."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.models.endpoint.chat_server import ScriptedReply, Server, completion, honest, image_usage, parts, seen_tokens
from tests.models.endpoint.endpoints import PAGE, Ask, ask

from stakes.errors import BadInput, StakesError
from stakes.models import Request
from stakes.models.endpoint import EndpointVLM

# The scripted server drops connections on purpose; its own half-closed sockets are not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize(
    "failure",
    [
        ScriptedReply(status=500),
        ScriptedReply("busy", 503),
        ScriptedReply("slow down", 429),
        ScriptedReply("<html>", 200),
        ScriptedReply("[" * 100_000, 200),
        ScriptedReply(json.dumps({"choices": []})),
        ScriptedReply(json.dumps({"error": {"message": "overloaded"}})),
        ScriptedReply("null"),
        ScriptedReply(drop=True),
        completion(None),
        completion(""),
        completion(" \n"),
        completion(["yes"]),
        completion("ye", finish="abort"),
        completion("ye", finish=["stop"]),
    ],
)
def test_a_failure_that_passes_is_retried(server: Server, endpoint: Ask, failure: ScriptedReply) -> None:
    server.script = lambda body, n: failure if n < 2 else honest(body, n)
    assert ask(endpoint()).text == "re: What? Answer briefly."
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ScriptedReply("boom", 500), "HTTP 500"),
        (ScriptedReply("<html>"), "is not JSON: <html>"),
        (ScriptedReply("{}"), "is not a chat completion"),
        (ScriptedReply(drop=True), "RemoteProtocolError"),
        (completion(None, finish="length"), "has no text"),
        (completion("", image_usage(63)), "has no text"),
        (completion("half", finish="content_filter"), r"did not finish \(content_filter\)"),
    ],
)
def test_a_failure_that_stays_is_named_and_never_an_answer(
    server: Server, endpoint: Ask, failure: ScriptedReply, message: str
) -> None:
    server.script = lambda body, n: failure
    with pytest.raises(StakesError, match=f"gave no answer in 3 tries.*{message}"):
        ask(endpoint(tries=3))
    assert len(server.bodies) == 3


def test_an_empty_answer_is_taken_only_where_that_was_asked_for(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("", image_usage(seen_tokens(body)))
    assert ask(endpoint(empty="answer")).text == ""
    server.script = lambda body, n: completion("", image_usage(seen_tokens(body)), "length")
    with pytest.raises(StakesError, match="has no text"):
        ask(endpoint(empty="answer", tries=1))


def test_half_a_surrogate_pair_is_replaced_where_it_is_read(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: completion("x \ud83d and \U0001f600", image_usage(seen_tokens(body)))
    assert ask(endpoint()).text == "x \ufffd and \U0001f600"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e300])
def test_a_timeout_must_be_one_that_a_socket_accepts(endpoint: Ask, seconds: float) -> None:
    with pytest.raises(BadInput, match="timeout_s must be above 0 and at most 1e.06 seconds, not"):
        endpoint(timeout_s=seconds)


def test_retry_after_holds_back_every_request(server: Server, endpoint: Ask) -> None:
    def busy_once(body: dict[str, Any], n: int) -> ScriptedReply:
        return ScriptedReply("slow down", 429, {"retry-after": "1"}) if n == 0 else honest(body, n)

    server.script = busy_once
    endpoint(concurrency=1).answer([Request(PAGE, "What?", 64), Request(PAGE, "Who?", 64)])
    assert server.times[1] - server.times[0] >= 1
    server.script = lambda body, n: ScriptedReply("slow down", 429, {"retry-after": "3600"})
    began = time.monotonic()
    with pytest.raises(StakesError, match="in 1 try .*HTTP 429, asking to wait 3600 s"):
        ask(endpoint())
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("trickle", [False, True])
def test_a_request_that_takes_too_long_is_given_up_and_retried(server: Server, endpoint: Ask, trickle: bool) -> None:
    def slow_once(body: dict[str, Any], n: int) -> ScriptedReply:
        reply = honest(body, n)
        if n == 0 and not trickle:
            time.sleep(0.8)
        return ScriptedReply(reply.text, trickle=0.05) if n == 0 and trickle else reply

    server.script = slow_once
    assert ask(endpoint(timeout_s=0.3)).text == "re: What? Answer briefly."
    assert len(server.bodies) == 2
    server.script = lambda body, n: slow_once(body, 0)
    with pytest.raises(StakesError, match="ReadTimeout"):
        ask(endpoint(timeout_s=0.3, tries=1))


def test_a_lost_server_is_named_with_the_number_of_answers_so_far(server: Server, endpoint: Ask) -> None:
    def dies(body: dict[str, Any], n: int) -> ScriptedReply:
        return honest(body, n) if n < 3 else ScriptedReply(drop=True)

    server.script = dies
    with pytest.raises(StakesError, match=r"gave no answer in 2 tries.*\(3 of the 6 requests of this batch"):
        endpoint(tries=2, concurrency=1).answer([Request(PAGE, f"Question {i}?", 64) for i in range(6)])
    assert len(server.bodies) == 5, "the rest of the batch is not asked"
    server.stop()
    with pytest.raises(StakesError, match="ConnectError"):
        EndpointVLM(server.url, tries=2, pause_s=0.01)


def test_a_refusal_is_not_retried_and_keeps_the_key_and_the_image_to_itself(server: Server, endpoint: Ask) -> None:
    server.script = lambda body, n: ScriptedReply(
        json.dumps({"error": {"message": f"bad key sk-1\x1b[31m {body}"}}), 401
    )
    with pytest.raises(BadInput, match=r"refused the request \(HTTP 401\): bad key … ?\[31m") as caught:
        ask(endpoint(api_key="sk-1"))
    assert len(server.bodies) == 1
    assert len(str(caught.value)) < 400
    with pytest.raises(BadInput, match=r"HTTP 404.*does the address end in /v1\?"):
        EndpointVLM(server.url.removesuffix("/v1"))
    server.script = lambda *_: ScriptedReply(
        json.dumps({"error": {"message": "The model `nope` does not exist."}}), 404
    )
    with pytest.raises(BadInput, match=r"HTTP 404\): The model `nope` does not exist\.$"):
        ask(endpoint(model="nope"))


def test_the_first_failure_stops_the_rest(server: Server, endpoint: Ask) -> None:
    def one_is_refused(body: dict[str, Any], n: int) -> ScriptedReply:
        return ScriptedReply("no", 400) if "3?" in parts(body)[1] else ScriptedReply("later", 503)

    server.script = one_is_refused
    began = time.monotonic()
    with pytest.raises(BadInput, match="HTTP 400"):
        endpoint(pause_s=30).answer([Request(PAGE, f"Question {i}?", 64) for i in range(6)])
    assert time.monotonic() - began < 5, "those that were waiting to try again gave up"
