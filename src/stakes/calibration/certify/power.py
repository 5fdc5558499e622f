"""How many questions must be labelled for a wanted certainty? Asked of imagined calibrations, before anyone labels.

Curves that are known or guessed (published ones, a pilot's, another model's) stand for the truth. For rising numbers of
questions a tier, calibrations are imagined from them (``simulate``) and certified as a real one would be, and the share
that ends well is counted:

* ``ships``: tiered budgets pass the no-harm test;
* ``kept``: a tier's ceiling passes, at some budget, and with how many tokens in the median;
* ``width``: by how much a tier's upper error bound lies above its measured error, in the mean.

The first number at which everything wanted happens with the wanted ``power`` is the answer. If the curves that were
guessed are wrong, so is the number; the certificate itself never rests on it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.certificate import CONFIDENCE, Certificate, certify
from stakes.calibration.estimators import DEFAULT
from stakes.errors import BadInput, InfeasibleBudget

# What would a calibration have seen, were these the true curves? Paired outcomes of imagined questions.
#
# Every question has a latent difficulty, so that its answers at different budgets hang together as they do in reality:
#
#     z(q, b) = sqrt(d) (sqrt(a) D + sqrt(1 - a) Q) + sqrt(1 - d) N,     wrong at b  <=>  Phi(z(q, b)) < e(b)
#
# with D, Q and N standard normal: D shared by all questions of a document, Q of the question, N afresh at each budget.
# ``dependence`` d = 1 gives every question one needed budget and answers that only ever turn from wrong to right
# (where
# the curve falls); below 1 there is label noise on top. ``likeness`` a is how much of the difficulty is the page's.
# The error rate at each budget is e(b) exactly, whatever the dependence and whatever the shape of the curve.
#
# The paper's discordant answers on DocVQA were 54 : 4 between 304 and 512 tokens and 65 : 5 between 304 and 576;
# d = 0.8, the default, gives 55.2 : 5.2 and 62.9 : 2.9 on average.


PAPER_DEPENDENCE = 0.8


def simulate(
    truth: Mapping[str, Curve],
    counts: Mapping[str, int],
    rng: np.random.Generator,
    *,
    dependence: float = PAPER_DEPENDENCE,
    per_document: float = 1.0,
    likeness: float = 0.0,
) -> ByDocument:
    """Ask ``counts[tier]`` imagined questions of each tier, ``per_document`` on a page on average, at every budget."""
    from scipy.special import ndtri

    for name, share in (("dependence", dependence), ("likeness", likeness)):
        if not 0 <= share <= 1:
            raise BadInput(f"{name} is a share between 0 and 1, not {share}")
    if per_document < 1:
        raise BadInput(f"a document has at least one question, not {per_document}")
    grids = {curve.budgets for curve in truth.values()}
    if len(grids) != 1:
        raise BadInput("all tiers need the same measured budgets to imagine answers from; give curves on one grid")
    budgets, total = grids.pop(), sum(counts[tier] for tier in truth)
    number = min(total, max(2, round(total / per_document)))
    # One question a page first, so that none is empty and the mean is what was asked for; the others land on any page
    # alike, so pages differ in how many they hold and of which tier.
    pages = rng.permutation(np.concatenate([np.arange(number), rng.integers(0, number, total - number)]))
    page = rng.standard_normal(number)
    wrong, asked, start = {}, {}, 0
    for tier, curve in truth.items():
        n = counts[tier]
        mine = pages[start : start + n]
        start += n
        own = np.sqrt(likeness) * page[mine] + np.sqrt(1 - likeness) * rng.standard_normal(n)
        latent = np.sqrt(dependence) * own[:, None]
        if dependence < 1:
            latent = latent + np.sqrt(1 - dependence) * rng.standard_normal((n, len(budgets)))
        failed = latent < ndtri(np.array(curve.errors))
        table = np.zeros((number, len(budgets)), dtype=np.int64)
        np.add.at(table, mine, failed)
        wrong[tier] = table
        asked[tier] = np.repeat(np.bincount(mine, minlength=number)[:, None], len(budgets), axis=1).astype(np.int64)
    return ByDocument(tuple(f"page {i}" for i in range(number)), budgets, wrong, asked)


SIZES = (50, 75, 100, 150, 200, 300, 450, 700, 1000, 1500)
REPEATS = 100


@dataclass(frozen=True)
class SizeRow:
    """What comes of labelling ``samples[tier]`` questions of each tier, on about ``documents`` pages."""

    samples: Mapping[str, int]
    documents: int
    ships: float
    kept: Mapping[str, float]
    """By tier with a ceiling: the share of calibrations that certify it."""
    tokens: Mapping[str, float | None]
    """By tier with a ceiling: the median of the budgets that they certify; None where most certify none."""
    width: Mapping[str, float]
    enough: bool
    """Whether all that is wanted happens with the wanted power."""


@dataclass(frozen=True)
class SamplesNeeded:
    """The rows tried, and the first that is enough."""

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
    *,
    confidence: float = CONFIDENCE,
    power: float = 0.8,
    ceilings: Mapping[str, float] | None = None,
    shares: Mapping[str, float] | None = None,
    per_document: float = 1.0,
    likeness: float = 0.3,
    dependence: float = PAPER_DEPENDENCE,
    estimator: str = DEFAULT,
    sizes: Iterable[int] = SIZES,
    repeats: int = REPEATS,
    seed: int = 0,
    tell: Callable[[SizeRow], None] | None = None,
) -> SamplesNeeded:
    """Try sizes, questions per tier on average, until one is enough; ``shares``: the tiers' relative numbers.

    ``likeness`` is how much of a question's difficulty is its page's; it matters from two questions a page up.
    """
    if not 0 < power < 1:
        raise BadInput(f"power is the chance that the certificate is had, between 0 and 1, not {power}; 0.8 is usual")
    if repeats < 10:
        raise BadInput(f"{repeats} imagined calibrations tell no chance of anything; imagine at least 10")
    for tier in costs:
        if tier not in truth:
            raise BadInput(f"tier {tier!r} has a cost but no curve; the curves are of {', '.join(truth)}")
    curves = shared_grid({tier: truth[tier] for tier in costs})
    impossible = _impossible(curves, ceilings or {})
    weight = {tier: (shares or {}).get(tier, 1.0) for tier in costs}
    mean = sum(weight.values()) / len(weight)
    rng, rows = np.random.default_rng(seed), list[SizeRow]()
    for size in sizes:
        counts = {tier: max(2, round(size * weight[tier] / mean)) for tier in costs}
        found, documents, refused = list[Certificate](), 0, 0
        for _ in range(repeats):
            measured = simulate(
                curves, counts, rng, dependence=dependence, per_document=per_document, likeness=likeness
            )
            documents += len(measured)
            try:
                found.append(
                    certify(measured, costs, mean_budget, estimator=estimator, confidence=confidence, ceilings=ceilings)
                )
            except InfeasibleBudget:
                refused += 1  # a ceiling that takes more tokens than there are: nothing ships
        rows.append(_row(found, counts, documents / repeats, repeats, power, ceilings or {}, costs))
        if tell:
            tell(rows[-1])
        if rows[-1].enough or impossible:
            break
    enough = next((row.samples for row in rows if row.enough), None)
    why_not = "" if enough else impossible or "not even the most tried are enough: too little is to be gained"
    return SamplesNeeded(tuple(rows), confidence, power, repeats, enough, why_not)


def shared_grid(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    """The curves at the budgets that all tiers were measured at."""
    shared = sorted(set.intersection(*(set(curve.budgets) for curve in curves.values())))
    if not shared:
        raise BadInput("the tiers share no measured budget, so that no calibration can be imagined from their curves")
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
    found: list[Certificate],
    counts: Mapping[str, int],
    documents: float,
    repeats: int,
    power: float,
    ceilings: Mapping[str, float],
    costs: Mapping[str, float],
) -> SizeRow:
    # With ceilings, tiered budgets may ship for a ceiling's sake: what counts here is the no-harm test alone.
    ships = sum(c.no_harm is not None and c.no_harm.lower > 0 for c in found) / repeats
    kept = {tier: sum(c.ceilings[tier].met for c in found) / repeats for tier in ceilings}
    tokens: dict[str, float | None] = {}
    for tier in ceilings:
        budgets = [b for c in found if (b := c.ceilings[tier].budget) is not None]
        tokens[tier] = float(np.median(budgets)) if 2 * len(budgets) > repeats else None
    width = {
        tier: float(np.mean([c.upper_errors[tier].upper - c.upper_errors[tier].error for c in found] or [np.nan]))
        for tier in costs
    }
    return SizeRow(
        samples=dict(counts),
        documents=round(documents),
        ships=ships,
        kept=kept,
        tokens=tokens,
        width=width,
        # A ceiling is what its asker wants; without one, a certified gain is.
        enough=all(share >= power for share in kept.values()) if kept else ships >= power,
    )
