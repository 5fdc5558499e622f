"""The guarantee of adaptive sampling where some pages hold many questions and others one.

    python benchmarks/adaptive_sizes.py [--repeats 100]

Simulated answers at five budgets, r = 2, no pass limit, 95 % confidence: how often the truly best choice is ruled out
(5 % allowed), the share of the passes taken, and of the candidates ruled out. 100 + 100 questions on a page each and
800 + 800 on 20 pages, which want other budgets; the same where two choices are worth exactly the same by question,
though on no page alike (``tied``: one of them is followed); and pages of one size.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.replay import replay

from stakes.budgets.curve import Curve
from stakes.calibration.adaptive.sampler import AdaptiveSampling, sample_adaptively
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import Terms

COARSE = (32, 160, 304, 448, 576)
COSTS = {"high": 2.0, "low": 1.0}
MEAN = 304

Kind = tuple[Mapping[str, Curve], int, int | None]
"""True curves, questions of each tier, and the pages they stand on; None: each on its own."""


def book(kinds: Sequence[Kind], rng: np.random.Generator) -> tuple[ByDocument, list[str]]:
    """Pages of several kinds in slices, and whose slices they are."""
    slices: dict[tuple[str, int], dict[str, NDArray[np.int64]]] = {}
    series = rng.integers(1 << 30)  # names decide the order
    for number, (truth, questions, pages) in enumerate(kinds):
        drawn = simulate(truth, dict.fromkeys(truth, questions), rng)
        for tier, asked in drawn.asked.items():
            for place, row in enumerate(np.flatnonzero(asked[:, 0])):
                name, turn = (row, 0) if pages is None else (place % pages, place // pages)
                slices.setdefault((f"{series}.{number}.{name}", turn), {})[tier] = drawn.wrong[tier][row]
    tiers, budgets = list(kinds[0][0]), next(iter(kinds[0][0].values())).budgets
    none = np.zeros(len(budgets), dtype=np.int64)
    table = ByDocument(
        tuple(f"{name}#{turn}" for name, turn in slices),
        budgets,
        {tier: np.array([found.get(tier, none) for found in slices.values()]) for tier in tiers},
        {tier: np.array([none + (tier in found) for found in slices.values()]) for tier in tiers},
    )
    return table, [name for name, _ in slices]


def true(high: Sequence[float], low: Sequence[float], budgets: Sequence[int] = COARSE) -> dict[str, Curve]:
    """True curves."""
    return {"high": Curve(budgets, high, 1), "low": Curve(budgets, low, 1)}


FALLS, STAYS = [0.8, 0.6, 0.4, 0.25, 0.1], [0.3] * 5
HIGH_COST, CHEAP = true(FALLS, STAYS), true(STAYS, FALLS)
SIZES: dict[str, tuple[list[Kind], tuple[int, int] | None]] = {
    "200 pages of one, 20 of 40 + 40": ([(CHEAP, 100, None), (HIGH_COST, 800, 20)], None),
    "the same, tied": (
        [
            (true([0.1, 0.9], [0.3, 0.3], (32, 576)), 100, None),
            (true([0.55, 0.45], [0.3, 0.3], (32, 576)), 800, 20),
        ],
        (576, 32),
    ),
    "600 pages of one": ([(HIGH_COST, 300, None)], None),
    "75 pages of 4 + 4": ([(HIGH_COST, 300, 75)], None),
}
"""Kinds of pages, and the choice to follow where it is not the best one."""


def uneven(repeats: int) -> None:
    """How often the best for all questions is ruled out, by the sizes of the pages."""
    print(f"{f'{repeats} runs each, 95 %':34}{'best lost':>10}{'passes':>8}{'ruled out':>11}")
    for name, (kinds, followed) in SIZES.items():
        rng, wrong, took, out = np.random.default_rng(8), 0, [], []
        many = sum(questions for _, questions, _ in kinds)
        truth = {
            tier: Curve(
                curve.budgets,
                [sum(n * of[tier].error(b) for of, n, _ in kinds) / many for b in curve.budgets],
                many,
            )
            for tier, curve in kinds[0][0].items()
        }
        for _ in range(repeats):
            table, owners = book(kinds, rng)
            on = Terms(COSTS, table.counts, MEAN * sum(table.counts.values()))
            best = followed or tuple(on.allocate(truth).budgets.values())
            found = sample_adaptively(table, on, replay(table), AdaptiveSampling(estimator="raw"), owners=owners)
            wrong += best not in found.remaining
            took.append(found.passes / found.of)
            out.append(found.ruled_out / found.candidates)
        print(f"{name:34}{wrong / repeats:10.1%}{np.mean(took):8.0%}{np.mean(out):11.0%}", flush=True)


def main() -> None:
    """Print a line for each kind of book."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    uneven(parser.parse_args().repeats)


if __name__ == "__main__":
    main()
