"""Per-request costs: one price buys every request's budget, the total holds, and known costs beat tiers."""

from itertools import product

import numpy as np
import pytest
from benchmarks.scenarios import GRID, published
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.allocate import allocate
from stakes.budgets.per_request import at_price, expected_losses, spend, unchanged_range
from stakes.errors import BadInput, InfeasibleBudget

ERRORS = np.array([curve.errors for curve in published().values()])
rates = st.floats(0, 1).map(lambda e: round(e, 3))
tables = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(rates, min_size=3, max_size=3), min_size=n, max_size=n).map(np.array)
)


@given(tables, st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_the_total_holds_and_no_other_budgets_beat_it_by_more_than_the_gap(losses: np.ndarray, extra: int) -> None:
    grid = (10, 30, 100)
    total = 10 * len(losses) + extra
    result = spend(losses, grid, total)
    assert result.spent == result.budgets.sum() <= total
    rows = np.arange(len(losses))
    choices = [np.array(c) for c in product(range(3), repeat=len(losses))]
    best = min(losses[rows, c].sum() for c in choices if np.array(grid)[c].sum() <= total)
    assert best - 1e-9 <= result.loss <= best + result.gap + 1e-9
    assert result.loss == pytest.approx(losses[rows, np.searchsorted(grid, result.budgets)].sum())


@given(tables, st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_the_price_is_the_smallest_at_which_the_smaller_of_tied_budgets_fit(losses: np.ndarray, extra: int) -> None:
    grid, total = (10, 30, 100), 10 * len(losses) + extra
    price = spend(losses, grid, total).price
    taken = np.array(grid)[at_price(losses, grid, price)].sum()
    assert taken <= total
    if price > 1e-6:
        assert np.array(grid)[at_price(losses, grid, price * (1 - 1e-5))].sum() > total


def test_more_expensive_requests_never_get_less() -> None:
    costs = np.sort(np.random.default_rng(0).lognormal(0, 1.5, 400))
    result = spend(expected_losses(costs[:, None], ERRORS[:1]), GRID, 304 * 400)
    # the last few take what no step fits into; the price itself orders all
    assert (np.diff(at_price(expected_losses(costs[:, None], ERRORS[:1]), GRID, result.price)) >= 0).all()
    assert result.spent > 304 * 400 - 32


def test_with_certain_tiers_it_is_no_worse_than_one_budget_a_tier() -> None:
    for ratio, high in product((1, 2, 3, 5, 10), (120, 300)):
        weights = np.array([[ratio, 0.0]] * high + [[0.0, 1.0]] * 300)
        counts = {"high": high, "low": 300}
        tiered = allocate(published(), {"high": ratio, "low": 1}, counts, 304 * (high + 300))
        priced = spend(expected_losses(weights, ERRORS), GRID, tiered.spent)
        assert priced.spent <= tiered.spent
        assert priced.loss / weights.sum() <= tiered.cwe + 1e-12


def test_with_costs_of_their_own_requests_do_clearly_better_than_in_tiers() -> None:
    rng = np.random.default_rng(1)
    costs = np.concatenate([5 * rng.lognormal(0, 1, 300), rng.lognormal(0, 1, 300)])
    weights = np.zeros((600, 2))
    weights[:300, 0], weights[300:, 1] = costs[:300], costs[300:]
    prices = {"high": float(costs[:300].mean()), "low": float(costs[300:].mean())}
    tiered = allocate(published(), prices, {"high": 300, "low": 300}, 304 * 600)
    priced = spend(expected_losses(weights, ERRORS), GRID, tiered.spent)
    assert priced.loss / costs.sum() < tiered.cwe - 0.02


def test_tied_requests_take_the_larger_budget_for_the_share_that_is_left() -> None:
    losses = expected_losses(np.ones((10, 1)), np.array([[1.0, 0.0]]))
    result = spend(losses, (10, 110), 100 + 300)
    assert result.share == pytest.approx(0.3)
    assert sorted(result.budgets) == [10] * 7 + [110] * 3
    assert result.price == pytest.approx(0.01)


def test_the_range_of_ratios_ends_where_the_budgets_change() -> None:
    def weights(ratio: float) -> np.ndarray:
        return np.array([[ratio, 0.0]] * 30 + [[0.0, 1.0]] * 30)

    low, high = unchanged_range(weights, ERRORS, GRID, 304 * 60, 5.0)
    now = spend(expected_losses(weights(5.0), ERRORS), GRID, 304 * 60).budgets
    assert (now == spend(expected_losses(weights(low), ERRORS), GRID, 304 * 60).budgets).all()
    assert (now != spend(expected_losses(weights(low * 0.998), ERRORS), GRID, 304 * 60).budgets).any()
    assert low == pytest.approx(4.53, abs=0.05)
    assert high == 5 * 64.0


def test_impossible_input_is_refused() -> None:
    with pytest.raises(InfeasibleBudget, match="take at least 20 tokens"):
        spend(np.ones((2, 2)), (10, 20), 19)
    with pytest.raises(BadInput, match="do not fit"):
        expected_losses(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(BadInput, match="finite"):
        expected_losses(np.array([[-1.0]]), np.ones((1, 4)))
    with pytest.raises(BadInput, match="rise"):
        spend(np.ones((1, 2)), (20, 10), 100)
