"""Slopes and their noise, on the published curves and on curves whose slopes are known."""

import numpy as np
import pytest

from stakes import BadInput, Curve
from stakes.budgets.marginals import central_marginal, marginals, slopes_differ
from stakes.experiments.published import curves


def test_published_marginals_and_their_standard_error() -> None:
    found = curves("docvqa")
    high, low = (central_marginal(found[tier], 304) for tier in ("high", "low"))
    assert (-high.per_token, -low.per_token) == pytest.approx((0.00173, 0.00171), abs=5e-6)
    assert high.standard_error == pytest.approx(2e-4, abs=5e-5)


def test_published_tiers_cannot_be_told_apart_in_slope() -> None:
    found = curves("docvqa")
    test = slopes_differ(found["high"], found["low"])
    assert test.degrees == 10
    assert test.p > 0.5


def test_a_real_difference_in_slope_is_found_and_an_offset_is_not() -> None:
    flat = Curve([32, 304, 576], [0.5, 0.5, 0.5], 300)
    steep = Curve([32, 304, 576], [0.9, 0.5, 0.1], 300)
    offset = Curve([32, 304, 576], [0.7, 0.7, 0.7], 300)
    assert slopes_differ(flat, steep).p < 1e-10
    assert slopes_differ(flat, offset).p > 0.5


def test_slope_test_keeps_its_level_on_independent_curves() -> None:
    rng = np.random.default_rng(0)
    truth, n, budgets = np.array([0.8, 0.5, 0.3, 0.2]), 300, [32, 96, 304, 576]
    p = [slopes_differ(*(Curve(budgets, list(rng.binomial(n, truth) / n), n) for _ in range(2))).p for _ in range(400)]
    assert 0.02 < np.mean(np.array(p) < 0.05) < 0.09


def test_steps_add_up_to_the_whole_fall() -> None:
    curve = Curve([32, 64, 128], [0.9, 0.95, 0.2], 50)
    assert sum(m.change for m in marginals(curve)) == pytest.approx(0.2 - 0.9)


def test_edges_have_no_central_marginal() -> None:
    with pytest.raises(BadInput, match="32 is at the edge"):
        central_marginal(Curve([32, 64], [0.9, 0.8], 10), 32)
    with pytest.raises(BadInput, match="at least two budgets in common"):
        slopes_differ(Curve([32, 64], [0.9, 0.8], 10), Curve([32, 65], [0.9, 0.8], 10))
