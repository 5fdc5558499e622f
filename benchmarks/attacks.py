"""Attacks on a gateway beside an honest client: how long that one waits, how long the event loop stalls, memory.

    python benchmarks/attacks.py                               # make test-attacks; exits with 1 where a limit is broken
    python benchmarks/attacks.py --only "pixels within the limits"

``stakes serve --fail open --pdf render --trim`` runs in a process of its own before a stub that answers at once. Each
attack lasts ``--seconds``. Beside it an honest client sends a page twice a second, and another asks for ``/healthz``
fifty times a second; the longest answer of the latter is the stall, and includes what the machine makes it wait.
Limits:

    an honest page is answered within 5 s, always; no stall over 250 ms; resident memory under 1 GB
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import gzip
import io
import json
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.gateway import free_port
from benchmarks.soak import STUB, policy
from tests.gateway.pdfs import written

HONEST_S, STALL_MS, MEMORY_MB = 5.0, 250, 1000
PATH, JSON = "/v1/chat/completions", {"content-type": "application/json"}
ZIPPED = {**JSON, "content-encoding": "gzip"}


def url(image: Image.Image, kind: str, **options: object) -> str:
    """An image as a data URL."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(out.getvalue()).decode()


def asking(urls: list[str], question: str = "What is the total?") -> bytes:
    """A chat completion with these images."""
    parts = [{"type": "image_url", "image_url": {"url": one}} for one in urls]
    content = [*parts, {"type": "text", "text": question}]
    return json.dumps({"model": "stub", "messages": [{"role": "user", "content": content}]}).encode()


def slow_pdf() -> bytes:
    """A chat completion with a PDF of 10 KB that takes half a minute to draw: lines across the page, 100,000 times."""
    lines = zlib.compress(b"0 0 m 600 800 l 0 800 l 600 0 l S\n" * 100_000)
    pdf = written(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R>>",
            b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(lines), lines),
        ]
    )
    data = "data:application/pdf;base64," + base64.b64encode(pdf).decode()
    content = [{"type": "file", "file": {"filename": "a.pdf", "file_data": data}}, {"type": "text", "text": "Total?"}]
    return json.dumps({"model": "stub", "messages": [{"role": "user", "content": content}]}).encode()


@dataclass
class Target:
    """The gateway's address, and what the attacker and the others saw."""

    port: int
    http: httpx.AsyncClient
    until: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)

    async def post(self, body: bytes, headers: dict[str, str] = JSON) -> None:
        """Send one request of an attack."""
        try:
            reply = await self.http.post(f"http://127.0.0.1:{self.port}{PATH}", content=body, headers=headers)
            self.statuses[str(reply.status_code)] += 1
        except httpx.TransportError as error:
            self.statuses[type(error).__name__] += 1

    async def flood(self, body: bytes, at_once: int, headers: dict[str, str] = JSON) -> None:
        """Send a request again and again, some at a time, without minding what comes back."""

        async def one() -> None:
            while time.monotonic() < self.until:
                await self.post(body, headers)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(one() for _ in range(at_once)))

    async def stay_open(self, head: bytes, part: bytes, connections: int) -> None:
        """Open connections, send the head and a part of the body, and never the rest."""
        open_ones = []
        for _ in range(connections):
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(head)
                open_ones.append((reader, writer))
        for start in range(0, len(part), 1 << 20):
            for _, writer in open_ones:
                with suppress(OSError):
                    writer.write(part[start : start + (1 << 20)])
            await asyncio.sleep(0.05)
        await asyncio.sleep(max(0.0, self.until - time.monotonic()))
        for reader, writer in open_ones:
            with suppress(OSError, TimeoutError):
                line = await asyncio.wait_for(reader.readline(), 0.01)
                self.statuses[line.decode()[9:12] or "closed"] += 1
            writer.close()


def attacks() -> dict[str, Callable[[Target], Awaitable[None]]]:
    """Every attack by name."""
    webp = url(Image.new("L", (9430, 9430)), "WEBP", lossless=True)  # 89 megapixels in 40 bytes
    png = url(Image.new("RGB", (5000, 4990)), "PNG")
    scans = url(Image.effect_noise((3000, 3000), 60).convert("RGB"), "JPEG", progressive=True, quality=95)
    arrays = gzip.compress(b'{"messages": "image_url", "x": ' + b"[" * (32 << 20) + b"]" * (32 << 20) + b"}")
    objects = gzip.compress(b'{"messages": "image_url", "x": [' + b"{}," * (20 << 20) + b"{}]}")
    question = gzip.compress(asking([png], "What is the total? " * 3_000_000))
    text = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "word " * (12 << 20)}]}).encode())
    escapes = gzip.compress(asking([png]).replace(b"/", b"\\/") + b"\\" * (60 << 20))
    head = f"POST {PATH} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 66000000\r\n\r\n"
    half = b'{"messages": "image_url' + b"x" * (62 << 20)
    alpha = url(Image.new("RGBA", (7000, 7000), (9, 9, 9, 9)), "PNG")
    deep = url(Image.new("F", (3900, 3900)), "TIFF", compression="tiff_adobe_deflate")
    return {
        "nothing": lambda _: asyncio.sleep(0),
        "two requests of 50 pixel bombs": lambda t: t.flood(asking([webp] * 50), 2),
        "pixels within the limits": lambda t: t.flood(asking([webp] * 2), 40),
        "pages of 25 megapixels": lambda t: t.flood(asking([png]), 40),
        "large PNGs with alpha": lambda t: t.flood(asking([alpha] * 4), 8),
        "TIFFs of floats": lambda t: t.flood(asking([deep] * 4), 8),
        "progressive JPEGs": lambda t: t.flood(asking([scans] * 2), 16),
        "PDFs that take long to draw": lambda t: t.flood(slow_pdf(), 16),
        "nested arrays in gzip": lambda t: t.flood(arrays, 4, ZIPPED),
        "many objects in gzip": lambda t: t.flood(objects, 4, ZIPPED),
        "a question of 60 MB in gzip": lambda t: t.flood(question, 4, ZIPPED),
        "a text of 60 MB in gzip": lambda t: t.flood(text, 4, ZIPPED),
        "backslashes in gzip": lambda t: t.flood(escapes, 4, ZIPPED),
        "30 bodies that never end": lambda t: t.stay_open(head.encode(), half, 30),
        "500 heads that never end": lambda t: t.stay_open(b"POST / HTTP/1.1\r\nx: ", b"", 500),
    }


class Gateway:
    """``stakes serve`` and its stub."""

    def __init__(self, folder: Path) -> None:
        stub, self.port = free_port(), free_port()
        (folder / "policy.json").write_text(policy(192, 64))
        self._stub = subprocess.Popen([sys.executable, str(STUB), "--port", str(stub)])
        serve = ["serve", "--policy", str(folder / "policy.json"), "--upstream", f"http://127.0.0.1:{stub}/v1"]
        more = ["--port", str(self.port), "--no-probe", "--fail", "open", "--pdf", "render", "--trim"]
        with (folder / "gateway.log").open("wb") as log:
            command = [sys.executable, "-m", "stakes", *serve, *more]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        for _ in range(600):
            with suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/healthz", trust_env=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise SystemExit("the gateway did not start within a minute")

    def memory_mb(self, which: str = "VmHWM") -> float:
        """Its largest resident memory so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024

    def stop(self) -> None:
        """Stop both."""
        self.process.send_signal(signal.SIGTERM)
        for one in (self.process, self._stub):
            with suppress(subprocess.TimeoutExpired):
                one.wait(5)
            one.kill()
            one.wait()


async def honest(target: Target, page: bytes) -> list[float]:
    """Seconds until each of an honest client's pages was answered; infinity where it was refused."""
    times = []
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        while time.monotonic() < target.until:
            began = time.monotonic()
            reply = await http.post(f"http://127.0.0.1:{target.port}{PATH}", content=page, headers=JSON)
            times.append(time.monotonic() - began if reply.status_code == 200 else float("inf"))
            await asyncio.sleep(0.5)
    return times


HEALTH = """
import http.client, sys, time
port, seconds, longest = int(sys.argv[1]), float(sys.argv[2]), 0.0
until = time.monotonic() + seconds
while time.monotonic() < until:
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    connection.close()
    longest = max(longest, time.monotonic() - began)
    time.sleep(0.02)
print(longest)
"""


async def run(name: str, attack: Callable[[Target], Awaitable[None]], seconds: float, page: bytes) -> bool:
    """One attack on a fresh gateway; whether the limits held."""
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder))
        limits = httpx.Limits(max_connections=200)
        try:
            async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as http:
                await http.post(f"http://127.0.0.1:{gateway.port}{PATH}", content=page, headers=JSON)  # imports
                target = Target(gateway.port, http, time.monotonic() + seconds)
                command = (sys.executable, "-c", HEALTH, str(gateway.port), str(seconds))
                asks = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
                times, _ = await asyncio.gather(honest(target, page), attack(target))
                stall_ms = 1000 * float((await asks.communicate())[0])
            memory = gateway.memory_mb()
        finally:
            gateway.stop()
    ends = ", ".join(f"{status} x{count}" for status, count in target.statuses.most_common(4))
    held = max(times) <= HONEST_S and stall_ms <= STALL_MS and memory < MEMORY_MB
    numbers = f"{len(times):3} pages, slowest {max(times):5.2f} s  stall {stall_ms:5.0f} ms  memory {memory:5.0f} MB"
    print(f"{name:32} {numbers}  {'held  ' if held else 'BROKEN'} attacker: {ends}", flush=True)
    return held


def main() -> None:
    """Run the attacks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each attack (default 15)")
    parser.add_argument("--only", help="one attack by its name")
    given = parser.parse_args()
    page = asking([url(Image.effect_noise((1240, 1754), 40).convert("RGB"), "JPEG")])
    chosen = {name: attack for name, attack in attacks().items() if given.only in (None, name)}
    held = [asyncio.run(run(name, attack, given.seconds, page)) for name, attack in chosen.items()]
    if not held or not all(held):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
