"""Adaptive sampling against all answers: passes and regret on simulated calibrations and on logs of a real reader.

    python benchmarks/adaptive_sampling.py [--log forms.outcomes.jsonl]... [--repeats 12] [--size 300]

A pass is one question answered at one budget. Regret is the true CWE of the chosen budgets minus the smallest possible
one, over cost ratios of 2, 3, 5 and 10 at the paper's mean budget; "all" is the choice of ``pooled`` on every answer.

Simulated: 300 + 300 questions at 13 budgets, one and four on a document. The curves are the published ones, those of
the embedded reader (docs/results/reader.json), made up and random ones (``benchmarks.scenarios``). ``uneven``: half of
the questions on documents of one, with the published curves; the other half on documents of 30 whose tiers' curves are
swapped. Logs: documents are drawn from the log with replacement, and the log's own curves are the truth. Certificates:
the adaptive choice is made on the part that a certificate chooses on; the other part is asked at the chosen budgets and
at uniform. A log is made by

    stakes calibrate --pages forms --per-tier 300 --signal tier --metric relaxed -o forms.json
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.replay import KnownAnswers
from benchmarks.scenarios import GRID, RANDOM, TRIED, Curves, flat, published

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.adaptive.candidates import Candidates
from stakes.calibration.adaptive.sampler import sample_adaptively
from stakes.calibration.certify.certificate import certify
from stakes.calibration.estimators import ChosenBudgets, Terms, choose
from stakes.evaluation.outcome_log import read_outcomes

READER = Path(__file__).resolve().parents[1] / "docs/results/reader.json"
RATIOS = (2, 3, 5, 10)
PER_DOCUMENT = (1, 4)
MEAN = 304
Make = Callable[[np.random.Generator], Curves]
Trial = tuple[float, float, float]
"""Share of the passes, regret, regret with all answers."""


def reader(mechanism: str) -> Curves:
    """Curves of the embedded reader on forms."""
    rows = json.loads(READER.read_text())["tables"]["curves"]["rows"]
    found = {tier: errors for source, by, tier, *errors in rows if (source, by) == ("embedded", mechanism)}
    return {tier: Curve(GRID, [float(error) for error in found[tier]], 300) for tier in ("high", "low")}


def fixed(make: Callable[[], Curves]) -> Make:
    """Curves that are the same every time."""
    return lambda _: make()


MONOTONE: Mapping[str, Make] = {
    "published": fixed(published),
    "reader, resolution": fixed(lambda: reader("resolution")),
    "reader, deletion": fixed(lambda: reader("deletion")),
    **{name: fixed(TRIED[name]) for name in ("unequal", "halved")},
    **{name: RANDOM[name] for name in ("random_fall", "random_alike")},
}
OTHER: Mapping[str, Make] = {
    **{name: fixed(TRIED[name]) for name in ("with_dips", "rising", "rising_high")},
    "random_bumpy": RANDOM["random_bumpy"],
}


def trials(answers: KnownAnswers, truth: Mapping[str, Curve]) -> list[Trial]:
    """One calibration at every cost ratio."""
    found, measured, size = [], answers.by_document(), sum(answers.counts.values())
    for ratio in RATIOS:
        terms = Terms({"high": float(ratio), "low": 1.0}, answers.counts, MEAN * size)
        sampled = sample_adaptively(answers.questions, answers.budgets, terms, answers.ask)
        candidates = Candidates.of(terms, answers.budgets)
        least = float(candidates.cwe({tier: np.array(curve.errors) for tier, curve in truth.items()}).min())
        regret, on_all = (
            cwe_at(truth, budgets, terms.costs, terms.counts) - least
            for budgets in (sampled.budgets, choose(measured, terms, "pooled").budgets)
        )
        found.append((sampled.passes / sampled.of, regret, on_all))
    return found


def uneven(size: int, rng: np.random.Generator) -> tuple[KnownAnswers, Curves]:
    """Small documents, and large ones with other curves; the truth is that of all questions."""
    small = published()
    large = {"high": small["low"], "low": small["high"]}
    answers = KnownAnswers.simulated(small, size // 2, rng) + KnownAnswers.simulated(large, size // 2, rng, 30)
    both = {tier: np.mean([small[tier].errors, large[tier].errors], axis=0).tolist() for tier in small}
    return answers, {tier: Curve(GRID, errors, size) for tier, errors in both.items()}


def line(name: str, groups: Iterable[list[Trial]]) -> None:
    """Print a row: passes, regret and regret with all answers of each group."""
    print(f"{name:34}", end="")
    for group in groups:
        passes, regret, on_all = np.mean(group, axis=0)
        error = np.std([trial[1] for trial in group]) / np.sqrt(len(group))
        print(f"   {passes:6.1%}  {regret:.4f} (s.e. {error:.4f})  {on_all:.4f}", end="")
    print(flush=True)


def simulated(repeats: int, size: int) -> None:
    """The table of curves, one and four questions a document."""
    print(f"{repeats} calibrations of {size} + {size} questions at each cost ratio: passes, regret, regret with all")
    print(f"{'':34}" + "".join(f"   {f'{per} on a document':33}" for per in PER_DOCUMENT))
    for title, kinds in (("monotone, mean", MONOTONE), ("non-monotone, mean", OTHER)):
        every: dict[int, list[Trial]] = {per: [] for per in PER_DOCUMENT}
        for number, (name, make) in enumerate(kinds.items()):
            groups = []
            for per in PER_DOCUMENT:
                rng, group = np.random.default_rng([21, number, per]), list[Trial]()
                for _ in range(repeats):
                    truth = make(rng)
                    group += trials(KnownAnswers.simulated(truth, size, rng, per), truth)
                groups.append(group)
                every[per] += group
            line(name, groups)
        line(title, every.values())
        line("  both", [[trial for group in every.values() for trial in group]])
    rng = np.random.default_rng(21)
    line("uneven", [[trial for _ in range(repeats) for trial in trials(*uneven(size, rng))]])


def saved(path: Path, repeats: int) -> None:
    """A log: documents drawn with replacement."""
    answers = KnownAnswers.of(read_outcomes(path))
    truth, rng = answers.by_document().curves(), np.random.default_rng(2)
    line(path.name, [[trial for _ in range(repeats) for trial in trials(answers.resampled(rng), truth)]])
    line("  as it is", [trials(answers, truth)])


def certified(repeats: int, size: int) -> None:
    """A certificate of the adaptive choice against one of the choice on all answers, one question on a document."""
    print(f"\nwith a certificate, {repeats} calibrations: passes, share that ships; share that ships with all answers")
    for name, make, ratio in (("published", published, 10), ("published", published, 5), ("flat", flat, 5)):
        rng, costs, shares = np.random.default_rng(3), {"high": float(ratio), "low": 1.0}, []
        for _ in range(repeats):
            answers = KnownAnswers.simulated(make(), size, rng)
            measured = answers.by_document()
            first = set(measured.split()[0].documents)
            part = answers.of_documents(first)
            terms = Terms(costs, answers.counts, MEAN * 2 * size)
            sampled = sample_adaptively(part.questions, answers.budgets, terms, part.ask)
            asked = [len({MEAN, budget}) * (size - part.counts[tier]) for tier, budget in sampled.budgets.items()]
            chosen = ChosenBudgets(sampled.budgets, sampled.fitted)
            adaptive = certify(measured, costs, MEAN, chosen=chosen, chosen_on=first)
            ships = [found.shipped == "tiered" for found in (adaptive, certify(measured, costs, MEAN))]
            shares.append(((sampled.passes + sum(asked)) / (len(GRID) * 2 * size), *ships))
        passes, on_some, on_all = np.mean(shares, axis=0)
        print(f"{f'{name}, r = {ratio}':34}   {passes:6.1%}  {on_some:.2f}  {on_all:.2f}", flush=True)


def main() -> None:
    """Print the table, a row for each log, and what certificates of such choices take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, action="append", default=[], help="a complete log of outcomes")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--size", type=int, default=300, help="questions of each tier")
    given = parser.parse_args()
    began = time.perf_counter()
    simulated(given.repeats, given.size)
    for path in given.log:
        saved(path, 2 * given.repeats)
    certified(10 * given.repeats, given.size)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
