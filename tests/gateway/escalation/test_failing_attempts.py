"""The total is exact whatever fails between two attempts."""

import contextlib
import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tests.gateway.escalation.unsure import BOTH, FIRST, ONE, SECOND, Unsure, escalating, post, spent, text_of
from tests.gateway.gateways import ask, blank, dumped, gateway
from tests.gateway.upstream import Seen, Upstream, Wire, until, usage


@pytest.mark.parametrize(
    ("failure", "read"), [(503, False), (429, False), (400, False), (500, True), (0, True), (1, True)]
)
def test_where_the_second_attempt_fails_the_first_answer_stands(upstream: Upstream, failure: int, read: bool) -> None:
    """Booked are both where the upstream may have read the second images, else the first alone."""
    with gateway(upstream.url, escalating(review=0.6)) as front:
        post(front)
        before = spent(front)
        upstream.script = Unsure(statuses=[200, failure])
        answer = post(front)
        assert answer.status_code == 200
        assert text_of(answer) == str(ONE)
        about = {name: answer.headers[f"x-stakes-{name}"] for name in ("attempts", "confidence", "review", "budget")}
        assert about == {"attempts": "1", "confidence": "0.5000", "review": "yes", "budget": str(FIRST)}
        assert "the second attempt failed" in answer.headers["x-stakes-why"]
        assert spent(front) - before == (BOTH if read else ONE)
        assert front.metric("attempts_total", tier="high", result="failed") == 1


@pytest.mark.parametrize(
    ("failure", "status", "read"), [(503, 503, False), (500, 500, True), (0, 502, True), (1, 502, True)]
)
def test_where_the_first_attempt_fails_there_is_no_second(
    upstream: Upstream, failure: int, status: int, read: bool
) -> None:
    with gateway(upstream.url, escalating()) as front:
        upstream.script = Unsure(statuses=[failure])
        assert post(front).status_code == status
        assert len(upstream.posts()) == 1
        assert spent(front) == (ONE if read else 0)


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_pays_for_the_attempts_that_were_sent(
    upstream: Upstream, attempt: int, streamed: bool
) -> None:
    unsure, waiting = Unsure(), []

    def script(seen: Seen, wire: Wire) -> None:
        if len(upstream.posts()) < attempt:
            return unsure(seen, wire)
        waiting.append(1)
        wire.is_closed()
        return None

    upstream.script = script
    with gateway(upstream.url, escalating()) as front:
        with socket.create_connection(("127.0.0.1", front.port)) as client:
            body = dumped(ask(stream=streamed))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            assert until(lambda: bool(waiting), 20)
        assert until(lambda: front.state()["images_outstanding"] == 0)
        assert spent(front) == (ONE, BOTH)[attempt - 1]


def test_the_total_holds_by_the_upstreams_own_count_under_failures_and_cancels(upstream: Upstream) -> None:
    """Everything is unsure, in batches of six; a third of the attempts fails, and some clients leave."""
    dice, read = random.Random(4), list[int]()
    mean, burst = 128, 3 * (FIRST + SECOND - 128)

    def script(seen: Seen, wire: Wire) -> None:
        status = dice.choice([200] * 8 + [503, 500, 0, 1])
        if status != 503:
            read.append(usage(seen.json)["prompt_tokens"] - 10)
        time.sleep(dice.choice([0, 0.05]))
        Unsure(statuses=[status])(seen, wire)

    def send(number: int) -> None:
        body = ask("What is the total?", blank(number), stream=number % 3 == 0)
        with contextlib.suppress(httpx.TransportError):
            timeout = 0.03 if number % 7 == 0 else 20
            httpx.post(f"{front.base_url}/chat/completions", json=body, trust_env=False, timeout=timeout)

    upstream.script = script
    with gateway(upstream.url, escalating(mean_budget=mean, burst=burst)) as front, ThreadPoolExecutor(6) as pool:
        for batch in range(8):
            list(pool.map(send, range(6 * batch, 6 * batch + 6)))
            assert until(lambda: front.state()["images_outstanding"] == 0)
            state = front.state()
            assert sum(read) <= state["tokens_spent"] <= mean * state["images"] + burst
        assert front.metric("attempts_total", tier="high", result="answered") > 0
        assert front.metric("attempts_total", tier="high", result="unpaid") > 0
        assert front.metric("attempts_total", tier="high", result="failed") > 0
