"""A choice on odd samples is ranked on even ones."""

import numpy as np
import pytest

from stakes import BadInput
from stakes.calibration.holdout import split_half

BUDGETS = [32, 304, 576]


def _table(odd: list[float], even: list[float], n: int = 200) -> np.ndarray:
    """Samples whose odd and even halves have exactly these errors."""
    rows = np.zeros((n, len(odd)))
    for start, rates in ((0, odd), (1, even)):
        half = rows[start::2]
        for j, rate in enumerate(rates):
            half[round(rate * len(half)) :, j] = 1
    return rows


def test_equal_halves_rank_first_with_no_gap() -> None:
    errors = [0.9, 0.3, 0.1]
    found = split_half({"high": _table(errors, errors), "low": _table(errors, errors)}, BUDGETS, 608)
    assert [r.chosen for r in found.values()] == [(304, 304)] * 2 + [(304, 304)] + [(576, 32)] * 3
    assert all((r.rank, r.of) == (1, 3) for r in found.values())
    assert [r.gap for r in found.values()] == pytest.approx([0] * 6)


def test_a_choice_that_does_not_hold_is_ranked_with_its_gap() -> None:
    high = _table([0.9, 0.3, 0.1], [0.9, 0.3, 0.3])
    low = _table([0.9, 0.3, 0.1], [0.9, 0.3, 0.1])
    found = split_half({"high": high, "low": low}, BUDGETS, 608, ratios=[5])[5]
    assert found.chosen == (576, 32)  # chosen on the odd half
    assert found.rank == 2
    assert found.gap == pytest.approx((5 * 0.3 + 0.9) / 6 - (5 * 0.3 + 0.3) / 6)


def test_unusable_tables_are_refused() -> None:
    good = _table([0.9, 0.3, 0.1], [0.9, 0.3, 0.1])
    with pytest.raises(BadInput, match="no two of the budgets 32, 304, 576 add up to 600"):
        split_half({"high": good, "low": good}, BUDGETS, 600)
    with pytest.raises(BadInput, match="tier 'low' has no outcomes; the tiers are high"):
        split_half({"high": good}, BUDGETS, 608)
    with pytest.raises(BadInput, match="samples × 3 budgets"):
        split_half({"high": good[:, :2], "low": good}, BUDGETS, 608)
