"""Observe changes nothing, fail-open forwards what cannot be fitted, and a policy that cannot be served is refused."""

import httpx
import pytest
from tests.gateway.gateways import HIGH, PAGE, ask, dumped, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream

from stakes import BadInput
from stakes.gateway.settings import Limits

DAMAGED = url_of(encoded(page())[:2000])


def test_observe_decides_and_reports_and_forwards_the_body_unchanged(upstream: Upstream, http: httpx.Client) -> None:
    body = dumped(ask("What is the total?")).replace(b'"model"', b' "model"')
    with gateway(upstream.url, mode="observe") as front:
        reply = http.post(f"{front.base_url}/chat/completions", content=body)
        assert upstream.last.body == body
        assert reply.headers["x-stakes-mode"] == "observe"
        assert reply.headers["x-stakes-outcome"] == "observed"
        assert reply.headers["x-stakes-budget"] == str(HIGH)
        assert reply.headers["x-stakes-scale"] == "1.0000x1.0000"  # the image is unchanged: coordinates hold
        would = int(reply.headers["x-stakes-predicted-tokens"])
        assert front.metric("tokens_total", tier="high", kind="saved") == 0
        assert front.metric("usage_checks_total", result="agreed") == 1  # the server counted the native tokens
    with gateway(upstream.url) as front:
        enforced = http.post(f"{front.base_url}/chat/completions", content=body)
    assert int(enforced.headers["x-stakes-predicted-tokens"]) == would
    assert enforced.headers["x-stakes-scale"] != "1.0000x1.0000"


@pytest.mark.parametrize("url", [DAMAGED, "file:///etc/passwd", "data:,x", url_of(b"text")])
def test_observe_counts_what_it_would_refuse(upstream: Upstream, http: httpx.Client, url: str) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    body = dumped(ask("What is the total?", url))
    with gateway(upstream.url, mode="observe") as front:
        assert http.post(f"{front.base_url}/chat/completions", content=body).status_code == 200
        assert upstream.last.body == body
        # a damaged image is found only by decoding, which observing does not do
        rejected = "stakes_would_reject_total{" in http.get(f"{front.address}/metrics").text
        assert rejected == (url != DAMAGED)


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (DAMAGED, 200),
        (url_of(b"an AVIF, say, that the upstream may know"), 200),
        (url_of(encoded(page(3000, 1000))), 422),
        ("data:image/png;base64,***", 422),
        ("file:///etc/passwd", 422),
    ],
    ids=["damaged", "unknown format", "too many pixels", "bad base64", "file"],
)
def test_fail_open_forwards_what_it_cannot_read_and_refuses_what_is_unsafe(
    upstream: Upstream, http: httpx.Client, url: str, status: int
) -> None:
    upstream.script = lambda seen, wire: wire.reply(b"{}")
    body = dumped(ask("What is the total?", url))
    with gateway(upstream.url, fail="open", limits=Limits(pixels=2_000_000)) as front:
        reply = http.post(f"{front.base_url}/chat/completions", content=body)
        assert reply.status_code == status
        if status == 200:
            assert upstream.last.body == body
            assert reply.headers["x-stakes-outcome"] == "uncompressed"
            assert reply.headers["x-stakes-why"] == "unreadable image"
            assert front.metric("apart_images_total", why="uncompressed") == 1
        assert front.state()["images_outstanding"] == 0


def test_an_internal_error_follows_the_fail_setting(
    upstream: Upstream, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("0xdeadbeef is a secret")

    monkeypatch.setattr("stakes.gateway.proxy.actuators.fit_image", broken)
    for fail, status in (("open", 200), ("closed", 500)):
        with gateway(upstream.url, fail=fail) as front:
            reply = http.post(f"{front.base_url}/chat/completions", json=ask())
            assert reply.status_code == status
            assert "secret" not in reply.text
            assert front.state()["images_outstanding"] == 0


def test_the_mean_budget_holds_through_the_gateway(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(mean_budget=100, burst=0)) as front:
        spent = []
        for n in range(12):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", PAGE))
            spent.append(int(reply.headers["x-stakes-predicted-tokens"]))
            assert sum(spent) <= 100 * (n + 1)
        assert front.state()["tokens_spent"] == sum(spent)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "deletion"}, "works inside a model"),
        ({"family": "internvl"}, "not controllable by resizing"),
        ({"signal": {"kind": "judge", "tiers": ["high", "low"], "most_expensive": "high"}}, "judge"),
    ],
)
def test_a_policy_that_cannot_be_served_is_refused_at_the_start(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message), gateway("http://127.0.0.1:1/v1", policy(**change)):
        pass
