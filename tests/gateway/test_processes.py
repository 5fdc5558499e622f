"""``serve --processes``: several processes are one gateway, with one address, one budget, one set of metrics."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.gateways import ask, policy
from tests.gateway.processes import process
from tests.gateway.upstream import Upstream, serving, until

COUNT, MEAN, BURST = 2, 100, 1500
BUDGETS = ("--budget", "high=64", "--budget", "low=32")


class Fleet:
    """A gateway of two processes."""

    def __init__(self, running: "subprocess.Popen[str]", base: str, path: Path) -> None:
        self.running, self.base, self.root, self.policy = running, base, base.removesuffix("/v1"), path
        self.tokens: list[int] = []

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.running.pid}/task/{self.running.pid}/children").read_text().split()
        return [int(one) for one in children if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]

    def send(self, count: int) -> None:
        """Each on a connection of its own, so that both processes get some."""
        for _ in range(count):
            answer = httpx.post(f"{self.base}/chat/completions", json=ask(), trust_env=False, timeout=20)
            self.tokens.append(int(answer.headers["x-stakes-predicted-tokens"]))

    def metric(self, name: str) -> float:
        lines = httpx.get(f"{self.root}/metrics", trust_env=False, timeout=20).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"stakes_{name}"))

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{self.root}/stakes/state", trust_env=False, timeout=20).json()
        return found

    def log(self) -> list[dict[str, Any]]:
        assert self.running.stderr is not None
        self.running.stderr.seek(0)
        return [json.loads(line) for line in self.running.stderr.read().splitlines()]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    path = tmp_path_factory.mktemp("fleet") / "policy.json"
    policy(mean_budget=MEAN, burst=BURST).save(path)
    with serving() as upstream:
        options = ["--policy", str(path), "--upstream", upstream.url, "--processes", str(COUNT), "--keep-images", "8"]
        with process(*options) as (running, about):
            assert about["processes"] == COUNT
            yield Fleet(running, str(about["address"]), path)


def test_the_metrics_of_all_processes_are_one(fleet: Fleet) -> None:
    shown = [fleet.metric('controller{name="allowance"}') for _ in range(8)]
    fleet.send(16)
    assert until(lambda: fleet.metric('controller{name="ledger_processes"}') == COUNT, 30)
    for _ in range(4):  # whichever process answers
        assert fleet.metric('images_total{tier="high"}') == 16
        assert fleet.metric('controller{name="images"}') == 16
        assert fleet.metric('controller{name="tokens_spent"}') == sum(fleet.tokens)
        assert fleet.metric('first_byte_seconds_count{images="yes"}') == 16
        assert fleet.metric("processes ") == COUNT
        assert fleet.metric('controller{name="allowance"}') < max(shown)  # not what another process showed before


def test_the_dashboard_shows_the_decisions_of_all_processes(fleet: Fleet) -> None:
    state = fleet.state()
    assert state["processes"] == COUNT
    assert state["requests"]["fitted"] == state["controller"]["images"] == len(fleet.tokens)
    decisions = state["decisions"]
    assert len({one["id"] for one in decisions}) == len(fleet.tokens)
    assert {one["id"] % COUNT for one in decisions} == set(range(COUNT))  # both served some
    assert [one["time"] for one in decisions] == sorted((one["time"] for one in decisions), reverse=True)
    assert state["means"][-1] == [len(fleet.tokens), pytest.approx(sum(fleet.tokens) / len(fleet.tokens), abs=0.01)]
    for one in decisions[:6]:
        for side in ("original", "seen"):
            kept = httpx.get(f"{fleet.root}/stakes/images/{one['id']}/0/{side}", trust_env=False)
            assert kept.status_code == (200 if one["pictures"] else 404)


def test_a_reload_reaches_all_processes(fleet: Fleet) -> None:
    fleet.running.send_signal(signal.SIGHUP)
    assert until(lambda: [one["event"] for one in fleet.log()].count("policy reloaded") == COUNT)


def test_a_killed_process_is_started_again_and_its_lease_counts_as_spent(fleet: Fleet) -> None:
    before, counted = fleet.workers(), fleet.metric("images_total")
    os.kill(before[0], signal.SIGKILL)
    assert until(lambda: fleet.metric("process_restarts ") == 1, 60)
    assert until(lambda: fleet.metric("processes ") == COUNT, 60)
    assert fleet.metric("images_total") == counted  # no counter falls
    assert before[0] not in fleet.workers()
    fleet.send(12)
    assert fleet.metric("images_total") == counted + 12
    ahead = [sum(fleet.tokens[: n + 1]) - MEAN * (n + 1) for n in range(len(fleet.tokens))]
    assert MEAN < max(ahead) <= BURST
    assert any("counts as spent" in one["event"] for one in fleet.log())


def test_sigterm_ends_all(fleet: Fleet) -> None:
    workers = fleet.workers()
    fleet.running.send_signal(signal.SIGTERM)
    assert fleet.running.wait(timeout=30) == 0
    assert not any(Path(f"/proc/{one}").exists() for one in workers)


def test_processes_end_with_a_killed_supervisor(upstream: Upstream) -> None:
    with process(*BUDGETS, "--upstream", upstream.url, "--processes", "2") as (one, about):
        workers = Fleet(one, str(about["address"]), Path()).workers()
        assert len(workers) == 2
        os.kill(one.pid, signal.SIGKILL)
        one.wait()
        assert until(lambda: not any(_runs(worker) for worker in workers), 30)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_error_of_a_process_is_the_error_of_the_command(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text("{}")
    options = [*BUDGETS, "--upstream", upstream.url, "--port", "0", "--processes", "2"]
    command = ["-m", "stakes", "serve", *options, "--ledger", str(tmp_path / "ledger.json")]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "is not a ledger; name another file, or remove it to begin a new total" in done.stderr
    assert "Traceback" not in done.stderr
