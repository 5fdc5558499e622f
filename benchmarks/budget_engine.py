"""The hard budget by a real vLLM's own count, under mixed and hostile traffic, with the gateway killed in between.

    python benchmarks/budget_engine.py --engine /path/to/vllm-cpu             # make test-budget ENGINE=…
    python benchmarks/budget_engine.py --engine /path/to/vllm-cpu --requests 200

``--engine``: a command that serves CHECKPOINT on PORT; ``--url``: a vLLM over the embedded reader that runs already
and that nobody else asks. Requests (``budget_traffic``) with uuid, detail, conversations, several images, streams and
the responses API, and clients that leave at once, before the first byte and midway. Six phases: all high, all low,
alternating, bursts of eight at once, random, and hostile headers on every request. The gateway runs with ``--ledger``
and is killed (SIGKILL) with requests in flight, twice, and started again.

Image tokens are vLLM's ``prompt_tokens_total``, less the texts, which ``/tokenize`` counts. Checked: they are at most
``mean n + burst`` after every request (in bursts, after every batch), ``n`` being the images that were read; they equal
the prediction, request by request, where one is in flight at a time; and they equal the tokens booked in the gateway's
log within 0.5 %. Requests that the engine dropped unread, because their client left at once, may be booked all the same
and are left out of the last. So are batches in which the gateway was killed, as its log ends before its requests do.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.budget_traffic import AT_ONCE, PHASES, Asked, Ended, Traffic, send
from benchmarks.gateway import free_port

MEAN, BURST, TINY_TOKENS, TOLERANCE, LEAVING_S = 40, 480, 16, 0.005, 0.5
GRID, ERRORS = (32, 48, 64, 96, 128), {"high": (0.8, 0.5, 0.3, 0.1, 0.08), "low": (0.4, 0.3, 0.25, 0.2, 0.19)}
_METRIC = re.compile(r"^vllm:(\w+?)(?:_total)?(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


class Engine:
    """What vLLM itself has counted."""

    def __init__(self, url: str) -> None:
        self._root, self._http = url.removesuffix("/v1"), httpx.Client(trust_env=False, timeout=60)
        weakref.finalize(self, self._http.close)  # pytest reports connections that are left open
        self._texts: dict[str, int] = {}

    def count(self, name: str = "prompt_tokens") -> int:
        """One of its counters, over all labels."""
        text = self._http.get(f"{self._root}/metrics").text
        return round(sum(float(value) for found, value in _METRIC.findall(text) if found == name))

    def wait(self) -> None:
        """Return once no request is in it; requests that reach it a moment later count as well."""
        idle = 0
        while idle < 2:
            running = self.count("num_requests_running") + self.count("num_requests_waiting")
            idle = 0 if running else idle + 1

    def text_tokens(self, asked: Asked) -> int:
        """The tokens of a request beside its images'."""
        key = json.dumps(asked.chat)
        if key not in self._texts:
            whole = self._http.post(f"{self._root}/tokenize", json=asked.chat).json()["count"]
            self._texts[key] = whole - TINY_TOKENS * asked.images
        return self._texts[key]


class Served:
    """``stakes serve`` as a process that can be killed and started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self.port, self.log = free_port(), folder / "gateway.log"
        self.address = f"http://127.0.0.1:{self.port}"
        # High is rare in the calibration, so that a beginning with nothing but high uses up the burst.
        curves = {
            tier: {"budgets": GRID, "errors": ERRORS[tier], "counts": [count] * len(GRID)}
            for tier, count in (("high", 60), ("low", 240))
        }
        tiers = {
            "high": {"cost": 5, "budget": 64, "curve": curves["high"]},
            "low": {"cost": 1, "budget": 32, "curve": curves["low"]},
        }
        record = {"schema": 2, "mean_budget": MEAN, "floor": GRID[0], "tiers": tiers, "fingerprint": "engine"}
        (folder / "policy.json").write_text(json.dumps(record))
        self._command = [
            sys.executable, "-m", "stakes", "serve", "--policy", str(folder / "policy.json"), "--upstream", url,
            "--port", str(self.port), "--burst", str(BURST), "--ledger", str(folder / "ledger.json"), "--no-bypass",
            "--no-probe", "--min-pixels", "12544", "--max-pixels", "1019200",
        ]  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=log)
        while self._process.poll() is None:
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/healthz", trust_env=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise SystemExit(f"the gateway did not start:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill it without any warning."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it in order."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)

    def wait(self) -> None:
        """Return once it has no request."""
        while True:
            text = httpx.get(f"{self.address}/metrics", trust_env=False).text
            if re.search(r"^stakes_requests_in_flight 0", text, re.MULTILINE):
                return
            time.sleep(0.01)

    def booked(self) -> int:
        """The tokens that its log says were booked, over all of its processes."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return sum(line.get("booked") or 0 for line in lines)


class Run:
    """The requests, and what both sides count."""

    def __init__(self, engine: Engine, served: Served, requests: int) -> None:
        self.engine, self.served, self.requests = engine, served, requests
        self.traffic, self.begun_with = Traffic(seed=1), engine.count()
        self.texts = self.images = self.sent = 0
        self.dropped = self.killed = 0  # tokens booked for what was never read; read in batches that were killed
        self.ends: Counter[str] = Counter()
        self.problems: list[str] = []
        self.closest = BURST

    def tokens(self) -> int:
        """Image tokens that the engine has read."""
        return self.engine.count() - self.begun_with - self.texts

    def run(self) -> None:
        """All phases."""
        each = self.requests // len(PHASES)
        for phase in PHASES:
            began, tokens, images = time.monotonic(), self.tokens(), self.images
            if phase == "bursts":
                for batch in range(each // AT_ONCE):
                    self.burst(kill=batch in (each // AT_ONCE // 3, 2 * each // AT_ONCE // 3))
            for n in range(0 if phase == "bursts" else each):
                tier = {"all high": "high", "all low": "low", "alternating": ("high", "low")[n % 2]}.get(phase)
                asked = self.traffic.draw(tier or self.traffic.dice.choice(("high", "low")))
                self.one(self.traffic.abuse(asked) if phase == "header abuse" else asked)
            seconds, read = time.monotonic() - began, self.tokens() - tokens
            mean = read / max(1, self.images - images)
            found = f"{self.images - images:5} images, {read:7} tokens, {mean:6.1f} an image"
            print(f"{phase:14} {found}, {seconds:5.0f} s", flush=True)

    def one(self, asked: Asked) -> None:
        """One request alone: the engine's count must be the prediction."""
        text, before, leaves = self.engine.text_tokens(asked), self.engine.count(), asked.kind == "leaves at once"
        booked = self.served.booked() if leaves else 0
        ended = send(self.served.address, asked, lambda: self.engine.count() > before)
        time.sleep(LEAVING_S if leaves else 0)  # the gateway may not have seen it yet
        self.served.wait()
        self.engine.wait()
        read = self.engine.count() - before
        self.end(ended, read > 0)
        if leaves and not read:
            self.dropped += self.served.booked() - booked
        if read:
            self.texts += text
            if ended.predicted and read - text != ended.predicted:
                self.problems.append(f"{asked.kind}: {read - text} tokens read, {ended.predicted} predicted")
        if ended.counted is not None and ended.counted != ended.predicted:
            self.problems.append(f"{asked.kind}: usage says {ended.counted}, predicted were {ended.predicted}")
        self.check()

    def burst(self, kill: bool) -> None:
        """A batch at once; ``kill``: the gateway is killed while the engine answers all of it."""
        batch = [self.traffic.draw(self.traffic.dice.choice(("high", "low")), leaves=False) for _ in range(AT_ONCE)]
        for asked in batch if kill else ():
            asked.last_long()
        before = self.engine.count()
        booked = self.served.booked() if kill else 0
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(send, self.served.address, asked, lambda: True) for asked in batch]
            if kill:
                while self.engine.count("num_requests_running") + sum(map(Future.done, futures)) < AT_ONCE:
                    time.sleep(0.01)
                time.sleep(LEAVING_S)
                self.served.kill()
                self.served.start()
        self.served.wait()
        self.engine.wait()
        ends = [future.result() for future in futures]
        were_read = [ended for ended in ends if ended.status in (None, 200)]
        texts = sum(self.engine.text_tokens(ended.asked) for ended in were_read)
        read = self.engine.count() - before - texts
        for ended in ends:
            self.end(ended, read=ended in were_read)
        self.texts += texts
        if kill:
            self.killed += read
            self.dropped += self.served.booked() - booked
        elif read != (predicted := sum(ended.predicted for ended in ends)):
            self.problems.append(f"a batch: {read} tokens read, {predicted} predicted")
        self.check()

    def end(self, ended: Ended, read: bool) -> None:
        """Count a request that has ended."""
        self.sent += 1
        self.ends[f"{ended.asked.kind}: {ended.status or ('read' if read else 'not read')}"] += 1
        self.images += ended.asked.images if read else 0
        if ended.status is not None and (ended.status == 500 or (ended.status == 200) != read):
            self.problems.append(f"{ended.asked.kind}: status {ended.status}, {'read' if read else 'not read'}")

    def check(self) -> None:
        """The total must hold now."""
        left = MEAN * self.images + BURST - self.tokens()
        self.closest = min(self.closest, left)
        if left < 0:
            self.problems.append(f"{-left} tokens beyond the total after {self.images} images")

    def judge(self) -> bool:
        """Print the result; whether all held."""
        tokens, booked = self.tokens() - self.killed, self.served.booked() - self.dropped
        print("\nends: " + ", ".join(f"{end} {count}" for end, count in sorted(self.ends.items())))
        print(f"{self.sent} requests, {self.images} images read; never closer to the total than {self.closest} tokens")
        mean = f"{self.tokens() / self.images:.2f} an image at a mean of {MEAN} and a burst of {BURST}"
        print(f"image tokens: vLLM {self.tokens()}, {mean}; {self.killed} of them while the gateway was killed")
        print(f"of the others, vLLM {tokens}, booked {booked}: {booked / tokens - 1:+.3%}")
        print(f"booked beside these, for requests that the engine dropped unread: {self.dropped}")
        if abs(booked / tokens - 1) > TOLERANCE:
            self.problems.append(f"booked tokens differ by more than {TOLERANCE:.1%}")
        print(*(self.problems or ["all held"]), sep="\n")
        return not self.problems


def main() -> None:
    """Parse, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="a command that serves CHECKPOINT on PORT")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--requests", type=int, default=2000, help="in all phases together (default 2000)")
    given = parser.parse_args()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        url = given.url
        if url is None:
            if not given.engine:
                raise SystemExit("give a command that serves CHECKPOINT on PORT: --engine /path/to/vllm-cpu")
            from tests.gateway.engines import vllm

            url = stack.enter_context(vllm(given.engine, free_port(), Path(name) / "vllm.log"))
        run = Run(Engine(url), Served(url, Path(name)), given.requests)
        run.run()
        run.served.stop()
        if not run.judge():
            raise SystemExit(1)


if __name__ == "__main__":
    main()
