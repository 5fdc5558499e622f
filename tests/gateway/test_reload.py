"""A changed policy is used once it is checked; failures are logged, and the gateway keeps watching the files."""

import json
import logging
from pathlib import Path

import httpx
import pytest
from tests.gateway.gateways import LOW, ask, gateway, policy
from tests.gateway.upstream import Upstream, until

from stakes import Policy
from stakes.gateway import app
from stakes.gateway.monitoring.logs import LOGGER
from stakes.gateway.reload import Served


def test_a_changed_policy_is_used_and_a_bad_one_is_not(tmp_path: Path, upstream: Upstream, http: httpx.Client) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)

    def budget() -> str:
        return http.post(f"{front.base_url}/chat/completions", json=ask("Who signed it?")).headers["x-stakes-budget"]

    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        assert budget() == str(LOW)
        spent = front.state()["tokens_spent"]
        record = json.loads(path.read_text())
        record["tiers"]["low"]["budget"], record["fingerprint"] = 100, "second"
        Policy.from_record(record).save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert budget() == "100"
        assert front.state()["tokens_spent"] > spent > 0  # the total continues
        assert front.metric("policy_info", fingerprint="second", mode="enforce") == 1
        for n, bad in enumerate(('{"schema": 1', "[]", json.dumps({**record, "family": "smolvlm"}), ""), 1):
            (tmp_path / "next.json").write_text(bad)
            (tmp_path / "next.json").replace(path)  # atomic: a half-written file would count as one more bad one
            assert until(lambda n=n: front.metric("policy_reloads_total", result="bad") == n)  # type: ignore[misc]
            assert budget() == "100"
        path.unlink()
        assert until(lambda: front.metric("policy_reloads_total", result="bad") == 5)
        assert budget() == "100"
        policy().save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 2)
        assert budget() == str(LOW)


def test_a_policy_of_the_same_budgets_keeps_the_controller(
    tmp_path: Path, upstream: Upstream, http: httpx.Client
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        controller = front.served.rules.controller
        policy(fingerprint="other").save(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert front.served.rules.controller is controller
        assert http.get(f"{front.address}/readyz").json()["policy"] == "other"


@pytest.mark.parametrize("error", [RecursionError("too deep"), OverflowError("too large"), MemoryError()], ids=repr)
def test_an_error_while_reading_a_policy_is_logged_and_watching_continues(
    tmp_path: Path, upstream: Upstream, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)

    def load() -> Policy:
        if path.stat().st_size == 0:
            raise error
        return Policy.load(path)

    with gateway(upstream.url, source=load, files=(path,)) as front, caplog.at_level(logging.ERROR, LOGGER):
        path.write_bytes(b"")
        assert until(lambda: front.metric("policy_reloads_total", result="bad") == 1)
        (record,) = [one for one in caplog.records if one.name == LOGGER]
        reason = record.fields["reason"]  # type: ignore[attr-defined]
        assert reason.startswith(f"the policy could not be read: {type(error).__name__}")
        policy(fingerprint="second").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert front.served.rules.policy.fingerprint == "second"


def test_an_endlessly_nested_policy_file_is_refused_and_the_next_is_used(tmp_path: Path, upstream: Upstream) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front:
        for n, name in enumerate(("second", "third"), 1):
            (tmp_path / "next.json").write_text("[" * 100_000)
            (tmp_path / "next.json").replace(path)
            assert until(lambda n=n: front.metric("policy_reloads_total", result="bad") == n)  # type: ignore[misc]
            policy(fingerprint=name).save(tmp_path / "next.json")
            (tmp_path / "next.json").replace(path)
            assert until(lambda n=n: front.metric("policy_reloads_total", result="good") == n)  # type: ignore[misc]
            assert front.served.rules.policy.fingerprint == name


def test_an_error_while_reporting_a_reload_is_logged_and_watching_continues(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    with (
        gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front,
        monkeypatch.context() as patch,
    ):
        patch.setattr(app, "policy_warnings", lambda _: 1 / 0)
        policy(fingerprint="second").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: any("still watched" in record.getMessage() for record in caplog.records))
        patch.undo()
        policy(fingerprint="third").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: front.metric("policy_info", fingerprint="third", mode="enforce") == 1)


@pytest.mark.parametrize("name", ["watch", "probe"])
def test_a_task_that_ends_is_logged(
    tmp_path: Path, upstream: Upstream, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)

    async def broken(*_: object) -> None:
        raise RuntimeError("no thread can be started")

    monkeypatch.setattr(app if name == "probe" else Served, name, broken)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,), probe=name == "probe"):
        assert until(lambda: any(name in record.getMessage() for record in caplog.records))
    (record,) = [one for one in caplog.records if name in one.getMessage()]
    assert record.getMessage() == f"{name} ended and will not begin again; restart the gateway"
    assert (record.levelno, record.exc_info and record.exc_info[0]) == (logging.ERROR, RuntimeError)
