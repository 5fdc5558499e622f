"""Estimate how many questions must be labeled for a certificate, by simulating calibrations before anyone labels.

Curves that are known or assumed (published ones, a pilot's, another model's) stand for the truth. For increasing
numbers of questions per tier, calibrations are simulated from them and certified as a real one would be, and the share
that succeeds is counted:

* ``ships``: tiered budgets pass the no-harm test, harm limits included;
* ``kept``: a tier's ceiling passes, at some budget, and with how many tokens in the median;
* ``width``: by how much a tier's upper error bound lies above its measured error, in the mean.

The first number at which everything requested happens with the requested ``power`` is the answer. If the assumed curves
are wrong, so is the number; the certificate itself never rests on it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import numpy as np

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import UnevenDocuments
from stakes.calibration.certify.certificate import Certificate, Certification, certify
from stakes.calibration.estimators import DEFAULT
from stakes.errors import BadInput, InfeasibleBudget

PAPER_DEPENDENCE = 0.8
SIZES = (50, 75, 100, 150, 200, 300, 450, 700, 1000, 1500)
REPEATS = 100


def simulate(
    truth: Mapping[str, Curve],
    counts: Mapping[str, int],
    rng: np.random.Generator,
    *,
    dependence: float = PAPER_DEPENDENCE,
    per_document: float = 1.0,
    likeness: float = 0.0,
) -> ByDocument:
    """Outcomes of ``counts[tier]`` simulated questions at every budget, ``per_document`` on a page on average.

    Every question has a latent difficulty, so that its answers at different budgets are correlated as in reality:

        z(q, b) = sqrt(d) (sqrt(a) D + sqrt(1 - a) Q) + sqrt(1 - d) N,     wrong at b  <=>  Phi(z(q, b)) < e(b)

    with D, Q and N standard normal: D shared by all questions of a document, Q of the question, N new at each budget.
    ``dependence`` d = 1 gives every question one needed budget and answers that only ever change from wrong to right
    (where the curve falls); below 1 there is label noise on top. ``likeness`` a is the page's share of the difficulty.
    The error rate at each budget is e(b) exactly, whatever the dependence and the shape of the curve.

    The paper's discordant answers on DocVQA were 54 : 4 between 304 and 512 tokens and 65 : 5 between 304 and 576;
    d = 0.8, the default, gives 55.2 : 5.2 and 62.9 : 2.9 on average.
    """
    from scipy.special import ndtri

    for name, share in (("dependence", dependence), ("likeness", likeness)):
        if not 0 <= share <= 1:
            raise BadInput(f"{name} is a share between 0 and 1, not {share}")
    if per_document < 1:
        raise BadInput(f"a document has at least one question, not {per_document}")
    grids = {curve.budgets for curve in truth.values()}
    if len(grids) != 1:
        raise BadInput("all tiers need the same measured budgets to simulate answers; give curves on one grid")
    budgets, total = grids.pop(), sum(counts[tier] for tier in truth)
    number = min(total, max(2, round(total / per_document)))
    # One question per page first, so that none is empty and the mean is as requested; the others land on any page with
    # equal probability, so pages differ in how many they hold and of which tier.
    pages = rng.permutation(np.concatenate([np.arange(number), rng.integers(0, number, total - number)]))
    page = rng.standard_normal(number)
    wrong, asked, start = {}, {}, 0
    for tier, curve in truth.items():
        n = counts[tier]
        at = pages[start : start + n]
        start += n
        own = np.sqrt(likeness) * page[at] + np.sqrt(1 - likeness) * rng.standard_normal(n)
        latent = np.sqrt(dependence) * own[:, None]
        if dependence < 1:
            latent = latent + np.sqrt(1 - dependence) * rng.standard_normal((n, len(budgets)))
        failed = latent < ndtri(np.array(curve.errors))
        table = np.zeros((number, len(budgets)), dtype=np.int64)
        np.add.at(table, at, failed)
        wrong[tier] = table
        asked[tier] = np.repeat(np.bincount(at, minlength=number)[:, None], len(budgets), axis=1).astype(np.int64)
    return ByDocument(tuple(f"page {i}" for i in range(number)), budgets, wrong, asked)


@dataclass(frozen=True)
class Design:
    """The questions that would be labeled: relative numbers by tier, questions per document, and their correlation.

    ``likeness`` is the page's share of a question's difficulty; it matters from two questions per page up.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    per_document: float = 1.0
    likeness: float = 0.3
    dependence: float = PAPER_DEPENDENCE

    def counts(self, tiers: Iterable[str], size: int) -> dict[str, int]:
        """Questions by tier, ``size`` per tier on average."""
        weight = {tier: self.shares.get(tier, 1.0) for tier in tiers}
        mean = sum(weight.values()) / len(weight)
        return {tier: max(2, round(size * share / mean)) for tier, share in weight.items()}


@dataclass(frozen=True)
class Search:
    """Which sizes are tried, with how many simulated calibrations each, until ``power`` is reached."""

    power: float = 0.8
    sizes: Sequence[int] = SIZES
    repeats: int = REPEATS
    estimator: str = DEFAULT
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.power < 1:
            raise BadInput(
                f"power is the probability of getting the certificate, between 0 and 1, not {self.power}; 0.8 is usual"
            )
        if self.repeats < 10:
            raise BadInput(f"{self.repeats} simulated calibrations cannot estimate a probability; use at least 10")


@dataclass(frozen=True)
class SizeRow:
    """The result of labeling ``samples[tier]`` questions of each tier, on about ``documents`` pages."""

    samples: Mapping[str, int]
    documents: int
    ships: float
    kept: Mapping[str, float]
    """By tier with a ceiling: the share of calibrations that certify it."""
    tokens: Mapping[str, float | None]
    """By tier with a ceiling: the median of the certified budgets; None where most certify none."""
    width: Mapping[str, float]
    enough: bool
    """Whether everything requested happens with the requested power."""


@dataclass(frozen=True)
class SamplesNeeded:
    """The sizes tried, and the first that is enough."""

    rows: tuple[SizeRow, ...]
    confidence: float
    power: float
    repeats: int
    needed: Mapping[str, int] | None
    """None: not even the largest size tried is enough."""
    why_not: str

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def samples_needed(
    truth: Mapping[str, Curve],
    costs: Mapping[str, float],
    mean_budget: int,
    certification: Certification | None = None,
    design: Design | None = None,
    search: Search | None = None,
    on_row: Callable[[SizeRow], None] = lambda _: None,
) -> SamplesNeeded:
    """Try increasing numbers of questions until one is enough for the certificate; ``on_row`` gets every row."""
    goal, design, search = certification or Certification(), design or Design(), search or Search()
    for tier in costs:
        if tier not in truth:
            raise BadInput(f"tier {tier!r} has a cost but no curve; the curves are of {', '.join(truth)}")
    curves = shared_grid({tier: truth[tier] for tier in costs})
    impossible = _impossible(curves, goal.ceilings)
    correlation = {name: getattr(design, name) for name in ("dependence", "per_document", "likeness")}
    rng, rows = np.random.default_rng(search.seed), list[SizeRow]()
    for size in search.sizes:
        counts = design.counts(costs, size)
        certificates, documents = list[Certificate](), 0
        for _ in range(search.repeats):
            measured = simulate(curves, counts, rng, **correlation)
            documents += len(measured)
            # A ceiling that takes more tokens than there are, or pages that came out uneven by chance: nothing ships.
            with suppress(InfeasibleBudget, UnevenDocuments):
                certificates.append(certify(measured, costs, mean_budget, goal, estimator=search.estimator))
        rows.append(_row(certificates, counts, documents, search, goal.ceilings))
        on_row(rows[-1])
        if rows[-1].enough or impossible:
            break
    enough = next((row.samples for row in rows if row.enough), None)
    why_not = "" if enough else impossible or "not even the largest number tried is enough: too little can be gained"
    return SamplesNeeded(tuple(rows), goal.confidence, search.power, search.repeats, enough, why_not)


def shared_grid(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """The curves at the budgets that all tiers were measured at."""
    shared = sorted(set.intersection(*(set(curve.budgets) for curve in curves.values())))
    if not shared:
        raise BadInput("the tiers share no measured budget, so no calibration can be simulated from their curves")
    return {
        tier: Curve(shared, [curve.error(b) for b in shared], [curve.counts[curve.index(b)] for b in shared])
        for tier, curve in curves.items()
    }


def _impossible(curves: Mapping[str, Curve], ceilings: Mapping[str, float]) -> str:
    for tier, ceiling in ceilings.items():
        if tier not in curves:
            raise BadInput(f"a ceiling is given for tier {tier!r}; the tiers are {', '.join(curves)}")
        largest = curves[tier].errors[-1]
        if largest >= ceiling:
            return (
                f"no number of questions certifies {tier} error <= {ceiling:g}: these curves put it at {largest:.3f} "
                f"with {curves[tier].budgets[-1]} tokens, the most that was measured"
            )
    return ""


def _row(
    certificates: list[Certificate],
    counts: Mapping[str, int],
    documents: int,
    search: Search,
    ceilings: Mapping[str, float],
) -> SizeRow:
    repeats = search.repeats
    # With ceilings, tiered budgets may ship for a ceiling's sake: what counts here is the no-harm test alone.
    ships = sum(c.passed for c in certificates) / repeats
    kept = {tier: sum(c.ceilings[tier].met for c in certificates) / repeats for tier in ceilings}
    tokens: dict[str, float | None] = {}
    for tier in ceilings:
        budgets = [b for c in certificates if (b := c.ceilings[tier].budget) is not None]
        tokens[tier] = float(np.median(budgets)) if 2 * len(budgets) > repeats else None
    width = {
        tier: float(
            np.mean([c.upper_errors[tier].upper - c.upper_errors[tier].error for c in certificates] or [np.nan])
        )
        for tier in counts
    }
    return SizeRow(
        samples=dict(counts),
        documents=round(documents / repeats),
        ships=ships,
        kept=kept,
        tokens=tokens,
        width=width,
        # Given ceilings are the goal; without any, a certified gain is.
        enough=all(share >= search.power for share in kept.values()) if kept else ships >= search.power,
    )
