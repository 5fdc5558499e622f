"""Alignment of two readers of the same questions: known shifts are recovered, and ranks compare the questions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.experiments.legibility.agreement import align, best_shift, half_error

GRID = [32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576]
DOUBLINGS = np.log2(GRID)


def needs(tokens: np.ndarray) -> np.ndarray:
    """Correct from this many tokens."""
    return np.asarray(GRID)[None, :] >= tokens[:, None]


@given(st.floats(-0.8, 0.8), st.floats(6.6, 7.6), st.floats(0.8, 1.6))
@settings(max_examples=40, deadline=None)
def test_a_known_shift_is_recovered(shift: float, middle: float, width: float) -> None:
    def curve(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp((x - middle) / width * 3))

    measured, left_over = best_shift(curve(DOUBLINGS - shift), curve(DOUBLINGS), DOUBLINGS)
    assert measured == pytest.approx(shift, abs=0.1)  # linear between thirteen budgets
    assert left_over < 0.02


def test_twice_the_tokens_is_a_shift_of_one() -> None:
    rng = np.random.default_rng(0)
    needed = 2 ** rng.normal(6.8, 0.7, 2000)
    alignment = align(needs(2 * needed), needs(needed), [i // 4 for i in range(2000)], GRID, resamples=200)
    assert alignment.shift == pytest.approx(1, abs=0.08)
    assert alignment.low <= alignment.shift <= alignment.high
    assert alignment.rank_of_questions > 0.9
    assert alignment.rank_of_curves > 0.99
    assert sum(alignment.only_first) == 0  # the reader that needs more is never the only one correct
    first, second = alignment.half
    assert first is not None
    assert second is not None
    assert first / second == pytest.approx(2, rel=0.08)
    for row in zip(alignment.both, alignment.only_first, alignment.only_second, alignment.neither, strict=True):
        assert sum(row) == 2000


def test_equal_curves_of_different_questions_have_no_rank_correlation() -> None:
    rng = np.random.default_rng(1)
    needed = 2 ** rng.normal(7.5, 1, 1000)
    alignment = align(needs(needed), needs(rng.permutation(needed)), range(1000), GRID, resamples=50)
    assert alignment.shift == 0
    assert abs(alignment.rank_of_questions) < 0.1
    assert alignment.rank_of_curves == pytest.approx(1)
    assert sum(alignment.only_first) > 0


def test_half_error_is_linear_on_a_log_axis_and_may_not_exist() -> None:
    errors = np.array([1, 0.75, 0.25] + [0.2] * 10)
    assert half_error(errors, DOUBLINGS) == pytest.approx(np.sqrt(64 * 96))
    assert half_error(np.full(13, 0.9), DOUBLINGS) is None


def test_documents_are_resampled_whole() -> None:
    rng = np.random.default_rng(2)
    needed = np.repeat(2 ** rng.normal(7, 1, 30), 10)
    late = np.repeat(2 ** rng.normal(7.5, 1, 30), 10)
    pages = np.repeat(np.arange(30), 10)
    together = align(needs(late), needs(needed), list(pages), GRID, resamples=300)
    separate = align(needs(late), needs(needed), range(300), GRID, resamples=300)
    assert together.high - together.low > 2 * (separate.high - separate.low)


def test_tables_of_the_wrong_shape_are_rejected() -> None:
    table = np.ones((4, 13), dtype=bool)
    with pytest.raises(BadInput, match="questions x 13 budgets"):
        align(table, table[:3], range(4), GRID)
    with pytest.raises(BadInput, match="rising budgets"):
        align(table[:, :3], table[:, :3], range(4), GRID[:3])
