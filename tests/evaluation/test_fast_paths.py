"""Statistics computed the fast way equal the plain computation."""

import numpy as np
import pytest

from stakes.evaluation.slopes import slope_test
from stakes.evaluation.statistics import cwe_gain


@pytest.mark.parametrize("units", [2, 7, 300])
def test_the_interval_of_a_gain_is_scipys(units: int) -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(units)
    before, after = np.arange(units) % 2 == 0, rng.random(units) < 0.7
    costs = np.where(rng.random(units) < 0.5, 5.0, 1.0)
    after[0] = not before[0]  # so that something changes
    saved = costs * (after.astype(float) - before)
    theirs = bootstrap(
        (saved, costs), lambda part, whole, axis: part.sum(axis=axis) / whole.sum(axis=axis), paired=True,
        vectorized=True, n_resamples=2000, method="BCa", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    ours = cwe_gain(before, after, costs, resamples=2000)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_documents_with_both_tiers_are_counted() -> None:
    rng = np.random.default_rng(0)
    right = {tier: rng.random((6, 3)) < 0.5 for tier in ("high", "low")}
    pages = {"high": ["a", "a", "b", "c", "d", "d"], "low": ["a", "b", "b", "e", "f", "f"]}
    found = slope_test(right, pages, [32, 64, 128], resamples=10)
    assert (found.documents, found.shared) == (6, 2)
