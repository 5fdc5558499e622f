"""Tokens are booked once bytes of a request went upstream; only what surely was not read is given back."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import HIGH, Gateway, ask, dumped, gateway
from tests.gateway.upstream import Seen, Upstream, Wire, until, usage

from stakes.gateway.monitoring.logs import LOGGER
from stakes.gateway.settings import Timeouts
from stakes.vision.image.resize import fitted_size

SPENT = fitted_size(840, 1176, HIGH, "qwen2.5-vl").tokens


@contextmanager
def asking(front: Gateway, body: bytes) -> Iterator[socket.socket]:
    """A client that has sent its request and leaves with the block."""
    with socket.create_connection(("127.0.0.1", front.port)) as raw:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)
        yield raw


def requests_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [one.fields for one in caplog.records if one.name == LOGGER and one.getMessage() == "request"]  # type: ignore[attr-defined]


def test_a_client_that_leaves_before_the_first_byte_pays_for_what_the_model_read(
    front: Gateway, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    read: list[int] = []
    lock, release = threading.Lock(), threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        with lock:
            read.append(usage(seen.json)["prompt_tokens_details"]["multimodal_tokens"]["image"])
        release.wait(10)

    upstream.script = script
    with caplog.at_level("INFO", LOGGER):
        for n in range(1, 31):
            with asking(front, dumped(ask())):
                assert until(lambda n=n: len(read) == n)  # type: ignore[misc]
        assert until(lambda: front.state()["images_outstanding"] == 0)
    release.set()
    assert front.state()["tokens_spent"] == sum(read) > 0
    assert front.state()["images"] == 30
    assert front.metric("tokens_total", tier="high", kind="predicted") == sum(read)
    assert front.metric("requests_total", tier="", outcome="cancelled") == 30
    logged = requests_of(caplog)
    assert {one["result"] for one in logged} == {"cancelled"}
    assert sum(one["booked"] for one in logged) == sum(read)


def test_a_client_that_leaves_while_the_gateway_connects_gets_its_grant_back() -> None:
    """A listener whose queue is full: the upstream is there, and no byte reaches it."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        queue = [socket.socket() for _ in range(4)]
        for one in queue:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        with gateway(f"http://127.0.0.1:{full.getsockname()[1]}/v1") as front:
            with asking(front, dumped(ask())):
                assert until(lambda: front.served.rules.controller.state()["images_outstanding"] == 1)
            assert until(lambda: front.state()["images_outstanding"] == 0)
            assert (front.state()["images"], front.state()["tokens_spent"]) == (0, 0)
        for one in queue:
            one.close()


def test_a_refused_connection_gives_the_grant_back(http: httpx.Client) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        with gateway(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", timeouts=Timeouts(pause_s=0.001)) as front:
            assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == 502
            assert front.metric("upstream_retries_total") == 2  # nothing was sent, so it may be tried again
            assert (front.state()["images"], front.state()["tokens_spent"]) == (0, 0)


def drop(_: Seen, wire: Wire) -> None:
    wire.drop()


def silent(_: Seen, wire: Wire) -> None:
    wire.is_closed(5)


def not_http(_: Seen, wire: Wire) -> None:
    wire.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    wire.drop()


@pytest.mark.parametrize(("script", "status"), [(drop, 502), (silent, 504), (not_http, 502)])
def test_a_request_without_a_response_is_booked_once_it_was_sent(
    upstream: Upstream, http: httpx.Client, script: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.script = script
    with gateway(upstream.url, timeouts=Timeouts(read_s=0.3)) as front, caplog.at_level("INFO", LOGGER):
        assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == status
        assert len(upstream.seen) == 1
        assert (front.state()["images"], front.state()["tokens_spent"]) == (1, SPENT)
        (logged,) = requests_of(caplog)
    assert (logged["result"], logged["status"], logged["booked"]) == ("failed", status, SPENT)


@pytest.mark.parametrize(
    ("status", "booked"), [(200, SPENT), (400, 0), (401, 0), (422, 0), (429, 0), (503, 0), (500, SPENT), (504, SPENT)]
)
def test_a_status_that_refuses_before_generation_gives_the_grant_back(
    front: Gateway, upstream: Upstream, http: httpx.Client, status: int, booked: int
) -> None:
    upstream.script = lambda seen, wire: wire.reply(json.dumps({"error": {"message": "no"}}).encode(), status)
    assert http.post(f"{front.base_url}/chat/completions", json=ask()).status_code == status
    assert (front.state()["images_outstanding"], front.state()["tokens_spent"]) == (0, booked)
