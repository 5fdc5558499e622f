"""One budget over four gateways behind HAProxy, with faults: tokens over the total, use of it, and what it costs.

    make test-fleet                                        # or: python benchmarks/fleet.py --requests 4000 --only kill
    python benchmarks/fleet.py --requests 20000 --out docs/results/fleet.json

Scenarios: nothing fails; kill -9 of random gateways, ten times; Redis killed and started again (AOF, every second);
Redis stopped for 30 s; a failover to a replica that lacks the last second; clocks that jump by an hour. Load goes on
throughout, in adversarial orders (``tests.gateway.ledger.fleet``); the bound is checked at every arrival. Then: calls
of Redis for 1,000 requests, latency next to the memory ledger, and processor time with 1, 2 and 4 processes.
Needs redis-server, haproxy and cc.
"""

import argparse
import asyncio
import json
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import about
from tests.gateway.ledger.fleet import RunningFleet, fleet, orders
from tests.gateway.ledger.servers import Server, free_port, redis_server, relay

AOF = ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec")
SHIM = Path(__file__).with_name("clock_shim.c")
Fault = Callable[[RunningFleet, Server], Coroutine[Any, Any, None]]


async def nothing(_: RunningFleet, __: Server) -> None:
    """No fault."""


async def kill(one: RunningFleet, __: Server) -> None:
    """Kill a random gateway ten times, at random moments, and start it again."""
    dice = random.Random(1)
    for _ in range(10):
        await asyncio.sleep(dice.uniform(0.3, 3.0))
        gateway = dice.choice(one.gateways)
        gateway.kill()
        gateway.start()
        await gateway.ready()


async def restart(__: RunningFleet, server: Server) -> None:
    """Kill Redis and start it again, three times."""
    for _ in range(3):
        await asyncio.sleep(5)
        server.kill()
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start)


async def partition(__: RunningFleet, server: Server) -> None:
    """Redis does not answer for 30 s."""
    await asyncio.sleep(5)
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(30)
    server.process.send_signal(signal.SIGCONT)
    await asyncio.sleep(5)


async def run(name: str, requests: int, folder: Path) -> dict[str, Any]:
    """One scenario: load until the fault is over and all requests are sent."""
    faults: dict[str, Fault] = {"calm": nothing, "kill": kill, "restart": restart, "partition": partition}
    async with _started(name, folder) as (one, server, special):
        fault = asyncio.create_task(special() if special else faults[name](one, server))
        before, began, rounds = _calls(server) if name == "calm" else 0, time.monotonic(), 0
        while rounds == 0 or not fault.done():
            rounds += 1
            await one.load.send(orders(requests, rounds))
        await fault
        load = one.load
        found = {
            "scenario": name, "images": load.sent, "arrived": load.arrived, "failed": load.failed,
            "tokens": load.tokens, "limit": load.limit, "over": max(load.over, load.over_at_rest),
            "over_by_arrival": load.over_by_arrival,
            "used": round(one.used, 4), "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        if name == "calm":
            found["redis_calls_per_1000"] = round(1000 * (_calls(server) - before) / load.sent, 1)
        lost = [await gateway.metric('controller{name="ledger_lost"}') for gateway in one.gateways]
        return {**found, "lost": sum(lost)}


def _calls(server: Server) -> int:
    stats = server.client.info("commandstats")
    return sum(int(stats[name]["calls"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)


@asynccontextmanager
async def _started(
    name: str, folder: Path
) -> AsyncIterator[tuple[RunningFleet, Server, Callable[[], Coroutine[Any, Any, None]] | None]]:
    """The fleet of a scenario, its Redis, and the fault where it needs more than these."""
    with ExitStack() as stack:
        server = stack.enter_context(redis_server(folder / "redis", *AOF))
        port, env, special = server.port, {}, None
        if name == "failover":
            replica = stack.enter_context(redis_server(folder / "replica", *AOF, "--repl-diskless-sync-delay", "0"))
            replica.client.execute_command("REPLICAOF", "127.0.0.1", server.port)
            between = stack.enter_context(relay(port := free_port()))
            between.port = server.port

            async def special() -> None:
                """Cut the replica off, and a second later let it take over from a server that is killed."""
                await asyncio.sleep(6)
                replica.client.execute_command("REPLICAOF", "NO", "ONE")
                await asyncio.sleep(1)
                server.kill()
                between.port = replica.port
                between.drop()
                await asyncio.sleep(8)

        if name == "clocks":
            clock = folder / "clock"
            clock.write_bytes(struct.pack("l", 0))
            shim = [str(SHIM), "-o", str(folder / "shim.so")]
            subprocess.run(["cc", "-shared", "-fPIC", *shim], check=True)
            env = {"LD_PRELOAD": str(folder / "shim.so"), "FLEET_CLOCK": str(clock)}
            server.kill()
            server.env = env
            server.start()

            async def special() -> None:
                """Clocks of Redis and of all gateways jump there and back."""
                for jump in (3600, -3600, 90, -90, 0, 86400, 0):
                    await asyncio.sleep(3)
                    with clock.open("r+b") as file:
                        file.write(struct.pack("l", jump))
                    assert abs(server.client.time()[0] - time.time() - jump) < 5

        ledger = ["--ledger", f"redis://127.0.0.1:{port}/0"]
        async with fleet(folder, ledger, env=env) as one:
            yield one, server, special


async def latency(folder: Path, requests: int) -> dict[str, Any]:
    """Latency of one request at a time, in memory and with Redis in turn, so that both see the same machine."""
    with redis_server(folder / "redis", *AOF) as server:
        options = {"memory": [], "redis": ["--ledger", server.url]}
        async with (
            fleet(_made(folder / "memory"), options["memory"], 1) as memory,
            fleet(_made(folder / "shared"), options["redis"], 1) as shared,
        ):
            for number in range(requests // 20):
                for one in (memory, shared):
                    for batch in ([("high" if (number + each) % 2 else "low", "")] for each in range(20)):
                        await one.load.send(iter([batch]))
            found = {}
            for name, one in (("memory", memory), ("redis", shared)):
                cuts = statistics.quantiles(one.load.latencies[20:], n=100)
                found[name] = {"p50_ms": round(1000 * cuts[49], 2), "p99_ms": round(1000 * cuts[98], 2)}
            return found


async def processor(folder: Path, requests: int) -> dict[str, Any]:
    """Processor seconds of a request with so many processes of one gateway."""
    found = {}
    for count in (1, 2, 4):
        async with fleet(_made(folder / str(count)), ["--processes", str(count)], 1) as one:
            await one.load.send(orders(200))
            before, sent = one.gateways[0].cpu_s(), one.load.sent
            await one.load.send(orders(requests))
            found[str(count)] = round(1000 * (one.gateways[0].cpu_s() - before) / (one.load.sent - sent), 3)
    return {"ms_per_request": found}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


SCENARIOS = ("calm", "kill", "restart", "partition", "failover", "clocks")


def main() -> int:
    """Run what is asked for; the exit status says whether the total was kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000, help="of calm; the others send a fifth, or more")
    parser.add_argument("--only", nargs="*", choices=[*SCENARIOS, "latency", "processor"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    chosen = args.only or [*SCENARIOS, "latency", "processor"]
    result: dict[str, Any] = {"machine": about(), "tables": {}, "scenarios": []}
    if args.out and args.out.exists():
        result = json.loads(args.out.read_text())
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            if name in SCENARIOS:
                requests = args.requests if name == "calm" else max(800, args.requests // 5)
                found = asyncio.run(run(name, requests, Path(folder)))
                others = [one for one in result["scenarios"] if one["scenario"] != name]
                result["scenarios"] = [*others, found]
            else:
                measure = latency if name == "latency" else processor
                found = asyncio.run(measure(Path(folder), max(400, args.requests // 10)))
                result[name] = found
        print(name, json.dumps(found), flush=True)
        if args.out:
            args.out.write_text(json.dumps(result, indent=1) + "\n")
    rows = result["scenarios"]
    broken = [one["scenario"] for one in rows if one["over"]]
    broken += [one["scenario"] for one in rows if one["scenario"] == "calm" and one["used"] < 0.97]
    if rows:
        worst = min(rows, key=lambda one: float(one["used"]))
        print(f"worst idle share: {1 - worst['used']:.1%} ({worst['scenario']})")
    print("the total was kept" if not broken else f"NOT KEPT: {', '.join(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
