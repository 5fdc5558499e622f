"""What the gateway says of itself: metrics, logs without images or questions, readiness, and the probe."""

import io
import json
import logging
from collections.abc import Iterator

import httpx
import pytest
from tests.gateway.gateways import PAGE, Gateway, ask, gateway, policy
from tests.gateway.upstream import Seen, Upstream, Wire, honest, until, usage

from stakes.gateway.monitoring.logs import LOGGER, JsonLines, clean
from stakes.gateway.monitoring.probe import compare
from stakes.gateway.proxy.usage import Tap


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield out
    logger.removeHandler(handler)
    logger.setLevel(level)


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


def test_a_server_that_counts_otherwise_shows_in_the_metric(
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


def test_the_log_is_json_and_holds_neither_image_nor_question(
    lines: io.StringIO, front: Gateway, http: httpx.Client
) -> None:
    http.post(f"{front.base_url}/chat/completions", json=ask("What is the secret total of Mrs Smith?"))
    http.post(f"{front.base_url}/chat/completions", json=ask("x", "data:image/png;base64,AAAA"))
    front.settle()
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [record["event"] for record in records] == ["request", "refused"]
    assert records[0]["tier"] == "high"
    assert records[0]["why"] == 'keyword "…"'
    assert records[0]["predicted"] == [records[0]["counted"]]
    assert records[1]["reason"] == "unreadable_image"
    assert not any(word in lines.getvalue() for word in ("Smith", "secret", "base64", PAGE[40:60]))


def test_questions_are_logged_only_when_asked_for(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, log_questions=True) as front:
        http.post(f"{front.base_url}/chat/completions", json=ask("What is the total?"))
    record = json.loads(lines.getvalue().splitlines()[0])
    assert (record["question"], record["why"]) == ("What is the total?", 'keyword "total"')


def test_what_a_library_says_goes_through_the_same_sieve() -> None:
    assert clean(f"bad url {PAGE} here") == "bad url data:… here"
    assert len(clean("x" * 10_000)) < 600
    try:
        raise ValueError(PAGE)
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "f", 1, "failed", None, (type(error), error, error.__traceback__)
        )
    written = json.loads(JsonLines().format(record))
    assert (written["error"], written["event"]) == ("ValueError", "failed")
    assert "base64" not in json.dumps(written)


def test_the_probe_says_that_tokens_follow(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, probe=True) as front:
        assert until(lambda: front.metric("probe_follows") == 1)
        about = http.get(f"{front.address}/readyz").json()
    assert about["tokens_follow"] is True
    assert about["probe"].startswith("tokens follow the budget: ")
    assert len(upstream.posts()) == 2
    assert front.state()["images"] == 0  # the probe is nobody's traffic


def test_the_probe_is_loud_when_they_do_not(lines: io.StringIO, upstream: Upstream, http: httpx.Client) -> None:
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


def test_usage_is_found_at_the_end_of_a_long_answer() -> None:
    tap = Tap(streamed=True)
    for _ in range(5000):
        tap.feed(b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n')
    tap.feed(b'data: {"usage": {"prompt_tokens_details": {"image_')
    tap.feed(b'tokens": 77}}}\n\ndata: [DONE]\n\n')
    assert tap.image_tokens() == 77
    tap.feed(b'data: {"usage": {"prompt_tokens_details": {"image_tokens": 78}}}\n\n')
    assert tap.image_tokens() == 78  # the last word counts
    long = Tap(streamed=False)
    long.feed(b"x" * (2 << 20))
    assert long.image_tokens() is None
