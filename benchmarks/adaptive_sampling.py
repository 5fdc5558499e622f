"""Adaptive sampling with a third of the passes against all of them: simulated answers, saved ones, and the guarantee.

    python benchmarks/adaptive_sampling.py [--log policy.outcomes.jsonl] [--repeats 6]

Simulated: 300 + 300 questions at 13 budgets (``certify.power``), curves of ``benchmarks.scenarios``; the table is the
true CWE of the adaptive choice minus that of the choice on all 7,800 answers (``pooled`` both times). Saved: documents
of a log are split at random; two thirds are sampled adaptively and also used whole, both choices are tested on the
rest. Guarantee: without a pass limit, how often the truly best choice is ruled out; where nothing matters (``flat``), a
given one. (The same where pages differ in size: ``adaptive_sizes.py``.)
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.replay import replay, sliced
from benchmarks.scenarios import TRIED, flat, published

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.adaptive.sampler import AdaptiveSampling, sample_adaptively
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import Terms, choose
from stakes.evaluation.outcome_log import read_outcomes

RATIOS = (2, 3, 5, 10)
SHARE = 0.35
MEAN = 304
COARSE = (32, 160, 304, 448, 576)


def terms(measured: ByDocument, ratio: float) -> Terms:
    """The paper's mean budget at a cost ratio."""
    return Terms({"high": ratio, "low": 1.0}, measured.counts, MEAN * sum(measured.counts.values()))


def pass_limit(measured: ByDocument) -> int:
    """A third of the passes, and a little."""
    return int(SHARE * len(measured.budgets) * sum(measured.counts.values()))


def simulated(repeats: int) -> None:
    """The table of scenarios by cost ratios."""
    print(f"simulated, {repeats} calibrations a cell: CWE of the adaptive choice minus that of all answers")
    print(f"{'':14}" + "".join(f"{f'r = {r}':>10}" for r in RATIOS) + f"{'passes':>10}{'same':>8}{'ruled out':>11}")
    every = []
    for name, make in TRIED.items():
        truth, rng, row, took, same, out = make(), np.random.default_rng(21), [], [], [], []
        for _ in range(repeats):
            measured, gaps = simulate(truth, {"high": 300, "low": 300}, rng), []
            for ratio in RATIOS:
                on = terms(measured, ratio)
                full = choose(measured, on, "pooled").budgets
                found = sample_adaptively(
                    measured, on, replay(measured), AdaptiveSampling(max_passes=pass_limit(measured))
                )
                gaps.append(
                    cwe_at(truth, found.budgets, on.costs, on.counts) - cwe_at(truth, full, on.costs, on.counts)
                )
                took.append(found.passes / found.of)
                same.append(found.budgets == full)
                out.append(found.ruled_out / found.candidates)
            row.append(gaps)
        means = np.mean(row, axis=0)
        every.append(means)
        print(
            f"{name:14}"
            + "".join(f"{gap:+10.4f}" for gap in means)
            + f"{max(took):10.1%}{np.mean(same):8.0%}{np.mean(out):11.0%}",
            flush=True,
        )
    print(f"{'all':14}{np.mean(every):+10.4f}   largest cell {np.max(every):+.4f}, by |gap| {np.abs(every).mean():.4f}")


def saved(path: Path, splits: int) -> None:
    """A log, split by document: sampled adaptively and used whole on two thirds, tested on the rest."""
    outcomes = read_outcomes(path)
    measured = by_document(outcomes)
    tiers, rng = list(measured.wrong), np.random.default_rng(2)
    print(
        f"\n{path.name}: {len(measured)} documents, {measured.counts}; CWE on documents not chosen on, {splits} splits"
    )
    gaps: dict[int, list[float]] = {ratio: [] for ratio in RATIOS}
    same, took = dict.fromkeys(RATIOS, 0), []
    for _ in range(splits):
        order = rng.permutation(len(measured))
        first = {measured.documents[i] for i in order[: 2 * len(order) // 3]}
        chosen_on = [o for o in outcomes if o.document in first]
        table, owners = sliced(chosen_on, tiers)
        whole = by_document(chosen_on, tiers)
        tested = by_document([o for o in outcomes if o.document not in first], tiers)
        for ratio in RATIOS:
            on = terms(table, ratio)
            full = dict(choose(whole, on, "pooled").budgets)
            found = sample_adaptively(
                table, on, replay(table), AdaptiveSampling(max_passes=pass_limit(table)), owners=owners
            )
            adaptive, all_answers = (cwe_at(tested.curves(), b, on.costs, tested.counts) for b in (found.budgets, full))
            gaps[ratio].append(adaptive - all_answers)
            same[ratio] += found.budgets == full
            took.append(found.passes / found.of)
    for ratio, found_gaps in gaps.items():
        error = np.std(found_gaps, ddof=1) / np.sqrt(splits)
        print(f"  r = {ratio:<3} {np.mean(found_gaps):+.4f} (s.e. {error:.4f}), same budgets {same[ratio]} of {splits}")
    print(f"  all     {np.mean(list(gaps.values())):+.4f}, at most {max(took):.1%} of the passes")


def guarantee(repeats: int) -> None:
    """How often the best is ruled out, without a pass limit, at 90 % confidence on a coarse grid."""
    print(f"\nruled out though best, {repeats} runs at 0.90 (allowed 10 %):", end=" ", flush=True)
    for name, make in (("published", published), ("flat", flat)):
        truth = {tier: Curve(COARSE, [curve.error(budget) for budget in COARSE], 300) for tier, curve in make().items()}
        rng, wrong, took = np.random.default_rng(5), 0, []
        for _ in range(repeats):
            measured = simulate(truth, {"high": 100, "low": 100}, rng)
            on = terms(measured, 5)
            best = tuple(on.allocate(truth).budgets.values()) if name == "published" else (448, 160)
            found = sample_adaptively(measured, on, replay(measured), AdaptiveSampling(estimator="raw", confidence=0.9))
            wrong += best not in found.remaining
            took.append(found.passes / found.of)
        print(f"{name} {wrong / repeats:.1%} ({np.mean(took):.0%} of the passes)", end="; ", flush=True)
    print()


def main() -> None:
    """Print all three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="a complete log of outcomes")
    parser.add_argument("--repeats", type=int, default=6)
    given = parser.parse_args()
    began = time.perf_counter()
    simulated(given.repeats)
    if given.log is not None:
        saved(given.log, 2 * given.repeats)
    guarantee(25 * given.repeats)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
