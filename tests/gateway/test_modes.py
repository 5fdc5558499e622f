"""Observe changes nothing, fail-open passes what cannot be fitted, a changed policy is used once it is checked."""

import json
from pathlib import Path

import httpx
import pytest
from tests.gateway.gateways import HIGH, LOW, PAGE, ask, dumped, encoded, gateway, page, policy, url_of
from tests.gateway.upstream import Upstream, until

from stakes import BadInput, Policy
from stakes.gateway.settings import Limits, Settings, Timeouts

DAMAGED = url_of(encoded(page())[:2000])


def test_observe_decides_and_reports_and_changes_not_a_byte(upstream: Upstream, http: httpx.Client) -> None:
    body = dumped(ask("What is the total?")).replace(b'"model"', b' "model"')
    with gateway(upstream.url, mode="observe") as front:
        reply = http.post(f"{front.base_url}/chat/completions", content=body)
        assert upstream.last.body == body
        assert reply.headers["x-stakes-mode"] == "observe"
        assert reply.headers["x-stakes-outcome"] == "observed"
        assert reply.headers["x-stakes-budget"] == str(HIGH)
        assert reply.headers["x-stakes-scale"] == "1.0000x1.0000"  # the image is the client's own: coordinates hold
        would = int(reply.headers["x-stakes-predicted-tokens"])
        assert front.metric("tokens_total", tier="high", kind="saved") == 0
        assert front.metric("usage_checks_total", result="agreed") == 1  # the server counted the native tokens
    with gateway(upstream.url) as front:
        enforced = http.post(f"{front.base_url}/chat/completions", content=body)
    assert int(enforced.headers["x-stakes-predicted-tokens"]) == would
    assert enforced.headers["x-stakes-scale"] != "1.0000x1.0000"


@pytest.mark.parametrize("url", [DAMAGED, "file:///etc/passwd", "data:,x", url_of(b"text")])
def test_observe_never_refuses_and_counts_what_it_would(upstream: Upstream, http: httpx.Client, url: str) -> None:
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
def test_fail_open_passes_what_it_cannot_read_and_still_refuses_what_is_unsafe(
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


def test_a_failure_of_our_own_is_open_or_closed_by_setting(
    upstream: Upstream, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("0xdeadbeef is a secret")

    monkeypatch.setattr("stakes.gateway.proxy.fit.shrink", broken)
    for fail, status in (("open", 200), ("closed", 500)):
        with gateway(upstream.url, fail=fail) as front:
            reply = http.post(f"{front.base_url}/chat/completions", json=ask())
            assert reply.status_code == status
            assert "secret" not in reply.text
            assert front.state()["images_outstanding"] == 0


def test_a_changed_policy_is_used_and_a_bad_one_is_not(tmp_path: Path, upstream: Upstream, http: httpx.Client) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)

    def budget() -> str:
        return http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?")).headers["x-stakes-budget"]

    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        assert budget() == str(LOW)
        spent = front.state()["tokens_spent"]
        record = json.loads(path.read_text())
        record["tiers"]["low"]["budget"], record["fingerprint"] = 100, "second"
        Policy.from_record(record).save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert budget() == "100"
        assert front.state()["tokens_spent"] > spent > 0  # a swap does not forget what was spent
        assert front.metric("policy_info", fingerprint="second", mode="enforce") == 1
        for n, bad in enumerate(('{"schema": 1', "[]", json.dumps({**record, "family": "smolvlm"}), ""), 1):
            (tmp_path / "next.json").write_text(bad)
            (tmp_path / "next.json").replace(path)  # in one step: a file seen half written counts as one more bad one
            assert until(lambda n=n: front.metric("policy_reloads_total", result="bad") == n)  # type: ignore[misc]
            assert budget() == "100"
        path.unlink()
        assert until(lambda: front.metric("policy_reloads_total", result="bad") == 5)
        assert budget() == "100"
        policy().save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 2)
        assert budget() == str(LOW)


def test_a_policy_of_the_same_budgets_keeps_the_running_total(
    tmp_path: Path, upstream: Upstream, http: httpx.Client
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        controller = front.served.rules.controller
        policy(fingerprint="other").save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert front.served.rules.controller is controller
        assert http.get(f"{front.address}/readyz").json()["policy"] == "other"


def test_the_mean_budget_holds_through_the_gateway(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, policy(mean_budget=100, burst=0)) as front:
        spent = []
        for n in range(12):
            reply = http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?", PAGE))
            spent.append(int(reply.headers["x-stakes-predicted-tokens"]))
            assert sum(spent) <= 100 * (n + 1)
        assert front.state()["tokens_spent"] == sum(spent)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"upstream": "ftp://x"}, "not an http"),
        ({"mode": "guess"}, "mode is one of observe, enforce"),
        ({"fail": "maybe"}, "fail is one of open, closed"),
        ({"actuator": "magic"}, "actuator is one of"),
        ({"client_keys": ("short",)}, "at least 8 printable"),
        ({"limits": Limits(images=0)}, "images must be above zero"),
        ({"timeouts": Timeouts(total_s=float("inf"))}, "total_s must be above zero and finite"),
    ],
)
def test_settings_that_make_no_sense_are_refused(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Settings(**{"upstream": "http://127.0.0.1:1/v1", **knobs})  # type: ignore[arg-type]


def test_the_upstreams_key_is_not_lent_to_the_whole_network() -> None:
    lent = Settings(upstream="http://127.0.0.1:1/v1", upstream_key="sk-x")
    lent.check_host("127.0.0.1")
    with pytest.raises(BadInput, match="anybody could spend"):
        lent.check_host("0.0.0.0")
    Settings(upstream="http://127.0.0.1:1/v1", upstream_key="sk-x", client_keys=("long-enough",)).check_host("0.0.0.0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "deletion"}, "works inside a model"),
        ({"family": "internvl"}, "not controllable by resizing"),
        ({"signal": {"kind": "judge", "tiers": ["high", "low"], "dearest": "high"}}, "judge"),
    ],
)
def test_a_policy_that_cannot_be_served_is_refused_at_the_start(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message), gateway("http://127.0.0.1:1/v1", policy(**change)):
        pass
