"""Deletion inside a real vLLM, by the plugin: counts, answers, requests without a budget, a served policy, throughput.

    python benchmarks/deletion_engine.py --engine /path/to/vllm-cpu --out docs/results/vllm-deletion.json
    python benchmarks/deletion_engine.py --url http://127.0.0.1:8000/v1 --parts counts,answers

``--engine``: a command that serves CHECKPOINT on PORT; it is started without the plugin first, then with it. ``--url``:
a vLLM over the embedded reader that runs already with the plugin and --trust-request-mm-kwargs.

plain       100 answers without a budget, equal to those of the same vLLM without the plugin, log-probabilities
            included; no prefix is cached in either
counts      200 requests with mixed budgets and selectors, eight at a time, some of two images, a third streamed: prompt
            tokens are the budgets plus the text
answers     100 answers by deletion, equal to the local ones
policy      a policy calibrated by local deletion, served by the gateway: errors by tier, and vLLM's own count of tokens
throughput  requests per second of vLLM's CPU time at 32, 304 and native tokens, by deletion and by resizing, in rounds
            over new pages; needs --engine
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.deletion_policy import served_policy
from benchmarks.machine import about
from tests.gateway.engines import free_port, vllm, with_plugin
from tests.gateway.gateways import encoded, url_of

from stakes.data import synthetic
from stakes.models import Request, load
from stakes.models.base import SUFFIX
from stakes.vision.geometry import count_tokens
from stakes.vision.image.resize import fit
from stakes.vision.selectors import IMAGE_ONLY

FAMILY, BUDGETS, AT_ONCE = "qwen2.5-vl", (32, 64, 96, 160, 224, 304, 448), 8
ROUNDS = 5
TRUST = "--trust-request-mm-kwargs"
LIVE: dict[str, list[Any]] = {}  # answers of the vLLM without the plugin, for the second one


class Asker:
    """Sends chat requests about pages to one vLLM."""

    def __init__(self, url: str) -> None:
        self.url, self.http = url, httpx.Client(trust_env=False, timeout=300, limits=httpx.Limits(max_connections=16))

    def body(self, images: Sequence[Any], question: str, length: int, **options: Any) -> dict[str, Any]:
        """One turn: the images, then the question; ``options``: of the processor."""
        parts: list[Any] = [{"type": "image_url", "image_url": {"url": url_of(encoded(one))}} for one in images]
        turn = {"role": "user", "content": [*parts, {"type": "text", "text": question + SUFFIX}]}
        own = {"mm_processor_kwargs": options} if options else {}
        return {"model": "reader", "messages": [turn], "temperature": 0, "max_tokens": length, **own}

    def ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply; an error ends the run."""
        reply = self.http.post(f"{self.url}/chat/completions", json=body)
        if reply.status_code != 200:
            raise SystemExit(f"status {reply.status_code}: {reply.text[:500]}")
        found: dict[str, Any] = reply.json()
        return found

    def streamed(self, body: dict[str, Any]) -> dict[str, Any]:
        """The usage of a streamed reply."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with self.http.stream("POST", f"{self.url}/chat/completions", json=asked) as reply:
            lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: {")]
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def tokens(self, body: dict[str, Any]) -> int:
        """The tokens of the prompt with whole images."""
        plain = {name: body[name] for name in ("model", "messages")}
        return int(self.http.post(f"{self.url.removesuffix('/v1')}/tokenize", json=plain).json()["count"])


def samples(number: int) -> list[Any]:
    """(image, question) of forms, charts and infographics in turn, two questions a page."""
    each = -(-number // 3)
    kinds = [synthetic.samples(name, "test", each, per_page=1) for name in ("forms", "charts", "infographics")]
    mixed = ((page.image, question.text) for three in zip(*kinds, strict=False) for page, question in three)
    return list(islice(mixed, number))


def counts(vllm: Asker, number: int) -> list[list[Any]]:
    """Prompt tokens against budgets plus text."""
    dice, asked = random.Random(1), [(fit(image, 448, FAMILY).image, question) for image, question in samples(number)]

    def one(at: int, budgets: list[int | None], selector: str) -> bool:
        images = [asked[at][0], asked[(at + 7) % number][0]][: len(budgets)]
        own: Any = budgets if len(budgets) > 1 else budgets[0]
        body = vllm.body(images, asked[at][1], 4, stakes_budget=own, stakes_selector=selector)
        natives = [count_tokens(FAMILY, *image.size, min_pixels=12544, max_pixels=1019200) for image in images]
        text = vllm.tokens(body) - sum(natives)
        usage = (vllm.streamed if at % 3 == 0 else vllm.ask)(body)["usage"]
        due = sum(native if budget is None else budget for native, budget in zip(natives, budgets, strict=True))
        return bool(usage["prompt_tokens"] == text + due)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        jobs = []
        for at in range(number):
            own: list[int | None] = [dice.choice(BUDGETS[:-1]) for _ in range(2 if at % 5 == 0 else 1)]
            if at % 10 == 0:
                own = [own[0], None]
            jobs.append(pool.submit(one, at, own, dice.choice(IMAGE_ONLY)))
        equal = sum(job.result() for job in jobs)
    return [["prompt tokens are the budgets plus the text", f"{equal} of {number}"]]


def answers(vllm: Asker, number: int) -> list[list[Any]]:
    """Answers against local deletion."""
    local, dice = load("embedded"), random.Random(2)
    chosen = [(dice.choice(BUDGETS), dice.choice(IMAGE_ONLY)) for _ in range(number)]
    asked = list(zip(samples(number), chosen, strict=True))
    ours = local.answer([
        Request(image, question, budget, "deletion", selector, "seed")
        for (image, question), (budget, selector) in asked
    ])  # fmt: skip
    bodies = [
        vllm.body([image], question, local.max_new_tokens, stakes_budget=b, stakes_selector=s, stakes_sample="seed")
        for (image, question), (b, s) in asked
    ]
    with ThreadPoolExecutor(4) as pool:
        theirs = [one["choices"][0]["message"]["content"].strip() for one in pool.map(vllm.ask, bodies)]
    for own, other, ((_, question), how) in zip(ours, theirs, asked, strict=True):
        if own.text != other:
            print(json.dumps({"local": own.text, "vllm": other, "question": question, "how": how}), flush=True)
    same = sum(own.text == other for own, other in zip(ours, theirs, strict=True))
    return [["answers equal those of local deletion", f"{same} of {number}"]]


def plain(vllm: Asker, number: int) -> list[list[Any]]:
    """Answers without a budget, one at a time; compared at the second call, which asks the vLLM with the plugin.

    Each has a salt of its own, so that vLLM computes every prompt whole.
    """
    found = []
    for at, (image, question) in enumerate(samples(number)):
        reply = vllm.ask({**vllm.body([image], question, 24), "logprobs": True, "cache_salt": f"plain {at}"})
        choice = reply["choices"][0]
        found.append([choice["message"]["content"], [one["logprob"] for one in choice["logprobs"]["content"]],
                      reply["usage"]["prompt_tokens"]])  # fmt: skip
    if "plain" not in LIVE:
        LIVE["plain"] = found
        return []
    before = LIVE["plain"]
    text = sum(one[0] == other[0] for one, other in zip(before, found, strict=True))
    bits = sum(one == other for one, other in zip(before, found, strict=True))
    return [
        ["without a budget, answers equal those of vLLM without the plugin", f"{text} of {number}"],
        ["… and so do all log-probabilities, bit for bit", f"{bits} of {number}"],
    ]


def cpu_seconds() -> float:
    """CPU time so far of the vLLM that this process has started, all of its processes together."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            name, _, rest = path.read_text("utf-8", "replace").rpartition(")")
            stats.append((int(name.split()[0]), [int(word) for word in rest.split()[1:14]]))
    leaders = {pid for pid, (parent, _, session, *_) in stats if parent == os.getpid() and session == pid}
    if not leaders:
        raise SystemExit("throughput is by the CPU time of a vLLM that is started here: give --engine")
    ticks = sum(values[10] + values[11] for _, values in stats if values[2] in leaders)
    return ticks / os.sysconf("SC_CLK_TCK")


def throughput(vllm: Asker, number: int) -> list[list[Any]]:
    """Requests per CPU second in rounds, as multiples of those with whole images; the first round warms up.

    Every round has pages of its own, so that no cache helps.
    """
    ways = (("native", None), ("deletion", 304), ("resizing", 304), ("deletion", 32), ("resizing", 32))
    ratios: dict[tuple[str, int | None], list[float]] = {way: [] for way in ways}
    at, per_round = 0, max(1, number // ROUNDS)
    for turn in range(ROUNDS + 1):
        spent = {}
        for how, budget in ways:
            bodies = []
            for page in (synthetic.draw("forms", 5000 + at + n, "test") for n in range(per_round if turn else 1)):
                image, question = page.image, page.questions[0].text
                own = {"stakes_budget": budget} if how == "deletion" else {}
                shown = fit(image, budget, FAMILY).image if how == "resizing" and budget else image
                bodies.append(vllm.body([shown], question, 8, **own))
            at += len(bodies)
            began = cpu_seconds()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(vllm.ask, bodies))
            spent[how, budget] = cpu_seconds() - began
        print({f"{how} {budget}": round(seconds, 2) for (how, budget), seconds in spent.items()}, file=sys.stderr)
        for way in ways if turn else ():
            ratios[way].append(spent["native", None] / spent[way])
    rows: list[list[Any]] = []
    for (how, budget), found in ratios.items():
        if budget is not None:
            rows.append([f"requests per CPU second, {how} {budget}", round(statistics.median(found), 2)])
            rows.append([f"… in {ROUNDS} rounds, {how} {budget}", f"{min(found):.2f} to {max(found):.2f}"])
    return rows


PARTS: dict[str, tuple[Callable[..., list[list[Any]]], int]] = {
    "plain": (plain, 100), "counts": (counts, 200), "answers": (answers, 100), "policy": (served_policy, 300),
    "throughput": (throughput, 40),
}  # fmt: skip


def write(path: Path, rows: list[list[Any]]) -> None:
    """Put rows into the results file; those of parts that were run before stay."""
    before = json.loads(path.read_text("utf-8"))["tables"]["vllm-deletion"]["rows"] if path.exists() else []
    new = {what for what, _ in rows}
    table = {"columns": ["what", "found"], "rows": [row for row in before if row[0] not in new] + rows, "findings": []}
    record = {"model": "embedded", "about": about("torch", "transformers"), "tables": {"vllm-deletion": table}}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Parse, run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", help="a command that serves CHECKPOINT on PORT")
    parser.add_argument("--url", help="a server that runs already with the plugin")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--policy", type=Path, help="for the part policy: one that was calibrated before")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests, for a quick look")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if (given.engine is None) == (given.url is None):
        parser.error("give --engine or --url")
    names = given.parts.split(",")
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        url = given.url
        if url is None:
            if "plain" in names:
                with vllm(given.engine, free_port(), Path(folder) / "stock.log") as stock:
                    plain(Asker(stock), max(1, round(100 * given.share)))
            site = with_plugin(Path(folder) / "site")
            url = stack.enter_context(vllm(given.engine, free_port(), Path(folder) / "log", TRUST, site=site))
        for name in names:
            part, number = PARTS[name]
            began = time.monotonic()
            asked = max(1, round(number * given.share))
            found = part(url, asked, given.policy) if name == "policy" else part(Asker(url), asked)
            for row in found:
                print(*row, sep=": ", flush=True)
            print(f"({name}: {time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            if given.out is not None:
                write(given.out, found)


if __name__ == "__main__":
    main()
