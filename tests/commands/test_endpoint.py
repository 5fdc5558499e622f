"""Through a server: the policy of the same model on this machine; and whatever the server does, no answer is lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands.test_calibrate import RULES, place, stakes
from tests.evaluation.oracle import write_samples
from tests.models.endpoint.chat_server import (
    ScriptedReply,
    Server,
    completion,
    image_usage,
    parts,
    seen_tokens,
    serving,
)

from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.result import Calibration
from stakes.commands.options.model import model_source
from stakes.data.sample import Sample
from stakes.errors import BadInput, StakesError
from stakes.evaluation.outcome_log import Outcome, read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.models.endpoint import EndpointVLM
from stakes.signals import KeywordRule

__all__ = ["place"]  # a fixture

# Servers here cut connections on purpose; their half-closed sockets are not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

GRID = (96, 304, 512)
QUESTIONS = 12


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[str]:
    """The tiny model of ``place``, served by a process of its own."""
    command = [
        sys.executable,
        "-m",
        "stakes.gateway.local_server.app",
        str(place / "vlm"),
        "--port",
        "0",
        "--max-tokens",
        "8",
    ]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in tests.models.tiny
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=one_thread) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def facts(log: Path) -> list[Outcome]:
    """The outcomes without time and run, and without the confidence, which a server is not asked for."""
    outcomes = [replace(outcome, ms=0.0, run="", confidence=None) for outcome in read_outcomes(log)]
    return sorted(outcomes, key=lambda one: (one.sample, one.budget))


def test_a_calibration_through_a_server_is_the_one_on_this_machine(place: Path, served: str) -> None:
    same = (*RULES, "--max-tokens", 8, "--json")
    stakes("calibrate", place / "cal.jsonl", *same, "--model", place / "vlm", "-o", place / "here.json")
    words = ("--endpoint", served, "--concurrency", 4, "--empty", "answer", "--tries", 1)
    there = json.loads(stakes("calibrate", place / "cal.jsonl", *same, *words, "-o", place / "there.json").stdout)
    assert there["server_counts"] == {"agreed": 32}
    ours, theirs = (json.loads((place / name).read_text()) for name in ("here.json", "there.json"))
    assert ours.pop("model") == {"name": str(place / "vlm"), "max_tokens": 8}
    assert theirs.pop("model") == {"name": "vlm", "endpoint": served, "max_tokens": 8}
    for policy, prefix in ((ours, "data:"), (theirs, "data:")):
        policy["fingerprint"] = next(word for word in policy["fingerprint"].split() if word.startswith(prefix))
    assert ours == theirs
    assert facts(place / "here.outcomes.jsonl") == facts(place / "there.outcomes.jsonl")
    assert len({outcome.prediction for outcome in read_outcomes(place / "there.outcomes.jsonl")}) > 3

    arms = ("evaluate", place / "test.jsonl", "--arms", "uniform,cost", "--json")
    here = json.loads(stakes(*arms, "--policy", place / "here.json").stdout)
    again = json.loads(stakes(*arms, "--policy", place / "there.json", *words[2:]).stdout)  # the policy has the address
    assert (here["same_model"], again["same_model"], again["differences"]) == (True, True, [])
    assert again["model"] == f"vlm at {served}, answers of up to 8 tokens"
    assert again["rows"] == here["rows"]
    named = json.loads(stakes(*arms, "--policy", place / "there.json", *words).stdout)  # and may be given again
    assert (named["same_model"], named["answered"]) == (True, 0)
    page = stakes("calibrate", place / "cal.jsonl", *same[:-1], "--model", served, *words[2:], "-o", place / "m.json")
    assert "The server counted the tokens of 32 of 32 images, each as predicted." in page.stdout


def reads(body: dict[str, Any], n: int) -> ScriptedReply:
    """Right from 300 tokens on, and for a title from 90; the right answer is the question's last word."""
    tokens, text = seen_tokens(body), parts(body)[1].removesuffix(" Answer briefly.")
    right = tokens >= (300 if "total" in text else 90)
    return completion(text.split()[-1].rstrip("?") if right else "unreadable", image_usage(tokens))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(reads) as made:
        yield made


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("pages")
    return prepare_samples(write_samples(folder, pages=QUESTIONS // 4), folder, KeywordRule())


@pytest.fixture
def go(server: Server, samples: list[Sample], tmp_path: Path) -> Callable[..., Calibration]:
    return lambda **options: run(server, samples, tmp_path / "log.jsonl", **options)


def run(server: Server, samples: list[Sample], log: Path, **options: Any) -> Calibration:
    quick = {"pause_s": 0.01, "timeout_s": 5.0, "tries": 2, "concurrency": 4, **options}
    with EndpointVLM(server.url, "reader", **quick) as model:
        costs, grid = {"high": 5.0, "low": 1.0}, CalibrationOptions(grid=GRID)
        return calibrate(samples, model, costs=costs, mean_budget=304, signal=KeywordRule(), log=log, options=grid)


Calm = tuple[list[Outcome], dict[str, Any]]


@pytest.fixture(scope="module")
def calm(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """The outcomes and the policy where nothing goes wrong."""
    log = tmp_path_factory.mktemp("calm") / "log.jsonl"
    with serving(reads) as server:
        found = run(server, samples, log)
        assert len(server.bodies) == len(found.run.outcomes) == QUESTIONS * len(GRID)
    assert {tier: curve.errors for tier, curve in found.curves.items()} == {"high": (1, 0, 0), "low": (0, 0, 0)}
    return facts(log), found.policy.model_dump(exclude={"model"})


def silent(body: dict[str, Any], n: int) -> ScriptedReply:
    time.sleep(2.0)
    return reads(body, n)


FAILURES: dict[str, tuple[Callable[[dict[str, Any], int], ScriptedReply], str]] = {
    "500": (lambda body, n: ScriptedReply("boom", 500), "HTTP 500"),
    "429": (lambda body, n: ScriptedReply("slow down", 429), "HTTP 429"),
    "html": (lambda body, n: ScriptedReply("<html>It works!</html>"), "is not JSON"),
    "garbage": (lambda body, n: ScriptedReply('{"choices": [{"message": {"content": 7}}]}'), "has no text"),
    "half": (lambda body, n: ScriptedReply(reads(body, n).text[:-9]), "is not JSON"),
    "nothing": (lambda body, n: ScriptedReply(""), "is not JSON"),
    "no text": (lambda body, n: completion(""), "has no text"),
    "unfinished": (lambda body, n: completion("word0x0", finish="content_filter"), "did not finish"),
    "cut": (lambda body, n: ScriptedReply(drop=True), "RemoteProtocolError"),
    "silent": (silent, "ReadTimeout"),
    "refused": (lambda body, n: ScriptedReply("no such thing", 400), r"refused the request \(HTTP 400\)"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_server_that_fails_for_good_is_named_and_the_run_goes_on_from_what_was_answered(
    kind: str, go: Callable[..., Calibration], server: Server, calm: Calm, tmp_path: Path
) -> None:
    fails, says = FAILURES[kind]
    server.script = lambda body, n: reads(body, n) if n < 17 else fails(body, n)
    timeout_s = 1.0 if kind == "silent" else 5.0
    with pytest.raises(StakesError, match=says):
        go(timeout_s=timeout_s)
    kept = facts(tmp_path / "log.jsonl")
    assert len(kept) == 17, "what was answered is on disk, though its batch was not finished"
    server.bodies.clear()
    server.script = fails  # for a whole hour
    with pytest.raises(StakesError, match=says):
        go(timeout_s=timeout_s)
    assert facts(tmp_path / "log.jsonl") == kept
    server.bodies.clear()
    server.script = reads
    found = go()
    assert (found.run.answered, len(server.bodies)) == (19, 19), "nothing that was answered is samples again"
    assert facts(tmp_path / "log.jsonl") == calm[0]
    assert found.policy.model_dump(exclude={"model"}) == calm[1]


@pytest.mark.parametrize("kind", ["500", "429", "garbage", "no text", "cut"])
def test_a_server_that_fails_for_a_while_is_asked_again_until_it_answers(
    kind: str, go: Callable[..., Calibration], server: Server, calm: Calm, tmp_path: Path
) -> None:
    fails, _ = FAILURES[kind]
    server.script = lambda body, n: fails(body, n) if 14 <= n < 34 else reads(body, n)
    found = go(tries=20, longest_pause_s=0.02)
    assert len(server.bodies) == 20 + QUESTIONS * len(GRID)
    assert (facts(tmp_path / "log.jsonl"), found.policy.model_dump(exclude={"model"})) == calm


def test_retry_after_holds_a_calibration_back_and_loses_nothing(
    go: Callable[..., Calibration], server: Server, calm: Calm
) -> None:
    server.script = lambda body, n: ScriptedReply("slow", 429, {"retry-after": "1"}) if n == 15 else reads(body, n)
    found = go()
    assert found.policy.model_dump(exclude={"model"}) == calm[1]
    refused = server.times[15]
    assert not [at for at in server.times if refused + 0.3 < at < refused + 1], "nobody asks until then"
    assert len(server.bodies) == 1 + QUESTIONS * len(GRID)


def test_an_empty_answer_is_wrong_where_it_is_an_answer(go: Callable[..., Calibration], server: Server) -> None:
    server.script = lambda body, n: completion("", image_usage(seen_tokens(body)))
    found = go(empty="answer")
    assert {outcome.correct for outcome in found.run.outcomes.values()} == {False}
    assert {error for curve in found.curves.values() for error in curve.errors} == {1.0}


def test_an_answer_that_no_file_could_hold_is_kept_with_its_bad_parts_replaced(
    go: Callable[..., Calibration], server: Server, tmp_path: Path
) -> None:
    server.script = lambda body, n: completion("x \ud83d", image_usage(seen_tokens(body)))
    go()
    assert {outcome.prediction for outcome in facts(tmp_path / "log.jsonl")} == {"x \ufffd"}
    assert go().run.answered == 0


def test_a_server_that_counts_otherwise_ends_the_run_before_its_answer_is_kept(
    go: Callable[..., Calibration], server: Server, tmp_path: Path
) -> None:
    def resizes(body: dict[str, Any], n: int) -> ScriptedReply:
        tokens = seen_tokens(body)
        return completion("word0x0", image_usage(min(tokens, 256)))

    server.script = resizes
    with pytest.raises(StakesError, match=r"tokens of qwen2.5-vl took 256 on http.*check the family"):
        go()
    assert max(outcome.realised for outcome in read_outcomes(tmp_path / "log.jsonl")) <= 256


def test_the_words_reach_the_server(place: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-7")
    server.models = json.dumps({"data": [{"id": "reader"}, {"id": "writer"}]})
    server.script = lambda body, n: completion("a", image_usage(seen_tokens(body, 28)))
    words = ("--mean-budget", 30, "--grid", "12,48", "-o", place / "words.json", "--max-tokens", 5)
    more = ("--endpoint-model", "writer", "--key-env", "SERVER_KEY", "--concurrency", 1, "--timeout", 9)
    own = ("--family", "patch=14,merge=2,min_pixels=3136,max_pixels=12845056")
    stakes("calibrate", place / "cal.jsonl", "--endpoint", server.url, *words, *more, *own)
    assert {(body["model"], body["max_tokens"]) for body in server.bodies} == {("writer", 5)}
    assert set(server.authorization) == {"Bearer sk-7"}
    assert server.most_at_once == 1
    assert "sk-7" not in (place / "words.json").read_text() + (place / "words.outcomes.jsonl.meta.json").read_text()
    assert Policy.load(place / "words.json").family == "max_pixels=12845056,merge=2,min_pixels=3136,patch=14"


def test_a_server_that_is_not_there_is_said_and_nothing_is_written(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(StakesError, match=r"gave no answer in 1 try \(last: ConnectError"):
            stakes("calibrate", place / "cal.jsonl", "--endpoint", address, "--tries", 1, "-o", place / "gone.json")
        taken.listen()  # takes the connection and says nothing
        words = ("--endpoint", address, "--tries", 1, "--timeout", 0.3, "-o", place / "gone.json")
        with pytest.raises(StakesError, match=r"gave no answer in 1 try \(last: ReadTimeout"):
            stakes("calibrate", place / "cal.jsonl", *words)
    assert list(place.glob("gone*")) == []


def test_contradictions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    url = "http://127.0.0.1:9/v1"
    for model, endpoint, options, says in (
        ("vlm", url, {}, "give either --model or --endpoint"),
        (None, "127.0.0.1:8000/v1", {}, "is not an"),
        (None, None, {"family": "qwen3-vl", "tries": 3}, "--tries is for a model behind a server"),
        ("vlm", None, {"concurrency": 3}, "--concurrency is for a model behind a server, and 'vlm' is not"),
        (None, url, {"key_env": "NO_KEY"}, "environment variable 'NO_KEY' .* is not set"),
    ):
        with pytest.raises(BadInput, match=says):
            model_source(model, endpoint, **options)
    assert model_source(None, None).name == "embedded"
    source = model_source(url, None, family="qwen3-vl", timeout=3.0, max_tokens=4)
    assert (source.name, source.options) == (url, {"family": "qwen3-vl", "timeout_s": 3.0, "max_new_tokens": 4})
    monkeypatch.setenv("A_KEY", "sk-9")
    assert "sk-9" not in repr(model_source(None, url, key_env="A_KEY"))


def test_deletion_through_a_server_is_refused_before_anything_is_asked(place: Path, server: Server) -> None:
    words = ("--endpoint", server.url, "--mechanism", "deletion", "--mean-budget", 30, "--grid", "12,48")
    with pytest.raises(BadInput, match="deletion works inside a model"):
        stakes("calibrate", place / "cal.jsonl", *words, "-o", place / "none.json")
    assert server.bodies == []
