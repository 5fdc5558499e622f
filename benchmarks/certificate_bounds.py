"""The tables of ``certificates.py`` on the bounds themselves: other tests beside them, ceilings, whole certificates."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from benchmarks.certificate_worlds import LEVEL, MEAN, lognormal_sizes, mark
from benchmarks.scenarios import flat, published, rare_and_high_cost, with_dips
from numpy.typing import NDArray

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import (
    MOST_UNEVEN,
    UnevenDocuments,
    check_ceilings,
    p_mean_at_most_zero,
    typical,
    unevenness,
)
from stakes.calibration.certify.certificate import certify
from stakes.calibration.certify.no_harm import lost_cost, saved_by_document
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import DEFAULT, Terms, choose

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
        first, second = measured.split()
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
            cells.append(f"{shipped / of:7.3f} {falsely / of:7.4f}{mark(falsely, of)}")
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
    cells = f"{broken / calibrations:7.4f}{mark(broken, calibrations)} {np.median(above):5.0f}"
    return f"{name:36} {pages:24} {size:4} {limit:7.4f}  {cells} {none / calibrations:8.3f}"


def bounds(size: int, pages: str, calibrations: int) -> str:
    """One line: how often the whole certificate is wrong, through the one call that calibration makes."""
    rng = np.random.default_rng([size, len(pages)])
    truth, costs = published(), {"high": 5.0, "low": 1.0}
    misses = false = 0
    for _ in range(calibrations):
        measured: ByDocument = simulate(truth, dict.fromkeys(truth, size), rng, **PAGES[pages])
        try:
            found = certify(measured, costs, MEAN)
        except UnevenDocuments:  # by chance; nothing is claimed then
            continue
        misses += any(truth[tier].error(b.budget) > b.upper for tier, b in found.upper_errors.items())
        even = cwe_at(truth, dict.fromkeys(truth, MEAN), costs, measured.counts)
        false += found.shipped == "tiered" and cwe_at(truth, found.budgets, costs, measured.counts) >= even
    return (
        f"{'published, r = 5':36} {pages:24} {size:4}  {misses / calibrations:7.4f}{mark(misses, calibrations)} "
        f"{false / calibrations:7.4f}{mark(false, calibrations)}"
    )


class FewLarge(NamedTuple):
    """Documents of one question and a few of ``many``, which err more; ``alike``: how much within one.

    ``many`` 0: log-normal sizes, of which those of ten and more are the large ones. ``limit``: so many count.
    """

    documents: int
    share: float
    alike: float = 1.0
    large: float = 0.30
    small: float = 0.03
    many: int = 8
    limit: int = 60

    def draw(self, rng: np.random.Generator, number: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Error rates and questions of each document."""
        number = number or self.documents
        asked = (
            lognormal_sizes(rng, number) if not self.many else np.where(rng.random(number) < self.share, self.many, 1)
        )
        error = np.where(asked >= (self.many or 10), self.large, self.small)
        return error, np.minimum(asked, self.limit)

    def wrong(
        self, error: NDArray[np.float64], asked: NDArray[np.int64], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Wrong answers of each document."""
        if self.alike < 1:
            known = (1 - self.alike) / self.alike
            return rng.binomial(asked, rng.beta(error * known, (1 - error) * known))
        return np.where(rng.random(len(error)) < error, asked, 0)

    @property
    def truth(self) -> float:
        """The error over all questions that count."""
        error, asked = self.draw(np.random.default_rng(0), 1_000_000)
        return float((error * asked).sum() / asked.sum())


def uneven(world: FewLarge, calibrations: int) -> str:
    """One line: how often a ceiling at the true error is passed, and where uneven sizes are refused."""
    rng = np.random.default_rng([world.documents, round(100 * world.share), round(10 * world.alike), world.many])
    limit, broken, refused = world.truth, [0, 0, 0], 0
    for _ in range(calibrations):
        error, asked = world.draw(rng)
        saved = limit * asked - world.wrong(error, asked, rng)
        passed, strictly = (
            p_mean_at_most_zero(saved, -(1 - limit) * lost) <= LEVEL for lost in (typical(asked), float(asked.max()))
        )
        is_uneven = unevenness(asked) > MOST_UNEVEN
        refused += is_uneven
        for i, bad in enumerate((passed and not is_uneven, passed, strictly)):
            broken[i] += bad
    cells = "   ".join(f"{bad / calibrations:7.4f}{mark(bad, calibrations)}" for bad in broken)
    kind = f"{world.share:.0%} of {world.many}" if world.many else "log-normal"
    kind += "" if world.limit == 60 else f", {world.limit} count"
    sizes = f"{world.documents:4} documents, {kind}; error {world.large:g} and {world.small:g}, alike {world.alike:g}"
    return f"{sizes:72} {cells}   {refused / calibrations:7.3f}"


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
    """The fourth: a few large documents err far more than the rest; the ceiling is the true error."""
    print(f"\n{'ceiling at the true error, large documents and others':72} broken   unchecked  largest lost  refused")
    eight = (FewLarge(75, 0.08, alike) for alike in (1.0, 0.5, 0.3))
    others = (
        FewLarge(150, 0.04),
        FewLarge(150, 0.02, many=20),
        FewLarge(75, 0.08, 0.5, 0.20, 0.05),
        FewLarge(100, 0.08, 1.0, 0.2, 0.02, many=2),
        FewLarge(200, 0.02, many=3),
        FewLarge(150, 0.0, many=0),
        FewLarge(150, 0.0, many=0, limit=4),
    )
    for world in (*eight, *others):
        print(uneven(world, calibrations), flush=True)
