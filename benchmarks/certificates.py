"""Check certificates: false ships, broken ceilings and bounds over thousands of simulated calibrations.

    python benchmarks/certificates.py [--calibrations 2000] [--bca 500] [--only uneven]

Every calibration simulates new questions from known true curves (``certify.power``), chooses on half of the
documents with the default estimator and certifies on the other half. A false ship is a tiered choice that ships though
its true CWE is no lower than uniform's. Beside the test in use, "ours", stand two that are often used in its place on
the same halves: Student's t over documents and a one-sided BCa interval over documents.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.scenarios import flat, published, rare_and_high_cost, with_dips

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import check_ceilings, p_mean_at_most_zero, typical
from stakes.calibration.certify.certificate import certify, lost_cost, saved_by_document
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import DEFAULT, Terms, choose

MEAN = 304
LEVEL = 0.05
EIGHT = 8
TABLES = ("no-harm", "ceilings", "bounds", "uneven")
PAGES: dict[str, dict[str, float]] = {
    "one question a page": {},
    "two a page, alike": {"per_document": 2, "likeness": 0.3},
    "four a page, very alike": {"per_document": 4, "likeness": 0.7},
}


class World(NamedTuple):
    """True curves, what a mistake costs, and how many questions of each tier are labelled."""

    name: str
    truth: Mapping[str, Curve]
    ratio: float
    size: int


def worlds() -> Iterator[World]:
    """Where nothing is to be gained, and where much is."""
    for size in (300, 75):
        yield World("published, r = 10", published(), 10, size)
        yield World("flat curves: nothing to gain", flat(), 5, size)
        yield World("rare high-cost losses, r = 20", rare_and_high_cost(), 20, size)
        yield World("published, r = 2: uniform is best", published(), 2, size)
        yield World("published, r = 5", published(), 5, size)


def t_test(saved: NDArray[np.float64]) -> float:
    """One-sided p of "the mean over documents is at most zero" by Student's t."""
    from scipy.stats import ttest_1samp

    return 1.0 if np.ptp(saved) == 0 else float(ttest_1samp(saved, 0.0, alternative="greater").pvalue)


def bca(saved: NDArray[np.float64], rng: np.random.Generator) -> bool:
    """Whether the one-sided BCa lower bound of the mean is above zero."""
    from scipy.stats import bootstrap

    if np.ptp(saved) == 0:
        return bool(saved[0] > 0)
    found: Any = bootstrap(
        (saved,), np.mean, n_resamples=1000, confidence_level=1 - LEVEL, alternative="greater", method="BCa", rng=rng
    )
    return bool(found.confidence_interval.low > 0)


def no_harm(world: World, pages: str, calibrations: int, with_bca: int) -> str:
    """One line: how often each test ships, and how often falsely."""
    rng = np.random.default_rng([world.size, round(10 * world.ratio), len(world.name)])
    costs = {"high": world.ratio, "low": 1.0}
    ships = {"ours": [0, 0], "t": [0, 0], "BCa": [0, 0]}
    even = dict.fromkeys(world.truth, MEAN)
    for turn in range(calibrations):
        measured = simulate(world.truth, dict.fromkeys(world.truth, world.size), rng, **PAGES[pages])
        first, second = measured.halves()
        counts = measured.counts
        budgets = choose(first, Terms(costs, counts, MEAN * sum(counts.values())), DEFAULT).budgets
        harmful = cwe_at(world.truth, even, costs, counts) - cwe_at(world.truth, budgets, costs, counts) <= 1e-12
        saved, weight = saved_by_document(second, costs, budgets, MEAN)
        verdicts = {
            "ours": p_mean_at_most_zero(saved, -lost_cost(weight, costs)) < LEVEL,
            "t": t_test(saved) < LEVEL,
        }
        if turn < with_bca:
            verdicts["BCa"] = bca(saved, rng)
        for name, ships_now in verdicts.items():
            ships[name][0] += int(ships_now)
            ships[name][1] += int(ships_now and harmful)
    cells = []
    for name, (shipped, falsely) in ships.items():
        of = with_bca if name == "BCa" else calibrations
        if of:
            cells.append(f"{shipped / of:7.3f} {falsely / of:7.4f}{_mark(falsely, of)}")
    return f"{world.name:36} {pages:24} {world.size:4}  " + "   ".join(cells)


def ceiling(truth: Mapping[str, Curve], name: str, limit: float, size: int, pages: str, calibrations: int) -> str:
    """One line: how often a ceiling is broken, and how far above the oracle the choice lies."""
    rng = np.random.default_rng([size, round(1e4 * limit), len(pages)])
    errors, budgets = np.array(truth["high"].errors), truth["high"].budgets
    fine = np.flatnonzero(errors <= limit)
    # The oracle knows the curve but walks down from the largest budget too: what lies under a rise is out of its reach.
    oracle = len(budgets) - 1
    while oracle - 1 in fine:
        oracle -= 1
    oracle = oracle if len(budgets) - 1 in fine else len(budgets)
    broken, above, none = 0, [], 0
    for _ in range(calibrations):
        measured = simulate(truth, dict.fromkeys(truth, size), rng, **PAGES[pages])
        found = check_ceilings(measured, {"high": limit}, 1 - LEVEL)["high"]
        if found.budget is None:
            none += 1
            above.append(len(budgets) - oracle)
            continue
        at = budgets.index(found.budget)
        broken += bool((errors[at:] > limit).any())
        above.append(at - oracle)
    cells = f"{broken / calibrations:7.4f}{_mark(broken, calibrations)} {np.median(above):5.0f}"
    return f"{name:36} {pages:24} {size:4} {limit:7.4f}  {cells} {none / calibrations:8.3f}"


def bounds(size: int, pages: str, calibrations: int) -> str:
    """One line: how often the whole certificate is wrong, through the one call that calibration makes."""
    rng = np.random.default_rng([size, len(pages)])
    truth, costs = published(), {"high": 5.0, "low": 1.0}
    misses = false = 0
    for _ in range(calibrations):
        measured: ByDocument = simulate(truth, dict.fromkeys(truth, size), rng, **PAGES[pages])
        found = certify(measured, costs, MEAN)
        misses += any(truth[tier].error(b.budget) > b.upper for tier, b in found.upper_errors.items())
        even = cwe_at(truth, dict.fromkeys(truth, MEAN), costs, measured.counts)
        false += found.shipped == "tiered" and cwe_at(truth, found.budgets, costs, measured.counts) >= even
    return (
        f"{'published, r = 5':36} {pages:24} {size:4}  {misses / calibrations:7.4f}{_mark(misses, calibrations)} "
        f"{false / calibrations:7.4f}{_mark(false, calibrations)}"
    )


class Uneven(NamedTuple):
    """Documents of one question and a few of eight, which err more; ``alike``: how much within one."""

    documents: int
    share: float
    alike: float
    large: float = 0.30
    small: float = 0.03

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Wrong answers and questions of each document."""
        is_large = rng.random(self.documents) < self.share
        asked, error = np.where(is_large, EIGHT, 1), np.where(is_large, self.large, self.small)
        if self.alike < 1:
            known = (1 - self.alike) / self.alike
            error = rng.beta(error * known, (1 - error) * known)
            return rng.binomial(asked, error), asked
        return np.where(rng.random(self.documents) < error, asked, 0), asked

    @property
    def truth(self) -> float:
        """The error over all questions."""
        questions = self.share * EIGHT + 1 - self.share
        return (self.share * EIGHT * self.large + (1 - self.share) * self.small) / questions


def uneven(world: Uneven, calibrations: int) -> str:
    """One line: how often a ceiling at the true error is passed, the typical or the largest document lost."""
    rng = np.random.default_rng([world.documents, round(100 * world.share), round(10 * world.alike)])
    limit, broken = world.truth, [0, 0]
    for _ in range(calibrations):
        wrong, asked = world.draw(rng)
        saved = limit * asked - wrong
        for i, lost in enumerate((typical(asked), float(asked.max()))):
            broken[i] += p_mean_at_most_zero(saved, -(1 - limit) * lost) <= LEVEL
    cells = "   ".join(f"{bad / calibrations:7.4f}{_mark(bad, calibrations)}" for bad in broken)
    return f"{world.documents:4} {world.share:6.2f} {world.large:6.2f} {world.small:6.2f} {world.alike:6.1f}   {cells}"


def _mark(bad: int, of: int) -> str:
    """A star where a rate is above the level by more than two Monte Carlo standard errors."""
    return "*" if bad / of > LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / of) else " "


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrations", type=int, default=2000)
    parser.add_argument("--bca", type=int, default=0, help="of these, how many with BCa beside, which is slow")
    parser.add_argument("--pages", type=int, default=3, help="how many of the three kinds of documents")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    given = parser.parse_args()
    began = time.perf_counter()
    tables = [given.only] if given.only else TABLES
    print(f"{given.calibrations} calibrations a line; * above {LEVEL} by more than two standard errors")
    kinds = list(PAGES)[: given.pages]
    if "no-harm" in tables:
        print_no_harm(kinds, given.calibrations, given.bca)
    if "ceilings" in tables:
        print_ceilings(kinds, given.calibrations)
    if "bounds" in tables:
        print_bounds(kinds, given.calibrations // 10)
    if "uneven" in tables:
        print_uneven(given.calibrations)
    print(f"\n{time.perf_counter() - began:.0f} s")


def print_no_harm(kinds: list[str], calibrations: int, with_bca: int) -> None:
    """The first table."""
    title = f"{'no harm':36} {'documents':24} {'size':>4}"
    print(f"\n{title}  ours: ships, falsely  t: ships, falsely  BCa: ships, falsely")
    for world in worlds():
        for pages in kinds:
            print(no_harm(world, pages, calibrations, min(with_bca, calibrations)), flush=True)


def print_ceilings(kinds: list[str], calibrations: int) -> None:
    """The second: at a ceiling between two budgets, just under one, and on a curve that rises again."""
    print(f"\n{'ceiling':36} {'documents':24} {'size':>4} {'ceiling':>7}   broken  steps above oracle, none")
    for size in (75, 300):
        for pages in kinds:
            for limit in (0.2, published()["high"].error(448) - 1e-4):
                print(ceiling(published(), "published", limit, size, pages, calibrations), flush=True)
            print(ceiling(with_dips(), "non-monotone", 0.21, size, pages, calibrations), flush=True)


def print_bounds(kinds: list[str], calibrations: int) -> None:
    """The third: the one call that a calibration makes, whole."""
    print(
        f"\n{f'whole certificate, {calibrations} a line':36} {'documents':24} {'size':>4}   bounds missed, false ships"
    )
    for size in (75, 300):
        for pages in kinds:
            print(bounds(size, pages, calibrations), flush=True)


def print_uneven(calibrations: int) -> None:
    """The fourth: where it breaks. A few large documents err far more than the rest; the ceiling is the true error."""
    print(
        f"\ndocuments, share of eight questions, error there and elsewhere, alike   broken: {'ours':>7}   largest lost"
    )
    for world in (*(Uneven(75, 0.08, alike) for alike in (1.0, 0.5, 0.3)), Uneven(150, 0.04, 0.5)):
        print(uneven(world, calibrations), flush=True)
    print(uneven(Uneven(75, 0.08, 0.5, 0.20, 0.05), calibrations), flush=True)


if __name__ == "__main__":
    main()
