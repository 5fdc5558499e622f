"""False alarms and detection delay of the drift monitor, on simulated traffic.

    python benchmarks/drift.py [--runs 12]

One stream: its mean exactly at the limit, 1,500 values, at a level of 5 %. The whole monitor, quiet: every condition at
its limit, the worst case that must not alarm (at most 5 % of runs, ever); and as calibrated, 5 points below. Changes: a
quarter more of the high-cost answers disagree, from the start or after a good period. One request in five has a shadow
answer; numbers are shadow answers of the tier until the alarm.

Runs of five: one of 200 clients asks five times within ten seconds, with one tier, one token error and one agreement
for all five, and the next client 20 seconds later. Counted one by one, such requests break the condition of the test
(independent requests); with one value per client and minute they do not.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from stakes.calibration.certify.drift import Conditions, DriftMonitor
from stakes.calibration.certify.stream import Stream

ALLOWED = {"high": 0.15, "low": 0.60}
GOOD = {tier: rate - 0.05 for tier, rate in ALLOWED.items()}
BAD = {"high": 0.35, "low": 0.60 - 0.05}
MIX = {"high": 0.4, "low": 0.6}
SHADOW, CLIENTS = 0.2, 200


@dataclass(frozen=True)
class Traffic:
    """Requests whose disagreement goes from ``rates`` to ``later`` at request ``at``, in runs of ``length``."""

    name: str
    rates: dict[str, float]
    later: dict[str, float]
    at: int = 0
    requests: int = 6000
    length: int = 1
    window: float = 0.0


TRAFFIC = (
    Traffic("quiet, at every limit", ALLOWED, ALLOWED),
    Traffic("quiet, as calibrated", GOOD, GOOD),
    Traffic("high 10 % -> 35 %, at once", GOOD, BAD),
    Traffic("high 10 % -> 35 %, after 6,000", GOOD, BAD, 6000, 12000),
    Traffic("runs of 5, at every limit, one by one", ALLOWED, ALLOWED, length=5),
    Traffic("runs of 5, at every limit, by minute", ALLOWED, ALLOWED, length=5, window=60.0),
    Traffic("runs of 5, as calibrated, one by one", GOOD, GOOD, length=5),
    Traffic("runs of 5, as calibrated, by minute", GOOD, GOOD, length=5, window=60.0),
    Traffic("runs of 5, 10 % -> 35 %, by minute", GOOD, BAD, length=5, window=60.0),
)


def run(rng: np.random.Generator, traffic: Traffic) -> list[int]:
    """Shadow answers of the high tier after the change until the alarm; empty without one; [-1] for one before."""
    now, seen, names, limit = 0.0, 0, list(MIX), traffic.rates is ALLOWED
    conditions = Conditions(ALLOWED, MIX, mix_within=0.05)
    monitor = DriftMonitor(conditions, window=traffic.window, clock=lambda: now)
    for number in range(traffic.requests):
        if number % traffic.length == 0:
            now += 20
            client = str(rng.integers(CLIENTS))
            tier = names[int(rng.random() >= MIX["high"] + 0.05 * limit)]
            agrees = bool(rng.random() >= (traffic.later if number >= traffic.at else traffic.rates)[tier])
            error = int(rng.random() < 0.02) * 300 if limit else 2
        now += 2
        same = agrees if rng.random() < SHADOW else None
        monitor.observe(tier, same, predicted=300 + error, counted=300, unit=client)
        seen += same is not None and tier == "high" and number >= traffic.at
        if number % 64 == 0 and any(s.highest >= -np.log(monitor.alpha) for s in monitor.streams.values()):
            return [seen if number >= traffic.at else -1]
    return []


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    given = parser.parse_args()
    began, rng = time.perf_counter(), np.random.default_rng(6)
    for mean in (0.05, 0.3):
        false = 0
        for _ in range(15 * given.runs):
            stream = Stream(mean)
            for value in rng.random(1500) < mean:
                stream.add(float(value))
            false += stream.highest >= -np.log(0.05)
        print(
            f"one stream at its limit of {mean:.0%}: alarm in {false / (15 * given.runs):.1%} of {15 * given.runs} runs"
        )
    for traffic in TRAFFIC:
        alarms = [run(rng, traffic) for _ in range(given.runs)]
        found = [a[0] for a in alarms if a]
        after = [a for a in found if a >= 0]
        changes = after and traffic.rates is not traffic.later
        delay = f", median {np.median(after):.0f} shadow answers" if changes else ""
        print(f"{traffic.name:38} alarm in {len(found) / given.runs:6.1%} of {given.runs} runs{delay}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
