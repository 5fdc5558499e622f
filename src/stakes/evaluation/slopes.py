"""Test whether two tiers respond to tokens differently, with three tests that keep a page's questions together.

* regression: ``logit P(right) = a_t + s_t log2(budget)``; the tiers' slopes differ by ``s_1 - s_2``, with a standard
  error that lets answers on one document depend on each other in any way (sandwich estimator, t with documents - 1
  degrees of freedom);
* permutation: under one slope for both tiers, ``logit P(right) = a_t + s log2(budget)``, a question's residuals say how
  far its own slope is off: ``v = sum_b (y_b - p_b)(x_b - m_t) / sum_b p_b (1 - p_b)(x_b - m_t)^2``, with ``m_t`` the
  middle of the tier's information, so that an easier tier is not taken for a steeper one. The difference of the tiers'
  means of v is compared with its distribution when the v are shuffled among the questions of each document; documents
  with questions of one tier only do not contribute;
* parallel: the same shuffles test whether the difference of the two error curves is constant over budgets, by its
  variance. It also rejects when one tier is merely easier: near 0 and 1 two curves meet, whatever their slopes. It
  tests what an allocation depends on, error per token; the first two test the slope alone.

    found = slope_test({"high": right_high, "low": right_low}, {"high": pages_high, "low": pages_low}, [32, 304, 576])
    found.slopes, found.difference, found.p, found.permutation_p, found.parallel_p
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.errors import BadInput

Array = NDArray[np.float64]
STEPS = 100


@dataclass(frozen=True)
class SlopeTest:
    """``slopes``: how far the log-odds of a right answer rise when tokens double, by tier."""

    slopes: Mapping[str, float]
    difference: float
    """Of the first tier's slope from the second's: above 0, the first gains more from tokens."""
    low: float
    high: float
    level: float
    p: float
    permutation_p: float
    parallel_p: float
    documents: int
    shared: int
    """Documents with questions of both tiers, on which the permutations rest."""


def slope_test(
    correct: Mapping[str, ArrayLike],
    documents: Mapping[str, Sequence[Hashable]],
    budgets: Sequence[int],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> SlopeTest:
    """Compare two tiers; ``correct[tier]`` is samples × budgets, ``documents[tier]`` names each sample's page."""
    if len(correct) != 2:
        raise BadInput(f"the slopes of two tiers are compared, not of {len(correct)}; choose two")
    tables = {tier: np.asarray(table, dtype=float) for tier, table in correct.items()}
    for tier, table in tables.items():
        if table.ndim != 2 or table.shape[1] != len(budgets) or len(documents.get(tier, ())) != len(table):
            raise BadInput(
                f"tier {tier!r} needs samples × {len(budgets)} budgets and a document for each sample, not a table of "
                f"{table.shape} with {len(documents.get(tier, ()))} documents"
            )
        if np.ptp(table) == 0:
            raise BadInput(f"every answer of tier {tier!r} is {'right' if table.any() else 'wrong'}; it has no slope")
    if len(budgets) < 2 or len(set(budgets)) != len(budgets) or min(budgets) < 1:
        raise BadInput(f"a slope needs two different budgets of at least one token, not {list(budgets)}")
    first, second = tables
    rows = np.concatenate([tables[first], tables[second]])
    is_first = np.repeat([True, False], [len(tables[first]), len(tables[second])])
    names = [str(name) for tier in (first, second) for name in documents[tier]]
    unit = np.unique(names, return_inverse=True)[1]
    if unit.max() < 1:
        raise BadInput("all samples are on one document; an interval over documents needs at least two")
    doublings = np.log2(np.asarray(budgets, dtype=float))
    slopes, difference, error = _regression(rows, is_first, unit, doublings)
    permuted, parallel = _permutations(rows, is_first, unit, doublings - doublings.mean(), resamples, seed)
    from scipy.stats import t

    freedom = int(unit.max())
    reach = float(t.ppf(0.5 + level / 2, freedom)) * error
    firsts, questions = np.bincount(unit, is_first, freedom + 1), np.bincount(unit, minlength=freedom + 1)
    return SlopeTest(
        slopes=dict(zip((first, second), slopes, strict=True)),
        difference=difference,
        low=difference - reach,
        high=difference + reach,
        level=level,
        p=float(2 * t.sf(abs(difference) / error, freedom)),
        permutation_p=permuted,
        parallel_p=parallel,
        documents=freedom + 1,
        shared=int(((firsts > 0) & (firsts < questions)).sum()),
    )


def _regression(
    rows: Array, is_first: NDArray[np.bool_], unit: NDArray[np.intp], doublings: Array
) -> tuple[tuple[float, float], float, float]:
    """((slope, slope), difference, its standard error): Newton's steps, then the sandwich over documents."""
    middle = doublings - doublings.mean()
    y = rows.ravel()
    tier, dose = np.repeat(is_first.astype(float), len(middle)), np.tile(middle, len(rows))
    x = np.column_stack([np.ones_like(y), tier, dose, tier * dose])
    weights, odds, bread = _logistic(x, y)
    scores = x * (y - odds)[:, None]
    clusters = np.repeat(unit, len(middle))
    sums = np.column_stack([np.bincount(clusters, column) for column in scores.T])
    count = len(sums)
    spread = count / (count - 1) * bread @ (sums.T @ sums) @ bread
    return (weights[2] + weights[3], weights[2]), float(weights[3]), float(np.sqrt(spread[3, 3]))


def _logistic(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """(weights, fitted probabilities, inverse information) of a logistic regression, by Newton's steps."""
    weights: Array = np.zeros(x.shape[1])
    for _ in range(STEPS):
        odds: Array = 1 / (1 + np.exp(-np.clip(x @ weights, -30, 30)))
        bread = np.linalg.pinv(x.T @ (x * (odds * (1 - odds))[:, None]))
        step = bread @ (x.T @ (y - odds))
        weights = weights + step
        if np.abs(step).max() < 1e-10:
            return weights, odds, np.asarray(bread, dtype=float)
    raise BadInput("the budget alone separates right from wrong answers, so no slope fits; measure more")


def _own_slopes(rows: Array, is_first: NDArray[np.bool_], dose: Array) -> Array:
    """How far each question's slope is off the one that both tiers share, in one Newton step: (samples,)."""
    tier = np.repeat(is_first.astype(float), len(dose))
    x = np.column_stack([np.ones_like(tier), tier, np.tile(dose, len(rows))])
    odds = _logistic(x, rows.ravel())[1].reshape(rows.shape)
    weight = odds * (1 - odds)
    off = dose - (weight @ dose / weight.sum(axis=1))[:, None]
    own: Array = ((rows - odds) * off).sum(axis=1) / (weight * off**2).sum(axis=1)
    return own


def _permutations(
    rows: Array, is_first: NDArray[np.bool_], unit: NDArray[np.intp], dose: Array, resamples: int, seed: int
) -> tuple[float, float]:
    """p of equal slopes and of parallel curves, labels shuffled within documents."""
    slope = _own_slopes(rows, is_first, dose)
    # Centre each tier first: a constant offset between the tiers leaves curves parallel.
    centred = rows - np.where(is_first, rows[is_first].mean(), rows[~is_first].mean())[:, None]

    def statistics(labels: NDArray[np.bool_]) -> Array:
        difference = abs(slope[labels].mean() - slope[~labels].mean())
        return np.array([difference, np.var(centred[labels].mean(0) - centred[~labels].mean(0))])

    rng, seen, more = np.random.default_rng(seed), statistics(is_first), np.zeros(2)
    order = np.argsort(unit, kind="stable")
    for _ in range(resamples):
        # Sorting by (document, chance) shuffles within documents only.
        shuffled = np.lexsort((rng.random(len(unit)), unit))
        labels = np.empty_like(is_first)
        labels[shuffled] = is_first[order]
        more += statistics(labels) >= seen - 1e-12
    permuted, parallel = (more + 1) / (resamples + 1)
    return float(permuted), float(parallel)
