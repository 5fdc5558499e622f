"""The confidence is the offline one, what the client did not ask for is taken out, upstreams without it are noticed."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.escalation.unsure import FIRST, Unsure, escalating
from tests.gateway.gateways import ask, gateway, policy
from tests.gateway.upstream import Seen, Wire, serving, until

import stakes
from stakes.budgets.options.burst import attempts_at_once, option_notes
from stakes.gateway.escalation.confidence import AnswerReader, asking, one_attempt
from stakes.gateway.monitoring.probe import check_upstream
from stakes.gateway.settings import Settings
from stakes.models.base import confidence_of
from stakes.models.endpoint.chat import read_reply


def completion(logprobs: list[float], text: str = "42") -> dict[str, Any]:
    content = [{"token": "x", "logprob": one, "bytes": [], "top_logprobs": []} for one in logprobs]
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": content}}]}


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=20), st.integers(1, 60))
@settings(max_examples=30, deadline=None)
def test_whole_and_streamed_answers_have_the_confidence_of_the_offline_path(logprobs: list[float], cut: int) -> None:
    body = json.dumps(completion(logprobs)).encode()
    whole = AnswerReader(streamed=False, strip=True)
    stripped = json.loads(whole.feed(body) + whole.end())
    assert stripped["choices"][0].pop("logprobs") is None
    assert whole.confidence == confidence_of(read_reply(json.loads(body)).logprobs) == confidence_of(logprobs)
    lines = [f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': 'é'}, **one}]})}\n\n" for one in [
        {"logprobs": {"content": [{"token": "x", "logprob": value}]}} for value in logprobs
    ]]  # fmt: skip
    text = "".join([": a comment\r\n", *lines, "data: [DONE]\n\n"]).encode()
    streamed = AnswerReader(True, True, lambda reader: f": {reader.confidence}\n".encode())
    out = b"".join(streamed.feed(text[i : i + cut]) for i in range(0, len(text), cut)) + streamed.end()
    assert streamed.confidence == whole.confidence
    assert f": {whole.confidence}\ndata: [DONE]\n\n".encode() in out
    events = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    assert len(events) == len(logprobs)
    assert all(one["choices"][0] == {"index": 0, "delta": {"content": "é"}, "logprobs": None} for one in events)
    kept = AnswerReader(streamed=True, strip=False)
    assert kept.feed(text) + kept.end() == text


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"choices": 3}', b'{"choices": [{"logprobs": null}]}'])
def test_what_is_no_completion_is_passed_on_without_a_confidence(body: bytes) -> None:
    reader = AnswerReader(streamed=False, strip=True)
    out = reader.feed(body) + reader.end()
    assert json.loads(out) == json.loads(body) if body.startswith(b"{") else out == body
    assert (reader.found, reader.confidence) == (False, None)


def test_asking_changes_nothing_else() -> None:
    assert json.loads(asking(b'{"model":"m","n":1}')) == {"model": "m", "n": 1, "logprobs": True}
    assert one_attempt("chat", {"tools": [{}], "tool_choice": "none", "n": 1}) == ""
    assert one_attempt("chat", {"functions": [{}]}) == "the answer may be a call of a tool"
    assert one_attempt("chat", {"best_of": 3}) == "best_of is 3"


def test_an_upstream_that_gives_none_is_noticed_and_costs_no_second_attempts() -> None:
    with serving(Unsure(first=None, second=None)) as upstream, gateway(upstream.url, escalating(review=0.6)) as front:
        answers = [httpx.post(f"{front.base_url}/chat/completions", json=ask(), trust_env=False) for _ in range(6)]
        attempts = [one.headers["x-stakes-attempts"] for one in answers]
        assert attempts == ["2", "2", "2", "1", "1", "1"]  # an answer without confidence is unsure, three times
        assert "one attempt: the upstream gives no log-probabilities" in answers[-1].headers["x-stakes-why"]
        assert {one.headers["x-stakes-review"] for one in answers} == {"yes"}
        assert front.metric("confidence_given") == 0
        ready = httpx.get(f"{front.address}/readyz", trust_env=False).json()
        assert ready["confidence_given"] is False
        upstream.script = Unsure()
        for expected in ("1", "2"):  # the first answer that has them ends it
            answer = httpx.post(f"{front.base_url}/chat/completions", json=ask(), trust_env=False)
            assert answer.headers["x-stakes-attempts"] == expected


def refusing(seen: Seen, wire: Wire) -> None:
    """Refuses requests that ask for log-probabilities."""
    if seen.method == "POST" and "logprobs" in seen.json:
        return wire.reply(b'{"error": {"message": "logprobs are not supported"}}', 400)
    return Unsure()(seen, wire)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_upstream_that_refuses_to_give_them_still_answers(streamed: bool) -> None:
    with serving(refusing) as upstream, gateway(upstream.url, escalating(review=0.6)) as front:
        for _ in range(2):
            body = ask(stream=streamed)
            answer = httpx.post(f"{front.base_url}/chat/completions", json=body, trust_env=False)
            assert answer.status_code == 200
            assert answer.headers["x-stakes-attempts"] == "1"
        assert len(upstream.posts()) == 3  # it is asked for them once
        assert front.state()["tokens_spent"] == front.metric("tokens_total", tier="high", kind="predicted")
        assert front.state()["tokens_reserved"] == 0
        assert front.metric("confidence_given") == 0
        broken = httpx.post(f"{front.base_url}/chat/completions", json=ask(logprobs=True), trust_env=False)
        assert broken.status_code == 400  # the client's own wish


def test_the_probe_and_the_doctor_say_whether_there_are_any() -> None:
    for script, value, state in ((Unsure(), 1, "good"), (Unsure(None, None), 0, "bad"), (refusing, 0, "bad")):
        with serving(script) as upstream:
            with gateway(upstream.url, escalating(), probe=True) as front:
                assert until(lambda value=value: front.metric("confidence_given") == value)  # type: ignore[misc]
            found = asyncio.run(check_upstream(Settings(upstream=upstream.url), escalating()))
            assert {one.name: one.state for one in found}["upstream confidence"] == state
            fixed = asyncio.run(check_upstream(Settings(upstream=upstream.url), policy()))
            assert {one.name: one.state for one in fixed}["upstream confidence"] in ("good", "absent")


def test_the_probe_prevents_the_first_second_attempts() -> None:
    with serving(Unsure(None, None)) as upstream, gateway(upstream.url, escalating(), probe=True) as front:
        assert until(lambda: front.metric("confidence_given") == 0)
        answer = httpx.post(f"{front.base_url}/chat/completions", json=ask(), trust_env=False)
        assert answer.headers["x-stakes-attempts"] == "1"


def test_a_client_without_a_proxy_asks_once_and_says_so() -> None:
    with serving(Unsure()) as upstream, openai.OpenAI(base_url=upstream.url, api_key="k") as plain:
        client: Any = stakes.wrap(plain, escalating(review=0.6))
        assert "NO CONFIDENCE: a client without a proxy asks once; questions of high" in client.stakes.warnings[0]
        raw = client.chat.completions.with_raw_response.create(**ask())
        assert (raw.headers["x-stakes-attempts"], raw.headers["x-stakes-review"]) == ("1", "yes")
        assert "one attempt: a client without a proxy asks once" in raw.headers["x-stakes-why"]
        assert "logprobs" not in upstream.last.json
        answer = client.chat.completions.create(**ask())
        assert answer.stakes.review is True
        assert client.stakes.state()["tokens_spent"] <= 2 * FIRST


def test_the_start_says_what_the_burst_pays_for() -> None:
    rules = escalating(mean_budget=192, burst=300, review=0.6)
    assert attempts_at_once(rules) == {"high": 300 // (320 - 192)}
    (note,) = option_notes(rules)
    assert note.startswith("tier high: 64, then 256 below 0.8, review below 0.6; the burst pays both attempts of 2")
    assert note.endswith("and others get one attempt; --burst 1024 pays for 8")
    assert option_notes(policy()) == []
