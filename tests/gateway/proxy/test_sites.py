"""A gateway that lends its key answers this machine only; browsers get answers for allowed origins."""

import socket
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import Gateway, ask, dumped, gateway
from tests.gateway.upstream import Upstream

from stakes import BadInput
from stakes.gateway.settings import Settings

KEY = "client-key-1"
PATHS = ["/v1/chat/completions", "/v1/models", "/tokenize", "/", "/stakes/state", "/metrics", "/healthz", "/readyz"]
ALLOWED = "https://chat.example.com"


def raw(front: Gateway, path: str, *headers: str, body: bytes = b"{}", method: str = "POST") -> bytes:
    """The response to a request with exactly these headers."""
    head = "\r\n".join([f"{method} {path} HTTP/1.1", f"content-length: {len(body)}", *headers, "connection: close"])
    with socket.create_connection(("127.0.0.1", front.port)) as one:
        one.sendall(f"{head}\r\n\r\n".encode() + body)
        out = b""
        while piece := one.recv(65536):
            out += piece
    return out


CROSS_SITE: list[tuple[str, tuple[str, ...]]] = [
    ("rebound name", ("host: rebound.example.com",)),
    ("rebound name with the port", ("host: evil.example.com:8080", "content-type: text/plain")),
    ("a foreign page", ("host: 127.0.0.1", "origin: https://evil.example.com", "content-type: text/plain")),
    ("a sandboxed page", ("host: 127.0.0.1", "origin: null")),
    ("another port of this machine", ("host: 127.0.0.1:8080", "origin: http://127.0.0.1:3000")),
    ("another scheme", ("host: 127.0.0.1:8080", "origin: https://127.0.0.1:8080")),
    ("an image element", ("host: localhost", "sec-fetch-site: cross-site")),
    ("a page of another port", ("host: localhost", "sec-fetch-site: same-site")),
    ("a proxy", ("host: 127.0.0.1", "x-forwarded-for: 192.0.2.7")),
    ("a proxy by name", ("host: 127.0.0.1", "via: 1.1 proxy")),
    ("no host", ("host:",)),
]


@pytest.mark.parametrize("headers", [case[1] for case in CROSS_SITE], ids=[case[0] for case in CROSS_SITE])
@pytest.mark.parametrize("path", PATHS)
def test_a_web_page_cannot_spend_the_key_that_a_gateway_lends(
    upstream: Upstream, headers: tuple[str, ...], path: str
) -> None:
    with gateway(upstream.url, upstream_key="sk-secret") as front:
        reply = raw(front, path, *headers, method="POST" if path.startswith(("/v1/chat", "/tok")) else "GET")
        assert reply.startswith(b"HTTP/1.1 403"), reply[:300]
        assert b"not_local" in reply or b"foreign_origin" in reply
    assert not upstream.seen


@pytest.mark.parametrize(
    "headers",
    [
        ("host: 127.0.0.1",),
        ("host: localhost:8080",),
        ("host: [::1]:8080",),
        ("host: 127.0.0.1:8080", "origin: http://127.0.0.1:8080"),
        ("host: LOCALHOST:8080", "origin: http://localhost:8080", "sec-fetch-site: same-origin"),
        ("host: 127.0.0.1", "sec-fetch-site: none"),
        ("host: 127.0.0.1", f"origin: {ALLOWED}"),
    ],
)
def test_local_clients_and_allowed_pages_can(upstream: Upstream, headers: tuple[str, ...]) -> None:
    with gateway(upstream.url, upstream_key="sk-secret", allow_origins=(ALLOWED,)) as front:
        assert raw(front, "/v1/chat/completions", *headers).startswith(b"HTTP/1.1 200")
        assert upstream.last.header("authorization") == "Bearer sk-secret"


@pytest.mark.parametrize("knobs", [{}, {"client_keys": (KEY,)}, {"client_keys": (KEY,), "upstream_key": "sk-secret"}])
def test_a_gateway_that_lends_no_key_is_used_by_any_name(upstream: Upstream, knobs: dict[str, Any]) -> None:
    with gateway(upstream.url, **knobs) as front:
        more = ("host: gateway.example.com", f"authorization: Bearer {KEY}", "x-forwarded-for: 192.0.2.7")
        assert raw(front, "/v1/chat/completions", *more).startswith(b"HTTP/1.1 200")


def preflight(http: httpx.Client, front: Gateway, origin: str) -> httpx.Response:
    headers = {
        "origin": origin, "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,x-stakes-tier",
    }  # fmt: skip
    return http.options(f"{front.base_url}/chat/completions", headers=headers)


def test_a_preflight_is_answered_before_any_key_is_asked_for(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, client_keys=(KEY,), allow_origins=(ALLOWED,)) as front:
        reply = preflight(http, front, ALLOWED)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == ALLOWED
        assert "POST" in reply.headers["access-control-allow-methods"]
        assert "x-stakes-tier" in reply.headers["access-control-allow-headers"]
        assert preflight(http, front, "https://evil.example.com").status_code == 400
        assert not upstream.seen


def test_responses_can_be_read_by_allowed_pages_only(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda _, wire: wire.reply(b"{}", 200, "application/json", "access-control-allow-origin: *")
    with gateway(upstream.url, client_keys=(KEY,), allow_origins=(ALLOWED,)) as front:

        def read(origin: str, **more: Any) -> httpx.Headers:
            headers = {"authorization": f"Bearer {KEY}", "origin": origin}
            return http.post(f"{front.base_url}/chat/completions", content=dumped(ask()), headers=headers).headers

        allowed = read(ALLOWED)
        assert allowed["access-control-allow-origin"] == ALLOWED
        assert "x-stakes-tier" in allowed["access-control-expose-headers"]
        assert "origin" in allowed["vary"].lower()
        assert "access-control-allow-origin" not in read("https://evil.example.com")
        unauthorized = http.post(f"{front.base_url}/chat/completions", json={}, headers={"origin": ALLOWED})
        assert (unauthorized.status_code, unauthorized.headers["access-control-allow-origin"]) == (401, ALLOWED)


def test_without_keys_and_origins_the_upstream_answers_browsers(upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda _, wire: wire.reply(b"{}", 200, "application/json", "access-control-allow-origin: *")
    with gateway(upstream.url) as front:
        assert preflight(http, front, "https://a.example").headers["access-control-allow-origin"] == "*"
        assert upstream.last.method == "OPTIONS"


@pytest.mark.parametrize(
    "origin", ["*", "null", "chat.example.com", "https://a.example/", "https://A.example", "file://"]
)
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(BadInput, match="an origin is a scheme and a host"):
        Settings(upstream="http://127.0.0.1:1/v1", allow_origins=(origin,))


PRIVATE = [
    "127.0.0.1", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "10.0.0.7", "192.168.1.1", "172.16.0.1",
    "169.254.169.254", "100.100.100.200", "[::1]", "[fd00:ec2::254]", "[::ffff:10.0.0.1]", "localhost", "a.localhost",
    "LOCALHOST.", "0.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("host", PRIVATE)
@pytest.mark.parametrize("headers", [{}, {"x-stakes-bypass": "1"}, {"x-stakes-tier": "grounding"}], ids=str)
def test_a_literal_private_address_is_never_passed_on(
    upstream: Upstream, http: httpx.Client, host: str, headers: dict[str, str]
) -> None:
    with gateway(upstream.url, fail="open") as front:
        body = ask("What is the total?", f"http://{host}/latest/meta-data")
        reply = http.post(f"{front.base_url}/chat/completions", json=body, headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "private_image_url")
    assert not upstream.seen


@pytest.mark.parametrize(
    "host", ["images.example", "8.8.8.8", "[2606:2800:220:1:248:1893:25c8:1946]", "minio.example:9000"]
)
def test_a_public_address_is_passed_on(upstream: Upstream, http: httpx.Client, host: str) -> None:
    with gateway(upstream.url) as front:
        reply = http.post(f"{front.base_url}/chat/completions", json=ask("Total?", f"http://{host}/p.png"))
    assert reply.headers["x-stakes-outcome"] == "uncompressed"
