"""What the second attempt sends, and what an upstream's refusals do to the attempts of later requests."""

import gc
import json
import socket
from typing import Any

import pytest
from tests.gateway.escalation.unsure import FIRST, Unsure, escalating, post, text_of
from tests.gateway.gateways import PAGE, ask, dumped, encoded, gateway, page, policy, url_of
from tests.gateway.test_trim import FRAMED
from tests.gateway.upstream import Seen, Upstream, Wire, image_sizes, until

from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.reload import Rules


def by_budget(seen: Seen, wire: Wire) -> None:
    """A vLLM with the plugin: unsure where tokens are deleted."""
    own = seen.json.get("mm_processor_kwargs")
    entry = {"token": "4", "logprob": -1.0 if own else -0.01}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": json.dumps(own)},
        "logprobs": {"content": [entry]},
    }
    wire.reply(json.dumps({"choices": [choice]}).encode())


def test_a_second_attempt_at_native_size_deletes_nothing(upstream: Upstream) -> None:
    upstream.script = by_budget
    rules = escalating(mechanism="deletion", selector="divprune")
    small = url_of(encoded(page(280, 392)))  # 140 tokens
    with gateway(upstream.url, rules, actuator="vllm-deletion") as front:
        answer = post(front, "What is the total?", small)
        assert answer.headers["x-stakes-attempts"] == "2"
        assert answer.headers["x-stakes-predicted-tokens"] == "140"
        assert text_of(answer) == "null"
        first, second = (one.json for one in upstream.posts())
        assert first["mm_processor_kwargs"]["stakes_budget"] == [FIRST]
        assert "mm_processor_kwargs" not in second


def test_a_second_attempt_is_trimmed_too_and_cached_by_its_own_name(upstream: Upstream) -> None:
    body: Any = ask("What is the total?", FRAMED)
    for part in body["messages"][0]["content"]:
        if "image_url" in part:
            part["uuid"] = "page-1"
    with gateway(upstream.url, escalating(trim=True)) as front:
        answer = post(front, "What is the total?", FRAMED, messages=body["messages"])
        assert answer.headers["x-stakes-attempts"] == "2"
        x0, y0, x1, y1 = map(int, answer.headers["x-stakes-box"].split(":"))
        assert (x1 - x0, y1 - y0) < (1120, 1568)
        ((width, height),) = image_sizes(upstream.last.json)
        assert answer.headers["x-stakes-scale"] == f"{width / (x1 - x0):.4f}x{height / (y1 - y0):.4f}"
        names = [
            part["uuid"] for one in upstream.posts() for part in one.json["messages"][0]["content"] if "uuid" in part
        ]
        assert len(set(names)) == 2
        assert all(name.startswith("page-1-") and name.endswith(f"-{x0}-{y0}-{x1}-{y1}") for name in names)


def test_where_the_second_attempt_fails_the_first_ones_box_is_stated() -> None:
    plan = RequestPlan("chat", Rules.of(policy()))
    plan.boxes = [(1, 2, 3, 4)]
    first = plan.fitting
    plan.boxes = [(0, 2, 3, 5)]
    plan.second_failed(first, read=False, taken=0)
    assert plan.boxes == [(1, 2, 3, 4)]


@pytest.mark.parametrize("busy", [429, 503])
def test_a_bad_request_to_a_busy_upstream_does_not_end_second_attempts(upstream: Upstream, busy: int) -> None:
    with gateway(upstream.url, escalating()) as front:
        upstream.script = Unsure(statuses=[400, busy])
        assert post(front).status_code == busy
        assert post(front).headers["x-stakes-attempts"] == "2"


def test_log_probabilities_refused_as_unprocessable_are_left_out(upstream: Upstream) -> None:
    def strict(seen: Seen, wire: Wire) -> None:
        if seen.method == "POST" and "logprobs" in seen.json:
            return wire.reply(b'{"detail": "extra inputs are not permitted"}', 422)
        return Unsure()(seen, wire)

    upstream.script = strict
    with gateway(upstream.url, escalating()) as front:
        assert post(front).status_code == 200


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_client_that_leaves_ends_the_answer_that_is_held(upstream: Upstream, attempt: int) -> None:
    """The upstream sees it at once, and not when memory is collected."""
    half, closed = list[int](), list[bool]()

    def script(seen: Seen, wire: Wire) -> None:
        if len(upstream.posts()) < attempt:
            return Unsure()(seen, wire)
        wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
        half.append(1)
        closed.append(wire.is_closed())
        return None

    upstream.script = script
    gc.disable()
    try:
        with gateway(upstream.url, escalating()) as front:
            with socket.create_connection(("127.0.0.1", front.port)) as client:
                body = dumped(ask("What is the total?", PAGE))
                head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
                assert until(lambda: bool(half), 20)
            assert until(lambda: bool(closed), 10)
        assert closed == [True]
    finally:
        gc.enable()
