"""Requests that two servers could read differently are refused; sent over raw sockets."""

import re
import socket
from collections.abc import Iterator

import httpx
import pytest
from tests.gateway.gateways import Gateway, gateway
from tests.gateway.upstream import Upstream, serving

from stakes.gateway.settings import Limits

BODY = b'{"messages": []}'
INNER = b"GET /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def limited(behind: Upstream) -> Iterator[Gateway]:
    with gateway(behind.url, limits=Limits(header_bytes=8192, header_s=0.4, body_s=0.4)) as one:
        yield one


def talk(port: int, data: bytes, *, end: bool = True) -> bytes:
    """Everything that comes back until the other side closes or falls silent."""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.settimeout(2)
        raw.sendall(data)
        if end:
            raw.shutdown(socket.SHUT_WR)
        out = b""
        try:
            while piece := raw.recv(65536):
                out += piece
        except (TimeoutError, ConnectionError):
            pass
        return out


def post(*headers: str, body: bytes = BODY, line: str = "POST /v1/chat/completions HTTP/1.1") -> bytes:
    return "\r\n".join([line, *headers, "", ""]).encode("latin-1") + body


LENGTH = f"content-length: {len(BODY)}"
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
RAW: list[tuple[str, bytes, int]] = [
    ("length and chunked", post("host: x", LENGTH, "transfer-encoding: chunked", body=CHUNKED + INNER), 400),
    ("chunked and length", post("host: x", "transfer-encoding: chunked", LENGTH, body=CHUNKED + INNER), 400),
    ("two lengths", post("host: x", LENGTH, "content-length: 4", body=BODY + INNER), 400),
    ("the same length twice", post("host: x", LENGTH, LENGTH), 400),
    ("a list of lengths", post("host: x", "content-length: 16, 16"), 400),
    ("a negative length", post("host: x", "content-length: -1"), 400),
    ("a length with a plus", post("host: x", "content-length: +16"), 400),
    ("a length in hex", post("host: x", "content-length: 0x10"), 400),
    ("a length with a letter", post("host: x", "content-length: 16a"), 400),
    ("an endless length", post("host: x", "content-length: 99999999999999999999999"), 400),
    ("a body with too large a length", post("host: x", "content-length: 70000000000"), 413),
    ("chunked and more", post("host: x", "transfer-encoding: chunked", "Transfer-Encoding: identity"), 400),
    ("an unknown transfer encoding", post("host: x", "transfer-encoding: xchunked", body=CHUNKED), 400),
    ("chunked not last", post("host: x", "transfer-encoding: chunked, gzip", body=CHUNKED), 400),
    ("space before the colon", post("host: x", "transfer-encoding : chunked", body=CHUNKED), 400),
    ("a folded header", post("host: x", "transfer-encoding:\r\n chunked", body=CHUNKED), 400),
    ("a tab in a name", post("host: x", "transfer\t-encoding: chunked", body=CHUNKED), 400),
    ("a zero byte in a value", post("host: x", "x-a: a\0b", LENGTH), 400),
    ("a lone return in a value", post("host: x", "x-a: a\rb", LENGTH), 400),
    ("a chunk size that is none", post("host: x", "transfer-encoding: chunked", body=b"zz\r\n"), 400),
    ("a chunk size beyond counting", post("host: x", "transfer-encoding: chunked", body=b"f" * 17 + b"\r\n"), 400),
    ("a chunk longer than it says", post("host: x", "transfer-encoding: chunked", body=b"1\r\nabc\r\n0\r\n\r\n"), 400),
    ("no host", post(LENGTH), 400),
    ("two hosts", post("host: x", "host: y", LENGTH), 400),
    ("an upgrade to h2c", post("host: x", "connection: upgrade", "upgrade: h2c", LENGTH), 400),
    ("an upgrade to websocket", post("host: x", "connection: upgrade", "upgrade: websocket", "sec-websocket-key: x",
                                     line="GET /v1/realtime HTTP/1.1", body=b""), 400),
    ("two tiers in two headers", post("host: x", "x-stakes-tier: low", "x-stakes-tier: high", LENGTH), 400),
    ("two encodings in two headers", post("host: x", "content-encoding: gzip", "content-encoding: br", LENGTH), 400),
    ("two authorizations", post("host: x", "authorization: Bearer a", "authorization: Bearer b", LENGTH), 400),
    ("an unknown method", post("host: x", line="SMUGGLE /v1/models HTTP/1.1", body=b""), 400),
    ("trace", post("host: x", line="TRACE /v1/models HTTP/1.1", body=b""), 405),
    ("http 3", post("host: x", line="GET /v1/models HTTP/3.7", body=b""), 400),
    ("http 2 outright", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50, 400),
    ("a path upwards", post("host: x", LENGTH, line="POST /v1/x/../chat/completions HTTP/1.1"), 400),
    ("a path upwards in hex", post("host: x", LENGTH, line="POST /v1/x/%2e%2e/chat/completions HTTP/1.1"), 400),
    ("a slash in hex", post("host: x", LENGTH, line="POST /v1/chat%2fcompletions HTTP/1.1"), 400),
    ("hex in hex", post("host: x", LENGTH, line="POST /v1/chat%252fcompletions HTTP/1.1"), 400),
    ("a doubled slash", post("host: x", LENGTH, line="POST /v1//chat/completions HTTP/1.1"), 400),
    ("a backslash", post("host: x", LENGTH, line="POST /v1\\chat\\completions HTTP/1.1"), 400),
    ("a zero byte in hex", post("host: x", LENGTH, line="POST /v1/chat/completions%00 HTTP/1.1"), 400),
    ("headers without end", b"GET /v1/models HTTP/1.1\r\nhost: x\r\nx-a: " + b"a" * 20_000, 431),
    ("too many headers", post("host: x", *[f"x-{n}: {'a' * 90}" for n in range(100)]), 431),
    ("a path too long", post("host: x", line=f"GET /v1/{'a' * 9000} HTTP/1.1", body=b""), 431),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status"), [case[1:] for case in RAW], ids=[case[0] for case in RAW])
def test_an_ambiguous_request_is_refused_and_not_forwarded(
    limited: Gateway, behind: Upstream, data: bytes, status: int
) -> None:
    before = len(behind.seen)
    reply = talk(limited.port, data)
    assert reply.startswith(b"HTTP/1.1 %d" % status), reply[:300]
    assert len(re.findall(rb"HTTP/1\.1 \d{3}", reply)) == 1  # the request inside the body was not answered
    assert b'"error"' in reply
    assert len(behind.seen) == before


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"", 408), (b"GET /v1/models HTTP/1.1\r\nhost:", 408), (post("host: x", "content-length: 99"), 408)],
    ids=["silence", "half a head", "half a body"],
)
def test_a_slow_client_is_408(limited: Gateway, data: bytes, status: int) -> None:
    assert talk(limited.port, data, end=False).startswith(b"HTTP/1.1 %d" % status)


def test_pipelined_requests_are_answered_one_by_one(limited: Gateway, behind: Upstream) -> None:
    first = post("host: x", LENGTH)
    second = post("host: x", line="GET /v1/models HTTP/1.1", body=b"")
    last = post("host: x", "connection: close", line="GET /v1/files HTTP/1.1", body=b"")
    reply = talk(limited.port, first + second + last, end=False)
    assert re.findall(rb"HTTP/1\.1 (\d{3})", reply) == [b"200", b"200", b"200"]
    assert [seen.path for seen in behind.seen[-3:]] == ["/v1/chat/completions", "/v1/models", "/v1/files"]


def test_a_chunk_extension_and_trailers_do_not_reach_the_upstream(limited: Gateway, behind: Upstream) -> None:
    body = b"%x;evil=1\r\n%s\r\n0\r\nx-trailer: content-length\r\n\r\n" % (len(BODY), BODY)
    reply = talk(limited.port, post("host: x", "connection: close", "transfer-encoding: chunked", body=body), end=False)
    assert reply.startswith(b"HTTP/1.1 200")
    assert behind.last.body == BODY
    assert behind.last.header("x-trailer") is None


def test_an_escaped_path_is_recognized(limited: Gateway, behind: Upstream, http: httpx.Client) -> None:
    """%61 is a: the upstream would serve it as chat completions, so the gateway must see it as that too."""
    reply = http.post(f"{limited.base_url}/ch%61t/completions", json={"messages": [{"image_url": 7}]})
    assert reply.status_code == 422
