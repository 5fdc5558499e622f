"""A curve stores what was measured and refuses what is not a curve."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import BadInput, Curve
from stakes.budgets.curve import curve_from_answers, cwe_at, proportion_interval

rates = st.floats(0, 1)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    budgets = sorted(draw(st.sets(st.integers(1, 2000), min_size=2, max_size=13)))
    errors = draw(st.lists(rates, min_size=len(budgets), max_size=len(budgets)))
    counts = draw(st.lists(st.integers(1, 500), min_size=len(budgets), max_size=len(budgets)))
    return Curve(budgets, errors, counts)


@pytest.mark.parametrize(
    ("budgets", "errors", "counts", "message"),
    [
        ([], [], [], "at least one measured budget"),
        ([32, 32], [0.5, 0.4], 10, "budget 32 appears twice"),
        ([64, 32], [0.5, 0.4], 10, "32 comes after 64"),
        ([0, 32], [0.5, 0.4], 10, "1 to 1,000,000,000 tokens, not 0"),
        ([32], [1.2], 10, r"error at budget 32 is 1.2"),
        ([32], [-0.1], 10, r"error at budget 32 is -0.1"),
        ([32], [math.nan], 10, "error at budget 32 is nan"),
        ([32], [0.5], 0, "rests on 0 questions"),
        ([32, 64], [0.5], 10, "1 errors for 2 budgets"),
        ([32, 64], [0.5, 0.4], [10], "1 counts for 2 budgets"),
        ([32.5], [0.5], 10, "whole number, not 32.5"),
        ([math.inf], [0.5], 10, "whole number, not inf"),
        ([True], [0.5], 10, "whole number, not True"),
        ([32.0], [0.5], 10, "whole number, not 32.0"),
        ([32], [0.5], 10.0, "a count is a whole number, not 10.0"),
        ([32], [0.5], True, "a count is a whole number, not True"),
        ([np.float64(32)], [0.5], np.bool_(True), "whole number, not np.float64"),
    ],
)
def test_what_is_not_a_curve_is_refused_in_one_sentence(
    budgets: list[int], errors: list[float], counts: list[int] | int, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        Curve(budgets, errors, counts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "counts", [300, np.int64(300), np.array(300), [300, 300], np.array([300, 300]), (np.uint8(5),) * 2]
)
def test_whole_numbers_of_any_kind_become_ints(counts: Any) -> None:
    curve = Curve(np.array([32, 304]), np.array([0.9, 0.3]), counts)  # type: ignore[arg-type]
    assert curve.counts in ((300, 300), (5, 5))
    assert {type(n) for n in (*curve.budgets, *curve.counts)} == {int}
    assert curve.error(304) == 0.3


def test_error_is_read_off_the_grid_and_never_interpolated() -> None:
    curve = Curve([32, 304], [0.9, 0.3], 300)
    assert curve.error(304) == 0.3
    with pytest.raises(BadInput, match="budget 100 was not measured; choose one of 32, 304"):
        curve.error(100)


@given(curves())
def test_isotonic_never_rises_and_keeps_the_mean_error(curve: Curve) -> None:
    smooth = curve.isotonic()
    assert all(a >= b - 1e-12 for a, b in zip(smooth.errors, smooth.errors[1:], strict=False))
    weighted = sum(e * n for e, n in zip(smooth.errors, curve.counts, strict=True))
    assert weighted == pytest.approx(sum(e * n for e, n in zip(curve.errors, curve.counts, strict=True)), abs=1e-6)


def test_isotonic_leaves_a_falling_curve_alone() -> None:
    curve = Curve([1, 2, 3], [0.9, 0.5, 0.5], 10)
    assert curve.isotonic().errors == pytest.approx(curve.errors)


@given(st.integers(1, 400), st.data())
def test_intervals_equal_scipys(n: int, data: st.DataObject) -> None:
    from scipy.stats import binomtest

    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert proportion_interval(k / n, n, 0.95) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_interval_refuses_nonsense() -> None:
    curve = Curve([32], [0.5], 10)
    with pytest.raises(BadInput, match="level lies between 0 and 1, not 95"):
        curve.interval(32, level=95)


def test_curve_from_answers_counts_wrong_over_asked() -> None:
    curve = curve_from_answers([(64, True), (32, False), (32, True), (32, False), (64, True)])
    assert curve == Curve([32, 64], [2 / 3, 0.0], [3, 2])


@given(curves(), curves(), st.floats(0.1, 50))
def test_cwe_reweights_to_any_cost_ratio(high: Curve, low: Curve, ratio: float) -> None:
    pair = {"high": high.budgets[0], "low": low.budgets[-1]}
    got = cwe_at({"high": high, "low": low}, pair, {"high": ratio, "low": 1.0}, {"high": 1, "low": 1})
    assert got == pytest.approx((ratio * high.errors[0] + low.errors[-1]) / (ratio + 1))
