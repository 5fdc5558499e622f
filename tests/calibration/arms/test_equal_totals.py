"""A breach of the equal-budget protocol names the sample and the arm."""

import pytest

from stakes import BadInput, LedgerBreach
from stakes.calibration.arms.comparison import EqualTotals


def test_equal_plans_pass_and_give_the_total() -> None:
    checks = EqualTotals(["a", "b"], [640, 640])
    assert checks.check_planned({"uniform": [304, 304], "cost": [576, 32]}) == 608


def test_a_budget_over_native_names_sample_and_arm() -> None:
    checks = EqualTotals(["a", "tiny"], [640, 144])
    with pytest.raises(LedgerBreach, match="arm 'uniform', sample 'tiny': budget 304 exceed.* 144 native"):
        checks.check_planned({"uniform": [304, 304]})


def test_unequal_plans_are_a_breach_that_names_both_arms() -> None:
    checks = EqualTotals(["a", "b"], [640, 640])
    with pytest.raises(LedgerBreach, match="'cost' 609 tokens, 'uniform' 608"):
        checks.check_planned({"uniform": [304, 304], "cost": [577, 32]})


@pytest.mark.parametrize(
    ("mechanism", "extra", "passes"),
    [("deletion", 0, True), ("deletion", 1, False), ("resolution", 4, True), ("resolution", 5, False),
     ("anyres", 0, True), ("anyres", 1, False)],
)  # fmt: skip
def test_realised_totals_agree_within_the_mechanisms_tolerance(mechanism: str, extra: int, passes: bool) -> None:
    checks = EqualTotals(["a", "b"], [900, 900], mechanism)
    spent = {"uniform": [500, 500], "cost": [800, 200 + extra]}
    if passes:
        assert checks.check_realised(spent) == pytest.approx(extra / 1000)
    else:
        with pytest.raises(LedgerBreach, match="a difference of"):
            checks.check_realised(spent)


def test_inconsistent_input_is_refused() -> None:
    with pytest.raises(BadInput, match="unknown mechanism 'magic'"):
        EqualTotals(["a"], [640], "magic")
    with pytest.raises(BadInput, match="got 1 for 2"):
        EqualTotals(["a", "b"], [640])
    with pytest.raises(LedgerBreach, match="has 1 budget for 2 samples"):
        EqualTotals(["a", "b"], [640, 640]).check_planned({"cost": [1]})
    with pytest.raises(LedgerBreach, match="sample 'b': budget 0, but at least 1"):
        EqualTotals(["a", "b"], [640, 640]).check_planned({"cost": [1, 0]})
