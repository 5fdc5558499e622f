"""The online controller against hindsight: steady mixes, drifting ones, the worst case, and microseconds.

    .venv/bin/python benchmarks/controller.py                  # about two minutes; --images 5000 for a quick look

CWE is the expected one, from the curves (linear between measured budgets). Hindsight knows all arrivals, has their
whole total at once without the limit on every prefix, and may mix two budgets in every tier: a bound that no online
rule reaches. ``fixed`` is the calibrated policy, each budget cut to what the same mean and burst still allow. Every
policy is calibrated on an even mix; drifting mixes run once with that mix overall and once with the high tier rarer.
"""

import argparse
import math
import random
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean, quantiles
from typing import NamedTuple

from stakes.budgets.allocate import allocate
from stakes.budgets.controller import STOCK, Controller, Grant
from stakes.budgets.curve import PAPER_GRID, PAPER_MEAN, Curve
from stakes.budgets.policy import Policy, TierPlan
from stakes.experiments.published import curves as published_curves
from stakes.signals import TaskIdentity, to_dict

WARM_UP = 2000  # images before a steady mix is scored
NATIVE = 4956  # an A4 page at 200 dpi: larger than any budget
RARE = 0.45  # with the high tier rarer, this part of its images stays, the rest moves to cheaper tiers


class World(NamedTuple):
    """Curves and costs by tier, most expensive first."""

    curves: dict[str, Curve]
    costs: dict[str, float]

    def policy(self) -> Policy:
        """The policy that calibration on an even mix gives."""
        counts = dict.fromkeys(self.curves, 300)
        best = allocate(self.curves, self.costs, counts, PAPER_MEAN * sum(counts.values()))
        tiers = {
            tier: TierPlan(cost=self.costs[tier], budget=best.budgets[tier], curve=curve)
            for tier, curve in self.curves.items()
        }
        signal = to_dict(TaskIdentity({tier: tier for tier in tiers}, most_expensive="high"))
        return Policy(mean_budget=PAPER_MEAN, floor=PAPER_GRID[0], tiers=tiers, signal=signal)

    def hindsight(self, arrivals: Sequence[str], total: int) -> float:
        """A bound below the CWE of any choice of budgets for these arrivals."""
        counts = {tier: arrivals.count(tier) for tier in self.curves if tier in arrivals}
        best = allocate(
            {t: self.curves[t] for t in counts}, {t: self.costs[t] for t in counts}, counts, total, mix=True
        )
        return best.cwe - best.gap


def decaying(scale: float, least: float) -> Curve:
    """Errors that fall from 0.92 towards ``least``, by a factor of e every ``scale`` tokens."""
    return Curve(PAPER_GRID, [least + (0.92 - least) * math.exp((32 - b) / scale) for b in PAPER_GRID], 300)


def worlds() -> dict[str, World]:
    """The paper's published curves, steeper and flatter ones, two to four tiers, cost ratios 2 to 20."""
    doc = published_curves("docvqa")
    high, low = doc["high"], doc["low"]
    return {
        **{f"docvqa {ratio}:1": World(doc, {"high": ratio, "low": 1}) for ratio in (2, 5, 20)},
        "steep 5:1": World({"high": decaying(90, 0.05), "low": decaying(60, 0.08)}, {"high": 5, "low": 1}),
        "flat 5:1": World({"high": decaying(500, 0.1), "low": decaying(700, 0.1)}, {"high": 5, "low": 1}),
        "three 5:3:1": World(
            {"high": high, "medium": decaying(200, 0.1), "low": low}, {"high": 5, "medium": 3, "low": 1}
        ),
        "four 20:8:3:1": World(
            {"high": high, "upper": decaying(150, 0.1), "lower": low, "low": decaying(400, 0.2)},
            {"high": 20, "upper": 8, "lower": 3, "low": 1},
        ),
    }


# The share of the most expensive tier when a part x of the traffic is over (image i); the others share the rest evenly.
DRIFTS: dict[str, Callable[[float, int], float]] = {
    "ramp up": lambda x, _: 0.1 + 0.8 * x,
    "ramp down": lambda x, _: 0.9 - 0.8 * x,
    "step up": lambda x, _: 0.2 if x < 0.5 else 0.8,
    "step down": lambda x, _: 0.8 if x < 0.5 else 0.2,
    "daily wave": lambda x, _: 0.5 + 0.4 * math.sin(10 * math.pi * x),
    "bursty": lambda _, i: 0.85 if random.Random(i // 150).random() < 0.5 else 0.15,
    "alternating blocks": lambda _, i: float(i // 250 % 2),
    "late highs": lambda x, _: float(x >= 0.8),
    "early highs": lambda x, _: float(x < 0.2),
}


def arrivals(tiers: Sequence[str], share: Callable[[float, int], float], images: int, rare: bool = False) -> list[str]:
    """Tiers in order of arrival."""
    dice, rest, order = random.Random(7), len(tiers) - 1, []
    for i in range(images):
        p = share(i / images, i)
        order.append(dice.choices(tiers, [p] + [(1 - p) / rest] * rest)[0])
        if rare and order[-1] == tiers[0] and dice.random() >= RARE:
            order[-1] = dice.choice(tiers[1:])
    return order


class Score(NamedTuple):
    """CWE over the images after the warm-up, and the allowance at its end."""

    cwe: float
    begun_with: int


def expected_cwe(world: World, budgets: Sequence[int], tiers: Sequence[str]) -> float:
    """The expected CWE of these budgets."""
    lost = [world.costs[t] * _error(world.curves[t], b) for t, b in zip(tiers, budgets, strict=True)]
    return math.fsum(lost) / math.fsum([world.costs[t] for t in tiers])


def _error(curve: Curve, budget: int) -> float:
    i = bisect_right(curve.budgets, budget) - 1
    if i == len(curve.budgets) - 1:
        return curve.errors[i]
    part = (budget - curve.budgets[i]) / (curve.budgets[i + 1] - curve.budgets[i])
    return curve.errors[i] * (1 - part) + curve.errors[i + 1] * part


def ours(world: World, tiers: Sequence[str], warm_up: int = 0, *, burst: int | None = None, waiting: int = 0,
         realised: float = 1.0) -> Score:  # fmt: skip
    """The controller, with ``waiting`` requests outstanding and images that take at least ``realised`` of a budget."""
    controller, dice = Controller.from_policy(world.policy(), burst), random.Random(3)
    outstanding: deque[Grant] = deque()
    budgets, begun_with, spent = [], 0, 0
    for i, tier in enumerate(tiers):
        if i == warm_up:
            begun_with = int(controller.state()["allowance"])
        grant = controller.grant(tier, (NATIVE,))
        budgets.append(grant.budgets[0])
        outstanding.append(grant)
        if len(outstanding) > waiting:
            done = outstanding.popleft()
            tokens = round(done.budgets[0] * dice.uniform(realised, 1.0))
            spent += tokens
            controller.settle(done, tokens)
    limit = PAPER_MEAN * len(tiers) + (STOCK * PAPER_MEAN if burst is None else burst)
    if spent + sum(grant.budgets[0] for grant in outstanding) > limit:
        raise SystemExit("the budget was broken, a defect in the controller")
    return Score(expected_cwe(world, budgets[warm_up:], tiers[warm_up:]), begun_with)


def fixed(world: World, tiers: Sequence[str]) -> float:
    """The calibrated policy, cut to what the mean and the burst still allow."""
    planned, left, budgets = world.policy().budgets, STOCK * PAPER_MEAN, []
    for tier in tiers:
        budgets.append(min(planned[tier], PAPER_MEAN + left))
        left += PAPER_MEAN - budgets[-1]
    return expected_cwe(world, budgets, tiers)


def steady(images: int) -> None:
    """The ratio to hindsight on mixes that stay."""
    shares = (0.05, 0.1, 0.3, 0.5, 0.7, 0.9)
    print(
        f"Steady mixes: CWE over hindsight's, {images} images after a warm-up of {WARM_UP}, by share of the high tier"
    )
    print(f"{'':34}" + "".join(f"{share:>8.0%}" for share in shares))
    all_worlds = worlds()
    rows: list[tuple[str, World, dict[str, float]]] = [(name, world, {}) for name, world in all_worlds.items()]
    paper = all_worlds["docvqa 5:1"]
    rows += [("docvqa 5:1, burst 0", paper, {"burst": 0}), ("docvqa 5:1, 256 outstanding", paper, {"waiting": 256}),
             ("docvqa 5:1, 90-100 % realised", paper, {"realised": 0.9})]  # fmt: skip
    worst = 0.0
    for name, world, more in rows:
        ratios = []
        for share in shares:
            traffic = arrivals(list(world.curves), lambda _, __, p=share: p, WARM_UP + images)  # type: ignore[misc]
            run = ours(world, traffic, WARM_UP, **more)  # type: ignore[arg-type]
            total = int((PAPER_MEAN * images + run.begun_with) * 2 / (1 + more.get("realised", 1.0)))
            ratios.append(run.cwe / world.hindsight(traffic[WARM_UP:], total))
        worst = max(worst, *ratios)
        print(f"{name:34}" + "".join(f"{ratio:>8.4f}" for ratio in ratios))
    print(f"worst {worst:.4f}\n")


def drifting(images: int) -> None:
    """Ours, the fixed policy and hindsight on mixes that move."""
    summary: list[tuple[float, float, str]] = []
    for rare in (False, True):
        mix = "the high tier rarer than calibrated" if rare else "overall mix as calibrated"
        print(f"Drifting mixes, {mix}, {images} images: CWE, and its mean ratio to hindsight's")
        for name, world in worlds().items():
            rows: list[tuple[str, float, float, float]] = []
            for drift, share in DRIFTS.items():
                traffic = arrivals(list(world.curves), share, images, rare)
                best = world.hindsight(traffic, PAPER_MEAN * (images + STOCK))
                rows.append((drift, best, fixed(world, traffic), ours(world, traffic).cwe))
            for drift, best, clipped, mine in rows:
                summary.append((mine / best, clipped / best, f"{name}, {drift}{', high tier rarer' if rare else ''}"))
                if name == "docvqa 5:1":
                    print(f"  {drift:20} hindsight {best:.4f}  fixed {clipped:.4f}  ours {mine:.4f}")
            best, clipped, mine = (fmean(column) for column in list(zip(*rows, strict=True))[1:])
            over_fixed, over_ours = fmean(row[2] / row[1] for row in rows), fmean(row[3] / row[1] for row in rows)
            print(f"  {name:20} hindsight {best:.4f}  fixed {clipped:.4f}  ours {mine:.4f}  mean of the nine; "
                  f"over hindsight's: fixed {over_fixed:.3f}  ours {over_ours:.3f}")  # fmt: skip
    mine, clipped, where = max(summary)
    print(f"\nAll {len(summary)}: mean over hindsight's: fixed {fmean(s[1] for s in summary):.3f}  ours "
          f"{fmean(s[0] for s in summary):.3f}; ours is better in {sum(s[0] < s[1] for s in summary)}")  # fmt: skip
    print(f"worst of ours   {mine:.3f} ({where}; fixed {clipped:.3f})")
    clipped, mine, where = max((s[1], s[0], s[2]) for s in summary)
    print(f"worst of fixed  {clipped:.3f} ({where}; ours {mine:.3f})")
    lost, where = max((s[0] / s[1], s[2]) for s in summary)
    print(f"ours against fixed at worst {lost:.3f} ({where})\n")


def speed(images: int) -> None:
    """Microseconds of one grant and its settlement, four tiers of thirteen budgets."""
    world = worlds()["four 20:8:3:1"]
    controller, times = Controller.from_policy(world.policy()), []
    for tier in arrivals(list(world.curves), lambda *_: 0.3, images):
        began = time.thread_time()  # of this thread: other work on the machine is not ours
        controller.settle(controller.grant(tier, (NATIVE,)), 30)
        times.append(1e6 * (time.thread_time() - began))
    cuts = quantiles(times, n=1000)
    print(
        f"grant and settle, 4 tiers x 13: median {cuts[499]:.0f} us, p99 {cuts[989]:.0f} us, p99.9 {cuts[998]:.0f} us"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000, help="images of each run (default 20000)")
    given = parser.parse_args()
    steady(given.images)
    drifting(given.images)
    speed(given.images)
