"""The hard total with second attempts, by vLLM's own count, under failures: part two of ``escalation_engine``.

The policy says that one answer in a hundred is unsure, and nearly all are. The first attempt of a high question takes
more than the mean, and the burst pays for three second attempts, so that the total is soon used up. A third of the
requests each: high without failures, high with failures, both tiers with failures. In these clients leave, and the
upstream fails before, within and after either attempt. Tokens are vLLM's own count, less the texts. After every batch
they are at most ``mean n + burst``, and at most what the gateway has booked.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from benchmarks.budget_engine import Engine
from benchmarks.budget_traffic import Asked
from benchmarks.escalation_engine import BUDGETS, Question, controller, questions, serving

from stakes.budgets.options.tier_plan import Escalation, TierOption

SMALL_MEAN, SECONDS = 208, 3  # the first attempt of high takes 224


class Flaky:
    """A proxy before vLLM that fails on purpose; ``forwarded``: bodies that vLLM got."""

    FATES = (*["forward"] * 12, "503", "500", "drop", "read and drop", "read and 500")

    def __init__(self, url: str, seed: int) -> None:
        self._root, self._dice = url.removesuffix("/v1"), random.Random(seed)
        self.forwarded: list[bytes] = []
        self.failing = False
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
        fate = self._dice.choice(self.FATES) if self.failing else "forward"
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


def part_two(url: str, count: int, folder: Path) -> tuple[list[list[str]], list[str]]:
    """The hard total under failures and clients that leave; what was found, and what was exceeded."""
    engine, flaky, dice = Engine(url), Flaky(url, seed=2), random.Random(3)
    begun_with, problems, ends = engine.count(), list[str](), Counter[str]()
    options = {tier: TierOption(first, Escalation(to=to, below=0.97)) for tier, (first, to) in BUDGETS.items()}
    burst = SECONDS * max(option.most_tokens - SMALL_MEAN for option in options.values())
    closest, texts, images = {"vLLM": burst, "booked": burst}, 0, 0.0
    asked = [replace(q, tier="high") if n < 2 * count // 3 else q for n, q in enumerate(questions(count))]
    with serving(flaky.url, options, SMALL_MEAN, burst, folder) as address:
        while asked:
            flaky.failing = len(asked) <= 2 * count // 3
            batch = [asked.pop(0) for _ in range(min(len(asked), 4 if dice.random() < 0.5 else 1))]
            before = len(flaky.forwarded)
            with ThreadPoolExecutor(4) as pool:
                after = (None, None, None, None, None, 0.1, 0.5, 1.5) if flaky.failing else (None,)
                leaves, streams = [dice.choice(after) for _ in batch], [dice.random() < 0.5 for _ in batch]
                ends.update(pool.map(_end, [address] * len(batch), batch, leaves, streams))
            state = controller(address)
            engine.wait()
            for body in flaky.forwarded[before:]:
                record = json.loads(body)
                texts += engine.text_tokens(Asked("", {"messages": record["messages"]}))
            tokens, booked, images = engine.count() - begun_with - texts, state["tokens_spent"], state["images"]
            left = {"vLLM": SMALL_MEAN * images + burst - tokens, "booked": SMALL_MEAN * images + burst - booked}
            closest = {who: min(closest[who], round(left[who])) for who in closest}
            if min(left.values()) < 0:
                problems.append(f"{-min(left.values()):.0f} tokens beyond the total after {images:.0f} images")
            if tokens > booked or state["tokens_reserved"]:
                problems.append(f"{tokens} tokens read, {booked:.0f} booked, {state['tokens_reserved']:.0f} reserved")
    print(f"ends: {dict(ends)}; fates: {dict(flaky.fates)}")
    failed = sum(times for fate, times in flaky.fates.items() if fate != "forward")
    cut, unpaid = _limited(folder / "gateway.log")
    rows = [
        ["requests, attempts that vLLM read", f"{count}, {len(flaky.forwarded)}"],
        ["clients that left, attempts that failed on purpose", f"{ends['left']}, {failed}"],
        ["first attempts cut, second attempts not paid for, by the allowance", f"{cut}, {unpaid}"],
        ["image tokens by vLLM's count, and booked", f"{tokens}, {booked:.0f}"],
        [f"the hard total, {SMALL_MEAN} * {images:.0f} + {burst}", f"{SMALL_MEAN * images + burst:.0f}"],
        ["tokens left below the total, at the closest, by vLLM and booked", f"{closest['vLLM']}, {closest['booked']}"],
    ]
    return rows, problems


def _limited(log: Path) -> tuple[int, int]:
    """Requests whose first attempt the allowance cut, and those whose second it did not pay for."""
    text = log.read_text()
    return text.count("by the allowance"), text.count("the allowance does not pay for a second")


def _end(address: str, question: Question, leaves: float | None, streamed: bool) -> str:
    """How one request ends; ``leaves``: seconds after which its client goes."""
    body = question.body(stream=True) if streamed else question.body()
    try:
        timeout = 300 if leaves is None else leaves
        reply = httpx.post(f"{address}/v1/chat/completions", json=body, trust_env=False, timeout=timeout)
    except httpx.TransportError as error:
        return "left" if leaves is not None else type(error).__name__
    return f"{reply.status_code}, {reply.headers.get('x-stakes-attempts', 'no')} attempts"
