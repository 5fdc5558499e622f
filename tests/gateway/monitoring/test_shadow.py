"""Shadow answers at native size never delay a client, and raise an alarm when they differ too often."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import Gateway, ask, calibrated, encoded, gateway, page, policy, url_of
from tests.gateway.messages import events, framed
from tests.gateway.processes import process
from tests.gateway.upstream import Script, Seen, Upstream, Wire, honest, image_sizes, until, usage

from stakes import count_tokens
from stakes.cli import main
from stakes.errors import BadInput
from stakes.gateway.monitoring.shadow import answer_text
from stakes.gateway.settings import Settings

NATIVE = 100  # tokens of this page, above both budgets
PAGE = url_of(encoded(page(280, 280)))
HIGH, LOW = "What is the total?", "Who signed it?"
BUDGETS = {"tiers": {"high": {"cost": 5, "budget": 64}, "low": {"cost": 1, "budget": 25}}, "mean_budget": 64}


def rules(**more: Any) -> Any:
    return calibrated(**{**BUDGETS, **more})


def is_shadow(seen: Seen) -> bool:
    return [count_tokens("qwen2.5-vl", *size) for size in image_sizes(seen.json)] == [NATIVE]


def saying(words: Callable[[Seen], str]) -> Script:
    """An upstream that answers a whole chat completion with these words."""

    def script(seen: Seen, wire: Wire) -> None:
        if seen.method == "GET":
            return honest(seen, wire)
        message = {"role": "assistant", "content": words(seen)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return wire.reply(json.dumps({"choices": [choice], "usage": usage(seen.json)}).encode())

    return script


def shadows(front: Gateway, result: str) -> float:
    return sum(front.metric("shadows_total", tier=tier, result=result) for tier in ("high", "low"))


def post(http: httpx.Client, address: str, question: str = HIGH, **more: Any) -> httpx.Response:
    reply = http.post(f"{address}/chat/completions", json=ask(question, PAGE, **more))
    assert reply.status_code == 200
    return reply


def test_nothing_is_answered_again_by_default(front: Gateway, upstream: Upstream, http: httpx.Client) -> None:
    post(http, front.base_url)
    assert http.get(f"{front.address}/healthz").json() == {"status": "ok"}
    assert http.get(f"{front.address}/stakes/state").json()["watch"] is None
    assert len(upstream.posts()) == 1


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_shadow_is_the_same_request_at_native_size_and_whole(
    upstream: Upstream, http: httpx.Client, api: str, streamed: bool
) -> None:
    chat = ask(HIGH, PAGE, stream=streamed, max_tokens=7)
    content = [{"type": "input_image", "image_url": PAGE}, {"type": "input_text", "text": HIGH}]
    responses = {"model": "tiny", "input": [{"role": "user", "content": content}], "stream": streamed}
    where = "chat/completions" if api == "chat" else "responses"
    with gateway(upstream.url, rules(), shadow=1.0) as front:
        body = chat if api == "chat" else responses
        http.post(f"{front.base_url}/{where}", json=body, headers={"authorization": "Bearer k"})
        assert until(lambda: shadows(front, "agreed") == 1)
        assert front.metric("shadow_tokens_total", tier="high") == NATIVE
        assert front.state()["images"] == 1  # outside the cap
        assert front.metric("requests_total", tier="high", outcome="fitted") == 1
    client, shadow = upstream.posts()
    assert not is_shadow(client)
    assert is_shadow(shadow)
    kept = {name: value for name, value in body.items() if name != "stream"}
    assert shadow.json == (kept if api == "chat" else {**kept, "store": False})
    assert shadow.header("authorization") == "Bearer k"
    assert shadow.header("x-stakes-tier") is None


def test_a_slow_shadow_delays_nobody_and_others_are_dropped(upstream: Upstream, http: httpx.Client) -> None:
    go_on = threading.Event()

    def script(seen: Seen, wire: Wire) -> None:
        if seen.method == "POST" and is_shadow(seen):
            go_on.wait(20)
        honest(seen, wire)

    upstream.script = script
    with gateway(upstream.url, rules(), shadow=1.0) as front:
        began = time.monotonic()
        for _ in range(6):
            post(http, front.base_url)
        assert time.monotonic() - began < 5  # the shadow would have kept us for 20
        assert shadows(front, "dropped") == 5
        assert sum(is_shadow(one) for one in upstream.posts()) == 1  # nothing queues
        go_on.set()
        assert until(lambda: shadows(front, "agreed") == 1)
        post(http, front.base_url)
        assert until(lambda: shadows(front, "agreed") == 2)


def test_what_has_no_single_answer_is_counted_and_not_compared(upstream: Upstream, http: httpx.Client) -> None:
    small = ask(HIGH, url_of(encoded(page(56, 56))))
    with gateway(upstream.url, rules(), shadow=1.0, shadow_at_once=4) as front:
        for more in ({"n": 2}, {"tools": [{"type": "function"}]}, {"temperature": 0.7}):
            post(http, front.base_url, **more)
        assert until(lambda: shadows(front, "not_comparable") == 3)
        http.post(f"{front.base_url}/chat/completions", json=small)
        assert shadows(front, "native") == 1
        assert len(upstream.posts()) == 4
        upstream.script = lambda seen, wire: wire.reply(b"{}", 500) if is_shadow(seen) else honest(seen, wire)
        post(http, front.base_url)
        assert until(lambda: shadows(front, "failed") == 1)
        upstream.script = lambda seen, wire: wire.drop() if is_shadow(seen) else honest(seen, wire)
        post(http, front.base_url)
        assert until(lambda: shadows(front, "failed") == 2)
        upstream.script = lambda seen, wire: wire.reply(b'{"choices": []}') if is_shadow(seen) else honest(seen, wire)
        post(http, front.base_url)
        assert until(lambda: shadows(front, "not_comparable") == 4)
        about = http.get(f"{front.address}/stakes/state").json()["watch"]["tiers"]["high"]
    assert about["shadow_answers"] == 1  # the native one


def test_only_a_share_is_sampled(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, rules(), shadow=0.2, shadow_at_once=60) as front:
        for _ in range(60):
            post(http, front.base_url)
        assert until(lambda: len(upstream.posts()) == 60 + shadows(front, "agreed"))
        assert 2 <= shadows(front, "agreed") <= 26  # 12, give or take 4.4 standard deviations


def test_observing_and_bypassing_leave_no_shadow(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, rules(), shadow=1.0, mode="observe") as front:
        post(http, front.base_url)
    with gateway(upstream.url, rules(), shadow=1.0) as front:
        for header in ({"x-stakes-bypass": "1"}, {"x-stakes-tier": "grounding"}):
            http.post(f"{front.base_url}/chat/completions", json=ask(HIGH, PAGE), headers=header)
        http.post(f"{front.base_url}/chat/completions", json={"messages": []})
    assert len(upstream.posts()) == 4


def test_the_alarm_fires_when_the_upstream_gets_worse_and_not_before(
    upstream: Upstream, tmp_path: Path, http: httpx.Client
) -> None:
    path = tmp_path / "policy.json"
    rules().save(path)
    worse = threading.Event()

    def words(seen: Seen) -> str:
        number = len(upstream.seen)
        if is_shadow(seen) or not (worse.is_set() or number % 25 == 0):  # 4 % differ: as it was
            return "The total is 42."
        return f"perhaps {number}"

    upstream.script = saying(words)
    options = ["--policy", str(path), "--upstream", upstream.url, "--shadow", "1", "--shadow-at-once", "8"]
    options += ["--shadow-window", "0"]  # one client sends them all
    with process(*options) as (running, about):
        address = str(about["address"])

        def health() -> Any:
            return http.get(f"{address.removesuffix('/v1')}/healthz").json()["alarms"]

        for number in range(120):
            post(http, address, LOW if number % 2 else HIGH)
        assert health() == []
        worse.set()
        for number in range(120):
            post(http, address, LOW if number % 2 else HIGH)
        assert until(lambda: len(health()) == 2)
        assert all("proxy" in sentence and sentence.startswith("disagreement") for sentence in health())
        assert all(sentence.endswith("5% at most, if requests are independent)") for sentence in health())
        metrics = http.get(f"{address.removesuffix('/v1')}/metrics").text
        assert 'stakes_alarm{condition="disagreement",tier="high"} 1.0' in metrics
        assert 'stakes_alarm{condition="mix",tier="high"} 0.0' in metrics
        assert (
            "HELP stakes_alarm 1 where a condition of the calibration fails; false alarms 5 % at most, ever" in metrics
        )
        assert 'stakes_alarm{condition="tokens",tier=""} 0.0' in metrics
        state = http.get(f"{address.removesuffix('/v1')}/stakes/state").json()["watch"]
        assert state["tiers"]["low"]["disagreement_above"] > state["tiers"]["low"]["disagreement"] / 4
        running.terminate()
        running.wait(10)
        assert running.stderr is not None
        lines = [json.loads(line) for line in running.stderr.read().splitlines()]
    alarms = [line for line in lines if line["event"].startswith("ALARM")]
    assert sorted((line["condition"], line["tier"], line["level"]) for line in alarms) == [
        ("disagreement", "high", "error"), ("disagreement", "low", "error"),
    ]  # fmt: skip


def test_a_moved_mix_and_wrong_counts_are_alarms_and_a_new_policy_starts_afresh(
    upstream: Upstream, tmp_path: Path, http: httpx.Client
) -> None:
    path = tmp_path / "policy.json"
    rules().save(path)

    def wrong(seen: Seen, wire: Wire) -> None:
        counted = usage(seen.json)
        counted["prompt_tokens_details"]["multimodal_tokens"]["image"] *= 2
        wire.reply(json.dumps({"choices": [], "usage": counted}).encode())

    upstream.script = wrong
    watched: dict[str, Any] = {"source": lambda: rules().load(path), "files": (path,), "shadow_window": 0}
    with gateway(upstream.url, shadow=0.001, mode="enforce", **watched) as front:
        for _ in range(24):
            post(http, front.base_url)
        found = http.get(f"{front.address}/healthz").json()["alarms"]
        assert [sentence.split()[0].strip(":") for sentence in found] == ["mix", "tokens"]
        rules(mean_budget=70).save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        post(http, front.base_url)
        assert http.get(f"{front.address}/healthz").json()["alarms"] == []


def test_without_a_measured_disagreement_the_allowed_one_must_be_given(upstream: Upstream) -> None:
    with (
        pytest.raises(BadInput, match="--shadow-allow high=0.1"),
        gateway(upstream.url, policy(), shadow=0.5),
    ):
        pass


def test_options_may_come_from_a_file_and_the_command_line_wins(
    upstream: Upstream, tmp_path: Path, http: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gateway.toml"
    allowed = 'shadow = 1.0\nshadow-allow = ["high=0.1", "low=0.5"]\n'
    path.write_text(f'budget = ["high=64", "low=25"]\nmode = "observe"\nmean-budget = 60\n{allowed}')
    with process("--settings", str(path), "--upstream", upstream.url, "--mode", "enforce") as (_, about):
        assert (about["mode"], about["mean_budget"]) == ("enforce", 60)
        root = str(about["address"]).removesuffix("/v1")
        drift = http.get(f"{root}/stakes/state").json()["watch"]["tiers"]["high"]
        assert (drift["disagreement_allowed"], drift["share_calibrated"]) == (0.1, None)
    path.write_text("shadows = 1\n")
    with pytest.raises(SystemExit) as stopped:
        main(["serve", "--settings", str(path)])
    assert stopped.value.code == 2
    assert "sets 'shadows', which is no option of serve" in capsys.readouterr().err


@pytest.mark.parametrize(
    "knobs",
    [
        {"shadow": 1.5},
        {"shadow": -0.1},
        {"shadow_at_once": 0},
        {"shadow_s": 0.0},
        {"shadow_window": -1.0},
        {"shadow_window": float("inf")},
    ],
)
def test_nonsense_is_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="shadow"):
        Settings(upstream="http://127.0.0.1:1/v1", **knobs)


@pytest.mark.parametrize(
    ("api", "streamed", "data", "text"),
    [
        ("chat", False, '{"choices": [{"message": {"content": "42"}}]}', "42"),
        ("chat", False, '{"choices": [{"message": {"content": null, "tool_calls": [{}]}}]}', None),
        ("chat", False, '{"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}', None),
        ("chat", False, '{"choices": []}', None),
        ("chat", False, "[1]", None),
        ("chat", False, "not JSON", None),
        ("chat", True, 'data: {"choices": [{"index": 0, "delta": {"content": "4"}}]}\r\n\r\n'
         'data: {"choices": [{"index": 0, "delta": {"content": "2"}}]}\n\ndata: {"choices": []}\n\ndata: [DONE]', "42"),
        ("chat", True, 'data: {"choices": [{"index": 1, "delta": {"content": "4"}}]}\n', None),
        ("chat", True, 'data: {"error": {"message": "gone"}}\n', None),
        ("responses", False, '{"output": [{"type": "reasoning"}, {"type": "message", "content": '
         '[{"type": "output_text", "text": "4"}, {"type": "output_text", "text": "2"}]}]}', "42"),
        ("responses", False, '{"output": [{"type": "function_call"}]}', None),
        ("messages", False, '{"content": [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}', "42"),
        ("messages", False, '{"content": [{"type": "text", "text": "4"}, {"type": "tool_use"}]}', None),
        ("messages", True, b"".join(map(framed, events(7))).decode(), "42"),
        ("messages", True, b"".join(map(framed, events(7)[:-1])).decode(), None),
        ("responses", True, 'event: x\ndata: {"type": "response.output_text.delta", "delta": "4"}\n\n', None),
    ],
)  # fmt: skip
def test_the_text_of_an_answer(api: Any, streamed: bool, data: str, text: str | None) -> None:
    assert answer_text(api, data.encode(), streamed) == text
