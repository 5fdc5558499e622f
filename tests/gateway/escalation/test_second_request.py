"""What the second attempt sends, and what an upstream's refusals do to the attempts of later requests."""

import gc
import json
import re
import socket
from typing import Any

import pytest
from tests.gateway.escalation.unsure import FIRST, ONE, SECOND, Unsure, escalating, post, spent, text_of
from tests.gateway.gateways import PAGE, ask, dumped, encoded, gateway, page, policy, url_of
from tests.gateway.test_trim import FRAMED
from tests.gateway.upstream import Seen, Upstream, Wire, image_sizes, until

from stakes.gateway.proxy.clients import Client, ClientKey
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.http_limits import OpenBodies
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
        assert all(re.fullmatch(rf"page-1-\d+x\d+-{x0}-{y0}-{x1}-{y1}", name) for name in names)


def test_a_second_attempt_within_its_budget_sends_the_clients_own_bytes(upstream: Upstream) -> None:
    small = url_of(encoded(page(280, 392)))  # 140 tokens
    with gateway(upstream.url, escalating()) as front:
        assert post(front, "What is the total?", small).headers["x-stakes-attempts"] == "2"
        sent = [one.json["messages"][0]["content"][0]["image_url"]["url"] for one in upstream.posts()]
        assert sent[0] != small
        assert sent[1] == small


def test_two_attempts_beyond_the_cap_of_a_request_are_one(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(), max_request_tokens=FIRST + SECOND - 1) as front:
        answer = post(front)
        assert answer.headers["x-stakes-attempts"] == "1"
        assert f"two would take more than {FIRST + SECOND - 1} tokens" in answer.headers["x-stakes-why"]
        assert spent(front) == ONE
    with gateway(upstream.url, escalating(), max_request_tokens=FIRST + SECOND) as front:
        assert post(front).headers["x-stakes-attempts"] == "2"


def test_a_key_gets_the_tokens_of_a_second_attempt_back_that_was_not_read() -> None:
    client = Client(ClientKey.parse("team secret-key-1 tpm=100"), clock=lambda: 0.0)
    plan = RequestPlan("chat", Rules.of(policy()), client, outcome="fitted", predicted=[30])
    plan.take()
    first = plan.fitting
    plan.predicted = [60]
    taken = plan.take_second()
    assert plan.taken == 90
    plan.second_failed(first, read=False, taken=taken)
    assert plan.taken == 30
    client.take(70)
    with pytest.raises(Refused):
        client.take(1)


def test_an_answer_is_not_held_where_too_many_bytes_are_in_memory(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = OpenBodies.add

    def full(self: OpenBodies, count: int, held: int) -> int:
        if upstream.posts():
            raise Refused(503, "too_many_bytes", "full")
        return add(self, count, held)

    monkeypatch.setattr(OpenBodies, "add", full)
    with gateway(upstream.url, escalating()) as front:
        answer = post(front)
        assert (answer.status_code, answer.headers["x-stakes-attempts"]) == (200, "1")
        assert text_of(answer) == str(ONE)
        assert front.metric("attempts_total", tier="high", result="too long") == 1


def test_a_held_stream_without_its_end_is_an_error(upstream: Upstream) -> None:
    def cut_off(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(b'data: {"choices": [{"index": 0, "delta": {"content": "4"}}]}\n\n')
        wire.end()

    upstream.script = cut_off
    with gateway(upstream.url, escalating()) as front:
        answer = post(front, stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_cut_off")
        assert spent(front) == ONE


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
