"""The dashboard without a browser: who may see it, what it shows, and that images are kept only where asked."""

import io
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.gateway.gateways import HIGH, PAGE, Gateway, ask, dumped, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Seen, Upstream, Wire, image_sizes

from stakes.gateway.monitoring import recent
from stakes.gateway.monitoring.recent import RecentDecisions
from stakes.gateway.proxy.decide import ImagePair, RequestPlan
from stakes.gateway.proxy.sites import is_local
from stakes.gateway.reload import Rules

FILES = (
    ("/", "text/html"),
    ("/stakes/dashboard.js", "text/javascript"),
    ("/stakes/ask.js", "text/javascript"),
    ("/stakes/dashboard.css", "text/css"),
)
KEY = {"authorization": "Bearer correct-horse"}


@pytest.fixture
def keeping(upstream: Upstream) -> Iterator[Gateway]:
    with gateway(upstream.url, keep_images=2) as one:
        yield one


def post(http: httpx.Client, front: Gateway, body: Any = None, **headers: str) -> httpx.Response:
    reply = http.post(f"{front.base_url}/chat/completions", json=body or ask(), headers=headers)
    assert reply.status_code == 200
    return reply


def state(http: httpx.Client, front: Gateway) -> dict[str, Any]:
    reply = http.get(f"{front.address}/stakes/state")
    assert reply.status_code == 200
    record: dict[str, Any] = reply.json()
    return record


def test_the_dashboard_files_name_no_other_host(front: Gateway, http: httpx.Client, upstream: Upstream) -> None:
    for path, kind in FILES:
        reply = http.get(front.address + path)
        assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (200, kind)
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.", reply.text.replace("http://www.w3.org/2000/svg", ""))
        assert "innerHTML" not in reply.text
    assert upstream.seen == []
    assert http.get(f"{front.address}/stakes/elsewhere").json()["path"] == "/stakes/elsewhere"  # the upstream's


def test_the_state_counts_the_requests(front: Gateway, http: httpx.Client, upstream: Upstream) -> None:
    high = int(post(http, front).headers["x-stakes-predicted-tokens"])
    low = int(post(http, front, ask("What colour is the sky?")).headers["x-stakes-predicted-tokens"])
    post(http, front, ask("Where is it?"), **{"x-stakes-tier": "grounding"})
    post(http, front, {"model": "tiny", "messages": []})
    assert http.post(f"{front.base_url}/chat/completions", json=ask("?", "data:nonsense")).status_code == 422
    shown = state(http, front)
    assert shown["tokens"] == {
        "native": 3780, "budgeted": 1580, "predicted": high + low + 1260, "saved": 2520 - high - low,
        "actual": high + low + 1260,
    }  # fmt: skip
    tiers = {tier["name"]: tier for tier in shown["tiers"]}
    assert {name: (one["images"], one["cost"], one["budget"]) for name, one in tiers.items()} == {
        "high": (1, 5, 256), "low": (1, 1, 64), "grounding": (1, None, None)
    }  # fmt: skip
    assert tiers["low"]["actual"] == low
    assert shown["requests"] == {"fitted": 2, "grounding": 1, "text": 1, "refused": 1}
    assert shown["apart"] == {}
    assert shown["refused"] == {"bad_data_url": 1}
    assert shown["checks"] == {"agreed": 3}
    assert shown["means"] == [[1, high], [2, (high + low) / 2], [3, round((high + low + 1260) / 3, 2)]]
    assert [one["tier"] for one in shown["decisions"]] == ["grounding", "low", "high"]  # newest first
    assert shown["decisions"][2]["counted"] == high
    assert (shown["mode"], shown["probe"]) == ("enforce", None)


def test_no_image_and_no_question_is_kept_unless_asked_for(front: Gateway, http: httpx.Client) -> None:
    post(http, front)
    (one,) = state(http, front)["decisions"]
    assert (one["pictures"], one["question"], one["why"]) == (0, None, 'keyword "…"')
    assert http.get(f"{front.address}/stakes/images/1/0/original").status_code == 404


def test_both_images_can_be_seen_where_they_are_kept(keeping: Gateway, http: httpx.Client, upstream: Upstream) -> None:
    post(http, keeping)
    (one,) = state(http, keeping)["decisions"]
    assert (one["pictures"], one["question"], one["why"]) == (1, "What is the total?", 'keyword "total"')
    original = http.get(f"{keeping.address}/stakes/images/1/0/original")
    seen = http.get(f"{keeping.address}/stakes/images/1/0/seen")
    assert url_of(original.content) == PAGE
    assert original.headers["content-type"] == seen.headers["content-type"] == "image/png"
    assert [Image.open(io.BytesIO(seen.content)).size] == image_sizes(upstream.last.json)
    assert one["predicted"][0] <= HIGH < one["native"][0]
    for path in ("2/0/seen", "1/1/seen", "1/0/other"):
        assert http.get(f"{keeping.address}/stakes/images/{path}").status_code == 404


def test_only_the_newest_keep_their_images(keeping: Gateway, http: httpx.Client) -> None:
    for question in ("What is the total?", "What colour?", "Which date?"):
        post(http, keeping, ask(question))
    assert [(one["id"], one["pictures"]) for one in state(http, keeping)["decisions"]] == [(3, 1), (2, 1), (1, 0)]
    assert [one["question"] for one in state(http, keeping)["decisions"]] == ["Which date?", "What colour?", None]
    assert http.get(f"{keeping.address}/stakes/images/1/0/seen").status_code == 404


def test_a_question_that_utf8_cannot_encode_is_shown(keeping: Gateway, http: httpx.Client) -> None:
    body = {**ask("What \ud800 total?"), "metadata": {"stakes_task": "a \udfff task"}}
    reply = http.post(f"{keeping.base_url}/chat/completions", content=dumped(body))
    assert reply.status_code == 200
    assert state(http, keeping)["decisions"][0]["question"] == "What ? total?"


def test_an_unchanged_image_is_shown_as_received(keeping: Gateway, http: httpx.Client) -> None:
    small = encoded(page(84, 84), "JPEG")
    post(http, keeping, ask("What is the total?", url_of(small, "image/jpeg")))
    seen = http.get(f"{keeping.address}/stakes/images/1/0/seen")
    assert (seen.content, seen.headers["content-type"]) == (small, "image/jpeg")
    post(http, keeping, ask("Where?"), **{"x-stakes-tier": "grounding"})
    assert url_of(http.get(f"{keeping.address}/stakes/images/2/0/seen").content) == PAGE


def test_observe_keeps_the_original_on_both_sides(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, keep_images=1, mode="observe") as one:
        post(http, one)
        assert url_of(http.get(f"{one.address}/stakes/images/1/0/seen").content) == PAGE


def test_a_policy_of_legibility_is_marked_in_the_state_and_in_the_log(
    upstream: Upstream, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "stakes.gateway"), gateway(upstream.url, policy(basis="legibility")) as one:
        shown = state(http, one)
    assert shown["policy"]["basis"] == "legibility"
    assert [sentence[:34] for sentence in shown["warnings"]] == ["LEGIBILITY, not a VLM's error: thi"]
    assert "LEGIBILITY, not a VLM's error" in caplog.text
    with gateway(upstream.url) as one:
        shown = state(http, one)
    assert (shown["policy"]["basis"], shown["warnings"]) == ("answers", [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "rebound.example.com"}, 403),
        ({"host": "rebound.example.com:8080"}, 403),
        ({"host": "127.0.0.1.example.com"}, 403),
        ({"host": "localhost.example.com"}, 403),
        ({"host": ""}, 403),
        ({"x-forwarded-for": "127.0.0.1"}, 403),
        ({"forwarded": "for=192.0.2.1"}, 403),
        ({"via": "1.1 proxy"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/stakes/state", "/stakes/dashboard.js", "/stakes/images/1/0/seen"])
def test_without_keys_only_this_machine_sees_it(
    keeping: Gateway, http: httpx.Client, headers: dict[str, str], status: int, path: str
) -> None:
    if path.endswith("seen"):
        post(http, keeping)
    reply = http.get(keeping.address + path, headers=headers)
    assert reply.status_code == status
    if status == 403:
        assert reply.json()["error"]["code"] == "not_local"
        assert "--key-file" in reply.json()["error"]["message"]


@pytest.mark.parametrize(("peer", "local"), [("127.0.0.1", True), ("::1", True), ("10.0.0.7", False), ("", False)])
def test_a_remote_peer_is_not_this_machine(peer: str, local: bool) -> None:
    from starlette.requests import Request

    scope = {"type": "http", "headers": [(b"host", b"localhost")], "client": (peer, 1)}
    assert is_local(Request(scope)) is local


def test_with_keys_the_dashboard_is_open_and_its_numbers_are_not(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, keep_images=1, client_keys=("correct-horse",)) as one:
        post(http, one, **KEY)
        for path in ("/stakes/state", "/stakes/images/1/0/seen"):
            assert http.get(one.address + path).status_code == 401
            assert http.get(one.address + path, headers={"authorization": "Bearer wrong-horse"}).status_code == 401
            assert http.get(one.address + path, headers={**KEY, "host": "gateway.example.com"}).status_code == 200
        assert http.get(one.address, headers={"host": "gateway.example.com"}).status_code == 200


def test_an_upstream_that_refuses_is_in_the_list_and_not_in_the_means(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    def refuse(_: Seen, wire: Wire) -> None:
        wire.reply(b"{}", 429)

    upstream.script = refuse
    http.post(f"{front.base_url}/chat/completions", json=ask())
    shown = state(http, front)
    assert (shown["decisions"][0]["status"], shown["means"], shown["tokens"]["native"]) == (429, [], 0)


@given(sizes=st.lists(st.integers(0, 60), max_size=30), keep=st.integers(0, 10))
def test_kept_images_never_take_more_than_their_limit(sizes: list[int], keep: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "MOST_BYTES", 100)
        one, rules = RecentDecisions(keep), Rules.of(policy())
        for size in sizes:
            plan = RequestPlan("chat", rules, outcome="fitted", pairs=[ImagePair("png", b"x" * size, None)])
            one.add(plan, status=200, result="answered", counted=None, ms=1.0)
        kept = [decision for decision in one._decisions if decision.pairs]
    assert sum(decision.bytes for decision in kept) <= 100
    assert len(kept) <= keep
    assert [decision.id for decision in kept] == [len(sizes) - i for i in range(len(kept))]  # the newest, without a gap
