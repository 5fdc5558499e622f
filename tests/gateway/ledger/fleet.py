"""Gateways behind a real HAProxy with one ledger, an upstream that counts, and load in adversarial orders.

    async with fleet(folder, ledger=["--ledger", url], count=4) as one:
        await one.load.send(orders(1000))
        assert one.load.over == 0

Each request is sent once and never again, so that ``sent`` counts every image that a gateway may have granted, also one
whose gateway was killed before it forwarded it. At each arrival the tokens so far may be at most mean times ``sent``,
plus the burst; whenever nothing is under way and nothing failed, that is the exact bound.
"""

import asyncio
import base64
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path

import aiohttp
import pytest
from PIL import Image
from tests.gateway.ledger.servers import free_port

from stakes import count_tokens

HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed: apt-get install haproxy")
HIGH, LOW, MEAN, BURST, NATIVE = 64, 16, 32, 1024, 280
OPTIONS = ("--budget", f"high={HIGH}", "--budget", f"low={LOW}", "--mean-budget", str(MEAN), "--burst", str(BURST))
AT_ONCE = 24
FAMILY = "qwen2.5-vl"
_REPLY = json.dumps({"id": "c", "object": "chat.completion", "model": "stub", "choices": []}).encode()
Batch = list[tuple[str, str]]  # (tier, gateway that gets it or "")


def orders(images: int, seed: int = 0) -> Iterator[Batch]:
    """Batches that are hard for a shared budget; taken together they demand half as much again as the mean pays for."""
    dice, part = random.Random(seed), max(8, images // 8)
    yield [("low", "")] * part
    yield [("high", "")] * part
    for _ in range(4):
        yield []  # a pause
        yield [("high", "")] * (part // 4)
    yield [("high", "g0") if number % 2 else ("low", "g1") for number in range(part)]
    yield [("high", f"g{number * 4 // part}") for number in range(part)]
    yield [("high" if number % 2 else "low", "") for number in range(part)]
    for _ in range(2):
        yield [("high" if dice.random() < 0.8 else "low", "") for _ in range(part)]


class Load:
    """Clients and upstream in one event loop: what was sent, what arrived, and how far that was over the bound."""

    def __init__(self, seed: int = 0) -> None:
        self.sent = self.arrived = self.tokens = self.failed = 0
        self.over = 0  # at any arrival, by what was sent
        self.over_at_rest = 0  # by what arrived, whenever nothing was under way and nothing had failed
        self.over_by_arrival = 0  # at any arrival, by what had arrived: no guarantee, as savings may arrive later
        self.latencies: list[float] = []
        self.address, self._dice, self._count = "", random.Random(seed), asyncio.Semaphore(AT_ONCE)

    @property
    def limit(self) -> int:
        """The most tokens for what was sent."""
        return MEAN * self.sent + BURST

    async def send(self, batches: Iterator[Batch]) -> None:
        """Send batch after batch; each is under way at once, and over before the next."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for batch in batches:
                await asyncio.gather(*(self._one(session, tier, to) for tier, to in batch))
                if not batch:
                    await asyncio.sleep(1.0)
                if not self.failed:
                    assert self.sent == self.arrived
                    self.over_at_rest = max(self.over_at_rest, self.tokens - MEAN * self.arrived - BURST)

    async def _one(self, session: aiohttp.ClientSession, tier: str, to: str) -> None:
        async with self._count:
            headers = {"x-stakes-tier": tier, "x-to": to, "content-type": "application/json"}
            body, began = self._body(), time.perf_counter()
            self.sent += 1
            try:
                async with session.post(f"{self.address}/v1/chat/completions", data=body, headers=headers) as answer:
                    await answer.read()
                    self.failed += answer.status != 200
            except (aiohttp.ClientError, TimeoutError):
                self.failed += 1
            self.latencies.append(time.perf_counter() - began)

    def _body(self) -> bytes:
        page = Image.new("L", (NATIVE, NATIVE), 255)
        for _ in range(4):  # each image is another one, or it would keep its size
            page.putpixel((self._dice.randrange(NATIVE), self._dice.randrange(NATIVE)), self._dice.randrange(255))
        file = io.BytesIO()
        page.save(file, "PNG", compress_level=1)
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is the total?"}]
        return json.dumps({"model": "stub", "messages": [{"role": "user", "content": parts}]}).encode()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The upstream: it counts the tokens of each image."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"content-length:"), 0)
                self._arrive(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
                    len(_REPLY), _REPLY))  # fmt: skip
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _arrive(self, body: bytes) -> None:
        at = body.find(b";base64,")
        if at < 0:
            return
        header = base64.b64decode(body[at + 8 : at + 40])
        self.arrived += 1
        self.tokens += _tokens(*struct.unpack(">II", header[16:24]))
        self.over = max(self.over, self.tokens - self.limit)
        self.over_by_arrival = max(self.over_by_arrival, self.tokens - MEAN * self.arrived - BURST)


@lru_cache
def _tokens(width: int, height: int) -> int:
    return count_tokens(FAMILY, width, height)


class GatewayProcess:
    """One ``stakes serve`` on a port of its own, which can be killed and started again."""

    def __init__(self, options: list[str], log: Path, env: Mapping[str, str]) -> None:
        self.port, self._log, self._env = free_port(), log, {**os.environ, **env}
        self._command = [sys.executable, "-m", "stakes", "serve", "--port", str(self.port), "--no-probe", *options]
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.running = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._env)

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait()

    async def ready(self, seconds: float = 120) -> None:
        """Wait until it answers."""
        ends = time.monotonic() + seconds
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < ends:
                try:
                    async with session.get(f"http://127.0.0.1:{self.port}/healthz"):
                        return
                except aiohttp.ClientError:
                    assert self.running is not None
                    assert self.running.poll() is None, self._log.read_text("utf-8")
                    await asyncio.sleep(0.1)
        raise TimeoutError(self._log.read_text("utf-8"))

    async def metric(self, name: str) -> float:
        """One of its metrics."""
        async with aiohttp.ClientSession() as session:
            text = await (await session.get(f"http://127.0.0.1:{self.port}/metrics")).text()
        lines = [line for line in text.splitlines() if line.startswith(f"stakes_{name}")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def cpu_s(self) -> float:
        """Processor seconds of the process and those that it started, so far."""
        assert self.running is not None
        own = self.running.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in (own, *children)]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


class RunningFleet:
    """Gateways, the proxy before them and the load on them."""

    def __init__(self, load: Load, gateways: list[GatewayProcess]) -> None:
        self.load, self.gateways = load, gateways

    @property
    def used(self) -> float:
        """The part of the budget that was spent."""
        return self.load.tokens / self.load.limit


@asynccontextmanager
async def fleet(
    folder: Path, options: list[str], count: int = 4, env: Mapping[str, str] | None = None
) -> AsyncIterator[RunningFleet]:
    """So many gateways with these options behind HAProxy; ``env``: more of their environment."""
    load = Load()
    server = await asyncio.start_server(load.connected, "127.0.0.1", 0, limit=1 << 24)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    given = [*OPTIONS, "--upstream", upstream, "--connect-timeout", "30", *options]
    gateways = [GatewayProcess(given, folder / f"gateway-{number}.log", env or {}) for number in range(count)]
    proxy: subprocess.Popen[bytes] | None = None
    try:
        for one in gateways:
            one.start()
        await asyncio.gather(*(one.ready() for one in gateways))
        port = free_port()
        (folder / "haproxy.cfg").write_text(_haproxy(port, [one.port for one in gateways]))
        assert HAPROXY is not None
        with (folder / "haproxy.log").open("wb") as log:
            proxy = subprocess.Popen([HAPROXY, "-db", "-f", str(folder / "haproxy.cfg")], stdout=log, stderr=log)
        load.address = f"http://127.0.0.1:{port}"
        await asyncio.sleep(1.0)
        yield RunningFleet(load, gateways)
    finally:
        for each in gateways:
            each.kill()
        if proxy is not None:
            proxy.send_signal(signal.SIGKILL)
            proxy.wait()
        server.close()


def _haproxy(port: int, ports: list[int]) -> str:
    """Requests in turn to the gateways that answer, each once; the header x-to chooses one."""
    servers = [f"  server g{number} 127.0.0.1:{one} check inter 500ms fall 2" for number, one in enumerate(ports)]
    chosen = [f"  use-server g{number} if {{ req.hdr(x-to) g{number} }}" for number in range(len(ports))]
    return "\n".join(
        [
            "defaults", "  mode http", "  timeout connect 5s", "  timeout client 60s", "  timeout server 60s",
            "  retries 0", "frontend front", f"  bind 127.0.0.1:{port}",
            "  default_backend gateways", "backend gateways", "  balance roundrobin",
            "  option httpchk GET /healthz", *chosen, *servers, "",
        ]
    )  # fmt: skip
