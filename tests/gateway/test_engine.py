"""Against real engines (``make test-engine``): tokens are counted as predicted, and vLLM reads as transformers does."""

import asyncio
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks import escalation_engine, escalation_total
from tests.gateway.engines import Counted, Real, ask_all, message_all, real_pages, vllm
from tests.gateway.gateways import Gateway, encoded, gateway, policy, url_of
from tests.gateway.upstream import until

from stakes import models
from stakes.data import synthetic as pages
from stakes.gateway.local_server.app import create_model_app
from stakes.gateway.monitoring.probe import check_upstream
from stakes.gateway.run import running
from stakes.gateway.settings import Settings
from stakes.models import Request

PAGES, SYNTHETIC, MESSAGES = 200, 100, 30
BUDGETS = {"tiers": {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 160}}, "mean_budget": 576}


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A vLLM over the embedded reader; skipped, visibly, where none is given."""
    script = request.config.getoption("--engine") or os.environ.get("STAKES_VLLM")
    if not script:
        pytest.skip("needs a vLLM: --engine PATH of a command that serves CHECKPOINT PORT, or STAKES_VLLM")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    with vllm(script, port, tmp_path_factory.mktemp("vllm") / "log") as url:
        yield url


def check(found: list[Counted], front: Gateway) -> None:
    def checks(result: str) -> float:
        return front.metric("usage_checks_total", result=result)

    wrong = [(one.how, one.predicted, one.counted) for one in found if one.predicted != one.counted]
    print(f"{len(found) - len(wrong)} of {len(found)} pages counted as predicted")
    assert wrong == []
    assert {one.how for one in found} == {"plain", "streamed", "async"}
    assert until(lambda: checks("agreed") == len(found))  # the last are counted after their clients have them
    assert checks("differed") == checks("unknown") == 0
    assert len({one.predicted for one in found}) > 20  # pages of many shapes
    assert max(one.predicted for one in found) > 500


def test_vllm_counts_what_was_predicted_on_real_pages(engine: str, real_data: Path) -> None:
    with gateway(engine, policy(**BUDGETS)) as front:
        found = ask_all(front.base_url, "reader", real_pages(real_data, PAGES))
        check(found, front)


def test_doctor_recognizes_vllm(engine: str) -> None:
    settings = Settings(upstream=engine)
    found = {one.name: one for one in asyncio.run(check_upstream(settings, policy(**BUDGETS)))}
    assert re.match(r"vLLM \d+\.\d+", found["upstream engine"].found)
    print(found["upstream engine"].found)


def test_vllm_counts_what_was_predicted_with_anthropics_client(engine: str) -> None:
    asked = [
        Real(question.text, url_of(encoded(page.image)))
        for family in ("forms", "charts", "infographics")
        for page, question in pages.samples(family, "test", MESSAGES // 3, per_page=1)
    ]
    with gateway(engine, policy(**BUDGETS)) as front:
        found = message_all(front.address, "reader", asked)
        wrong = [(one.how, one.predicted, one.counted) for one in found if one.predicted != one.counted]
        print(f"{len(found) - len(wrong)} of {len(found)} messages counted as predicted")
        assert wrong == []
        assert len({one.predicted for one in found}) > 4  # of both tiers and several shapes
        assert front.state()["tokens_spent"] == sum(one.predicted for one in found)


def converse(base_url: str, url: str, questions: list[str]) -> tuple[int, int]:
    """Tokens sent over the turns of a conversation about a page, and those that vLLM computed, by its own usage."""
    turns: list[dict[str, object]] = []
    sent = computed = 0
    for number, question in enumerate(questions):
        text = {"type": "text", "text": question}
        image = [{"type": "image_url", "image_url": {"url": url}}] if number == 0 else []
        turns.append({"role": "user", "content": [*image, text]})
        body = {"model": "reader", "messages": turns, "temperature": 0, "max_tokens": 8}
        answer = httpx.post(f"{base_url}/chat/completions", json=body, timeout=120, trust_env=False).json()
        usage = answer["usage"]
        sent += usage["prompt_tokens"]
        computed += usage["prompt_tokens"] - ((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        turns.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return sent, computed


def test_a_page_is_computed_once_over_the_turns_of_a_conversation(engine: str) -> None:
    """Questions of both tiers in turn: with a size of its own for each turn, vLLM would compute the page six times."""
    questions = ["What is the total?", "Who signed it?", "When is it due?", "Describe the logo.", "What is the tax?"]
    with gateway(engine, policy(**BUDGETS)) as front:
        both = []
        for seed, base_url in enumerate((engine, front.base_url)):
            page = pages.draw("forms", seed=901 + seed, split="test")  # which no other test has put into vLLM's cache
            both.append(converse(base_url, url_of(encoded(page.image)), [*questions, "What is the number?"]))
        (native_sent, native_computed), (sent, computed) = both
        print(f"sent {native_sent} -> {sent}, computed {native_computed} -> {computed}")
        assert sent < native_sent
        assert computed < 0.8 * native_computed
        assert front.state()["tokens_spent"] > 0


def test_the_embedded_upstream_counts_what_was_predicted_on_real_pages(
    request: pytest.FixtureRequest, real_data: Path
) -> None:
    if not (request.config.getoption("--engine") or os.environ.get("STAKES_VLLM")):
        pytest.skip("200 pages take a minute: with the other engine tests (--engine)")
    app = create_model_app(models.load("embedded"), "embedded")
    with running(app) as address, gateway(f"{address}/v1", policy(**BUDGETS)) as front:
        found = ask_all(front.base_url, "embedded", real_pages(real_data, PAGES))
        check(found, front)


def test_vllm_and_transformers_give_the_same_answers(engine: str) -> None:
    """And the same confidence. Greedy, in float32: another order of summation may change a nearly equal character."""
    asked = [
        Request(page.image, question.text, budget=budget)
        for family, budget in (("forms", 576), ("charts", 448), ("infographics", 576), ("signs", 304), ("forms", 224))
        for page, question in pages.samples(family, "test", SYNTHETIC // 10, per_page=1)
    ]
    assert len(asked) == SYNTHETIC
    local = models.load("embedded")
    ours = local.answer(asked)
    options = {"max_new_tokens": local.max_new_tokens, "concurrency": 4, "empty": "answer", "logprobs": True}
    with models.load(engine, **options) as behind:
        theirs = behind.answer(asked)
    same = [one.text == other.text for one, other in zip(ours, theirs, strict=True)]
    for one, other, alike in zip(ours, theirs, same, strict=True):
        assert one.realised_tokens == other.realised_tokens
        assert not alike or one.confidence == pytest.approx(other.confidence, abs=1e-3)
        if not alike:
            print(json.dumps({"transformers": one.text, "vllm": other.text, "tokens": one.realised_tokens}))
    print(f"{sum(same)} of {len(same)} answers are the same")
    assert sum(same) >= 0.97 * len(same)


def test_unsure_answers_are_asked_again_as_the_policy_simulated_offline(engine: str, tmp_path: Path) -> None:
    """Answers, attempts, reviews and tokens, but for confidences within 0.01 of a threshold; 200 in the benchmark."""
    found, problems = escalation_engine.part_one(engine, 60, tmp_path)
    print(found)
    assert problems == []


def test_the_hard_total_holds_with_second_attempts_under_failures(engine: str, tmp_path: Path) -> None:
    found, problems = escalation_total.part_two(engine, 60, tmp_path)
    print(found)
    assert problems == []
