"""``stakes doctor --gateway``: what a running gateway reports, and what is no gateway."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.commands.test_doctor import _checks, _reply, _stakes
from tests.gateway.gateways import ask, gateway, policy
from tests.gateway.upstream import Upstream, serving

from stakes.signals import RequestSignal, to_dict


@pytest.fixture
def up() -> Iterator[Upstream]:
    with serving() as one:
        yield one


def _ask(address: str, *questions: str, **headers: str) -> None:
    for question in questions:
        reply = httpx.post(f"{address}/chat/completions", json=ask(question), headers=headers, trust_env=False)
        assert reply.status_code == 200


def test_a_running_gateway_reports_its_undecided_share(up: Upstream, tmp_path: Path) -> None:
    served = policy(signal=to_dict(RequestSignal()))
    served.save(tmp_path / "served.json")
    policy(fingerprint="other").save(tmp_path / "other.json")
    with gateway(up.url, served) as front:
        for file, whose in (("served.json", "this policy"), ("other.json", "another policy than this")):
            checks = _checks("--gateway", front.address, "--policy", tmp_path / file)[1]
            assert checks["gateway"]["found"] == f"enforce, {whose}, 0 requests since its start"
        status, checks = _checks("--gateway", front.address)
        assert (status, checks["gateway"]["state"]) == (0, "good")
        assert checks["gateway"]["found"] == "enforce, a calibrated policy, 0 requests since its start"
        assert (checks["undecided"]["state"], checks["undecided"]["found"]) == ("unknown", "no image request yet")
        _ask(front.base_url, "qwertz zuiop", *["What is the total?"] * 9)
        front.settle()
        status, checks = _checks("--gateway", f"{front.base_url}/")
        assert (status, checks["undecided"]["state"], checks["undecided"]["advice"]) == (0, "good", "")
        _ask(front.base_url, "qwertz zuiop")
        front.settle()
        status, checks = _checks("--gateway", front.base_url)
        assert (status, checks["undecided"]["state"]) == (0, "warning")
        assert checks["undecided"]["found"] == "2 of 11 image requests (18.2%)"
        assert "docs/signals.md" in checks["undecided"]["advice"]
        assert checks["gateway"]["found"].endswith("11 requests since its start")
        assert "no problem found; 1 warning" in _stakes("doctor", "--gateway", front.address).stdout


def test_a_gateway_with_keys_needs_one(up: Upstream, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    with gateway(up.url, client_keys=("correct-horse",)) as front:
        status, checks = _checks("--gateway", front.address)
        assert (status, checks["gateway"]["found"]) == (1, f"{front.address} needs a key for /metrics")
        assert "--gateway-key-file" in checks["gateway"]["advice"]
        keys.write_text("wrong-horse\n")
        status, checks = _checks("--gateway", front.address, "--gateway-key-file", keys)
        assert (status, checks["gateway"]["found"]) == (1, f"{front.address} does not accept this key")
        keys.write_text("correct-horse\n")
        status, checks = _checks("--gateway", front.address, "--gateway-key-file", keys)
        assert (status, checks["gateway"]["state"]) == (0, "good")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (_reply(b"{}", 404), "has no metrics of a gateway at /metrics (status 404)"),
        (_reply(b"<html>"), "has no metrics of a gateway at /metrics (status 200)"),
        (_reply(b"# TYPE vllm:requests counter\nvllm:requests_total 3\n"), "has no metrics of a gateway"),
        (_reply(b"stakes_policy_info 1\n"), "has no metrics of a gateway"),
        (_reply(b"\xff\x00"), "has no metrics of a gateway"),
    ],
)
def test_what_is_not_a_gateway_is_a_problem(up: Upstream, script: Any, found: str) -> None:
    up.script = script
    status, checks = _checks("--gateway", up.url)
    assert (status, checks["gateway"]["state"]) == (1, "bad")
    assert found in checks["gateway"]["found"]
    assert "not of its upstream" in checks["gateway"]["advice"]


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:8080", "not an http(s) address"),
        ("http://127.0.0.1:9", "http://127.0.0.1:9 does not answer (ConnectError)"),
        ("http://user:secret@127.0.0.1:9", "http://127.0.0.1:9 does not answer (ConnectError)"),
    ],
)
def test_a_gateway_that_cannot_be_reached_is_a_problem(address: str, found: str) -> None:
    status, checks = _checks("--gateway", address)
    assert (status, checks["gateway"]["state"]) == (1, "bad")
    assert found in checks["gateway"]["found"]
    assert checks["gateway"]["advice"]
