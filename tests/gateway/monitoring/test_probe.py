"""The probe reports whether an upstream's tokens follow the budget, for every family."""

import io
import json
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import gateway, policy
from tests.gateway.upstream import Seen, Upstream, Wire, honest, until, usage

from stakes.gateway.monitoring.probe import compare


def test_the_probe_reports_that_tokens_follow(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, probe=True) as front:
        assert until(lambda: front.metric("probe_follows") == 1)
        about = http.get(f"{front.address}/readyz").json()
    assert about["tokens_follow"] is True
    assert about["probe"].startswith("tokens follow the budget: ")
    assert len(upstream.posts()) == 3
    assert front.state()["images"] == 0  # the probe is not counted as traffic


def test_the_probe_logs_an_error_when_they_do_not(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    def stubborn(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            honest(seen, wire)
        else:
            wire.reply(b'{"usage": {"prompt_tokens": 870}}')

    upstream.script = stubborn
    with gateway(upstream.url, probe=True) as front:
        assert until(lambda: front.metric("probe_follows") == 0)
    record = json.loads(lines.getvalue().splitlines()[0])
    assert record["level"] == "error"
    assert record["event"].startswith("TOKENS DO NOT FOLLOW THE BUDGET")


def test_the_probe_reports_that_the_upstream_enlarges_small_images(upstream: Upstream, http: httpx.Client) -> None:
    """As a checkpoint does whose processor has a larger ``min_pixels`` than its family."""

    def enlarging(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            return honest(seen, wire)
        counted = usage(seen.json)
        tokens = counted["prompt_tokens_details"]["multimodal_tokens"]
        tokens["image"] = max(16, tokens["image"])
        return wire.reply(json.dumps({"usage": counted}).encode())

    upstream.script = enlarging
    cases: list[tuple[dict[str, Any], bool]] = [({}, False), ({"min_pixels": 12544}, True)]
    for knobs, follows in cases:
        with gateway(upstream.url, probe=True, **knobs) as front:
            assert until(lambda: front.metric("probe_follows") == 1)
            sentence = http.get(f"{front.address}/readyz").json()["probe"]
        assert ("SMALL IMAGES DO NOT: one of 4 tokens was counted as 16" in sentence) is not follows


@pytest.mark.parametrize("family", ["qwen3-vl", "llava-onevision", "pixtral", "gpt-4o"])
def test_the_probe_has_an_image_for_every_family(upstream: Upstream, family: str) -> None:
    def counting(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            return honest(seen, wire)
        return wire.reply(json.dumps({"usage": usage(seen.json, family)}).encode())

    upstream.script = counting
    with gateway(upstream.url, policy(family=family), probe=True) as front:
        assert until(lambda: front.metric("probe_follows") == 1)


def test_the_probe_waits_for_an_upstream_that_is_starting(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stakes.gateway.app.probe_until_known.__defaults__", (0.02,))

    def starting(seen: Seen, wire: Wire) -> None:
        wire.reply(b"{}", 503) if len(upstream.seen) < 4 else honest(seen, wire)

    upstream.script = starting
    with gateway(upstream.url, probe=True) as front:
        assert until(lambda: front.metric("probe_follows") == 1)


@pytest.mark.parametrize(
    ("counts", "follows"),
    [
        ([(90, None), (280, None)], True),
        ([(90, None), (90, None)], False),
        ([(None, 100), (None, 290)], True),
        ([(None, 100), (None, 291)], True),
        ([(None, 100), (None, 100)], False),
        ([(None, 100), (None, None)], None),
    ],
)
def test_the_probes_verdict(counts: list[tuple[int | None, int | None]], follows: bool | None) -> None:
    assert compare([90, 280], counts).follows is follows
