"""Metrics count tokens by tier and kind, and compare the server's counts with the predictions."""

import json

import httpx
from tests.gateway.gateways import Gateway, ask
from tests.gateway.upstream import Seen, Upstream, Wire, usage

from stakes.gateway.proxy.usage import UsageReader


def test_tokens_are_counted_by_tier_and_kind(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    for question in ("What is the total?", "Who signed it?", "Who wrote it?"):
        http.post(f"{front.base_url}/chat/completions", json=ask(question))
    http.post(f"{front.base_url}/chat/completions", json={"messages": []})
    text = http.get(f"{front.address}/metrics").text
    for name in (
        "stakes_requests_total", "stakes_tokens_total", "stakes_fit_seconds_bucket",
        "stakes_prediction_error_tokens_count",
        "stakes_controller", "stakes_request_seconds_count", "stakes_first_byte_seconds_count", "stakes_policy_info",
    ):  # fmt: skip
        assert name in text
    count = front.metric
    assert count("requests_total", tier="low", outcome="fitted") == 2
    assert count("requests_total", tier="", outcome="text") == 1
    assert count("tokens_total", tier="low", kind="native") == 2 * 1260
    for tier in ("high", "low"):
        predicted = count("tokens_total", tier=tier, kind="predicted")
        assert 0 < predicted <= count("tokens_total", tier=tier, kind="budgeted")
        assert count("tokens_total", tier=tier, kind="actual") == predicted
        assert (
            count("tokens_total", tier=tier, kind="saved")
            == count("tokens_total", tier=tier, kind="native") - predicted
        )
    assert count("controller", name="images") == 3


def test_a_server_that_counts_differently_shows_in_the_metric(
    front: Gateway, upstream: Upstream, http: httpx.Client
) -> None:
    def wrong(seen: Seen, wire: Wire) -> None:
        counted = usage(seen.json)
        counted["prompt_tokens_details"]["multimodal_tokens"]["image"] += 100
        wire.reply(json.dumps({"usage": counted}).encode())

    upstream.script = wrong
    http.post(f"{front.base_url}/chat/completions", json=ask())
    assert front.metric("usage_checks_total", result="differed") == 1
    assert front.metric("prediction_error_tokens_bucket", le="64.0") == 0
    assert front.metric("prediction_error_tokens_bucket", le="256.0") == 1
    upstream.script = lambda seen, wire: wire.reply(b'{"usage": {"prompt_tokens": 12}}')
    http.post(f"{front.base_url}/chat/completions", json=ask())
    assert front.metric("usage_checks_total", result="unknown") == 1


def test_usage_is_found_at_the_end_of_a_long_answer() -> None:
    tap = UsageReader(streamed=True)
    for _ in range(5000):
        tap.feed(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
    tap.feed(b'data: {"usage": {"prompt_tokens_details": {"image_')
    tap.feed(b'tokens": 77}}}\n\ndata: [DONE]\n\n')
    assert tap.image_tokens() == 77
    tap.feed(b'data: {"usage": {"prompt_tokens_details": {"image_tokens": 78}}}\n\n')
    assert tap.image_tokens() == 78  # the last word counts
    long = UsageReader(streamed=False)
    long.feed(b"x" * (2 << 20))
    assert long.image_tokens() is None
