"""Soak test of the gateway: mixed load with faults for half an hour, without leaks, lost requests or overspending.

    python benchmarks/soak.py --minutes 30 --faults            # make soak
    python benchmarks/soak.py --minutes 0.5 --faults           # the same, compressed: make test-soak

Text, images, several images, streams and the responses API, clients that disconnect, and damaged requests
(``soak_load``) through ``stakes serve`` in a separate process, to an upstream (``soak_stub``) that is killed and
restarted, slow, half-closed and mute in turn, while the policy file is replaced by good and bad ones. Shadow answers
are on. At the end:

* no task is left that was not there at the start, no request or image work is in progress;
* resident memory is flat: the mean of the last third is within 5 % (and 8 MB) of the second third's;
* every request ended once, with its own answer (``soak_load`` lists the possible ends); no status 500;
* the running mean held at every check, by the gateway's count and in total by the clients' own;
* the log reports no failure; the gateway exits on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.gateway import free_port
from benchmarks.soak_judge import Observations, judge
from benchmarks.soak_load import Clients

STUB = Path(__file__).with_name("soak_stub.py")
MEAN, BURST = 80, 512
PHASES = (("good", 5.0), ("slow", 4.0), ("half", 4.0), ("mute", 3.0), ("killed", 2.0), ("good", 2.0))  # seconds


def policy(high: int, low: int) -> str:
    """A policy file; all have the same mean and burst, so that one bound holds throughout."""
    curves = {
        name: {"budgets": [16, budget], "errors": [0.5, 0.05], "counts": [300, 300]}
        for name, budget in (("high", high), ("low", low))
    }
    tiers = {
        "high": {"cost": 5, "budget": high, "curve": curves["high"], "disagreement": 0.16},
        "low": {"cost": 1, "budget": low, "curve": curves["low"], "disagreement": 0.16},
    }
    return json.dumps(
        {"schema": 1, "mean_budget": MEAN, "burst": BURST, "floor": 16, "tiers": tiers, "fingerprint": f"{high}-{low}"}
    )


POLICIES = (policy(192, 64), policy(160, 49), '{"schema": 1, "half": ', policy(176, 96), '{"schema": 7}', policy(8, 4))


class Soak:
    """One run."""

    def __init__(self, seconds: float, faults: bool, rate: float, folder: Path) -> None:
        self.seconds, self.faults, self.folder = seconds, faults, folder
        self.stub_port, port = free_port(), free_port()
        self.path, self.log = folder / "policy.json", folder / "gateway.log"
        self.path.write_text(POLICIES[0], encoding="utf-8")
        self.stub = self._start_stub()
        serve = ["serve", "--policy", str(self.path), "--upstream", f"http://127.0.0.1:{self.stub_port}/v1"]
        more = ["--port", str(port), "--no-probe", "--shadow", "0.05", "--read-timeout", "10", "--max-body-mb", "4"]
        with self.log.open("wb") as log:
            command = [sys.executable, "-m", "stakes", *serve, *more]
            self.gateway = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self.address, self.clients = f"http://127.0.0.1:{port}", Clients(port, rate)
        self.observed = Observations(MEAN, BURST)
        self.swaps = self.kills = 0

    def _start_stub(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(STUB), "--port", str(self.stub_port)])

    async def run(self) -> dict[str, Any]:
        """Run load and faults, wait until idle, return the numbers."""
        async with httpx.AsyncClient(timeout=10, trust_env=False) as http:
            await self._until_ready(http)
            before = await self._state(http)
            began = time.monotonic()
            busy = [asyncio.create_task(self.clients.run()), asyncio.create_task(self._observe(http))]
            if self.faults:
                busy += [asyncio.create_task(self._break_upstream(http)), asyncio.create_task(self._swap())]
            await asyncio.sleep(self.seconds)
            self.clients.stop = True
            await busy[0]
            for task in busy[1:]:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)
            took = time.monotonic() - began
            await self._mode(http, "good")
            after = await self._wait_until_idle(http, int(before["tasks"]))
        self.gateway.send_signal(signal.SIGTERM)
        try:
            status: int | None = self.gateway.wait(40)
        except subprocess.TimeoutExpired:
            status = None
        return {
            "seconds": round(took, 1), "faults": self.faults, "upstream_kills": self.kills, "policy_swaps": self.swaps,
            "tasks": {"before": before["tasks"], "after": after["tasks"]},
            **judge(self.observed, self.clients.ledger, after, self.log, self.faults, status),
        }  # fmt: skip

    async def _until_ready(self, http: httpx.AsyncClient) -> None:
        for _ in range(600):
            with suppress(httpx.TransportError):
                if (await http.get(f"{self.address}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
        raise SystemExit("the gateway did not become ready within a minute")

    async def _state(self, http: httpx.AsyncClient) -> dict[str, Any]:
        return dict((await http.get(f"{self.address}/stakes/state")).json())

    async def _observe(self, http: httpx.AsyncClient) -> None:
        """Check memory and the budget at intervals."""
        pause = min(1.0, self.seconds / 60)
        while True:
            self.observed.check(self.gateway.pid, (await self._state(http))["controller"])
            await asyncio.sleep(pause)

    async def _break_upstream(self, http: httpx.AsyncClient) -> None:
        """The upstream's phases in turn, shortened for a short run."""
        scale = min(1.0, self.seconds / 3 / sum(seconds for _, seconds in PHASES))
        while True:
            for mode, seconds in PHASES:
                if mode == "killed":
                    self.stub.kill()
                    self.stub.wait()
                    self.kills += 1
                    await asyncio.sleep(seconds * scale)
                    self.stub = self._start_stub()
                else:
                    await self._mode(http, mode)
                    await asyncio.sleep(seconds * scale)

    async def _mode(self, http: httpx.AsyncClient, mode: str) -> None:
        for _ in range(200):  # it may still be starting
            with suppress(httpx.TransportError):
                await http.get(f"http://127.0.0.1:{self.stub_port}/mode/{mode}")
                return
            await asyncio.sleep(0.05)

    async def _swap(self) -> None:
        """Replace the policy file atomically."""
        while True:
            await asyncio.sleep(min(7.0, self.seconds / 8))
            self.swaps += 1
            other = self.path.with_suffix(".other")
            other.write_text(POLICIES[self.swaps % len(POLICIES)], encoding="utf-8")
            os.replace(other, self.path)

    async def _wait_until_idle(self, http: httpx.AsyncClient, tasks: int) -> dict[str, Any]:
        """Wait until nothing is in progress, and return the state."""
        for _ in range(150):
            state, metrics = await self._state(http), (await http.get(f"{self.address}/metrics")).text
            in_progress = [
                line
                for line in metrics.splitlines()
                if line.startswith(("stakes_requests_in_flight ", "stakes_fit_work "))
            ]
            idle = all(line.endswith(" 0.0") for line in in_progress) and not state["controller"]["images_outstanding"]
            if idle and state["tasks"] <= tasks:
                return state
            await asyncio.sleep(0.1)
        self.observed.wrong.append(f"not idle after 15 s: {state['tasks']} tasks, {tasks} at the start; {in_progress}")
        return state

    def close(self) -> None:
        """Stop both processes."""
        for one in (self.gateway, self.stub):
            if one.poll() is None:
                one.kill()
            one.wait()


def main() -> None:
    """Print the numbers as JSON; the exit status is 1 where anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second, all clients together")
    parser.add_argument("--faults", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(60 * given.minutes, given.faults, given.rate, Path(folder))
        try:
            result = asyncio.run(soak.run())
        finally:
            soak.close()
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["violations"]))


if __name__ == "__main__":
    main()
