"""Compare estimators of error curves: rank and regret of their budgets where the true curves are known.

    python benchmarks/estimators.py [--repeats 100]

Simulated calibrations (``certify.power``: a latent needed budget per question plus label noise, at three strengths of
dependence) from the curves of ``benchmarks.scenarios``: 75, 150 and 300 questions per tier, a mistake in the high tier
worth r in the low one. Regret is the true CWE of the chosen budgets minus the smallest possible; a cell is a scenario,
a dependence, a size and an r. Rank is among the 13 pairs that spend the total, beside the paper's own split-half test.
The first three scenarios were fixed before any estimator was tuned; the next three are harder; the random ones, drawn
anew for each calibration, were added last and nothing was tuned on them.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scenarios import GRID, RANDOM, TRIED, Curves, published

from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.frontier import frontier
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import ESTIMATORS, Terms, fit
from stakes.calibration.holdout import split_half
from stakes.published import figures

RATIOS = (2, 3, 5, 10)
SIZES = (75, 150, 300)
DEPENDENCES = (0.5, 0.8, 1.0)
PAIR = 608
FIRST = 3
Cell = tuple[str, float, int, int]
Regrets = dict[Cell, dict[str, list[float]]]


def terms(ratio: float) -> Terms:
    """One question of each tier, the paper's total of 608."""
    return Terms({"high": ratio, "low": 1.0}, {"high": 1, "low": 1}, PAIR)


def true_cwe(truth: Mapping[str, Curve], budgets: Mapping[str, int], ratio: float) -> float:
    """What a choice really costs."""
    return cwe_at(truth, budgets, {"high": ratio, "low": 1.0}, {"high": 1, "low": 1})


def choices(measured: ByDocument, ratios: Iterable[int]) -> dict[tuple[str, int], dict[str, int]]:
    """The budgets of each estimator at each cost ratio; curves are fitted once for all ratios."""
    curves = measured.curves()
    fitted = {name: fit(name, curves, measured) for name in ESTIMATORS}
    return {(name, r): dict(terms(r).allocate(fitted[name]).budgets) for name in ESTIMATORS for r in ratios}


def regrets(repeats: int, dependences: Iterable[float]) -> Regrets:
    """Every cell's regrets by estimator."""
    regrets: Regrets = {}
    draw: dict[str, Callable[[np.random.Generator], Curves]] = {
        **{name: lambda _, make=make: make() for name, make in TRIED.items()},  # type: ignore[misc]
        **RANDOM,
    }
    for scenario, make in draw.items():
        print(f"simulating {scenario} …", file=sys.stderr, flush=True)
        for dependence in dependences:
            for size in SIZES:
                rng = np.random.default_rng([size, round(100 * dependence), 11])
                for _ in range(repeats):
                    truth = make(rng)
                    measured = simulate(truth, {"high": size, "low": size}, rng, dependence=dependence)
                    for (name, r), budgets in choices(measured, RATIOS).items():
                        cell = regrets.setdefault((scenario, dependence, size, r), {})
                        regret = true_cwe(truth, budgets, r) - terms(r).allocate(truth).cwe
                        cell.setdefault(name, []).append(regret)
    return regrets


def show(found: Regrets, title: str) -> None:
    """Mean regret by scenario, dependence, size and r, as a share of raw's."""
    names = list(next(iter(found.values())))
    means = {cell: {name: float(np.mean(v)) for name, v in row.items()} for cell, row in found.items()}
    print(f"\n{title}\n{'':24}" + "".join(f"{name:>18}" for name in names))

    def line(label: str, cells: list[Cell]) -> None:
        mean = {name: float(np.mean([means[cell][name] for cell in cells])) for name in names}
        print(f"{label:24}" + "".join(f"{mean[n]:11.4f} {mean[n] / mean['raw']:5.2f}×" for n in names), flush=True)

    for k in range(4):
        for value in dict.fromkeys(cell[k] for cell in means):
            line(f"{('', 'dependence ', 'size ', 'r = ')[k]}{value}", [cell for cell in means if cell[k] == value])
    line("the first three", [cell for cell in means if cell[0] in list(TRIED)[:FIRST]])
    line("the first six", [cell for cell in means if cell[0] in TRIED])
    line("random", [cell for cell in means if cell[0] in RANDOM])


def worse(found: Regrets, name: str) -> None:
    """Print the cells in which an estimator does worse than raw by more than two standard errors of the difference."""
    print(f"\ncells in which {name} is worse than raw (paired difference beyond two standard errors):")
    count = 0
    for (scenario, dependence, size, r), row in found.items():
        gap = np.array(row[name]) - np.array(row["raw"])
        if gap.mean() > 2 * gap.std(ddof=1) / np.sqrt(len(gap)) and gap.mean() > 0:
            count += 1
            print(f"  {scenario:12} dependence {dependence}, size {size}, r = {r}: {gap.mean():+.4f}")
    print(f"  {count} of {len(found)} cells")


def ranks(repeats: int, size: int = 300) -> None:
    """Rank of 13 and gap by true CWE on the published curves, at the paper's sample size and cost ratios."""
    truth, rng, ratios = published(), np.random.default_rng(3), (1, 2, 3, 5, 10, 20)
    pairs = [{"high": p.high, "low": p.low} for p in frontier(truth["high"], truth["low"], PAIR)]
    rank: dict[tuple[str, int], list[float]] = {}
    gap: dict[tuple[str, int], list[float]] = {}
    for _ in range(repeats):
        measured = simulate(truth, {"high": size, "low": size}, rng)
        for (name, r), budgets in choices(measured, ratios).items():
            own, all_pairs = true_cwe(truth, budgets, r), [true_cwe(truth, pair, r) for pair in pairs]
            rank.setdefault((name, r), []).append(1 + sum(value < own - 1e-12 for value in all_pairs))
            gap.setdefault((name, r), []).append(own - min(all_pairs))
    print(f"\npublished curves, {size} + {size}, all chosen on: mean rank of {len(pairs)} and mean gap by true CWE")
    print(f"{'':12}" + "".join(f"{f'r = {r}':>16}" for r in ratios))
    for name in dict.fromkeys(n for n, _ in rank):
        cells = "".join(f"{np.mean(rank[name, r]):8.2f} {np.mean(gap[name, r]):+.4f}" for r in ratios)
        print(f"{name:12}{cells}", flush=True)


def halves(repeats: int) -> None:
    """The paper's split-half test on simulated questions: its variation under its own curves."""
    truth, rng, ratios = published(), np.random.default_rng(4), (1, 2, 3, 5, 10, 20)
    rank: dict[float, list[int]] = {r: [] for r in ratios}
    gap: dict[float, list[float]] = {r: [] for r in ratios}
    for _ in range(repeats):
        measured = simulate(truth, {"high": 300, "low": 300}, rng)
        right = {tier: (1 - table)[measured.asked[tier][:, 0] > 0] for tier, table in measured.wrong.items()}
        for r, result in split_half(right, GRID, PAIR, ratios=ratios).items():
            rank[r].append(result.rank)
            gap[r].append(result.gap)
    paper = figures()["split_half"]
    print("\nthe paper's split-half test of raw (150 + 150 to choose, 150 + 150 to test): printed, and simulated mean")
    for r in ratios:
        printed = f"{paper['rank_of_13'][str(r)]} of 13, gap {paper['gap'].get(str(r), 0.0):+.3f}"
        print(f"  r = {r:<3} {printed:24} {np.mean(rank[r]):5.2f} of 13, gap {np.mean(gap[r]):+.4f}")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=100)
    given = parser.parse_args()
    began = time.perf_counter()
    found = regrets(given.repeats, DEPENDENCES)
    show(found, f"mean regret in CWE and its share of raw's, {given.repeats} repeats a cell")
    for name in ESTIMATORS:
        if name != "raw":
            worse(found, name)
    ranks(given.repeats)
    halves(given.repeats)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
