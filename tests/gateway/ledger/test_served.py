"""``serve --ledger FILE``: the total goes on after a restart and after ``kill -9``."""

import json
import os
import signal
from pathlib import Path

import httpx
from tests.gateway.gateways import ask
from tests.gateway.ledger.servers import needs_redis, redis_server
from tests.gateway.processes import process
from tests.gateway.upstream import Upstream, until

MEAN = 440  # pays for high in an even mix
BUDGETS = ["--budget", "high=800", "--budget", "low=64", "--mean-budget", str(MEAN), "--burst", "2000"]


def spend(address: str, http: httpx.Client, count: int) -> list[int]:
    """The tokens of so many high-cost requests, as the gateway predicts them."""
    answers = [http.post(f"{address}/chat/completions", json=ask(), timeout=20) for _ in range(count)]
    return [int(answer.headers["x-stakes-predicted-tokens"]) for answer in answers]


def test_a_killed_gateway_gives_out_no_second_burst(upstream: Upstream, http: httpx.Client, tmp_path: Path) -> None:
    options = [*BUDGETS, "--upstream", upstream.url, "--ledger", str(tmp_path / "ledger.json")]
    tokens: list[int] = []
    for _ in range(3):
        with process(*options) as (child, about):
            tokens += spend(str(about["address"]), http, 6)
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    totals = [sum(tokens[: n + 1]) - MEAN * (n + 1) for n in range(len(tokens))]
    assert max(totals) <= 2000
    assert max(tokens[:6]) > MEAN  # the burst was used


def test_a_stopped_gateway_returns_what_it_had_in_hand(upstream: Upstream, http: httpx.Client, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    with process(*BUDGETS, "--upstream", upstream.url, "--ledger", str(path)) as (child, about):
        tokens = spend(str(about["address"]), http, 2)
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=20) in (0, -signal.SIGTERM)
    record = json.loads(path.read_text())
    assert record["all"]["withdrawn"] - record["all"]["deposited"] == sum(tokens) - 2 * MEAN
    assert record["processes"] == {}


@needs_redis
def test_two_gateways_on_one_redis_are_one(upstream: Upstream, http: httpx.Client, tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as server:
        ledger = ["--ledger", f"{server.url}?ledger=test", "--ledger-loss", "0"]
        options = [*BUDGETS, "--upstream", upstream.url, *ledger]
        with process(*options) as (child, about), process(*options) as (_, other):
            addresses = [str(one["address"]) for one in (about, other)]
            tokens = [spend(addresses[n % 2], http, 1)[0] for n in range(16)]
            ahead = [sum(tokens[: n + 1]) - MEAN * (n + 1) for n in range(len(tokens))]
            assert max(tokens) > MEAN
            assert max(ahead) <= 2000
            root = addresses[1].removesuffix("/v1")
            assert until(lambda: 'name="ledger_processes"} 2.0' in http.get(f"{root}/metrics").text)
            server.kill()
            assert until(lambda: "cannot be reached" in http.get(f"{root}/stakes/state").text)
            spend(addresses[1], http, 3)
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=20) in (0, -signal.SIGTERM)  # without its ledger it stops, too
