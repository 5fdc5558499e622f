"""The bound is the exact binomial one for right and wrong, agrees with its definition, and is never too bold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from stakes.calibration.certify.ceiling import lower_ratio, p_error_at_least, p_mean_at_most_zero, typical, upper_error
from stakes.errors import BadInput


@given(st.integers(1, 3000), st.floats(0, 1), st.floats(0.001, 0.999))
def test_one_question_a_document_is_the_exact_binomial_test(n: int, share: float, ceiling: float) -> None:
    k = round(share * n)
    wrong = np.repeat([1, 0], [k, n - k])
    assert p_error_at_least(wrong, np.ones(n), ceiling) == pytest.approx(binom.cdf(k, n, ceiling), abs=1e-9)


@settings(max_examples=40)
@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 0.999))
def test_the_upper_error_is_clopper_pearsons(n: int, share: float, level: float) -> None:
    k = round(share * n)
    wrong = np.repeat([1, 0], [k, n - k])
    exact = 1.0 if k == n else beta.ppf(level, k + 1, n - k)
    assert upper_error(wrong, np.ones(n), level) == pytest.approx(exact, abs=1e-6)


@given(st.lists(st.sampled_from([-20, -3, -1, 0, 1, 2, 5, 20]), min_size=1, max_size=30))
def test_it_is_the_chance_that_the_definition_names(values: list[int]) -> None:
    drawn = np.random.default_rng(0).exponential(size=(20_000, len(values) + 1))
    seen = float((drawn @ np.array([*values, -20]) <= 0).mean())
    assert p_mean_at_most_zero(values, -20) == pytest.approx(seen, abs=0.02)


@settings(max_examples=50)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(0, 39), st.floats(0.01, 3))
def test_a_better_document_never_makes_it_less_sure(values: list[float], where: int, better: float) -> None:
    more = list(values)
    more[where % len(values)] += better
    assert p_mean_at_most_zero(more, -6) <= p_mean_at_most_zero(values, -6) + 1e-9


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(3, 6)), min_size=2, max_size=40), st.floats(0.6, 0.99))
def test_the_lower_bound_is_above_zero_exactly_when_the_test_rejects(
    documents: list[tuple[int, int]], level: float
) -> None:
    saved, weight = np.array(documents, dtype=float).T
    lost = typical(weight)
    lower, p = lower_ratio(saved, weight, level, lost), p_mean_at_most_zero(saved, -lost)
    assert -1 <= lower <= max(0.0, float(saved.sum() / weight.sum())) + 1e-6
    if abs(p - (1 - level)) > 1e-6:
        assert (lower > 0) == (p < 1 - level)


def test_losses_that_were_not_seen_are_counted_in() -> None:
    gains = np.repeat([1.0, 0.0], [10, 90])  # Student's t would be sure of these: p < 0.001
    assert p_mean_at_most_zero(gains, -1) < 0.01
    assert p_mean_at_most_zero(gains, -20) > 0.5


def test_questions_of_one_document_count_less_than_of_many() -> None:
    alone = upper_error(np.repeat([1, 0], [5, 95]), np.ones(100), 0.95)
    crowded = upper_error(np.repeat([5, 0], [1, 19]), np.full(20, 5), 0.95)
    assert alone < crowded < 0.3


def test_what_cannot_be_bounded_is_an_error() -> None:
    with pytest.raises(BadInput, match="no questions at all"):
        upper_error([0, 0], [0, 0], 0.95)
    with pytest.raises(BadInput, match="must lie below zero, not at 0"):
        p_mean_at_most_zero([1.0], 0.0)
    assert p_mean_at_most_zero([-1.0, 0.0], -1.0) == 1.0
