"""What the budgets were chosen for, from a policy's curves alone: safe, and no looser than the curves make it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import Policy
from stakes.budgets.conditions import Conditions, same_answer
from stakes.budgets.watch import Watch
from stakes.errors import BadInput


def policy(errors: tuple[float, float], count: int, low: int = 100) -> Policy:
    curve = {"budgets": (64, 576), "errors": errors, "counts": (count, count)}
    other = {**curve, "counts": (low, low)}
    tiers = {"high": {"cost": 5, "budget": 64, "curve": curve}, "low": {"cost": 1, "budget": 576, "curve": other}}
    return Policy.model_validate({"schema": 1, "mean_budget": 304, "tiers": tiers})


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 400))
def test_more_than_both_errors_and_less_the_more_was_measured(at: float, full: float, count: int) -> None:
    found = Conditions.of_policy(policy((at, full), count)).disagreement
    more = Conditions.of_policy(policy((at, full), 16 * count)).disagreement
    assert min(0.999, round(at * count) / count + round(full * count) / count) <= found["high"] <= 0.999
    assert more["high"] <= found["high"] + 1 / count  # counts are whole numbers
    assert found["low"] >= min(0.999, 2 * round(100 * full) / 100)


def test_the_mix_is_the_calibrations() -> None:
    found = Conditions.of_policy(policy((0.1, 0.05), 300))
    assert found.mix == {"high": 0.75, "low": 0.25}
    # Clopper and Pearson at 97.5 %: 30 of 300 up to 13.97 %, 15 of 300 up to 8.11 %; and the slack
    assert found.disagreement["high"] == pytest.approx(0.1397 + 0.0811 + 0.02, abs=5e-4)


def test_a_policy_without_curves_says_what_to_do() -> None:
    tiers = {"high": {"cost": 5, "budget": 64}, "low": {"cost": 1, "budget": 64}}
    with pytest.raises(BadInput, match="--shadow-allow high=0.1"):
        Conditions.of_policy(Policy.model_validate({"schema": 1, "mean_budget": 64, "tiers": tiers}))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("$ 1,204.00", "$ 1,204.00.", True), ("YES", " yes\n", True), ("", "", True), ("1,204", "1", False),
     ("1.204", "1,204", False), ("", "42", False)],
)  # fmt: skip
def test_the_same_answer_is_not_one_that_contains_the_other(one: str, other: str, same: bool) -> None:
    assert same_answer(one, other) is same


def test_a_person_may_say_what_is_allowed_and_then_no_mix_is_watched() -> None:
    watch = Watch(Conditions({"high": 0.1, "low": 0.5}))
    assert watch.watched() == [("disagreement", "high"), ("disagreement", "low"), ("tokens", "")]
    for _ in range(64):
        watch.observe("high")  # one tier only, which nobody has said anything about
    assert watch.alarms() == {}
    for _ in range(16):
        watch.compare("high", same=False)
    assert list(watch.alarms()) == [("disagreement", "high")]
    assert (watch.state()["requests"], watch.state()["tiers"]["high"]["share_calibrated"]) == (64, None)


def test_a_tier_of_three_that_stops_coming_is_one_alarm_by_name() -> None:
    watch = Watch(Conditions({"a": 0.1, "b": 0.1, "c": 0.1}, {"a": 0.4, "b": 0.3, "c": 0.3}))
    for number in range(400):
        watch.observe("bc"[number % 2])
    assert list(watch.alarms()) == [("mix", "a")]
    assert "less often" in watch.alarms()["mix", "a"]
    for _ in range(400):
        watch.observe("b")
    assert "more often" in watch.alarms()["mix", "b"]
