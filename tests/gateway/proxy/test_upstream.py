"""Relaying responses: streams arrive chunk by chunk, upstream failures are reported, a disconnect cancels."""

import json
import socket
import threading
import time

import httpx
import openai
import pytest
from tests.gateway.gateways import Gateway, ask, dumped, gateway
from tests.gateway.upstream import DONE, Seen, Upstream, Wire, frame, until, usage

from stakes.gateway.settings import Timeouts

TEXT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "stream": True}


def client(front: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=front.base_url, api_key="k", max_retries=0)


@pytest.mark.parametrize("body", [TEXT, ask(stream=True)], ids=["text", "image"])
def test_each_chunk_is_relayed_before_the_next_arrives(
    front: Gateway, upstream: Upstream, http: httpx.Client, body: dict[str, object]
) -> None:
    got_it = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        assert got_it.wait(10)  # held back until the client has the first chunk
        wire.chunk(frame("2"))
        wire.done()

    upstream.script = script
    with http.stream("POST", f"{front.base_url}/chat/completions", json=body) as reply:
        pieces = reply.iter_raw()
        assert next(pieces) == frame("4")
        got_it.set()
        assert b"".join(pieces) == frame("2") + DONE


@pytest.mark.parametrize("body", [TEXT, ask(stream=True)], ids=["text", "image"])
def test_a_disconnect_after_the_last_event_counts_as_answered(
    front: Gateway, upstream: Upstream, http: httpx.Client, body: dict[str, object]
) -> None:
    """The official client closes at ``[DONE]``, often before the stream's own end is there."""
    hung_up = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("42"))
        wire.chunk(b"data: " + json.dumps({"choices": [], "usage": usage(seen.json)}).encode() + b"\n\n")
        wire.chunk(b"data: [DONE]\n\n")
        if wire.is_closed(5):
            hung_up.set()

    upstream.script = script
    with http.stream("POST", f"{front.base_url}/chat/completions", json=body) as reply:
        for line in reply.iter_lines():
            if line == "data: [DONE]":
                break
    assert hung_up.wait(10)  # the gateway does not wait for the end of a stream that is complete
    assert until(lambda: front.metric("requests_in_flight") == 0)
    assert front.metric("requests_total", tier="", outcome="cancelled") == 0
    if body is not TEXT:
        assert front.metric("usage_checks_total", result="agreed") == 1


def drop_in_the_middle(seen: Seen, wire: Wire) -> None:
    wire.begin_stream()
    wire.chunk(frame("4"))
    wire.drop()


def test_a_dropped_stream_ends_with_an_error_event(front: Gateway, upstream: Upstream) -> None:
    upstream.script = drop_in_the_middle
    with client(front) as one:
        stream = one.chat.completions.create(**TEXT)  # type: ignore[call-overload]
        pieces: list[str | None] = []
        with pytest.raises(openai.APIError, match="failed in the middle"):
            pieces.extend(chunk.choices[0].delta.content for chunk in stream)
    assert pieces == ["4"]
    assert front.metric("upstream_errors_total", kind="dropped") == 1


def test_a_dropped_stream_of_responses_ends_with_an_error_event(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    upstream.script = drop_in_the_middle
    text = http.post(f"{front.base_url}/responses", json={"model": "tiny", "input": "hi", "stream": True}).text
    event = text.rpartition("event: error\ndata: ")[2]
    assert json.loads(event)["type"] == "error"
    assert json.loads(event)["code"] == "upstream_dropped"


def test_a_truncated_response_closes_the_connection(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        wire.drop()

    upstream.script = script
    with pytest.raises(httpx.RemoteProtocolError):
        http.post(f"{front.base_url}/chat/completions", json=TEXT)


@pytest.mark.parametrize("body", [TEXT, ask(stream=True)], ids=["text", "image"])
def test_a_disconnect_cancels_the_upstream_request(front: Gateway, upstream: Upstream, body: dict[str, object]) -> None:
    hung_up = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        if wire.is_closed():
            hung_up.set()

    upstream.script = script
    with httpx.stream("POST", f"{front.base_url}/chat/completions", json=body, trust_env=False) as reply:
        next(reply.iter_raw())
    assert hung_up.wait(5)
    assert until(lambda: front.metric("requests_total", tier="", outcome="cancelled") == 1)
    assert until(lambda: front.state()["images_outstanding"] == 0)


def test_a_disconnect_before_the_response_cancels_too(front: Gateway, upstream: Upstream) -> None:
    hung_up = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        if wire.is_closed():
            hung_up.set()

    upstream.script = script
    body = dumped(ask())
    with socket.create_connection(("127.0.0.1", front.port)) as raw:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)
        assert until(lambda: bool(upstream.seen))
    assert hung_up.wait(5)
    assert until(lambda: front.state()["images_outstanding"] == 0)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_an_idempotent_request_is_sent_again_after_a_dropped_connection(
    front: Gateway, upstream: Upstream, http: httpx.Client, method: str
) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.drop() if len(upstream.seen) < 3 else wire.reply(b"{}")

    upstream.script = script
    assert http.request(method, f"{front.base_url}/files/1").status_code == 200
    assert len(upstream.seen) == 3
    assert front.metric("upstream_retries_total") >= 1  # aiohttp may repeat one itself


@pytest.mark.parametrize("body", [TEXT, ask(), None], ids=["text", "image", "empty"])
def test_a_post_that_the_upstream_read_is_never_sent_again(
    front: Gateway, upstream: Upstream, http: httpx.Client, body: dict[str, object] | None
) -> None:
    upstream.script = lambda seen, wire: wire.drop()
    reply = http.post(f"{front.base_url}/chat/completions", **({"json": body} if body else {}))  # type: ignore[arg-type]
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert len(upstream.seen) == 1
    assert front.metric("upstream_retries_total") == 0


def test_a_post_after_the_upstream_closed_an_idle_connection_goes_through(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.reply(b"{}")
        wire.drop()

    upstream.script = script
    for _ in range(5):
        assert http.post(f"{front.base_url}/chat/completions", json=TEXT).status_code == 200
        time.sleep(0.02)
    assert len(upstream.seen) == 5


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_body_of_several_parts_arrives_whole(
    front: Gateway, upstream: Upstream, http: httpx.Client, extra: int
) -> None:
    begin, end = b'{"model": "tiny", "messages": [{"role": "user", "content": "', b'"}]}'
    length = 3 * (1 << 18) + extra - len(begin) - len(end)
    text = "".join(f"{number:07d} " for number in range(length // 8 + 1))[:length]
    body = begin + text.encode() + end
    http.post(f"{front.base_url}/chat/completions", content=body, headers={"content-type": "application/json"})
    assert upstream.last.json["messages"][0]["content"] == text


def test_an_error_status_of_the_upstream_is_not_retried(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}", 503)
    assert http.post(f"{front.base_url}/chat/completions", json=TEXT).status_code == 503
    assert len(upstream.seen) == 1


def test_a_refused_connection_is_502(http: httpx.Client) -> None:
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        with gateway(f"http://127.0.0.1:{taken.getsockname()[1]}/v1", timeouts=Timeouts(pause_s=0.001)) as front:
            assert http.post(f"{front.base_url}/chat/completions", json=TEXT).status_code == 502
            assert http.get(f"{front.address}/readyz").status_code == 503
            assert http.get(f"{front.address}/healthz").status_code == 200


def test_a_silent_upstream_is_504_and_not_retried(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda seen, wire: time.sleep(1)
    with gateway(upstream.url, timeouts=Timeouts(read_s=0.2)) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask())
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "upstream_timeout")
        assert len(upstream.seen) == 1
        assert front.state()["images_outstanding"] == 0


def test_a_stream_that_stalls_ends_with_an_error(upstream: Upstream, http: httpx.Client) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        time.sleep(1)

    upstream.script = script
    with gateway(upstream.url, timeouts=Timeouts(read_s=0.2)) as front:
        text = http.post(f"{front.base_url}/chat/completions", json=TEXT).text
    assert text.startswith(frame("4").decode())
    assert '"upstream_read_timeout"' in text


def test_the_total_timeout_ends_an_endless_stream(upstream: Upstream, http: httpx.Client) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        for _ in range(100):
            wire.chunk(frame("4"))
            time.sleep(0.05)

    upstream.script = script
    with gateway(upstream.url, timeouts=Timeouts(total_s=0.3)) as front:
        began = time.monotonic()
        text = http.post(f"{front.base_url}/chat/completions", json=TEXT).text
    assert time.monotonic() - began < 3
    assert '"error"' in text


def test_a_response_that_is_not_http_is_502(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    def script(seen: Seen, wire: Wire) -> None:
        wire.send(b"SSH-2.0-OpenSSH_9.2\r\n")
        wire.drop()

    upstream.script = script
    assert http.post(f"{front.base_url}/chat/completions", json=TEXT).status_code == 502


def test_a_shutdown_waits_for_open_streams(upstream: Upstream) -> None:
    begun, go_on = threading.Event(), threading.Event()
    text: list[str] = []

    def script(seen: Seen, wire: Wire) -> None:
        wire.begin_stream()
        wire.chunk(frame("4"))
        go_on.wait(10)
        wire.chunk(frame("2"))
        wire.done()

    def read(url: str) -> None:
        with httpx.stream("POST", url, json=TEXT, timeout=20, trust_env=False) as reply:
            for piece in reply.iter_text():
                text.append(piece)
                begun.set()

    upstream.script = script
    with gateway(upstream.url) as front:
        reader = threading.Thread(target=read, args=(f"{front.base_url}/chat/completions",))
        reader.start()
        assert begun.wait(10)
        threading.Timer(0.3, go_on.set).start()
    reader.join(10)  # the gateway was stopped above, before the second chunk arrived
    assert "".join(text) == (frame("4") + frame("2") + DONE).decode()
