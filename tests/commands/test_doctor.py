"""``stakes doctor``: what is installed and what is not, advice, and the exit status."""

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.gateways import gateway, policy
from tests.gateway.upstream import Seen, Upstream, Wire, honest, serving

from stakes import cli
from stakes.commands import doctor
from stakes.commands.output.installed import Package, installed, version, version_numbers
from stakes.models import embedded as reader

SMALL = {"prompt_tokens": 50, "completion_tokens": 1, "total_tokens": 51}


@pytest.fixture
def up() -> Iterator[Upstream]:
    with serving() as one:
        yield one


def _stakes(*words: object) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        cli.main([str(word) for word in words])
    return subprocess.CompletedProcess([], int(left.value.code or 0), out.getvalue(), err.getvalue())


def _checks(*words: object) -> tuple[int, dict[str, dict[str, str]]]:
    done = _stakes("doctor", "--json", *words)
    assert done.stderr == ""
    record = json.loads(done.stdout)
    assert record["good"] == (done.returncode == 0)
    return done.returncode, {one["check"]: one for one in record["checks"]}


def test_this_installation_is_sound() -> None:
    status, checks = _checks()
    assert status == 0
    assert checks["core"]["state"] == checks["weights embedded"]["state"] == "good"
    assert "numpy" in checks["core"]["found"]
    assert not {"extra dev", "extra bench", "extra browser"} & set(checks)
    page = _stakes("doctor")
    assert page.returncode == 0
    assert "no problem found" in page.stdout


def test_a_good_upstream_is_asked_and_its_tokens_follow(up: Upstream, tmp_path: Path) -> None:
    path, key = tmp_path / "policy.json", tmp_path / "key"
    policy().save(path)
    key.write_text("sk-upstream\n")
    status, checks = _checks("--policy", path, "--upstream", up.url, "--upstream-key-file", key)
    assert status == 0
    assert checks["upstream models"]["found"] == "tiny"
    assert checks["tokens follow"]["state"] == "good"
    assert "high 256, low 64" in checks["policy"]["found"]
    keys = {(seen.path.startswith("/v1/"), seen.header("authorization")) for seen in up.seen}
    assert keys == {(True, "Bearer sk-upstream"), (False, None)}  # the key is for the base address
    assert len(up.posts()) == 4  # two budgets, a small image, log-probabilities


def _reply(body: bytes, status: int = 200) -> Any:
    return lambda _, wire: wire.reply(body, status)


def _fixed_usage(seen: Seen, wire: Wire) -> None:
    """A server that resizes every image to one size of its own."""
    if seen.method == "GET":
        return honest(seen, wire)
    choice = {"index": 0, "message": {"role": "assistant", "content": "?"}, "finish_reason": "stop"}
    return wire.reply(json.dumps({"id": "c", "choices": [choice], "usage": SMALL}).encode())


@pytest.mark.parametrize(
    ("script", "check", "advice"),
    [
        (_reply(b"{}", 401), "upstream", "--upstream-key-file"),
        (_reply(b"{}", 503), "upstream", "its own log"),
        (_reply(b"<html>", 200), "upstream", "ends in /v1"),
        (_reply(b'{"data": 7}', 200), "upstream", "ends in /v1"),
        (_reply(b"{}", 404), "upstream", "ends in /v1"),
        (_fixed_usage, "tokens follow", "check the policy's family"),
    ],
)
def test_a_bad_upstream_is_reported_with_advice(up: Upstream, script: Any, check: str, advice: str) -> None:
    up.script = script
    status, checks = _checks("--upstream", up.url)
    assert (status, checks[check]["state"]) == (1, "bad")
    assert advice in checks[check]["advice"]


def test_a_family_that_is_not_the_models_is_found_out(up: Upstream) -> None:
    status, checks = _checks("--upstream", up.url, "--family", "qwen3-vl")  # the upstream counts as qwen2.5-vl
    assert (status, checks["tokens follow"]["state"]) == (1, "bad")


@pytest.mark.parametrize(
    ("family", "actuator", "advice"),
    [
        ("internvl", "pixels", "with --family internvl give --actuator vllm or lmdeploy"),
        ("gemini-3", "vllm", "with --family gemini-3 give --actuator detail or gemini"),
        ("qwen2.5-vl", "magic", "with --family qwen2.5-vl give --actuator pixels, vllm, vllm-deletion or lmdeploy"),
        ("gemma3", "pixels", "no --actuator sets the tokens of gemma3, so no budget can reach it"),
    ],
)
def test_an_actuator_that_does_not_fit_the_family_is_reported_with_those_that_do(
    up: Upstream, family: str, actuator: str, advice: str
) -> None:
    status, checks = _checks("--upstream", up.url, "--family", family, "--actuator", actuator)
    assert (status, checks["upstream"]["state"], checks["upstream"]["advice"]) == (1, "bad", advice)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"error": {"message": "Only images\nof 4 sides"}}, "with status 400: Only images of 4 sides"),
        (400, {"message": "x" * 999}, f"with status 400: {'x' * 200}…"),  # vLLM before 0.10
        (400, {"error": 7}, "with status 400"),
        (400, [], "with status 400"),
        (403, {"error": {"message": "sk-secret is no key"}}, "with status 403"),
    ],
)
def test_what_a_server_says_against_the_probe_is_quoted_and_a_warning(
    up: Upstream, status: int, body: Any, reason: str
) -> None:
    refuse = _reply(json.dumps(body).encode(), status)
    up.script = lambda seen, wire: honest(seen, wire) if seen.method == "GET" else refuse(seen, wire)
    page = _stakes("doctor", "--upstream", up.url)
    assert (page.returncode, page.stdout.splitlines()[-1]) == (0, "no problem found; 1 warning")
    found = _checks("--upstream", up.url)[1]["tokens follow"]
    start = "not known whether tokens follow the budget: the upstream answered chat/completions "
    assert (found["state"], found["found"]) == ("unknown", start + reason)


def test_a_gateway_is_no_upstream(up: Upstream) -> None:
    with gateway(up.url) as front:
        status, checks = _checks("--upstream", front.base_url)
    assert (status, checks["tokens follow"]["found"]) == (1, "this address is a stakes gateway itself")
    assert "behind it" in checks["tokens follow"]["advice"]


def test_a_server_without_usage_is_unknown_and_no_problem(up: Upstream) -> None:
    up.script = lambda seen, wire: honest(seen, wire) if seen.method == "GET" else wire.reply(b'{"choices": []}')
    status, checks = _checks("--upstream", up.url)
    assert (status, checks["tokens follow"]["state"]) == (0, "unknown")


def test_nothing_at_the_address_and_no_such_model(up: Upstream) -> None:
    status, checks = _checks("--upstream", "http://127.0.0.1:1/v1")
    assert (status, checks["upstream"]["state"]) == (1, "bad")
    assert "start the server" in checks["upstream"]["advice"]
    status, checks = _checks("--upstream", up.url, "--model", "huge")
    assert (status, checks["upstream model"]["advice"]) == (1, "name one that it has: tiny")
    assert up.posts() == []
    status, checks = _checks("--upstream", "nowhere")
    assert (status, checks["upstream"]["state"]) == (1, "bad")


def test_a_policy_that_cannot_be_served_is_a_problem(tmp_path: Path) -> None:
    status, checks = _checks("--policy", tmp_path / "none.json")
    assert (status, checks["policy"]["state"]) == (1, "bad")
    policy(mechanism="deletion", selector="redundancy").save(tmp_path / "deletion.json")
    status, checks = _checks("--policy", tmp_path / "deletion.json")
    assert (status, checks["policy"]["state"]) == (1, "bad")
    assert "--mechanism resolution" in checks["policy"]["found"]
    (tmp_path / "half.json").write_text('{"schema": 1, "tiers"')
    assert _checks("--policy", tmp_path / "half.json")[0] == 1
    (tmp_path / "deep.json").write_text("[" * 200_000)
    assert _checks("--policy", tmp_path / "deep.json")[0] == 1


def test_a_policy_of_legibility_is_a_warning_and_no_problem(tmp_path: Path) -> None:
    policy(basis="legibility").save(tmp_path / "policy.json")
    status, checks = _checks("--policy", tmp_path / "policy.json")
    assert (status, checks["policy basis"]["state"]) == (0, "warning")
    assert "not a VLM's error" in checks["policy basis"]["found"]
    assert checks["policy basis"]["advice"] == "calibrate with the model that is served"
    assert "no problem found; 1 warning" in _stakes("doctor", "--policy", tmp_path / "policy.json").stdout


def test_a_changed_weight_and_a_lost_one_are_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(reader.WEIGHTS, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(reader, "WEIGHTS", tmp_path)
    assert _checks()[0] == 0
    (tmp_path / "reader/config.json").write_text("{}")
    status, checks = _checks()
    assert (status, checks["weights embedded"]["state"]) == (1, "bad")
    assert "config.json" in checks["weights embedded"]["found"]
    assert "install" in checks["weights embedded"]["advice"]
    shutil.rmtree(tmp_path / "reader")
    assert _checks()[0] == 1


def test_an_absent_extra_is_no_problem_and_an_old_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [
        Package("numpy", "", "2.0", "2.4.6"), Package("torch", "local", "2.11", None),
        Package("ray", "ray", "2.60", "2.5"),
        Package("altair", "report", "5.5", None), Package("jinja2", "report", "3.1", "3.1.6"),
    ]  # fmt: skip
    monkeypatch.setattr(doctor, "installed", lambda: packages)
    status, checks = _checks()
    states = {name: one["state"] for name, one in checks.items() if name.startswith(("core", "extra"))}
    assert (status, states) == (
        1, {"core": "good", "extra local": "absent", "extra ray": "bad", "extra report": "absent"}
    )  # fmt: skip
    assert checks["extra local"]["advice"] == "in the clone: pip install -c constraints.txt '.[local]'"
    assert checks["extra ray"]["found"] == "ray 2.5 is older than 2.60"
    monkeypatch.setattr(doctor, "installed", lambda: [Package("numpy", "", "2.0", None)])
    assert _checks()[0] == 1


def test_the_projects_own_metadata_is_read() -> None:
    found = {(one.extra, one.name): one for one in installed()}
    assert found["", "numpy"].good
    assert found["gateway", "starlette"].least == "0.45"
    assert found["ray", "ray"].name == "ray"  # ray[data]
    assert version("no-such-package") is None


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_versions_compare_as_numbers(one: list[int], other: list[int]) -> None:
    longest = max(len(one), len(other))
    padded = [parts + [0] * (longest - len(parts)) for parts in (one, other)]
    texts = [".".join(map(str, parts)) for parts in (one, other)]
    assert (version_numbers(texts[0]) < version_numbers(texts[1] + "+cpu")) == (padded[0] < padded[1])


def test_a_ledger_is_checked() -> None:
    status, checks = _checks("--ledger", "redis://127.0.0.1:1/0")
    assert status == 1
    assert checks["ledger"]["found"] == "redis://127.0.0.1:1/0?ledger=ledger does not answer (ConnectionError)"
    assert _checks("--ledger", "http://x")[1]["ledger"]["state"] == "bad"
    assert _checks("--ledger", "ledger.json")[1]["ledger"]["state"] == "good"
