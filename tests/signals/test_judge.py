"""The judge asks a real server, retries what may pass, believes only one clear tier, and remembers it."""

import json
import signal as signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput, StakesError
from stakes.signals import Judge, Reading, Signal
from stakes.signals.judge import RUBRIC, instructions, parse_reply

Reply = Callable[[str | None], tuple[int, dict[str, str], str]]
WORDS = {"high": "high", "low": "low"}


def asking(server: Any, **more: Any) -> Judge:
    return Judge(server.url, "m1", **{"pause_s": 0.0, **more})


def test_it_shows_the_rubric_and_the_question_and_nothing_else(chat_server: Any) -> None:
    with asking(chat_server, api_key="secret") as judge:
        any_signal: Signal = judge
        assert any_signal("What is the voucher?") == Reading("high", 1.0, "judge m1")
    [request] = chat_server.requests
    assert (request["path"], request["model"], request["temperature"]) == ("/v1/chat/completions", "m1", 0)
    system, user = request["messages"]
    assert user["content"] == "Question: What is the voucher?"
    assert all(words in system["content"] for words in RUBRIC.values())
    assert "keyword" not in system["content"]
    assert chat_server.headers[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "text",
    ["high", "High", " HIGH.\n", '{"tier": "high"}', '{"tier": " High. "}', '{"answer": "low fee", "tier": "high"}',
     '```json\n{"answer": "date", "tier": "high"}\n```', "```\nhigh\n```"],
)  # fmt: skip
def test_one_clear_tier_is_believed(text: str) -> None:
    assert parse_reply(text, WORDS) == "high"


@pytest.mark.parametrize(
    "text",
    ["", ".", "high or low", "not high", "high!", "highly", "The answer is high", '{"tier": 5}',
     '{"answer": "high"}', '{"tier": ["high"]}', '{"tier": {"tier": "high"}}', '{"tier": "medium"}', "{", "high..",
     '"high"', '{"tier": "low", "tier": "high"}', '{"tier": "high"} {"tier": "low"}', '{"tier": "high" or "low"}',
     '{"tier": "high"} because it is a date', '```json\n{"tier": "high"}', "```high```", "```python\nhigh\n```",
     "[" * 9999, '{"tier":' * 9999],
)  # fmt: skip
def test_anything_else_is_not(text: str) -> None:
    assert parse_reply(text, WORDS) is None


# replies of Qwen2.5-Coder-1.5B-Instruct (4 bits, temperature 0) to questions of DocVQA under the paper's rubric
QWEN = {
    '{"answer": "name", "tier": "low"}': "low",
    '{"answer": "date", "tier": "high"}': "high",
    '{"answer": "phone number", "tier": "high"}': "high",
    '{"answer": "yes/no", "tier": "low"}': "low",
    '{"answer": "kind of thing", "tier": "low"}': "low",  # it copied the form
    '{"answer": "navigational locator", "tier": "high"}': "high",  # against the rubric, but clear
    "low": "low",
    "The answer will be a count, not a name, title, type, heading, description, navigational locator, or trivial "
    "schedule time. The rating is low.": None,
    "The answer to this question will be the source of the data in the document, which is typically stated in the "
    "document itself or in a separate document that provides information about the source. The rating for this "
    "answer is high.": None,
}
# of SmolLM2-135M-Instruct, which answers the question in place of rating it
SMOLLM2 = {
    'The answer is "12"': None,
    "The answer is: 1.5": None,
    "The office number is 1234567890.": None,
    "The data is taken from a document that is referenced in a document that is referenced": None,
}


@pytest.mark.parametrize(("text", "tier"), [*QWEN.items(), *SMOLLM2.items()])
def test_replies_of_real_models_are_read_as_what_they_say(text: str, tier: str | None) -> None:
    assert parse_reply(text, WORDS) == tier


@given(st.text())
def test_no_text_breaks_the_parser_and_only_the_bare_word_passes(text: str) -> None:
    tier = parse_reply(text, WORDS)
    bare = text.strip().removesuffix(".").lower()
    assert tier == WORDS.get(bare)


def test_429_with_retry_after_then_500_then_a_good_reply(chat_server: Any, reply: Reply) -> None:
    script = [(429, {"retry-after": "1"}, "slow down"), (500, {}, "oops"), (503, {}, ""), reply("low")]
    chat_server.script = lambda body, n: script[n]
    assert asking(chat_server, pause_s=0.05)("Who?").tier == "low"
    pauses = [after - before for before, after in pairwise(chat_server.times)]
    assert [pause >= least for pause, least in zip(pauses, (1.0, 0.1, 0.2), strict=True)] == [True] * 3


def test_a_reply_that_names_no_tier_is_asked_again_with_a_reminder(chat_server: Any, reply: Reply) -> None:
    script = [reply("It depends."), reply(None), reply("low")]
    chat_server.script = lambda body, n: script[n]
    assert asking(chat_server)("Who?") == Reading("low", 1.0, "judge m1")
    assert [len(request["messages"]) for request in chat_server.requests] == [2, 4, 4]
    assert chat_server.requests[1]["messages"][2:] == [
        {"role": "assistant", "content": "It depends."},
        {
            "role": "user",
            "content": "Do not answer the question, rate it. "
            'Reply as JSON: {"answer": "kind of thing", "tier": "high" or "low"}',
        },
    ]


def test_it_never_guesses(chat_server: Any, reply: Reply, tmp_path: Path) -> None:
    chat_server.script = lambda body, n: reply("high, I think")
    judge = asking(chat_server, cache=tmp_path / "cache.jsonl")
    reading = judge("Who?")
    assert (reading.tier, reading.decided, reading.probability) == ("high", False, 0.5)
    assert '"high, I think"' in reading.why
    assert len(chat_server.requests) == 3
    chat_server.script = lambda body, n: reply("low")  # an undecided answer is not remembered
    assert judge("Who?").tier == "low"


def test_an_empty_question_is_not_sent(chat_server: Any) -> None:
    assert not asking(chat_server)("  ").decided
    assert chat_server.requests == []


def test_a_question_longer_than_the_limit_is_undecided_and_not_sent(chat_server: Any) -> None:
    judge = asking(chat_server, longest=12)
    assert judge("What is it ?").decided
    reading = judge("What is it  ?")
    assert (reading.tier, reading.decided) == ("high", False)
    assert "the question has 13 characters, the judge reads 12" in reading.why
    assert len(chat_server.requests) == 1


def test_a_long_reply_is_neither_repeated_nor_cached_in_full(chat_server: Any, reply: Reply, tmp_path: Path) -> None:
    long = json.dumps({"answer": "very " * 9999, "tier": "low"})
    chat_server.script = lambda body, n: reply(long[:-1] if n == 0 else long)
    assert asking(chat_server, cache=tmp_path / "cache.jsonl")("Who?").tier == "low"
    assert len(chat_server.requests[1]["messages"][2]["content"]) == 200
    [line] = (tmp_path / "cache.jsonl").read_text().splitlines()
    assert json.loads(line)["reply"] == long[:200]


def test_what_cannot_help_is_not_retried_and_the_key_is_not_shown(chat_server: Any) -> None:
    chat_server.script = lambda body, n: (401, {}, '{"error": "bad key"}')
    with pytest.raises(BadInput, match=r"refused the request \(HTTP 401\).*bad key") as caught:
        asking(chat_server, api_key="sk-hidden")("Who?")
    assert len(chat_server.requests) == 1
    assert "sk-hidden" not in str(caught.value)


@pytest.mark.parametrize("text", ["<html>", "[]", '{"choices": []}'])
def test_a_server_that_is_not_a_chat_server_is_named(chat_server: Any, text: str) -> None:
    chat_server.script = lambda body, n: (200, {}, text)
    with pytest.raises(StakesError, match=r"its reply is not (JSON|a chat completion): "):
        asking(chat_server)("Who?")


def test_an_unreachable_endpoint_is_a_clear_error(chat_server: Any) -> None:
    url = chat_server.url.replace("127.0.0.1", "user:password@127.0.0.1")
    chat_server.stop()
    with pytest.raises(
        StakesError, match=r"http://127\.0\.0\.1:\d+ gave no answer in 3 tries .*ConnectError"
    ) as caught:
        Judge(url, "m1", tries=3, pause_s=0.01)("Who?")
    assert "password" not in str(caught.value)
    chat_server.stop = lambda: None


def test_a_server_that_hangs_is_given_up_on(chat_server: Any, reply: Reply) -> None:
    let_go = threading.Event()
    chat_server.script = lambda body, n: (let_go.wait(5), reply("high"))[1]
    with pytest.raises(StakesError, match="ReadTimeout"):
        asking(chat_server, tries=2, timeout_s=0.05)("Who?")
    let_go.set()


def test_verdicts_are_remembered_by_model_rubric_and_question(chat_server: Any, tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache.jsonl"
    asking(chat_server, cache=cache)("Who?")
    assert asking(chat_server, cache=cache)("Who?") == Reading("high", 1.0, "judge m1, cached")
    assert len(chat_server.requests) == 1
    asking(chat_server, cache=cache)("Whom?")
    asking(chat_server, cache=cache, rubric={"high": "high_cost", "low": "cheap"})("Who?")
    Judge(chat_server.url, "m2", cache=cache)("Who?")
    assert len(chat_server.requests) == 4
    assert len(cache.read_text().splitlines()) == 4


def test_a_batch_asks_each_question_once_with_bounded_concurrency(chat_server: Any, reply: Reply) -> None:
    def script(body: dict[str, Any], n: int) -> tuple[int, dict[str, str], str]:
        time.sleep(0.02)
        return reply("high" if "total" in body["messages"][1]["content"] else "low")

    chat_server.script = script
    questions = [f"{'total' if i % 3 == 0 else 'name'} {i % 12}" for i in range(24)] + [""]
    readings = asking(chat_server).read(questions, workers=3)
    assert [reading.tier for reading in readings] == [
        "high" if "total" in text or not text else "low" for text in questions
    ]
    assert len(chat_server.requests) == 12
    assert 2 <= chat_server.most_at_once <= 3


def test_a_batch_that_fails_keeps_the_verdicts_it_had(chat_server: Any, reply: Reply, tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    chat_server.script = lambda body, n: reply("low") if n < 5 else (400, {}, "no more")
    with pytest.raises(BadInput, match="no more"):
        asking(chat_server, cache=cache).read([f"q{i}" for i in range(50)], workers=1)
    assert len(cache.read_text().splitlines()) == 5
    assert len(chat_server.requests) < 50


def test_where_all_workers_fail_none_takes_another_question(chat_server: Any) -> None:
    chat_server.script = lambda body, n: (500, {}, "")
    with pytest.raises(StakesError, match="gave no answer in 2 tries"):
        asking(chat_server, tries=2).read([f"q{i}" for i in range(50)], workers=4)
    assert len(chat_server.requests) <= 8, "two tries of each worker's first"


def test_a_killed_run_loses_nothing_that_was_answered(chat_server: Any, reply: Reply, tmp_path: Path) -> None:
    cache = tmp_path / "cache.jsonl"
    release = threading.Event()
    chat_server.script = lambda body, n: (n < 4 or release.wait(30), reply("low"))[1]
    code = (
        "import sys; from stakes.signals import Judge; "
        "Judge(sys.argv[1], 'm1', cache=sys.argv[2]).read([f'q{i}' for i in range(9)], workers=1)"
    )
    run = subprocess.Popen([sys.executable, "-c", code, chat_server.url, str(cache)])
    try:
        deadline = time.monotonic() + 30
        while len(chat_server.requests) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        run.send_signal(signals.SIGKILL)
        run.wait()
    finally:
        release.set()
    assert [json.loads(line)["question"] for line in cache.read_text().splitlines()] == ["q0", "q1", "q2", "q3"]
    before = len(chat_server.requests)
    asking(chat_server, cache=cache).read([f"q{i}" for i in range(9)])
    assert len(chat_server.requests) == before + 5


def test_labels_serve_in_place_of_an_endpoint(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"id": "a", "tier": "low"}\n\n{"question": "Who?", "tier": "high"}\n')
    judge = Judge(labels=path)
    assert judge("Who?") == Reading("high", 1.0, "judge labels labels.jsonl")
    by_id, by_question, unknown = judge.read(["Who?", "Who?", "What?"], ["a", "b", "c"])
    assert [by_id.tier, by_question.tier] == ["low", "high"]
    assert (unknown.tier, unknown.decided) == ("high", False)
    assert "no label" in unknown.why


def test_a_judge_needs_one_source_and_a_sound_rubric(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"id": "a", "tier": "low"}\n')
    for arguments in (
        {},
        {"base_url": "http://x", "model": "m", "labels": labels},
        {"base_url": "http://x"},
        {"base_url": "ftp://x", "model": "m"},
        {"base_url": "x y", "model": "m"},
        {"base_url": "http://x", "model": "m", "api_key": "a\nb"},
        {"base_url": "http://x", "model": "m", "tries": 0},
        {"base_url": "http://x", "model": "m", "asks": 0},
        {"base_url": "http://x", "model": "m", "longest": 0},
        {"base_url": "http://x", "model": "m", "rubric": {"high": "high_cost"}},
        {"base_url": "http://x", "model": "m", "rubric": {"high": "high_cost", "HIGH": "x"}, "most_expensive": "high"},
        {"base_url": "http://x", "model": "m", "most_expensive": "gold"},
    ):
        with pytest.raises(BadInput):
            Judge(**arguments)


def test_a_retry_after_beyond_the_longest_pause_ends_the_tries(chat_server: Any) -> None:
    chat_server.script = lambda body, n: (429, {"retry-after": "86400"}, "")
    with pytest.raises(StakesError, match="in 1 try .*HTTP 429, asking to wait 86400 s"):
        asking(chat_server, longest_pause_s=20)("Who?")


def test_the_instructions_name_every_tier_of_the_rubric() -> None:
    text = instructions({"gold": "high_cost", "silver": "so so", "tin": "cheap"})
    assert "- silver: so so." in text
    assert text.endswith('Reply as JSON: {"answer": "kind of thing", "tier": "gold" or "silver" or "tin"}')
