"""Exact paired tests, BCa intervals by document, and cost-weighted error (CWE).

* ``mcnemar``: exact two-sided test on the discordant pairs b:c, ``p = min(1, 2 P[Bin(b + c, 1/2) <= min(b, c)])``. It
  takes questions as independent.
* ``sign_flip``: the same by document, whose questions are not independent: ``p = P(|sum s_d x_d| >= |sum x_d|)`` over
  random signs ``s_d``, with ``x_d`` a document's wins minus its losses.
* ``cwe``: ``sum(c_i [wrong_i]) / sum(c_i)``; ``cwe_gain`` is how far it falls from one arm to another on the same
  samples, with a BCa bootstrap interval that resamples whole documents when ``documents`` are given.

    >>> f"{mcnemar(54, 4):.1e}"
    '3.2e-12'
    >>> cwe([True, False, True], [5, 5, 1])
    0.45454545454545453
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.errors import BadInput
from stakes.tiers import at_ratio

RATIOS = (1, 2, 3, 5, 10, 20)  # the paper's cost ratios
RESAMPLES = 10_000
FEWEST = 10  # independent units: below, BCa intervals are much too narrow to call anything a gain
HELD = 2_000_000  # resamples × units held in memory at once
SUMMED = 100_000_000  # products of a convolution, up to which it is summed term by term: 0.1 s


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p-value of ``b`` pairs that went one way and ``c`` the other; 1 where there are none."""
    if not (0 <= b < math.inf and 0 <= c < math.inf) or int(b) != b or int(c) != c:  # NaN is none of these
        raise BadInput(f"discordant counts are whole numbers of at least 0, not {b}:{c}")
    if b == c:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(b, c), int(b + c), 0.5)))


def sign_flip(net: Sequence[int]) -> float:
    """Exact two-sided p-value of the wins minus losses of each document, or of any other independent unit.

        p = P(|sum_d s_d x_d| >= |sum_d x_d|),        s_d = +1 or -1, each with probability 1/2

    If neither arm is better, swapping the two arms of a document changes nothing, whatever its questions have in
    common: all signs are equally likely. The distribution of the sum is exact, built document by document. With one
    question per document this is ``mcnemar``.

    >>> sign_flip([1, 1, 1, 1, -1]) == mcnemar(4, 1)
    True
    >>> f"{sign_flip([2, 2, -1]):.2f} {mcnemar(4, 1):.2f}"
    '0.50 0.38'
    """
    if any(int(x) != x for x in net):
        raise BadInput(f"wins minus losses are whole numbers, not {list(net)!r:.80}")
    sizes = np.abs(np.array([int(x) for x in net if x], dtype=np.int64))
    observed = abs(int(sum(net)))
    if not observed:
        return 1.0
    if sizes.max() == 1:
        wins = sum(x > 0 for x in net)
        return mcnemar(wins, len(sizes) - wins)
    from scipy.signal import fftconvolve
    from scipy.stats import binom

    # chance[k]: that the documents with a minus sign hold k in all, so that the sum is ``sizes.sum() - 2 k``
    chance, least = np.ones(1), 0.0
    for size, documents in zip(*np.unique(sizes, return_counts=True), strict=True):
        step = np.zeros(int(size * documents) + 1)
        step[::size] = binom.pmf(np.arange(documents + 1), documents, 0.5)
        if len(chance) * len(step) <= SUMMED:
            chance = np.convolve(chance, step)
        else:  # thousands of documents; rounding then hides a smaller p
            chance, least = fftconvolve(chance, step), 1e-12
    return min(1.0, max(least, 2 * float(chance[: (int(sizes.sum()) - observed) // 2 + 1].sum())))


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction: each p-value adjusted so that all tests together keep the level, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(ps), 0.0
    for rank, at in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[at]))
        adjusted[at] = largest
    return adjusted


@dataclass(frozen=True)
class Discordant:
    """Pairs that two arms answer differently: ``b`` wrong → right, ``c`` right → wrong, and the exact p.

    ``p`` is McNemar's, which takes questions as independent; ``p_by_document`` the sign-flip test's over documents
    (or groups), None where documents are not known.
    """

    b: int
    c: int
    p: float
    p_by_document: float | None = None
    clustered: bool = False
    """Whether a document holds several of these questions, so that the two p differ."""

    def __str__(self) -> str:
        return f"{self.b}:{self.c}, p = {self.p:.2g}{self.by_document}"

    @property
    def by_document(self) -> str:
        """``, by document 0.03``, where that is another p; else empty."""
        return f", by document {self.p_by_document:.2g}" if self.clustered else ""


def discordant(before: ArrayLike, after: ArrayLike, documents: Sequence[Hashable] | None = None) -> Discordant:
    """Compare correctness of the same samples under two arms, in the same order; ``documents``: that of each."""
    first, second = _flags("before", before), _flags("after", after)
    _same_length(first, second)
    b, c = int((~first & second).sum()), int((first & ~second).sum())
    if documents is None:
        return Discordant(b, c, mcnemar(b, c))
    _same_length(first, documents)
    net: dict[Hashable, int] = {}
    for document, change in zip(documents, second.astype(int) - first.astype(int), strict=True):
        net[document] = net.get(document, 0) + int(change)
    return Discordant(b, c, mcnemar(b, c), sign_flip(list(net.values())), clustered=len(net) < len(first))


def cwe(correct: ArrayLike, costs: ArrayLike) -> float:
    """Cost-weighted error: the cost of the wrong answers over the cost of all; 0 is perfect."""
    right, weight = _flags("correct", correct), _costs(costs)
    _same_length(right, weight)
    return float(weight[~right].sum() / weight.sum())


def cwe_sweep(
    correct: ArrayLike, tiers: Sequence[str], costs: Mapping[str, float], ratios: Sequence[float] = RATIOS
) -> dict[float, float]:
    """CWE at each cost ratio r, with the costs of ``tiers.at_ratio``: reweighting, no further answers."""
    for tier in tiers:
        if tier not in costs:
            raise BadInput(f"tier {tier!r} has no cost; the costs are of {', '.join(costs)}")
    prices = {ratio: at_ratio(costs, ratio) for ratio in ratios}
    return {ratio: cwe(correct, [at[tier] for tier in tiers]) for ratio, at in prices.items()}


@dataclass(frozen=True)
class Gain:
    """How far CWE falls from one arm to another, with its interval; ``units`` independent units were resampled."""

    value: float
    low: float
    high: float
    level: float
    units: int

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:.3f}, {self.high:.3f}]"

    @property
    def few(self) -> str:
        """Why the interval is not reliable, in words; empty where it is."""
        return f"too few documents ({self.units}) for an interval" if self.units < FEWEST else ""


def cwe_gain(
    before: ArrayLike,
    after: ArrayLike,
    costs: ArrayLike,
    documents: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Gain:
    """``CWE(before) - CWE(after)`` on the same samples, with a paired BCa bootstrap interval.

    Both arms see the same resampled samples. With ``documents`` whole documents are drawn, because questions on one
    page share its print and are not independent; without, every sample is its own unit, as in the paper.
    """
    first, second, weight = _flags("before", before), _flags("after", after), _costs(costs)
    _same_length(first, second, weight)
    saved = weight * (second.astype(float) - first.astype(float))  # cost that `after` no longer pays, per sample
    return cost_gain(saved, weight, documents, level=level, resamples=resamples, seed=seed)


def cost_gain(
    saved: NDArray[np.float64],
    weight: NDArray[np.float64],
    documents: Sequence[Hashable] | None = None,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Gain:
    """``sum(saved) / sum(weight)`` with a BCa interval, from the cost that each sample saves and its cost at stake."""
    if documents is not None:
        _same_length(saved, documents)
        unit = np.unique([str(d) for d in documents], return_inverse=True)[1]
        saved, weight = (np.bincount(unit, column).astype(float) for column in (saved, weight))
    value = float(saved.sum() / weight.sum())
    if len(saved) < 2:
        raise BadInput("an interval needs at least two independent units; this has one document")
    if np.ptp(saved / weight) == 0:  # every resample gives the same value; BCa is undefined there
        return Gain(value, value, value, level, len(saved))
    low, high = _bca(saved, weight, level, resamples, seed)
    return Gain(value, low, high, level, len(saved))


def _bca(
    part: NDArray[np.float64], whole: NDArray[np.float64], level: float, resamples: int, seed: int
) -> tuple[float, float]:
    """BCa interval of the ratio ``sum(part) / sum(whole)`` over resampled units (Efron 1987).

    The draws are those of ``scipy.stats.bootstrap`` and so is the result; but leaving one unit out, for the
    acceleration, is a subtraction here, where scipy sums up all the others again for each: quadratic in the units.
    """
    from scipy.special import ndtr, ndtri

    rng, units = np.random.default_rng(seed), len(part)
    drawn, step = np.empty(resamples), max(1, HELD // units)
    for at in range(0, resamples, step):
        rows = rng.integers(0, units, (min(step, resamples - at), units))
        drawn[at : at + step] = part[rows].sum(axis=1) / whole[rows].sum(axis=1)
    value = part.sum() / whole.sum()
    below = ((drawn < value).mean() + (drawn <= value).mean()) / 2
    bias = ndtri(np.clip(below, 0.5 / resamples, 1 - 0.5 / resamples))
    without = (part.sum() - part) / (whole.sum() - whole)
    off = without.mean() - without
    skew = (off**3).sum() / (6 * (off**2).sum() ** 1.5)
    ends = bias + ndtri([(1 - level) / 2, (1 + level) / 2])
    low, high = np.quantile(drawn, ndtr(bias + ends / (1 - skew * ends)))
    return float(low), float(high)


def check_confidence(confidence: float) -> None:
    """Refuse a confidence that no test is run at."""
    if not 0.5 <= confidence < 1:
        raise BadInput(f"a confidence lies between 0.5 and 1, not at {confidence}; 0.95 is usual")


def _flags(name: str, values: ArrayLike) -> NDArray[np.bool_]:
    flags = np.asarray(values)
    if flags.ndim != 1 or flags.size == 0:
        raise BadInput(f"{name} is a non-empty list of right or wrong, got shape {flags.shape}")
    if not np.isin(flags, (0, 1)).all():
        raise BadInput(f"{name} holds values other than 0 and 1; turn scores into right or wrong first (>= 0.5)")
    return flags.astype(bool)


def _costs(values: ArrayLike) -> NDArray[np.float64]:
    costs = np.asarray(values, dtype=float)
    for cost in costs.ravel():
        if not (cost > 0 and math.isfinite(cost)):
            raise BadInput(f"a cost is a positive number, not {cost:g}; leave samples without a cost out")
    return costs


def _same_length(*columns: Sequence[object] | NDArray[np.generic]) -> None:
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise BadInput(f"paired columns must have one row per sample, but have lengths {sorted(lengths)}")
