"""Check certificates: false ships, broken ceilings and bounds over thousands of simulated calibrations.

    python benchmarks/certificates.py [--calibrations 2000] [--only uneven] [--all] [--bca 500]

Every calibration simulates new questions from known true curves, chooses on a quarter of the documents with the default
estimator and certifies on the others. A false ship is a tiered choice that ships though its true CWE is no lower than
uniform's. Printed by default: false ships in the hard cases (misread tiers, groups, uneven documents, rare errors,
ties), broken ceilings on uneven documents, the share of true gains that ship, by the share of the documents that is
chosen on, and harm limits (``certificate_limits``). ``--all`` adds the others. There, beside the test in use, "ours",
stand two that are often used in its place on the same documents: Student's t and a one-sided BCa interval over them.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.certificate_bounds import PAGES, World, print_bounds, print_ceilings, print_no_harm, print_uneven
from benchmarks.certificate_limits import print_limits
from benchmarks.certificate_worlds import LEVEL, MEAN, Grouped, Misread, Uneven, mark
from benchmarks.scenarios import flat, published, rare_and_high_cost, rising, unequal, with_dips

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.by_document import PARTS, ByDocument
from stakes.calibration.certify.ceiling import UnevenDocuments, check_even, p_mean_at_most_zero
from stakes.calibration.certify.no_harm import lost_cost, saved_by_document
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import DEFAULT, Terms, choose

DEFAULT_TABLES = ("false-ships", "uneven", "power", "limits")
TABLES = (*DEFAULT_TABLES, "no-harm", "ceilings", "bounds")
COMPARED = 4  # one calibration of so many is also done the other way, for the comparison


class Tally:
    """Ships and false ships, the way it is done and the way it is compared with."""

    def __init__(self) -> None:
        self.counts = np.zeros((2, 3), dtype=int)  # ours and the other; calibrations, ships, false ships

    def add(self, ours: bool, ships: bool, falsely: bool) -> None:
        """Count one calibration."""
        self.counts[0 if ours else 1] += (1, ships, ships and falsely)

    def line(self, name: str, size: str) -> str:
        """One row of the table."""
        cells = [f"{s / n:7.3f} {bad / n:7.4f}{mark(bad, n)}" for n, s, bad in self.counts.tolist() if n]
        return f"{name:58} {size:14} " + "   ".join(cells)


def no_gain(measured: ByDocument, costs: Mapping[str, float], parts: int = PARTS) -> tuple[dict[str, int], float]:
    """The budgets chosen on one of so many parts, and the p-value of "they gain nothing" on the others."""
    first, *others = measured.parts(parts)
    choosing, certifying = measured.subset(first), measured.subset(np.sort(np.concatenate(others)))
    counts = measured.counts
    terms = Terms(choosing.expected_costs(costs), counts, MEAN * sum(counts.values()))
    budgets = dict(choose(choosing, terms, DEFAULT).budgets)
    if set(budgets.values()) == {MEAN}:
        return budgets, 1.0
    saved, weight = saved_by_document(certifying, costs, budgets, MEAN)
    return budgets, p_mean_at_most_zero(saved, -lost_cost(weight, costs))


def misread(world: Misread, calibrations: int) -> str:
    """One line: ships and false ships with costs by label, and with costs by reading."""
    rng = np.random.default_rng([world.size, round(100 * world.rate), round(world.ratio), len(world.name)])
    tally = Tally()
    for turn in range(calibrations):
        questions = world.draw(rng)
        for by_label in (True, False) if turn % COMPARED == 0 else (True,):
            budgets, p = no_gain(questions.tables(by_label=by_label), world.costs)
            tally.add(by_label, p < LEVEL, world.gain(budgets) <= 1e-12)
    return tally.line(f"{world.rate:.0%} misread, {world.name}", f"{world.size} a tier")


def grouped(world: Grouped, calibrations: int) -> str:
    """One line: false ships where groups are the units, and where documents are."""
    rng, tally = np.random.default_rng([world.groups, world.documents]), Tally()
    for turn in range(calibrations):
        questions = world.draw(rng)
        tally.add(True, no_gain(questions.tables(), world.costs)[1] < LEVEL, True)
        if turn % COMPARED == 0:
            tally.add(False, no_gain(questions.tables(unit=world.pages(questions)), world.costs)[1] < LEVEL, True)
    return tally.line("groups that gain and groups that lose", f"{world.groups} x {world.documents}")


def sizes(world: Uneven, calibrations: int) -> str:
    """One line: false ships where sizes are checked, and where they are not."""
    rng, tally, refused = np.random.default_rng([world.documents, world.limit or 0]), Tally(), 0
    for _ in range(calibrations):
        questions = world.draw(rng)
        measured = questions.tables(kept=world.counted(questions, rng))
        ships = no_gain(measured, world.costs)[1] < LEVEL
        try:
            check_even(measured, world.limit)
            issued = True
        except UnevenDocuments:
            issued, refused = False, refused + 1
        tally.add(True, issued and ships, True)
        tally.add(False, ships, True)
    name = f"log-normal sizes, {'no limit' if world.limit is None else f'at most {world.limit} count'}"
    return f"{tally.line(name, f'{world.documents} documents')}   refused {refused / calibrations:.3f}"


def plain(world: World, pages: str, calibrations: int) -> str:
    """One line: false ships with a quarter to choose on, and with half."""
    rng = np.random.default_rng([world.size, round(world.ratio), len(pages)])
    tally, costs = Tally(), {"high": world.ratio, "low": 1.0}
    for turn in range(calibrations):
        measured = simulate(world.truth, dict.fromkeys(world.truth, world.size), rng, **PAGES[pages])
        for parts in (PARTS, 2) if turn % COMPARED == 0 else (PARTS,):
            budgets, p = no_gain(measured, costs, parts)
            tally.add(parts == PARTS, p < LEVEL, gain(world.truth, costs, measured, budgets) <= 1e-12)
    return tally.line(f"{world.name}, {pages}", f"{world.size} a tier")


def gain(
    truth: Mapping[str, Curve], costs: Mapping[str, float], measured: ByDocument, budgets: dict[str, int]
) -> float:
    """True CWE of uniform minus that of the budgets."""
    even, counts = dict.fromkeys(truth, MEAN), measured.counts
    return cwe_at(truth, even, costs, counts) - cwe_at(truth, budgets, costs, counts)


def print_false_ships(calibrations: int) -> None:
    """The cases in which earlier certificates were false; each has its own comparison."""
    print(f"\n{'false ships':58} {'size':14} ships, falsely   without it: ships, falsely")
    print("costs by label | costs by reading")
    for rate in (0.05, 0.15, 0.25):
        for name, truth, ratio in (
            ("flat, r = 5", flat(), 5),
            ("rare losses, r = 20", rare_and_high_cost(), 20),
            ("published, r = 10", published(), 10),
        ):
            print(misread(Misread(truth, ratio, rate, name=name), calibrations), flush=True)
    print("groups as units | documents as units")
    for groups, documents in ((40, 4), (8, 20)):
        print(grouped(Grouped(published(), groups, documents), calibrations), flush=True)
    print("certified | as if sizes were not checked")
    for limit in (None, 4, 6):
        print(sizes(Uneven(published(), limit=limit), calibrations), flush=True)
    print("a quarter to choose on | half")
    for size in (300, 75):
        for pages in list(PAGES)[:2]:
            print(plain(World("rare errors, r = 20", rare_and_high_cost(), 20, size), pages, calibrations), flush=True)
            print(plain(World("ties: flat curves, r = 5", flat(), 5, size), pages, calibrations), flush=True)


def print_power(calibrations: int) -> None:
    """How many true gains ship, and what is gained on average, for each share of documents to choose on."""
    shares = (2, 3, PARTS, 6)
    print(f"\n{'true gains that ship, mean true gain; chosen on':58} " + "   ".join(f"1/{n:<14}" for n in shares))
    for size, ratio in ((300, 5), (300, 10), (150, 5), (150, 10), (75, 10), (75, 20)):
        costs, rng = {"high": float(ratio), "low": 1.0}, np.random.default_rng([size, ratio])
        ships, gains = np.zeros(len(shares)), np.zeros(len(shares))
        for turn in range(calibrations):
            truth = (published, unequal, rising, with_dips)[turn % 4]()
            measured = simulate(truth, dict.fromkeys(truth, size), rng, **PAGES["two a page, alike"])
            for i, parts in enumerate(shares):
                budgets, p = no_gain(measured, costs, parts)
                true = gain(truth, costs, measured, budgets)
                if p < LEVEL:
                    ships[i] += true > 0
                    gains[i] += true
        cells = "   ".join(
            f"{s / calibrations:6.3f} {g / calibrations:9.4f}" for s, g in zip(ships, gains, strict=True)
        )
        print(f"{f'four curves, two a page, {size} a tier, r = {ratio}':58} {cells}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calibrations", type=int, default=2000)
    parser.add_argument("--bca", type=int, default=0, help="of these, how many with BCa beside, which is slow")
    parser.add_argument("--pages", type=int, default=3, help="how many of the three kinds of documents")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    parser.add_argument("--all", action="store_true", help="all tables")
    given = parser.parse_args()
    began = time.perf_counter()
    tables = [given.only] if given.only else TABLES if given.all else DEFAULT_TABLES
    print(f"{given.calibrations} calibrations a line; * above {LEVEL} by more than two standard errors")
    kinds = list(PAGES)[: given.pages]
    if "false-ships" in tables:
        print_false_ships(given.calibrations)
    if "power" in tables:
        print_power(given.calibrations // 4)
    if "limits" in tables:
        print_limits(given.calibrations)
    if "uneven" in tables:
        print_uneven(given.calibrations)
    if "no-harm" in tables:
        print_no_harm(kinds, given.calibrations, given.bca)
    if "ceilings" in tables:
        print_ceilings(kinds, given.calibrations)
    if "bounds" in tables:
        print_bounds(kinds, given.calibrations // 10)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
