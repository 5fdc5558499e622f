"""Evaluates a soak test from the clients' ledger, the gateway's state, its memory and its log."""

from __future__ import annotations

import json
import os
import signal
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.soak_load import Ledger

GROWTH, GROWTH_BYTES = 0.05, 8 << 20  # of resident memory, from the second third of a run to the last
UNSEEN = 0.01  # of the tokens: clients that disconnect do not see their budgets
_FAILURES = ("Task", "Unclosed", "Exception")  # first words of the errors of asyncio and aiohttp


@dataclass
class Observations:
    """What was measured during a run; ``wrong``: the violations so far."""

    mean: int
    burst: int
    memory: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checks: int = 0

    def check(self, pid: int, total: dict[str, float]) -> None:
        """Record memory, and check that the running mean holds; ``total``: the controller's state."""
        self.memory.append(resident(pid))
        self.checks += 1
        if total["mean"] * total["images"] > self.mean * total["images"] + self.burst + 1e-6:
            self.wrong.append(f"the mean is {total['mean']:.1f} after {total['images']:.0f} images")


def resident(pid: int) -> int:
    """Resident memory of a process in bytes."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def judge(
    observed: Observations, ledger: Ledger, state: dict[str, Any], log: Path, faults: bool, status: int | None
) -> dict[str, Any]:
    """The numbers of a run and its violations; ``state``: the gateway's at the end, ``status``: its exit status."""
    third = len(observed.memory) // 3
    second, last = statistics.mean(observed.memory[third : 2 * third]), statistics.mean(observed.memory[2 * third :])
    sent, ended = sum(ledger.sent.values()), sum(ledger.ends.values())
    wrong = [*observed.wrong, *ledger.violations]
    if last - second > max(GROWTH * second, GROWTH_BYTES):
        wrong.append(f"memory grew from {second / 1e6:.1f} to {last / 1e6:.1f} MB")
    if ledger.tokens > (1 + UNSEEN) * observed.mean * ledger.images + observed.burst:
        wrong.append(f"{ledger.tokens} tokens for {ledger.images} images by the clients' count")
    if not faults and ledger.ends["connection closed"]:
        wrong.append("connections closed without any fault")
    if status not in (0, -signal.SIGTERM):
        wrong.append(f"the gateway exited with status {status}")
    if ended + ledger.late != sent:
        wrong.append(f"{sent} requests sent, {ended} ended and {ledger.late} timed out")
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.startswith("{")]
    bad = [one for one in events if "failed" in one["event"] or one["event"].startswith(_FAILURES)]
    wrong += [f"in the log: {one}"[:300] for one in bad[:5]]
    memory = {"second third": second, "last third": last, "most": max(observed.memory)}
    return {
        "requests": sent, "sent": dict(ledger.sent), "ends": dict(ledger.ends),
        "statuses": {str(status): number for status, number in sorted(ledger.statuses.items())},
        "budget_checks": observed.checks, "images": ledger.images,
        "mean_tokens": round(ledger.tokens / max(1, ledger.images), 2), "cap": observed.mean,
        "memory_mb": {name: round(size / 1e6, 1) for name, size in memory.items()}, "exit_status": status,
        "server_counts": state["checks"], "alarms": state["watch"]["alarms"], "violations": wrong,
    }  # fmt: skip
