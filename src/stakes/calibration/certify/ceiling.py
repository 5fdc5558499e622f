"""Bounds of a mean over documents, and the budgets that keep a tier's error under a ceiling (Learn-then-Test).

**Bound.** For independent values x_1 … x_n the p-value of "their mean is at most zero" is

    p = P( E_0 lost + E_1 x_1 + … + E_n x_n <= 0 ),     E_i independent, standard exponential

Gaffke's bound: a Bayesian bootstrap of the documents with one more, ``lost`` altogether. For right-or-wrong values it
is the exact binomial test (Clopper–Pearson); for many documents it comes close to Student's t; and unlike t or BCa it
is not fooled by losses that are rare, expensive and happened not to be seen. With ``lost`` the least that a value can
be, no bounded distribution is known to break it at any size; that none does is a conjecture (Learned-Miller and Thomas,
arXiv 1905.06208). Documents with several questions differ in size, and the largest lost would dominate the rest, so
``lost`` is here the document in which the average question stands, ``sum(w²) / sum(w)`` (``typical``), any of them
where all are of one size. benchmarks/certificates.py checks all of this where this project uses it.

Limit: where a few documents hold many questions each and are much harder than the rest, the level is not kept. With 4
to 8 % of the documents holding eight questions at ten times the others' error, a ceiling at the true rate was passed in
up to 25 % of simulations at a nominal 5 % (``--only uneven``). The largest document as ``lost`` would hold the level
there, at 0.3 %, and would take most of the power everywhere: at r = 5 with 300 questions per tier, two per page, tiers
would ship in 0.17 of the calibrations in place of 0.62. So nothing is certified where sizes are uneven (``check_even``)
unless a limit per document is given. Large documents that occur in the traffic and not in the sample stay unseen.

**Ceilings.** "Error at b is at or above the ceiling" is tested at each budget, largest first, each at the full level.
The first that cannot be rejected ends it (fixed-sequence testing, arXiv 2110.01052). The order is fixed before any
answer is seen, so the probability that any budget is passed wrongly is at most the level: all budgets from the
smallest that passed upward may be used, whichever is then chosen and why. No curve is assumed to fall. Every document
may be used for this, also those that the budgets are chosen on.

    >>> round(p_mean_at_most_zero([0.1] * 29 + [-0.9], lost=-0.9), 4)      # 1 wrong of 30: P[Bin(30, 0.1) <= 1]
    0.1837
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from stakes.calibration.by_document import ByDocument
from stakes.errors import BadInput

STEP = 0.1
FAR = 13.0
BEND = 0.4
INSIDE = 1 - 1e-9
MOST_UNEVEN = 1.3  # of questions by document: above, no certificate is issued (``unevenness``)
TIER_UNEVEN = 1.5  # of one tier's questions by document; chance makes these more uneven than their sum
SHOWN = 3  # documents that a message names
AWAY = 0.5  # how far the path of integration stays from the pole, in standard deviations


def typical(weights: ArrayLike) -> float:
    """The weight of the document in which the average unit of weight lies: ``sum(w²) / sum(w)``."""
    w = np.asarray(weights, dtype=float)
    return float((w**2).sum() / w.sum())


def unevenness(sizes: ArrayLike) -> float:
    """How much larger than the typical document the few largest are: ``sum(w³) sum(w) / sum(w²)²``, 1 where all equal.

    >>> unevenness([2] * 50), round(unevenness([1] * 69 + [8] * 6), 2)
    (1.0, 1.78)
    """
    w = np.asarray(sizes, dtype=float)
    return float((w**3).sum() * w.sum() / (w**2).sum() ** 2)


class UnevenDocuments(BadInput):
    """Few documents hold many of the questions."""


def check_even(measured: ByDocument, limit: int | None = None) -> None:
    """Refuse to certify where few documents hold many of the questions; ``limit``: the largest size permitted."""
    tiers = {tier: table.max(axis=1, initial=0) for tier, table in measured.asked.items()}
    sizes = sum(tiers.values(), np.zeros(len(measured), np.int64))
    if limit is not None and sizes.max(initial=0) > limit:
        raise BadInput(f"a document has {sizes.max()} questions, and at most {limit} may count; leave the others out")

    def is_even(cap: int) -> bool:
        capped = np.minimum(sizes, cap)
        alike = all(unevenness(np.minimum(own, cap)) <= TIER_UNEVEN for own in tiers.values() if own.any())
        return unevenness(capped) <= MOST_UNEVEN and alike

    if not sizes.any() or is_even(int(sizes.max())):
        return
    cap = next(k for k in range(int(sizes.max()) - 1, 0, -1) if is_even(k))
    large = sorted(np.flatnonzero(sizes > cap), key=lambda i: (-sizes[i], measured.documents[i]))
    names = ", ".join(f"{measured.documents[i]} ({sizes[i]})" for i in large[:SHOWN])
    more = f" and {len(large) - SHOWN} more" if len(large) > SHOWN else ""
    hold = f"{'hold' if len(large) > 1 else 'holds'} {sizes[large].sum() / sizes.sum():.0%} of the questions"
    raise UnevenDocuments(
        f"{len(large)} of {len(measured)} documents {hold}: {names}{more}. If large documents are harder than others, "
        "the stated confidence does not hold, so no certificate is issued; take about as many questions from each "
        f"document, or let at most {cap} of each count with --max-per-document {cap}, and the claim is of that rate"
    )


def p_mean_at_most_zero(values: ArrayLike, lost: float) -> float:
    """The p-value of "the mean is at most zero"; ``lost`` < 0 is the value of a document lost altogether.

    One integral of the generating function through its saddle point, by the trapezoid rule; nothing is random.
    """
    from scipy.optimize import brentq

    x = np.asarray(values, dtype=float)
    if not lost < 0:
        raise BadInput(f"a document lost altogether must lie below zero, not at {lost}")
    x = x[np.abs(x) > 1e-12 * max(-lost, np.abs(x).max(initial=0.0))]  # values of zero change nothing
    value, times = np.unique(np.append(x, lost), return_counts=True)
    if value[-1] < 0:
        return 1.0
    value = value / np.sqrt((times * value**2).sum())
    first, last = 1 / value[0], 1 / value[-1]  # exp(K) is finite between these
    # The saddle is the zero of K'(s), with K(s) = -sum(times log(1 - s value)), which rises all the way between them.
    saddle = float(
        brentq(lambda s: (times * value / (1 - s * value)).sum(), INSIDE * first, INSIDE * last, maxiter=200)
    )
    # To the left of the pole at 0 lies the probability of Q <= 0, to the right, with the other sign, that of Q > 0.
    left = saddle < 0
    if left:
        point = max(min(saddle, -AWAY), min(saddle, 0.9 * first))
    else:
        point = min(max(saddle, AWAY), max(saddle, 0.9 * last))
    width = 1 / np.sqrt((times * (value / (1 - point * value)) ** 2).sum())
    along = np.arange(0.0, FAR, STEP)
    # Bent away from the side where the singularity of highest order lies: upright, many small values make it swing.
    bend = -BEND if times[value > 0].sum() > times[value < 0].sum() else BEND
    path = point + width * (1j * np.sinh(along) + bend * (np.cosh(along) - 1))
    pace = width * (1j * np.cosh(along) + bend * np.sinh(along))
    logs = -np.log(1 - np.outer(path, value)) @ times
    steps = np.imag(np.exp(logs) / path * pace)
    tail = abs(float(STEP / np.pi * (steps.sum() - 0.5 * steps[0])))
    return min(1.0, tail) if left else max(0.0, 1 - tail)


def p_error_at_least(wrong: ArrayLike, asked: ArrayLike, ceiling: float) -> float:
    """The p-value of "the error rate is at or above ``ceiling``", from counts by document."""
    errors, questions = (np.asarray(column, dtype=float) for column in (wrong, asked))
    if not questions.sum():
        raise BadInput("an error rate cannot be bounded from no questions at all")
    return p_mean_at_most_zero(ceiling * questions - errors, -(1 - ceiling) * typical(questions))


def upper_error(wrong: ArrayLike, asked: ArrayLike, level: float) -> float:
    """The error rate that is exceeded with a probability of at most ``1 - level``, from counts by document."""
    from scipy.optimize import brentq

    def excess(rate: float) -> float:
        return p_error_at_least(wrong, asked, rate) - (1 - level)

    top = 1 - 1e-9
    return 1.0 if excess(top) >= 0 else float(brentq(excess, 1e-9, top, xtol=1e-7))


def lower_ratio(part: ArrayLike, whole: ArrayLike, level: float, lost: float) -> float:
    """A lower bound of ``E[part] / E[whole]`` over documents with ``|part| <= whole``; ``lost``: a lost one's weight.

    It is above zero exactly when ``p_mean_at_most_zero(part, -lost) < 1 - level``.
    """
    from scipy.optimize import brentq

    saved, weight = (np.asarray(column, dtype=float) for column in (part, whole))

    def excess(ratio: float) -> float:
        return p_mean_at_most_zero(saved - ratio * weight, -(1 + ratio) * lost) - (1 - level)

    bottom, top = -1 + 1e-9, 1 - 1e-9
    if excess(top) < 0:
        return top
    return -1.0 if excess(bottom) >= 0 else float(brentq(excess, bottom, top, xtol=1e-7))


@dataclass(frozen=True)
class Ceiling:
    """One tier's ceiling, and the smallest budget that keeps it."""

    tier: str
    ceiling: float
    level: float
    """Of confidence, for this tier: several ceilings share the probability of a mistake."""
    budget: int | None
    """The smallest budget that passed; None: not even the largest did."""
    largest: int
    """The largest budget measured, where the test begins."""
    least: float | None
    """Where none passed: the least ceiling that the largest budget would have passed."""
    tested: Mapping[int, float]
    """The p-value at each budget that was tested, from the largest down."""

    @property
    def met(self) -> bool:
        """Whether some budget keeps the ceiling."""
        return self.budget is not None

    def __str__(self) -> str:
        sure = f"with {self.level:.4g} confidence"
        if self.budget is None:
            return (
                f"{self.tier} error <= {self.ceiling:g} cannot be certified {sure}: the lowest ceiling that the "
                f"largest measured budget, {self.largest} tokens, passes is {self.least:.3f}; allow that much, measure "
                "larger budgets or label more documents"
            )
        return f"{self.tier} error <= {self.ceiling:g} {sure} from {self.budget} tokens up"


def check_ceilings(measured: ByDocument, ceilings: Mapping[str, float], confidence: float) -> dict[str, Ceiling]:
    """Test every tier's ceiling; together they are wrong with a probability of at most ``1 - confidence``."""
    for tier, ceiling in ceilings.items():
        if tier not in measured.wrong:
            raise BadInput(f"a ceiling is given for tier {tier!r}; the tiers are {', '.join(measured.wrong)}")
        if not 0 < ceiling < 1:
            raise BadInput(f"the ceiling of tier {tier!r} is {ceiling:g}; give an error rate between 0 and 1")
    level = 1 - (1 - confidence) / max(1, len(ceilings))
    return {tier: _test(measured, tier, ceiling, level) for tier, ceiling in ceilings.items()}


def _test(measured: ByDocument, tier: str, ceiling: float, level: float) -> Ceiling:
    wrong, asked = measured.wrong[tier], measured.asked[tier]
    columns = [j for j in range(len(measured.budgets)) if asked[:, j].any()][::-1]
    if not columns:
        raise BadInput(f"tier {tier!r} has no answers to test its ceiling on")
    tested: dict[int, float] = {}
    passed = None
    for j in columns:
        p = tested[measured.budgets[j]] = p_error_at_least(wrong[:, j], asked[:, j], ceiling)
        if p > 1 - level:
            break
        passed = measured.budgets[j]
    largest = columns[0]
    least = upper_error(wrong[:, largest], asked[:, largest], level) if passed is None else None
    return Ceiling(tier, ceiling, level, passed, measured.budgets[largest], least, tested)
