"""What the budgets were chosen for: from the log or the policy file, the same, and never from error rates."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes import Policy
from stakes.budgets.policy import TierPlan
from stakes.calibration.by_document import by_document
from stakes.calibration.certify.drift import Conditions, DriftMonitor, disagreements, same_answer
from stakes.errors import BadInput
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcome_log import Outcome


def policy(high: float | None, low: float | None, curves: bool = True, **more: Any) -> Policy:
    curve = {"budgets": (64, 576), "errors": (0.1, 0.05), "counts": (300, 300)}
    tiers = {
        "high": {"cost": 5, "budget": 64, "disagreement": high, "curve": curve if curves else None},
        "low": {"cost": 1, "budget": 576, "disagreement": low, "curve": {**curve, "counts": (100, 100)}},
    }
    return Policy.model_validate({"schema": 1, "mean_budget": 304, "tiers": tiers, **more})


def said(sample: int, tier: str, budget: int, prediction: str, answer: str = "42", metric: str = "relaxed") -> Outcome:
    score = grade(prediction, [answer], metric)
    return Outcome(
        f"q{sample}", f"d{sample // 2}", tier, "resolution", None, budget, 999, budget, prediction, False, score,
        is_correct(score), metric, 1.0, "r",
    )  # fmt: skip


def test_a_policy_allows_what_its_calibration_saw_and_some_slack() -> None:
    found = Conditions.of_policy(policy(0.1, 0.995))
    assert found.disagreement == {"high": pytest.approx(0.12), "low": 0.999}
    assert found.mix == {"high": 0.75, "low": 0.25}
    assert Conditions.of_policy(policy(0.1, 0.0, curves=False)).mix == {}  # nothing says which tiers came


def test_a_policy_without_the_disagreement_is_refused_whatever_its_errors() -> None:
    for high, low, missing in ((None, 0.1, "high"), (0.1, None, "low")):
        with pytest.raises(BadInput, match=f"worded differently.*--shadow-outcomes.*--shadow-allow {missing}=0.1"):
            Conditions.of_policy(policy(high, low))


answers_given = st.lists(
    st.tuples(st.sampled_from(["42", "42 in total", "it is 42.", "43"]), st.sampled_from(["42", "$42", "43", "?"])),
    min_size=4,
    max_size=30,
)


@settings(max_examples=25)
@given(answers_given)
def test_policy_and_log_give_the_same_conditions(pairs: list[tuple[str, str]]) -> None:
    outcomes, tiers = [], ["high", "low"]
    for i, (small, full) in enumerate(pairs):
        outcomes += [said(i, tiers[i % 2], 64, small), said(i, tiers[i % 2], 576, full)]
    budgets = {"high": 64, "low": 576}
    upper = disagreements(outcomes, budgets)
    curves = by_document(outcomes, tiers).curves()
    plans = {
        tier: TierPlan(cost=1, budget=budgets[tier], disagreement=upper[tier], curve=curves[tier]) for tier in tiers
    }
    saved = Policy.from_record(json.loads(json.dumps(Policy(mean_budget=304, tiers=plans).model_dump(by_alias=True))))
    log, file = Conditions.of(outcomes, budgets), Conditions.of_policy(saved)
    assert file.disagreement == pytest.approx(log.disagreement)
    assert file.mix == pytest.approx(log.mix)
    seen = [not same_answer(small, full) for small, full in pairs[::2]]
    assert upper["high"] >= sum(seen) / len(seen)  # a bound from above
    assert upper["low"] >= 0  # its budget is the largest: never differs from itself


def test_right_answers_that_are_worded_differently_raise_no_alarm() -> None:
    """Under relaxed grading all answers are right, and a quarter differ: errors of 0 would have allowed 3 % or so."""
    words = ["42 in total", "42", "42", "42"] * 500
    outcomes = []
    for i in range(400):
        tier = "high" if i < 200 else "low"
        outcomes += [said(i, tier, 64, words[i]), said(i, tier, 576, "42")]
    assert all(outcome.correct for outcome in outcomes)
    upper = disagreements(outcomes, {"high": 64, "low": 64})
    assert 0.25 < upper["high"] < 0.35
    monitor = DriftMonitor(Conditions.of_policy(policy(upper["high"], upper["low"])))
    for i in range(2000):
        monitor.compare("high", same_answer(words[i], "42"))
    assert monitor.alarms() == {}


def test_with_per_request_costs_it_goes_by_the_tier_read_and_the_budget_given() -> None:
    per_request = {"price": 0.001, "disagreement": {"high": 0.1, "low": 0.3}, "mix": {"high": 0.2, "low": 0.8}}
    found = Conditions.of_policy(policy(0.9, 0.9, soft=per_request))
    assert found.disagreement == {"high": pytest.approx(0.12), "low": pytest.approx(0.32)}
    assert found.mix == per_request["mix"]
    with pytest.raises(BadInput, match="differently; calibrate again, or set .* --shadow-allow high=0.1"):
        Conditions.of_policy(policy(0.9, 0.9, soft={"price": 0.001}))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("$ 1,204.00", "$ 1,204.00.", True), ("YES", " yes\n", True), ("", "", True), ("1,204", "1", False),
     ("1.204", "1,204", False), ("", "42", False)],
)  # fmt: skip
def test_the_same_answer_is_not_one_that_contains_the_other(one: str, other: str, same: bool) -> None:
    assert same_answer(one, other) is same


def test_a_person_may_set_the_limits_and_then_no_mix_is_monitored() -> None:
    monitor = DriftMonitor(Conditions({"high": 0.1, "low": 0.5}))
    assert monitor.monitored() == [("disagreement", "high"), ("disagreement", "low"), ("tokens", "")]
    for _ in range(64):
        monitor.observe("high")  # one tier only, which nobody has said anything about
    assert monitor.alarms() == {}
    for _ in range(16):
        monitor.compare("high", same=False)
    assert list(monitor.alarms()) == [("disagreement", "high")]
    assert (monitor.state()["requests"], monitor.state()["tiers"]["high"]["share_calibrated"]) == (64, None)


def test_a_tier_of_three_that_stops_coming_is_one_alarm_by_name() -> None:
    monitor = DriftMonitor(Conditions({"a": 0.1, "b": 0.1, "c": 0.1}, {"a": 0.4, "b": 0.3, "c": 0.3}))
    for number in range(400):
        monitor.observe("bc"[number % 2])
    assert list(monitor.alarms()) == [("mix", "a")]
    assert "less often" in monitor.alarms()["mix", "a"]
    for _ in range(400):
        monitor.observe("b")
    assert "more often" in monitor.alarms()["mix", "b"]
