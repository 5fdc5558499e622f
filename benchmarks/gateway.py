"""Measures what the gateway costs: text and page images through it, next to a bare proxy with the same client.

    python benchmarks/gateway.py                       # a few seconds each
    python benchmarks/gateway.py --seconds 5 --at-once 64

Bare is starlette and aiohttp's client and nothing else. Both run in separate processes in front of the same stub, with
the same event loop and HTTP parser, and alternate round by round, so that a busy machine slows both. Rates on a shared
machine vary, so the CPU time of each process per request is printed as well, and the limit is on that: text at most 1.5
times bare. A page image is decoded, fitted and encoded, which bare does not do: its row shows what that costs, and
observe what the rest costs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

LIMIT = 1.5
QUESTION = "What is the invoice total, and on which date is it due? " * 8


class Stub(asyncio.Protocol):
    """An upstream that answers every request at once."""

    _reply = json.dumps(
        {
            "id": "c", "object": "chat.completion", "created": 1, "model": "stub",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "42"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 13},
        }
    ).encode()  # fmt: skip
    _answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_reply) + _reply

    def connection_made(self, transport: Any) -> None:
        """Start a connection."""
        self._transport, self._data, self._need = transport, bytearray(), -1

    def data_received(self, data: bytes) -> None:
        """Answer every complete request."""
        self._data += data
        while True:
            if self._need < 0:
                end = self._data.find(b"\r\n\r\n")
                if end < 0:
                    return
                head = bytes(self._data[:end]).lower()
                _, found, rest = head.partition(b"content-length:")
                self._need = end + 4 + (int(rest.split(b"\r\n")[0]) if found else 0)
            if len(self._data) < self._need:
                return
            del self._data[: self._need]
            self._need = -1
            self._transport.write(self._answer)


def bare(upstream: str) -> Any:
    """The simplest proxy."""
    import aiohttp
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    left_out = {"host", "connection", "content-length", "transfer-encoding"}

    @asynccontextmanager
    async def life(app: Starlette) -> Any:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(auto_decompress=False, connector=connector) as app.state.session:
            yield

    async def forward(request: Request) -> Response:
        headers = {name: value for name, value in request.headers.items() if name not in left_out}
        body, session = await request.body(), request.app.state.session
        answer = await session.request(request.method, upstream + request.url.path, data=body, headers=headers)

        async def parts() -> Any:
            async with answer:
                async for part in answer.content.iter_any():
                    yield part

        passed = {name: value for name, value in answer.headers.items() if name.lower() not in left_out}
        return StreamingResponse(parts(), answer.status, passed)

    return Starlette(routes=[Route("/{path:path}", forward, methods=["GET", "POST"])], lifespan=life)


def role(name: str, port: int, upstream: str) -> None:
    """Run one of the processes."""
    import uvicorn
    import uvloop

    if name == "stub":

        async def answer() -> None:
            server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", port)
            await server.serve_forever()

        uvloop.run(answer())
    elif name == "bare":
        uvicorn.run(bare(upstream), host="127.0.0.1", port=port, log_level="error", loop="uvloop", http="httptools")
    else:
        from stakes.cli import main as stakes

        budgets = ["--budget", "high=576", "--budget", "low=64", "--no-probe"]
        stakes(["serve", *budgets, "--mode", name, "--upstream", f"{upstream}/v1", "--port", str(port)])


def free_port() -> int:
    """A free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def process(name: str, upstream: str = "") -> Iterator[tuple[int, int]]:
    """A role as a process: (its id, its port)."""
    port = free_port()
    command = [sys.executable, __file__, "--role", name, "--port", str(port), "--upstream", upstream]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            for _ in range(1200):
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield running.pid, port
        finally:
            running.terminate()


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Processes that are started inside run on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        numbers = file.read().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def request(body: bytes) -> bytes:
    """A POST as the official client writes it."""
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\naccept: application/json\r\n"
        "user-agent: OpenAI/Python\r\nauthorization: Bearer k\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def page_body(seed: int) -> bytes:
    """A question about a synthetic page."""
    from stakes.data import synthetic as pages

    out = io.BytesIO()
    pages.draw("forms", seed, "test").image.save(out, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is the total?"}]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()


@dataclass
class Round:
    """The numbers of one round."""

    rate: float
    cpu_ms: float
    p50: float
    p99: float


async def load(port: int, bodies: list[bytes], at_once: int, seconds: float) -> list[float]:
    """Milliseconds of every request, over ``at_once`` connections without pauses."""
    took: list[float] = []
    requests = [request(body) for body in bodies]

    async def client(place: int, ends: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < ends:
            began = time.perf_counter()
            writer.write(requests[place % len(requests)])
            place += 1
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not head.startswith(b"http/1.1 200"):
                raise SystemExit(f"a request failed: {head[:200]!r}")
            if b"content-length:" in head:
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
            else:
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    await reader.readexactly(size + 2)
                await reader.readexactly(2)
            took.append(1000 * (time.perf_counter() - began))
        writer.close()

    ends = time.perf_counter() + seconds
    await asyncio.gather(*(client(place, ends) for place in range(at_once)))
    return took


def one_round(pid: int, port: int, bodies: list[bytes], at_once: int, seconds: float) -> Round:
    """Load one process for some seconds."""
    import uvloop

    before, began = cpu_seconds(pid), time.perf_counter()
    took = sorted(uvloop.run(load(port, bodies, at_once, seconds)))
    spent = cpu_seconds(pid) - before
    wall = time.perf_counter() - began
    return Round(len(took) / wall, 1000 * spent / len(took), took[len(took) // 2], took[int(0.99 * len(took))])


def main() -> None:
    """Print the table; the exit status is 1 where the limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--upstream", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role(options.role, options.port, options.upstream)
        return
    text = [json.dumps({"model": "m", "messages": [{"role": "user", "content": QUESTION}]}).encode()]
    pages = [page_body(seed) for seed in range(3)]
    rounds: dict[tuple[str, str], list[Round]] = {}
    with ExitStack() as stack:
        _, stub = stack.enter_context(process("stub"))
        upstream = f"http://127.0.0.1:{stub}"
        roles = {name: stack.enter_context(process(name, upstream)) for name in ("bare", "enforce", "observe")}
        for pid, port in roles.values():
            one_round(pid, port, text, 4, 0.3)  # warm up
        for _ in range(options.rounds):
            for what, bodies, at_once in (("text", text, options.at_once), ("page", pages, 4)):
                for name, (pid, port) in roles.items():
                    done = one_round(pid, port, bodies, at_once, options.seconds)
                    rounds.setdefault((what, name), []).append(done)
    print(f"{'':6}{'proxy':<10}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms each':>13}{'to bare':>9}")
    ratios = {}
    for (what, name), seen in rounds.items():
        best = Round(
            *(statistics.median(getattr(one, part) for one in seen) for part in ("rate", "cpu_ms", "p50", "p99"))
        )
        against = statistics.median(one.cpu_ms for one in rounds[what, "bare"])
        ratios[what, name] = best.cpu_ms / against
        print(
            f"{what:6}{name:<10}{best.rate:>11.0f}{best.p50:>9.2f}{best.p99:>9.2f}{best.cpu_ms:>13.3f}"
            f"{best.cpu_ms / against:>8.2f}x"
        )
    worst = max(ratios["text", name] for name in ("enforce", "observe"))
    print(f"text through the gateway costs {worst:.2f} times bare (limit {LIMIT})")
    sys.exit(worst > LIMIT)


if __name__ == "__main__":
    main()
