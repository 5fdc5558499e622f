"""A wrapped client decides, fits and books as the gateway does, with the same code, and needs no web server."""

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from tests.gateway.gateways import HIGH, LOW, PAGE, ask, encoded, gateway, page, policy, text_part, url_of
from tests.gateway.messages import image_block
from tests.gateway.upstream import Seen, Upstream, Wire, honest, image_sizes

import stakes
from stakes.errors import BadInput
from stakes.gateway.accounts import LocalLedger
from stakes.gateway.ledger.file import FileStore
from stakes.gateway.ledger.shared import SharedLedger
from stakes.signals import RequestSignal, to_dict


def client(upstream: Upstream, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=upstream.url, api_key="sk", **{"max_retries": 0, **more})


def tokens_of(seen: Seen) -> list[int]:
    return [width * height // 784 for width, height in image_sizes(seen.json)]


def test_a_plain_question_gets_its_tiers_budget_and_says_so(upstream: Upstream) -> None:
    with stakes.wrap(client(upstream), policy()) as one:
        answer: Any = one.chat.completions.create(**ask("What is the invoice total?"))
        cheap: Any = one.chat.completions.create(**ask("Who signed the letter?"))
        text: Any = one.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "6 × 7?"}])
        report, inside = answer.stakes, one.stakes  # type: ignore[attr-defined]
        assert answer.choices[0].message.content == "42"
        assert (report.tier, report.why, report.outcome) == ("high", 'keyword "total"', "fitted")
        assert (report.budgets, report.native) == ((HIGH,), (1260,))
        assert report.predicted == tuple(tokens_of(upstream.posts()[0]))
        assert cheap.stakes.budgets == (LOW,)
        assert text.stakes is None
        assert "stakes" not in answer.model_dump()
        assert inside.state()["tokens_spent"] == report.predicted[0] + cheap.stakes.predicted[0]
        assert inside.checks == {"agreed": 2}


def test_headers_name_a_tier_and_are_not_sent_on(upstream: Upstream) -> None:
    with stakes.wrap(client(upstream), policy()) as one:
        raw = one.chat.completions.with_raw_response.create(
            **ask("What is the total?"), extra_headers={"x-stakes-tier": "low", "x-request-id": "r1"}
        )
        assert raw.headers["x-stakes-tier"] == "low"
        assert raw.parse().choices[0].message.content == "42"
        with pytest.raises(openai.BadRequestError, match="x-stakes-tier"):
            one.chat.completions.create(**ask(), extra_headers={"x-stakes-teir": "low"})
    assert upstream.last.header("x-stakes-tier") is None
    assert upstream.last.header("x-request-id") == "r1"
    assert len(upstream.posts()) == 1


def test_streams_responses_parsing_and_copies_work(upstream: Upstream) -> None:
    parts = [{"type": "input_image", "image_url": PAGE}, {"type": "input_text", "text": "Total?"}]
    asked: Any = [{"role": "user", "content": parts}]
    with stakes.wrap(client(upstream), policy()) as one:
        stream: Any = one.chat.completions.create(**ask(), stream=True)
        assert stream.stakes.tier == "high"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "42"
        response: Any = one.responses.create(model="tiny", input=asked)
        assert (response.output_text, response.stakes.budgets) == ("42", (HIGH,))
        copied: Any = one.with_options(timeout=7)
        assert copied.chat.completions.create(**ask()).stakes.tier == "high"
        assert copied.stakes is one.stakes  # type: ignore[attr-defined]
        assert copied.stakes.state()["images"] == 3


def test_asynchronous_clients_and_anthropics_work(upstream: Upstream) -> None:
    async def both() -> list[Any]:
        made = openai.AsyncOpenAI(base_url=upstream.url, api_key="sk", max_retries=0)
        async with stakes.wrap(made, policy()) as one:
            answers = await asyncio.gather(*(one.chat.completions.create(**ask(f"Number {i}?")) for i in range(6)))
            stream = await one.chat.completions.create(**ask(), stream=True)
            assert [chunk.choices[0].delta.content async for chunk in stream if chunk.choices] == ["4", "2"]
            assert one.stakes.state()["images"] == 7  # type: ignore[attr-defined]
            assert one.stakes.state()["images_outstanding"] == 0  # type: ignore[attr-defined]
            return [*answers, stream]

    assert [answer.stakes.tier for answer in asyncio.run(both())] == ["high"] * 7
    root = upstream.url.removesuffix("/v1")
    content: Any = [image_block(PAGE), text_part("What is the total?")]
    with stakes.wrap(anthropic.Anthropic(base_url=root, api_key="sk", max_retries=0), policy()) as claude:
        message: Any = claude.messages.create(model="m", max_tokens=4, messages=[{"role": "user", "content": content}])
    assert (message.content[0].text, message.stakes.tier) == ("42", "high")
    assert tokens_of(upstream.last) == [*message.stakes.predicted]


def test_refusals_are_the_clients_own_errors_and_nothing_is_sent(upstream: Upstream) -> None:
    with stakes.wrap(client(upstream), policy()) as one:
        with pytest.raises(openai.UnprocessableEntityError) as damaged:
            one.chat.completions.create(**ask("Total?", "data:image/png;base64,AAAA"))
        with pytest.raises(openai.UnprocessableEntityError, match="may hold an image"):
            one.post("/embeddings", cast_to=httpx.Response, body={"input": PAGE})
        assert one.stakes.state()["images"] == 0  # type: ignore[attr-defined]
    assert damaged.value.code == "unreadable_image"
    assert not upstream.seen
    upstream.script = lambda _, wire: wire.reply(b'{"choices": []}')
    with stakes.wrap(client(upstream), policy(), fail="open") as one:
        answer: Any = one.chat.completions.create(**ask("Total?", "data:image/png;base64,AAAA"))
        assert answer.stakes.outcome == "uncompressed"
        assert one.stakes.passed == {"unreadable_image": 1}  # type: ignore[attr-defined]


def test_only_what_may_have_been_read_is_booked(upstream: Upstream) -> None:
    statuses = [503, 429, 200]

    def script(seen: Seen, wire: Wire) -> None:
        status = statuses.pop(0)
        return honest(seen, wire) if status == 200 else wire.reply(b"{}", status, "application/json", "retry-after: 0")

    upstream.script = script
    with stakes.wrap(client(upstream, max_retries=2), policy()) as one:
        answer: Any = one.chat.completions.create(**ask())
        state = one.stakes.state()  # type: ignore[attr-defined]
        assert (state["images"], state["tokens_spent"]) == (1, answer.stakes.predicted[0])
        upstream.script = lambda _, wire: wire.drop()
        with pytest.raises(openai.APIConnectionError):
            one.with_options(max_retries=0).chat.completions.create(**ask())
        assert one.stakes.state()["images"] == 2  # type: ignore[attr-defined]
    gone = openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="sk", max_retries=0)
    with stakes.wrap(gone, policy()) as one:
        with pytest.raises(openai.APIConnectionError):
            one.chat.completions.create(**ask())
        assert one.stakes.state()["images"] == 0  # type: ignore[attr-defined]


def test_a_ledger_is_shared_and_a_changed_policy_is_read_again(upstream: Upstream, tmp_path: Path) -> None:
    path, ledger = tmp_path / "policy.json", tmp_path / "ledger.json"
    policy(burst=2560).save(path)
    with stakes.wrap(client(upstream), path, ledger=SharedLedger(FileStore(ledger), 2560).common, watch_s=0.0) as one:
        one.chat.completions.create(**ask())
        policy(fingerprint="0ther", tiers={"high": {"cost": 5, "budget": 128}, "low": {"cost": 1, "budget": 64}}).save(
            path
        )
        answer: Any = one.chat.completions.create(**ask())
        assert (answer.stakes.policy, answer.stakes.budgets) == ("0ther", (128,))
        spent = one.stakes.state()["tokens_spent"]  # type: ignore[attr-defined]
    with stakes.wrap(client(upstream), path, ledger=ledger, burst=2560) as one:  # closing returned what was in hand
        assert one.stakes.state()["allowance"] == 2560 + 2 * HIGH - spent  # type: ignore[attr-defined]
    with stakes.wrap(client(upstream), policy(), ledger=LocalLedger(0)) as one:
        assert one.stakes.state()["burst"] == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("knobs", [{"shadow": 0.1}, {"remote_hosts": ("a.example",)}, {"keep_images": 3}])
def test_settings_of_a_server_are_refused(upstream: Upstream, knobs: dict[str, Any]) -> None:
    with client(upstream) as one, pytest.raises(BadInput, match="in process there is no setting"):
        stakes.wrap(one, policy(), **knobs)
    with pytest.raises(BadInput, match="a client of openai or anthropic, not dict"):
        stakes.wrap({}, policy())


def test_wrapping_imports_no_web_server_and_no_torch(upstream: Upstream, tmp_path: Path) -> None:
    policy().save(tmp_path / "policy.json")
    (tmp_path / "body.json").write_text(json.dumps(ask()))
    code = f"""
import json, sys, openai, stakes
one = stakes.wrap(openai.OpenAI(base_url={upstream.url!r}, api_key="sk"), {str(tmp_path / "policy.json")!r})
answer = one.chat.completions.create(**json.load(open({str(tmp_path / "body.json")!r})))
heavy = ("torch", "transformers", "starlette", "uvicorn", "prometheus_client", "scipy", "sklearn")
print(answer.stakes.tier, [name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "high []"


SIZES = [(560, 784), (560, 420), (300, 700), (112, 84), (700, 300)]
URLS = [url_of(encoded(page(*size), kind), f"image/{kind.lower()}") for size in SIZES for kind in ("PNG", "JPEG")]
QUESTIONS = ["What is the total?", "Who signed it?", "Extract the IBAN.", "Describe the logo.", "", "Read the date."]
BROKEN = ["data:image/png;base64,AAAA", "data:text/html;base64,AAAA", "http://10.0.0.1/a.png"]


def mixed(number: int) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """(path, body, headers) of requests of all kinds, some of which are refused."""
    draw, found = random.Random(7), []
    for _ in range(number):
        urls = draw.choices(URLS, k=draw.choice([0, 1, 1, 1, 2, 3]))
        if draw.random() < 0.05:
            urls.append(draw.choice(BROKEN))
        question, path = (
            draw.choice(QUESTIONS),
            draw.choice(["chat/completions", "chat/completions", "responses", "messages"]),
        )
        body: dict[str, Any]
        if path == "chat/completions":
            body = (
                ask(question, *urls) if urls else {"model": "tiny", "messages": [{"role": "user", "content": question}]}
            )
        elif path == "responses":
            images = [{"type": "input_image", "image_url": url} for url in urls]
            body = {
                "model": "tiny",
                "input": [{"role": "user", "content": [*images, {"type": "input_text", "text": question}]}],
            }
        else:
            blocks = [image_block(url) for url in urls if url.startswith("data:")]
            body = {
                "model": "tiny",
                "max_tokens": 4,
                "messages": [{"role": "user", "content": [*blocks, text_part(question)]}],
            }
        if draw.random() < 0.3:
            body["stream"] = True
        headers = {"authorization": "Bearer sk", "anthropic-version": "2023-06-01"}
        named = draw.choice(["", "", "", "high", "low", "low,high", "grounding"])
        if named:
            headers["x-stakes-tier"] = named
        if draw.random() < 0.03:
            headers["x-stakes-bypass"] = "1"
        found.append((path, body, headers))
    return found


def test_two_hundred_mixed_requests_give_the_same_sizes_tiers_and_ledger(upstream: Upstream) -> None:
    rules = policy(signal=to_dict(RequestSignal()), mean_budget=160, burst=4000)
    asked = mixed(200)

    def run(send: Callable[[str, dict[str, Any], dict[str, str]], Any]) -> list[Any]:
        found = []
        for path, body, headers in asked:
            before = len(upstream.posts())
            reply = send(path, body, headers)
            stated = {name: value for name, value in reply.headers.items() if name.startswith("x-stakes-")}
            sent = [tokens_of(one) for one in upstream.posts()[before:]]
            bodies = [one.body for one in upstream.posts()[before:]]
            found.append((reply.status_code, stated, sent, bodies))
        return found

    with gateway(upstream.url, rules) as front, httpx.Client(trust_env=False, timeout=20) as http:

        def by_proxy(path: str, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
            front.settle()
            return http.post(f"{front.base_url}/{path}", json=body, headers=headers)

        theirs, their_state = run(by_proxy), front.state()
    with stakes.wrap(client(upstream), rules) as one:
        inner: Any = one._client

        def in_process(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
            reply = inner.send(inner.build_request("POST", f"{upstream.url}/{path}", json=body, headers=headers))
            reply.read()
            return reply

        ours, our_state = run(in_process), one.stakes.state()  # type: ignore[attr-defined]
    assert ours == theirs
    assert our_state == their_state
    outcomes = {stated.get("x-stakes-outcome") for _, stated, _, _ in ours}
    assert outcomes == {None, "fitted", "grounding", "bypassed"}
    assert {status for status, *_ in ours} >= {200, 422}
    assert our_state["images"] > 150


def test_threads_share_one_total(upstream: Upstream) -> None:
    with stakes.wrap(client(upstream), policy()) as one:
        threads = [threading.Thread(target=lambda: one.chat.completions.create(**ask())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        state = one.stakes.state()  # type: ignore[attr-defined]
        assert (state["images"], state["images_outstanding"]) == (8, 0)
        assert one.stakes.checks == {"agreed": 8}  # type: ignore[attr-defined]
