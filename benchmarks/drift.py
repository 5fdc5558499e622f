"""False alarms and detection delay of the drift monitor, on simulated traffic.

    python benchmarks/drift.py [--runs 12]

One stream: its mean exactly at the limit, 1,500 values, at a level of 5 %. The whole monitor, quiet: every condition at
its limit, the worst case that must not alarm (at most 5 % of runs, ever); and as calibrated, 5 points below. Changes: a
quarter more of the high-cost answers disagree, from the start or after a good period. One request in five has a shadow
answer; numbers are shadow answers of the tier until the alarm.
"""

import argparse
import time

import numpy as np

from stakes.calibration.certify.drift import Conditions, DriftMonitor, Stream

ALLOWED = {"high": 0.15, "low": 0.60}
MIX = {"high": 0.4, "low": 0.6}
SHADOW = 0.2


def run(
    rng: np.random.Generator, requests: int, rates: dict[str, float], later: dict[str, float], at: int
) -> list[int]:
    """Shadow answers of the high tier after the change until the alarm; empty without one; [-1] for one before."""
    monitor = DriftMonitor(Conditions(ALLOWED, MIX, mix_within=0.05))
    names, seen = list(MIX), 0
    for number in range(requests):
        tier = names[int(rng.random() >= MIX["high"] + 0.05 * (rates is ALLOWED))]
        rate = (later if number >= at else rates)[tier]
        same = bool(rng.random() >= rate) if rng.random() < SHADOW else None
        error = int(rng.random() < 0.02) * 300 if rates is ALLOWED else 2
        monitor.observe(tier, same, predicted=300 + error, counted=300)
        seen += same is not None and tier == "high" and number >= at
        if number % 64 == 0 and any(s.highest >= -np.log(monitor.alpha) for s in monitor.streams.values()):
            return [seen if number >= at else -1]
    return []


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    given = parser.parse_args()
    began, rng = time.perf_counter(), np.random.default_rng(6)
    good = {tier: rate - 0.05 for tier, rate in ALLOWED.items()}
    bad = {"high": 0.35, "low": 0.60 - 0.05}
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
    for name, rates, later, at, requests in (
        ("quiet, at every limit", ALLOWED, ALLOWED, 0, 6000),
        ("quiet, as calibrated", good, good, 0, 6000),
        ("high 10 % -> 35 %, at once", good, bad, 0, 6000),
        ("high 10 % -> 35 %, after 6,000", good, bad, 6000, 12000),
    ):
        alarms = [run(rng, requests, rates, later, at) for _ in range(given.runs)]
        found = [a[0] for a in alarms if a]
        after = [a for a in found if a >= 0]
        delay = f", median {np.median(after):.0f} shadow answers" if after and rates is not later else ""
        print(f"{name:32} alarm in {len(found) / given.runs:6.1%} of {given.runs} runs{delay}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
