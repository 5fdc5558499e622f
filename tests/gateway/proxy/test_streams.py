"""A stream that ends without its last event is an error: logged, counted, and visible to the client."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from tests.gateway.gateways import Gateway, ask
from tests.gateway.upstream import DONE, Seen, Upstream, Wire, frame

from stakes.gateway.monitoring.logs import LOGGER

TEXT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "stream": True}


def streaming(*pieces: bytes, kind: str = "text/event-stream") -> Callable[[Seen, Wire], None]:
    def script(_: Seen, wire: Wire) -> None:
        wire.begin_stream(kind)
        for piece in pieces:
            wire.chunk(piece)
        wire.end()

    return script


def read(http: httpx.Client, url: str, body: dict[str, Any]) -> tuple[bytes, bool]:
    """(what came, whether the response ended as HTTP says)."""
    out = b""
    try:
        with http.stream("POST", url, json=body) as reply:
            for piece in reply.iter_raw():
                out += piece
    except httpx.RemoteProtocolError:
        return out, False
    return out, True


@pytest.mark.parametrize("body", [TEXT, ask(stream=True)], ids=["text", "image"])
def test_a_stream_without_done_is_an_error(
    front: Gateway, upstream: Upstream, http: httpx.Client, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    upstream.script = streaming(frame("4"), frame("2"))
    with caplog.at_level("WARNING", LOGGER):
        out, whole = read(http, f"{front.base_url}/chat/completions", body)
    assert out.startswith(frame("4") + frame("2"))
    assert b'"upstream_cut_off"' in out
    assert not whole  # the connection is closed
    assert front.metric("upstream_errors_total", kind="cut_off") == 1
    assert front.metric("requests_total", tier="", outcome="broken_off") == 1
    (record,) = [one for one in caplog.records if one.name == LOGGER]
    assert record.getMessage() == "the upstream broke off its response"
    assert record.fields["reason"] == "cut_off"  # type: ignore[attr-defined]


def test_the_official_client_sees_the_error(front: Gateway, upstream: Upstream) -> None:
    upstream.script = streaming(frame("4"))
    pieces: list[str | None] = []
    with openai.OpenAI(base_url=front.base_url, api_key="k", max_retries=0) as client:
        stream = client.chat.completions.create(**TEXT)  # type: ignore[call-overload]
        with pytest.raises(openai.APIError, match="before the last event"):
            pieces.extend(chunk.choices[0].delta.content for chunk in stream)
    assert pieces == ["4"]


SPLIT = frame("4") + DONE
COMPLETED = b"event: response.completed\ndata: " + json.dumps({"type": "response.completed"}).encode() + b"\n\n"
WHOLE: list[tuple[str, tuple[bytes, ...]]] = [
    ("chat/completions", (frame("4"), DONE)),
    ("chat/completions", (frame("4"), DONE.replace(b": ", b":").replace(b"\n", b"\r\n"))),
    ("chat/completions", tuple(SPLIT[n : n + 1] for n in range(len(SPLIT)))),
    ("chat/completions", (DONE,)),
    ("completions", (frame("4"), DONE)),
    ("responses", (b"event: response.created\ndata: {}\n\n", COMPLETED)),
    ("responses", (COMPLETED.replace(b"completed", b"incomplete"),)),
    ("responses", (COMPLETED.replace(b"completed", b"failed"),)),
    ("responses", (b'data: {"type": "response.completed"}\n\n',)),
    ("responses", (b"event: response.completed\ndata: {" + b" " * 200_000, b"}\n\n")),
    ("messages", (b"event: message_start\ndata: {}\n\n", b"event: message_stop\ndata: {}\n\n")),
    ("messages", (b'data: {"type": "message_stop"}\n\n',)),
    ("messages/m1", (b"event: message_start\ndata: {}\n\n",)),
]


@pytest.mark.parametrize(("path", "pieces"), WHOLE, ids=range(len(WHOLE)))
def test_a_stream_with_its_last_event_is_whole(
    front: Gateway, upstream: Upstream, http: httpx.Client, path: str, pieces: tuple[bytes, ...]
) -> None:
    upstream.script = streaming(*pieces)
    assert read(http, f"{front.base_url}/{path}", TEXT) == (b"".join(pieces), True)
    assert front.metric("upstream_errors_total", kind="cut_off") == 0


CUT: list[tuple[str, tuple[bytes, ...]]] = [
    ("completions", (frame("4"),)),
    ("chat/completions", (frame("data: [DONE]"), frame("\ndata: [DONE]\n"))),  # in an answer it is no event
    ("chat/completions", ()),
    ("responses", (b"event: response.created\ndata: {}\n\n",)),
    ("responses", (b'event: response.output_text.delta\ndata: {"delta": "response.completed"}\n\n',)),
    ("messages", (b"event: message_start\ndata: {}\n\n", b"event: message_delta\ndata: {}\n\n")),
]


@pytest.mark.parametrize(("path", "pieces"), CUT, ids=range(len(CUT)))
def test_a_stream_without_its_last_event_is_not(
    front: Gateway, upstream: Upstream, http: httpx.Client, path: str, pieces: tuple[bytes, ...]
) -> None:
    upstream.script = streaming(*pieces)
    assert not read(http, f"{front.base_url}/{path}", TEXT)[1]
    assert front.metric("upstream_errors_total", kind="cut_off") == 1


def test_what_is_no_stream_of_events_is_left_alone(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = streaming(b"{}", kind="application/json")
    assert read(http, f"{front.base_url}/chat/completions", TEXT) == (b"{}", True)
    packed = gzip.compress(frame("4") + DONE)

    def compressed(_: Seen, wire: Wire) -> None:
        wire.reply(packed, 200, "text/event-stream", "content-encoding: gzip")

    upstream.script = compressed
    assert read(http, f"{front.base_url}/chat/completions", TEXT) == (packed, True)


def test_a_short_stream_of_known_length_closes_the_connection(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    upstream.script = lambda _, wire: wire.reply(frame("4"), 200, "text/event-stream")
    assert read(http, f"{front.base_url}/chat/completions", TEXT) == (b"", False)
