"""One answer to the client, and two attempts where the first is unsure."""

import json
from typing import Any

import httpx
import pytest
from tests.gateway.escalation.unsure import (
    BOTH,
    FIRST,
    LOW,
    ONE,
    SECOND,
    Unsure,
    escalating,
    post,
    spent,
    text_of,
    tokens_at,
)
from tests.gateway.gateways import PAGE, Gateway, ask, blank, gateway
from tests.gateway.upstream import Seen, Upstream, Wire, serving, until

from stakes import BadInput

KEY = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def test_an_unsure_answer_is_asked_again_and_both_attempts_are_booked(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(review=0.95)) as front:
        answer = post(front)
        assert text_of(answer) == str(tokens_at(SECOND))
        assert answer.headers["x-stakes-attempts"] == "2"
        assert answer.headers["x-stakes-confidence"] == "0.9000"
        assert answer.headers["x-stakes-review"] == "yes"
        assert answer.headers["x-stakes-budget"] == str(SECOND)
        assert "confidence 0.500 at 64 tokens: asked again" in answer.headers["x-stakes-why"]
        assert [one.json["logprobs"] for one in upstream.posts()] == [True, True]
        assert answer.json()["choices"][0]["logprobs"] is None  # the client did not ask for them
        assert spent(front) == BOTH
        assert front.metric("attempts_total", tier="high", result="answered") == 1
        assert front.metric("flagged_total", tier="high") == 1
        assert front.metric("usage_checks_total", result="agreed") == 2
        assert front.metric("tokens_total", tier="high", kind="predicted") == BOTH
        assert front.metric("images_total", tier="high") == 1


def test_a_sure_answer_stands_and_the_second_attempt_is_returned(upstream: Upstream) -> None:
    upstream.script = Unsure(first=0.85)
    with gateway(upstream.url, escalating(review=0.6)) as front:
        answer = post(front)
        assert text_of(answer) == str(ONE)
        about = {name: answer.headers[f"x-stakes-{name}"] for name in ("attempts", "confidence", "review")}
        assert about == {"attempts": "1", "confidence": "0.8500", "review": "no"}
        assert len(upstream.posts()) == 1
        assert spent(front) == ONE
        assert front.metric("attempts_total", tier="high", result="sure") == 1


def test_a_tier_with_a_fixed_budget_is_not_asked_for_its_confidence(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating()) as front:
        answer = post(front, "Who signed it?", metadata={"stakes_tier": "low"})
        assert "logprobs" not in upstream.last.json
        assert "x-stakes-attempts" not in answer.headers
        assert spent(front) == tokens_at(LOW)


def test_log_probabilities_that_the_client_asked_for_stay(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating()) as front:
        answer = post(front, logprobs=True, top_logprobs=2)
        assert len(answer.json()["choices"][0]["logprobs"]["content"]) == 2
        assert answer.headers["x-stakes-attempts"] == "2"
        assert upstream.last.json["top_logprobs"] == 2
        post(front, logprobs=False)
        assert upstream.last.body.count(b'"logprobs"') == 1


def test_all_images_of_a_request_get_the_second_budget(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating()) as front:
        answer = post(front, "What is the total?", PAGE, blank(1))
        assert answer.headers["x-stakes-attempts"] == "2"
        assert answer.headers["x-stakes-budget"] == f"{SECOND},{SECOND}"
        assert int(text_of(answer)) == sum(map(int, answer.headers["x-stakes-predicted-tokens"].split(",")))
        assert spent(front) > int(text_of(answer))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"n": 2}, "n is 2"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "the answer may be a call of a tool"),
        ({"use_beam_search": True}, "beam search"),
    ],
)
def test_requests_without_one_answer_of_text_get_one_attempt(upstream: Upstream, more: Any, why: str) -> None:
    with gateway(upstream.url, escalating(review=0.6)) as front:
        answer = post(front, **more)
        assert answer.headers["x-stakes-attempts"] == "1"
        assert f"one attempt: {why}" in answer.headers["x-stakes-why"]
        assert answer.headers["x-stakes-review"] == "yes"  # an answer without confidence is unsure
        assert "x-stakes-confidence" not in answer.headers
        assert "logprobs" not in upstream.last.json
        assert spent(front) == ONE


def test_json_mode_and_cut_off_answers_are_asked_again_like_any_other(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating()) as front:
        answer = post(front, response_format={"type": "json_object"}, max_tokens=2, tools=[], n=1)
        assert answer.headers["x-stakes-attempts"] == "2"
        assert upstream.last.json["max_tokens"] == 2


def test_the_messages_and_responses_apis_are_asked_once(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(review=0.6)) as front:
        source = {"type": "base64", "media_type": "image/png", "data": PAGE.partition(",")[2]}
        parts = [{"type": "image", "source": source}, {"type": "text", "text": "What is the total?"}]
        body = {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": parts}]}
        answer = httpx.post(f"{front.base_url}/messages", json=body, headers=KEY, trust_env=False)
        assert "the Messages API carries no log-probabilities" in answer.headers["x-stakes-why"]
        parts = [{"type": "input_image", "image_url": PAGE}, {"type": "input_text", "text": "What is the total?"}]
        body = {"model": "tiny", "input": [{"role": "user", "content": parts}]}
        other = httpx.post(f"{front.base_url}/responses", json=body, trust_env=False)
        for one in (answer, other):
            assert one.status_code == 200
            assert (one.headers["x-stakes-attempts"], one.headers["x-stakes-review"]) == ("1", "yes")
        assert spent(front) == 2 * ONE
        assert front.metric("attempts_total", tier="high", result="not asked") == 2


def stream(front: Gateway, **more: Any) -> tuple[httpx.Headers, str]:
    body = ask(stream=True, **more)
    with httpx.stream("POST", f"{front.base_url}/chat/completions", json=body, trust_env=False) as answer:
        return answer.headers, answer.read().decode()


def events(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def test_a_stream_waits_for_the_first_attempt_and_streams_the_second(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(review=0.95)) as front:
        headers, text = stream(front)
        found = events(text)
        assert found[0]["choices"][0]["delta"]["content"] == str(tokens_at(SECOND))
        assert all(choice["logprobs"] is None for one in found for choice in one["choices"])
        assert (headers["x-stakes-attempts"], headers["x-stakes-review"]) == ("2", "in-stream")
        assert "x-stakes-confidence" not in headers
        assert text.endswith(
            ": x-stakes-attempts: 2\n: x-stakes-confidence: 0.9000\n: x-stakes-review: yes\n\ndata: [DONE]\n\n"
        )
        assert spent(front) == BOTH
        assert front.metric("flagged_total", tier="high") == 1
        upstream.script = Unsure(first=0.99)
        headers, text = stream(front)
        assert (headers["x-stakes-attempts"], headers["x-stakes-review"]) == ("1", "no")
        assert headers["x-stakes-confidence"] == "0.9900"
        assert events(text)[0]["choices"][0]["delta"]["content"] == str(ONE)
        assert text.endswith("data: [DONE]\n\n")
        assert "x-stakes" not in text


def test_a_stream_of_a_tier_that_reviews_only_is_not_held(upstream: Upstream) -> None:
    begun: list[float] = []

    def slowly(seen: Seen, wire: Wire) -> None:
        """Waits in the middle of the stream until the client has its beginning."""
        choice = {"index": 0, "delta": {"content": "4"}, "logprobs": {"content": [{"logprob": -0.5}]}}
        wire.begin_stream()
        wire.chunk(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        assert until(lambda: bool(begun))
        wire.done()

    tiers = {"high": {"cost": 5, "budget": FIRST, "review_below": 0.7}, "low": {"cost": 1, "budget": LOW}}
    with serving(slowly) as slow, gateway(slow.url, escalating(tiers=tiers)) as front:
        body = ask(stream=True)
        with httpx.stream("POST", f"{front.base_url}/chat/completions", json=body, trust_env=False) as answer:
            lines = answer.iter_lines()
            assert '"logprobs":null' in next(lines)
            begun.append(1)
            assert ": x-stakes-review: yes" in list(lines)
        assert answer.headers["x-stakes-review"] == "in-stream"
        assert front.metric("flagged_total", tier="high") == 1


def test_without_allowance_an_unsure_answer_stands(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(mean_budget=192, burst=300)) as front:
        answers = [post(front) for _ in range(12)]
        seconds = [answer.headers["x-stakes-attempts"] for answer in answers]
        assert set(seconds) == {"1", "2"}
        unpaid = next(answer for answer in answers if answer.headers["x-stakes-attempts"] == "1")
        assert unpaid.headers["x-stakes-confidence"] == "0.5000"
        assert front.metric("attempts_total", tier="high", result="unpaid") >= 1
        assert spent(front) <= 192 * 12 + 300


def test_a_burst_that_pays_for_no_second_attempt_is_refused_at_the_start(upstream: Upstream) -> None:
    wrong = r"a burst of 200 tokens pays for no second attempt of tier 'high'.*--burst 256"
    with pytest.raises(BadInput, match=wrong), gateway(upstream.url, escalating(mean_budget=64, burst=200)):
        pass


def test_thresholds_of_another_statistic_are_refused(upstream: Upstream) -> None:
    with (
        pytest.raises(BadInput, match="about the mean OCR line score"),
        gateway(upstream.url, escalating(confidence="mean OCR line score")),
    ):
        pass


def test_observe_mode_asks_for_nothing(upstream: Upstream) -> None:
    with gateway(upstream.url, escalating(), mode="observe") as front:
        answer = post(front)
        assert "logprobs" not in upstream.last.json
        assert "x-stakes-attempts" not in answer.headers


def test_a_keys_limit_of_tokens_ends_the_second_attempt_and_not_the_request(upstream: Upstream) -> None:
    keys = ("team secret-key-1 tpm=100",)
    with gateway(upstream.url, escalating(), client_keys=keys) as front:
        body, headers = ask(), {"authorization": "Bearer secret-key-1"}
        answer = httpx.post(f"{front.base_url}/chat/completions", json=body, headers=headers, trust_env=False)
        assert answer.headers["x-stakes-attempts"] == "1"
        assert "the second attempt failed: token limit" in answer.headers["x-stakes-why"]
        assert spent(front) == ONE


def test_an_answer_too_long_to_hold_is_passed_on_without_confidence(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stakes.gateway.escalation.attempts.MOST_HELD", 100)
    with gateway(upstream.url, escalating(review=0.6)) as front:
        answer = post(front)
        assert text_of(answer) == str(ONE)
        assert (answer.headers["x-stakes-attempts"], answer.headers["x-stakes-review"]) == ("1", "yes")
        _, text = stream(front)
        assert events(text)[0]["choices"][0]["delta"]["content"] == str(ONE)
        assert all(choice["logprobs"] is None for one in events(text) for choice in one["choices"])
        assert spent(front) == 2 * ONE
        assert front.metric("attempts_total", tier="high", result="too long") == 2
