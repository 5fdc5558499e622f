"""Whatever is wrong with a policy file, or with telling of it, the gateway says so and goes on watching."""

import logging
from pathlib import Path

import pytest
from tests.gateway.gateways import gateway, policy
from tests.gateway.upstream import Upstream, until

from stakes import Policy
from stakes.gateway import app
from stakes.gateway.monitoring.logs import LOGGER
from stakes.gateway.reload import Served


@pytest.mark.parametrize("error", [RecursionError("too deep"), OverflowError("too large"), MemoryError()], ids=repr)
def test_no_failure_of_reading_a_policy_ends_the_watch(
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
        (said,) = [record for record in caplog.records if record.name == LOGGER]
        reason = said.fields["reason"]  # type: ignore[attr-defined]
        assert reason.startswith(f"the policy could not be read: {type(error).__name__}")
        policy(fingerprint="second").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: front.metric("policy_reloads_total", result="good") == 1)
        assert front.served.rules.policy.fingerprint == "second"


def test_a_policy_file_nested_without_end_is_a_bad_one_and_the_next_is_used(tmp_path: Path, upstream: Upstream) -> None:
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


def test_a_failure_to_tell_of_a_reload_is_logged_and_the_watch_goes_on(
    tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)
    with (
        gateway(upstream.url, source=lambda: Policy.load(path), files=(path,)) as front,
        monkeypatch.context() as patch,
    ):
        patch.setattr(app, "cautions", lambda _: 1 / 0)
        policy(fingerprint="second").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: any("still watched" in record.getMessage() for record in caplog.records))
        patch.undo()
        policy(fingerprint="third").save(tmp_path / "next.json")
        (tmp_path / "next.json").replace(path)
        assert until(lambda: front.metric("policy_info", fingerprint="third", mode="enforce") == 1)


@pytest.mark.parametrize("name", ["watch", "probe"])
def test_a_task_that_ends_for_good_is_told_in_the_log(
    tmp_path: Path, upstream: Upstream, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.json"
    policy().save(path)

    async def broken(*_: object) -> None:
        raise RuntimeError("no thread can be started")

    monkeypatch.setattr(app if name == "probe" else Served, name, broken)
    with gateway(upstream.url, source=lambda: Policy.load(path), files=(path,), probe=name == "probe"):
        assert until(lambda: any(name in record.getMessage() for record in caplog.records))
    (said,) = [record for record in caplog.records if name in record.getMessage()]
    assert said.getMessage() == f"{name} ended and will not begin again; restart the gateway"
    assert (said.levelno, said.exc_info and said.exc_info[0]) == (logging.ERROR, RuntimeError)
