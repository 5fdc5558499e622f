"""Compares the gateway with LiteLLM's proxy: the same stub, images and number of workers, in alternating rounds.

    make test-litellm                                  # makes .venv-litellm
    python benchmarks/litellm_proxy.py                 # about a minute

Three proxies of one process each: the gateway (enforce), LiteLLM with a hook of a few lines of Pillow that does the
same to an image (decode, resize to 576 tokens, encode as PNG) in threads, and LiteLLM with ``stakes.gateway.litellm``.
``bare`` is starlette and aiohttp's client. Added p99 is p99 minus bare's. The limits: text at most a fifth of the CPU
time of LiteLLM, pages at most a third, and at most half its added p99 in both. Proxies run on one core, client and stub
on the others, so that a rate is the proxy's own; ``--shared`` lets all run anywhere. Other load on a shared machine
slows the proxy that is running, so rounds alternate and medians are shown.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.gateway import QUESTION, Round, free_port, on_cores, one_round, page_body, process

LITELLM = Path(__file__).parents[1] / ".venv-litellm/bin/litellm"
LIMITS = {"text": 5.0, "page": 3.0}  # times LiteLLM, by CPU time
CONFIG = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "{upstream}/v1", api_key: k}}
litellm_settings: {{callbacks: hook.hook}}
"""
PILLOW = """
import asyncio, base64, io, math
from PIL import Image
from litellm.integrations.custom_logger import CustomLogger

def fitted(url):
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")
    scale = math.sqrt(576 * 784 / (image.width * image.height))
    if scale < 1:
        image = image.resize([max(28, int(side * scale) // 28 * 28) for side in image.size], Image.Resampling.BICUBIC)
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()

class Hook(CustomLogger):
    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        for message in data.get("messages") or []:
            for part in message["content"] if isinstance(message.get("content"), list) else []:
                if part.get("type") == "image_url":
                    part["image_url"]["url"] = await asyncio.to_thread(fitted, part["image_url"]["url"])
        return data

hook = Hook()
"""
STAKES = """
from stakes.gateway.litellm import Stakes
hook = Stakes("policy.json")
"""
POLICY = {
    "schema": 1, "mean_budget": 576, "floor": 64,
    "tiers": {"high": {"cost": 5, "budget": 576}, "low": {"cost": 1, "budget": 64}},
}  # fmt: skip


@contextmanager
def litellm(upstream: str, hook: str) -> Iterator[tuple[int, int]]:
    """A LiteLLM proxy with a hook: (its process, its port)."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        for name, text in (
            ("config.yaml", CONFIG.format(upstream=upstream)), ("hook.py", hook), ("policy.json", json.dumps(POLICY)),
        ):  # fmt: skip
            Path(home, name).write_text(text)
        command = [str(LITELLM), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--num_workers", "1"]
        environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        with subprocess.Popen(
            command, cwd=home, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            try:
                for _ in range(1800):
                    try:
                        socket.create_connection(("127.0.0.1", port), 1).close()
                        break
                    except OSError:
                        time.sleep(0.1)
                yield running.pid, port
            finally:
                running.terminate()


def medians(rounds: list[Round]) -> Round:
    """The median of every number."""
    return Round(
        *(statistics.median(getattr(one, part) for one in rounds) for part in ("rate", "cpu_ms", "p50", "p99"))
    )


def main() -> None:
    """Print the table and the ratios; the exit status is 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--shared", action="store_true", help="proxies, client and stub share all cores")
    options = parser.parse_args()
    if not LITELLM.exists():
        raise SystemExit("LiteLLM is not installed here; run: make test-litellm")
    text = [json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}]}).encode()]
    pages = [page_body(seed) for seed in range(3)]
    kinds = (("text", text, options.at_once), ("page", pages, 4))
    seen: dict[tuple[str, str], list[Round]] = {}
    every = os.sched_getaffinity(0)
    own = every if options.shared or len(every) < 2 else {min(every)}
    with ExitStack() as stack:
        stack.enter_context(on_cores(every - own or every))  # client and stub
        _, stub = stack.enter_context(process("stub"))
        upstream = f"http://127.0.0.1:{stub}"
        with on_cores(own):
            roles = {name: stack.enter_context(process(name, upstream)) for name in ("bare", "enforce")}
            roles["litellm"] = stack.enter_context(litellm(upstream, PILLOW))
            roles["litellm+us"] = stack.enter_context(litellm(upstream, STAKES))
        for pid, port in roles.values():
            for _, bodies, _ in kinds:
                one_round(pid, port, bodies, 2, 0.5)  # warm up
        for _ in range(options.rounds):
            for what, bodies, at_once in kinds:
                for name, (pid, port) in roles.items():
                    done = one_round(pid, port, bodies, at_once, options.seconds)
                    seen.setdefault((what, name), []).append(done)
    middle = {place: medians(rounds) for place, rounds in seen.items()}
    print(f"{'':6}{'proxy':<12}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms each':>13}")
    for (what, name), one in middle.items():
        print(f"{what:6}{name:<12}{one.rate:>11.1f}{one.p50:>9.2f}{one.p99:>9.2f}{one.cpu_ms:>13.3f}")
    missed = False
    for what, limit in LIMITS.items():
        ours, theirs, bare = (middle[what, name] for name in ("enforce", "litellm", "bare"))
        rate, added = ours.rate / theirs.rate, (ours.p99 - bare.p99) / (theirs.p99 - bare.p99)
        cpu = theirs.cpu_ms / ours.cpu_ms
        missed |= cpu < limit or added > 0.5
        times = f"{cpu:.2f} times LiteLLM by CPU time (limit {limit:g}), {rate:.2f} by rate"
        print(f"{what}: {times}, {added:.2f} of its added p99 (limit 0.5)")
    sys.exit(missed)


if __name__ == "__main__":
    main()
