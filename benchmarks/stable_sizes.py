"""What stable sizes cost and save: repeated requests and conversations against a controller that knows no image.

    .venv/bin/python benchmarks/stable_sizes.py                # about six minutes; --images 2000 for a quick look

Repeats: a share of the requests asks again about an earlier page of its tier. ``changed``: repeats that got another
size than the time before. Conversations: a share of the requests continues one of the last fifty, with a question of
any tier. ``computed``: image tokens an image that an engine with a prefix cache computes, those whose size differs from
the turn before. CWE is as in ``controller.py``; its ratio to that without stable sizes has a standard error over
the runs: three worlds, four steady mixes or five drifting ones.
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.controller import DRIFTS, NATIVE, World, arrivals, expected_cwe, worlds

from stakes.budgets.controller import Controller, GrantedSize, KnownImage

Mix = Callable[[float, int], float]
STEADY: Sequence[Mix] = [lambda _, __, p=share: p for share in (0.1, 0.3, 0.5, 0.8)]  # type: ignore[misc]
DRIFTING: Sequence[Mix] = list(DRIFTS.values())[::2]
OPEN = 50  # conversations that may go on


class Asked(NamedTuple):
    """One request: its tier, its page, and whether it continues a conversation about it."""

    tier: str
    page: int
    turn: bool = False


class Run(NamedTuple):
    """CWE, the share of repeats with another size, and image tokens sent and computed an image."""

    cwe: float
    changed: float
    sent: float
    computed: float


def repeats(world: World, mix: Mix, images: int, share: float, pages: int) -> list[Asked]:
    """Traffic of which a share asks again about one of the last ``pages`` of its tier; early pages are asked most."""
    dice, asked = random.Random(1), []
    seen: dict[str, list[int]] = {tier: [] for tier in world.curves}
    for i, tier in enumerate(arrivals(list(world.curves), mix, images)):
        before = seen[tier][-pages:]
        if before and dice.random() < share:
            asked.append(Asked(tier, before[int(len(before) * dice.random() ** 2)]))
        else:
            seen[tier].append(i)
            asked.append(Asked(tier, i))
    return asked


def conversations(world: World, mix: Mix, images: int, share: float) -> list[Asked]:
    """Traffic of which a share continues a recent conversation, in its own tier."""
    dice, pages, asked = random.Random(1), list[int](), []
    for i, tier in enumerate(arrivals(list(world.curves), mix, images)):
        if pages and dice.random() < share:
            asked.append(Asked(tier, dice.choice(pages[-OPEN:]), True))
        else:
            pages.append(i)
            asked.append(Asked(tier, i))
    return asked


def serve(world: World, asked: Sequence[Asked], how: str, mean: int | None = None) -> Run:
    """``how``: "none" knows no image, "tier" knows an image by its tier, "stable" also by its conversation."""
    policy = world.policy()
    controller = Controller.from_policy(policy if mean is None else policy.model_copy(update={"mean_budget": mean}))
    by_tier: dict[tuple[str, int], GrantedSize] = {}
    by_turn: dict[int, GrantedSize] = {}
    last: dict[tuple[str, int] | int, int] = {}
    budgets, repeated, changed, computed = [], 0, 0, 0
    for tier, page, turn in asked:
        size = by_turn.get(page) if turn and how == "stable" else None
        if size is None or world.costs[size.tier] < world.costs[tier]:
            size = by_tier.get((tier, page))
        known = [] if how == "none" else [KnownImage(random.Random(page).random(), size)]
        grant = controller.grant(tier, (NATIVE,), None, known)
        budget = grant.budgets[0]
        controller.settle(grant, budget)
        by_tier[tier, page] = by_turn[page] = grant.sizes[0]
        if (tier, page) in last:
            repeated, changed = repeated + 1, changed + (last[tier, page] != budget)
        computed += 0 if turn and last[page] == budget else budget
        last[tier, page] = last[page] = budget
        budgets.append(budget)
    cwe = expected_cwe(world, budgets, [one.tier for one in asked])
    return Run(cwe, changed / max(1, repeated), fmean(budgets), computed / len(budgets))


def compare(make: Callable[[World, Mix], list[Asked]], mixes: Sequence[Mix], runs: dict[str, tuple[str, int]]) -> None:
    """One line for each way of serving the same traffic, against the first of them."""
    chosen = [worlds()[name] for name in ("docvqa 5:1", "steep 5:1", "three 5:3:1")]
    traffic = [(world, make(world, mix)) for world in chosen for mix in mixes]
    first: list[Run] = []
    for name, (how, mean) in runs.items():
        found = [serve(world, asked, how, mean) for world, asked in traffic]
        first = first or found
        ratios = [one.cwe / base.cwe for one, base in zip(found, first, strict=True)]
        error = stdev(ratios) / len(ratios) ** 0.5
        print(
            f"  {name:26} CWE x {fmean(ratios):.4f} ± {error:.4f}, worst {max(ratios):.4f}; changed "
            f"{fmean(r.changed for r in found):6.2%}; sent {fmean(r.sent for r in found):.0f}, computed "
            f"{fmean(r.computed for r in found):.0f}",
            flush=True,
        )


def main(images: int) -> None:
    """All tables."""
    for label, mixes in (("steady mixes", STEADY), ("drifting mixes", DRIFTING)):
        for share, pages in ((0.3, 1000), (0.7, 100), (0.9, images)):
            print(f"{share:.0%} of the requests repeat one of the last {pages} pages, {label}")
            kinds = {"no image known": ("none", 304), "stable": ("tier", 304)}
            compare(lambda world, mix: repeats(world, mix, images, share, pages), mixes, kinds)  # noqa: B023
    for share in (0.5, 0.8):
        print(f"{share:.0%} of the requests continue a conversation, steady mixes")
        ways = {
            "no image known": ("none", 304), "known by tier only": ("tier", 304), "stable": ("stable", 304),
            "stable, mean 352": ("stable", 352), "stable, mean 448": ("stable", 448),
        }  # fmt: skip
        compare(lambda world, mix: conversations(world, mix, images, share), STEADY, ways)  # noqa: B023


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=6000, help="images of each run (default 6000)")
    main(parser.parse_args().images)
