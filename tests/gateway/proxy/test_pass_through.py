"""Requests without images are forwarded unchanged, without the gateway's own headers."""

import gzip
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import HIGH, PAGE, Gateway, ask, dumped, gateway
from tests.gateway.upstream import Upstream, image_sizes

ODD_BUT_TEXT = [
    b'{"model":"tiny",  "messages" : [ {"role":"user","content":"spaces   and\\ttabs"} ]}\n',
    b'{"messages":[{"content":"caf\xc3\xa9 \xf0\x9f\x98\x80","role":"user"}],"seed":123456789012345678901}',
    b'{"messages":[{"role":"user","content":"escaped \\u00e9 and \\u0000"}],"x":1e2}',
    b'{"messages":[{"role":"user","content":"describe the image_url field"}],"top_p":0.10}',
    b'{"messages":[{"role":"user","content":"an image of a cat","twice":1}]}',
    b"this is not JSON at all",
    b"",
    b"[]",
]


@pytest.mark.parametrize("body", ODD_BUT_TEXT, ids=range(len(ODD_BUT_TEXT)))
def test_text_bodies_arrive_byte_for_byte(front: Gateway, upstream: Upstream, http: httpx.Client, body: bytes) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    reply = http.post(f"{front.base_url}/chat/completions", content=body)
    assert reply.status_code == 200
    assert upstream.last.body == body
    assert not [name for name in reply.headers if name.startswith("x-stakes")]


def test_a_gzip_text_body_stays_gzip(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    packed = gzip.compress(b'{"messages": [{"role": "user", "content": "hello"}]}')
    http.post(f"{front.base_url}/chat/completions", content=packed, headers={"content-encoding": "gzip"})
    assert upstream.last.body == packed
    assert upstream.last.header("content-encoding") == "gzip"


def test_a_chunked_body_arrives_with_a_length(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    http.post(f"{front.base_url}/chat/completions", content=iter([b'{"a"', b": 1}"]))
    assert upstream.last.body == b'{"a": 1}'
    assert upstream.last.header("content-length") == "8"
    assert upstream.last.header("transfer-encoding") is None


def test_hop_by_hop_headers_are_dropped_in_both_directions(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    upstream.script = lambda seen, wire: wire.reply(
        b"{}", 200, "application/json", "connection: x-secret, keep-alive", "x-secret: 1", "keep-alive: timeout=9",
        "proxy-authenticate: Basic", "x-stakes-tier: forged", "x-request-id: 7", "set-cookie: a=1", "set-cookie: b=2",
    )  # fmt: skip
    reply = http.post(
        f"{front.base_url}/chat/completions",
        content=b"{}",
        headers={
            "connection": "x-drop, keep-alive", "x-drop": "1", "te": "trailers", "proxy-authorization": "Basic x",
            "x-stakes-tier": "high", "x-stakes-bypass": "1", "x-keep": "yes", "expect": "",
        },
    )  # fmt: skip
    arrived = {name.lower() for name, _ in upstream.last.headers}
    assert not arrived & {"x-drop", "te", "proxy-authorization", "keep-alive", "x-stakes-tier", "x-stakes-bypass"}
    assert upstream.last.header("x-keep") == "yes"
    assert upstream.last.header("host") == upstream.url.split("/")[2]
    assert reply.headers["x-upstream-request-id"] == "7"
    assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert not {"x-secret", "keep-alive", "proxy-authenticate", "x-stakes-tier"} & set(reply.headers)


def test_cookies_are_not_shared_between_clients(front: Gateway, upstream: Upstream) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}", 200, "application/json", "set-cookie: session=secret")
    for _ in range(2):
        httpx.post(f"{front.base_url}/chat/completions", content=b"{}", trust_env=False)
    assert [seen.header("cookie") for seen in upstream.seen] == [None, None]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_and_paths_are_forwarded(
    front: Gateway, upstream: Upstream, http: httpx.Client, method: str
) -> None:
    reply = http.request(
        method, f"{front.base_url}/files/file-1?a=b&c=%20d", content=b"abc" if method != "GET" else None
    )
    assert reply.json() == {"path": "/v1/files/file-1?a=b&c=%20d", "method": method}
    assert upstream.last.body == (b"abc" if method != "GET" else b"")


def test_paths_next_to_v1_map_next_to_the_upstreams_v1(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    assert http.post(f"{front.address}/tokenize", content=b"{}").json()["path"] == "/tokenize"
    assert http.get(f"{front.address}/v1").json()["path"] == "/v1"


def test_redirects_and_compressed_responses_reach_the_client(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    packed = gzip.compress(b'{"a": 1}')
    upstream.script = lambda seen, wire: wire.reply(packed, 200, "application/json", "content-encoding: gzip")
    reply = http.get(f"{front.base_url}/models")
    assert reply.json() == {"a": 1}
    assert reply.headers["content-length"] == str(len(packed))
    upstream.script = lambda seen, wire: wire.reply(b"", 307, "text/plain", "location: http://127.0.0.1:9/elsewhere")
    reply = http.get(f"{front.base_url}/models")
    assert (reply.status_code, reply.headers["location"]) == (307, "http://127.0.0.1:9/elsewhere")


def test_head_and_empty_responses_are_relayed(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    upstream.script = lambda seen, wire: wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n")
    assert http.head(f"{front.base_url}/models").headers["content-length"] == "5000"
    upstream.script = lambda seen, wire: wire.send(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert http.delete(f"{front.base_url}/files/1").status_code == 204


def test_an_upstream_below_a_prefix_keeps_it(upstream: Upstream, http: httpx.Client) -> None:
    root = upstream.url.removesuffix("/v1")
    with gateway(f"{root}/proxy/v1") as front:
        assert http.get(f"{front.base_url}/files").json()["path"] == "/proxy/v1/files"


RESPONSES: dict[str, Any] = {
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": PAGE},
                {"type": "input_text", "text": "What is the total?"},
            ],
        }
    ]
}


@pytest.mark.parametrize(
    ("base", "path", "arrives"),
    [
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1", "/chat/completions", "/chat/completions"),
        ("/v1", "/v1/chat/completions/", "/v1/chat/completions/"),
        ("/v1", "/v1/v1/chat/completions", "/v1/v1/chat/completions"),
        ("/v1", "/openai/deployments/x/chat/completions", "/openai/deployments/x/chat/completions"),
        ("/v1", "/v1/Chat/completion%73;a=b", "/v1/Chat/completion%73;a=b"),
        ("/v1beta/openai", "/chat/completions", "/v1beta/openai/chat/completions"),
        ("/v1beta/openai", "/v1/chat/completions", "/v1beta/openai/chat/completions"),
        ("/v1beta/openai", "/responses", "/v1beta/openai/responses"),
        ("", "/chat/completions", "/chat/completions"),
        ("", "/v1/responses", "/responses"),
        ("/chat", "/completions", "/chat/completions"),
        ("/v1/chat/completions", "/v1", "/v1/chat/completions"),
    ],
)
def test_images_are_fitted_under_every_base_url(
    upstream: Upstream, http: httpx.Client, base: str, path: str, arrives: str
) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    body = RESPONSES if "responses" in path else ask()
    with gateway(upstream.url.removesuffix("/v1") + base, allow_bypass=False) as front:
        reply = http.post(f"{front.address}{path}?a=1", json=body)
        bypass = http.post(f"{front.address}{path}", json=body, headers={"x-stakes-bypass": "1"})
        assert front.metric("requests_total", tier="", outcome="text") == 0
    assert (reply.headers.get("x-stakes-outcome"), bypass.status_code) == ("fitted", 403)
    (seen,) = upstream.posts()
    ((width, height),) = image_sizes(seen.json)
    assert width * height // 784 <= HIGH
    assert seen.path == f"{arrives}?a=1"


@pytest.mark.parametrize("path", ["/v1/chat/completions/c1", "/v1/responses/r1/cancel", "/v1/my-responses"])
def test_text_on_a_path_that_continues_after_the_api_is_forwarded_unchanged(
    front: Gateway, upstream: Upstream, http: httpx.Client, path: str
) -> None:
    body = dumped({"metadata": {"about": "an image"}, "messages": [{"role": "user", "content": "an image"}]})
    assert http.post(f"{front.address}{path}", content=body).status_code == 200
    assert upstream.last.body == body


def test_the_upstreams_key_replaces_the_clients(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, client_keys=("one-key-1", "two-key-2"), upstream_key="sk-upstream") as front:
        for key, status in (("two-key-2", 200), ("one-key-", 401), ("x", 401), ("sk-upstream", 401)):
            reply = http.post(
                f"{front.base_url}/chat/completions",
                content=dumped({"messages": []}),
                headers={"authorization": f"Bearer {key}", "x-api-key": "client-secret"},
            )
            assert reply.status_code == status
        assert upstream.last.header("authorization") == "Bearer sk-upstream"
        assert upstream.last.header("x-api-key") is None
        assert len(upstream.posts()) == 1
        assert http.get(f"{front.address}/metrics").status_code == 401
        assert http.get(f"{front.address}/healthz").status_code == 200
