"""A policy with per-request costs is estimated with predicted tiers, and decides by expected cost."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.scenarios import published

from stakes.budgets.per_request import request_hash
from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.by_document import by_document
from stakes.calibration.certify.drift import Conditions
from stakes.calibration.certify.power import simulate
from stakes.calibration.per_request import calibrate_per_request
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import KeywordRule, LearnedSignal, to_dict
from stakes.signals.base import Signal
from stakes.signals.learned import tier_probabilities

COSTS = {"high": 5.0, "low": 1.0}
HIGH = ("What is the total of {}?", "What date is on {}?")
LOW = ("Who signed {}?", "What is the title of {}?")


def log(n: int, mislabelled: float = 0.0) -> tuple[list[Outcome], list[Sample]]:
    """Simulated outcomes with questions, some of whose words name the other tier."""
    rng = np.random.default_rng(3)
    measured = simulate(published(), {"high": n, "low": n}, rng)
    outcomes, samples = [], []
    for tier, other in (("high", LOW), ("low", HIGH)):
        for i in np.flatnonzero(measured.asked[tier][:, 0]):
            words = other if rng.random() < mislabelled else HIGH if tier == "high" else LOW
            name = f"{tier}{i}"
            samples.append(Sample(name, words[i % 2].format(f"form {i}"), (), tier=tier, document=name))
            for j, budget in enumerate(measured.budgets):
                right = not measured.wrong[tier][i, j]
                outcomes.append(
                    Outcome(
                        name, name, tier, "deletion", None, budget, 900, budget, "", False, right, right, "exact", 1, ""
                    )
                )
    return outcomes, samples


def calibrated(signal: Signal, mislabelled: float = 0.0, n: int = 150) -> tuple[Policy, list[Sample]]:
    outcomes, samples = log(n, mislabelled)
    measured = by_document(outcomes, COSTS)
    found = calibrate_per_request(outcomes, samples, signal, COSTS, 304, "raw")
    tiers = {tier: TierPlan(cost=COSTS[tier], budget=304, curve=curve) for tier, curve in measured.curves().items()}
    return Policy(mean_budget=304, tiers=tiers, signal=to_dict(signal), soft=found), samples


@cache
def learned() -> LearnedSignal:
    texts = [
        (words.format(f"page {i}"), t) for i in range(12) for t, ws in (("high", HIGH), ("low", LOW)) for words in ws
    ]
    return LearnedSignal().fit([text for text, _ in texts], [tier for _, tier in texts])


def test_the_estimate_counts_the_signals_mistakes() -> None:
    true, _ = calibrated(KeywordRule())
    wrong, _ = calibrated(KeywordRule(), mislabelled=0.3)
    assert true.per_request is not None
    assert wrong.per_request is not None
    assert true.per_request.estimate is not None
    assert wrong.per_request.estimate is not None
    assert true.per_request.estimate["right"] == 1.0
    assert wrong.per_request.estimate["right"] == pytest.approx(0.7, abs=0.06)
    assert wrong.per_request.estimate["cwe"] > true.per_request.estimate["cwe"] + 0.02
    assert wrong.per_request.estimate["cwe"] <= wrong.per_request.estimate["hard_cwe"] + 0.01
    assert true.per_request.estimate["tokens"] == pytest.approx(304, rel=0.06)
    assert wrong.per_request.trust is not None
    assert wrong.per_request.trust["low"]["high"] == pytest.approx(0.3, abs=0.08)
    assert true.per_request.estimate["same_from"] < 5 < true.per_request.estimate["same_to"]


def test_decisions_keep_the_mean_and_follow_expected_cost() -> None:
    policy, samples = calibrated(KeywordRule())
    budgets = [policy.decide(one.question, about=one.id).budget for one in samples]
    assert np.mean(budgets) == pytest.approx(304, rel=0.06)
    high_cost, cheap = policy.decide(HIGH[0].format("x")), policy.decide(LOW[0].format("x"))
    assert (high_cost.tier, cheap.tier) == ("high", "low")
    assert high_cost.cost > cheap.cost
    assert high_cost.budget > cheap.budget
    assert "expected cost" in high_cost.why
    budgets = [policy.decide(LOW[0].format("x"), cost=cost).budget for cost in (0.1, 1, 3, 20)]
    assert budgets == sorted(budgets)
    assert budgets[0] < budgets[-1]
    with pytest.raises(BadInput, match="cost of a request"):
        policy.decide("Who?", cost=-1)


def test_probabilities_between_the_tiers_get_budgets_between_them() -> None:
    signal = learned()
    policy, _ = calibrated(signal)
    assert policy.per_request is not None
    assert policy.per_request.trust is None
    sure = policy.decide("What is the total of form 3?")
    doubtful = policy.decide("What is signed?")
    assert sure.cost > doubtful.cost > 1
    chance = signal.predict_proba(["What is signed?"])[0]
    assert doubtful.cost == pytest.approx(5 * chance["high"] + chance["low"])


def test_undecided_goes_to_the_more_expensive_side_whole() -> None:
    signal = learned()
    for question in ("", "Xyzzy plugh"):
        reading, likely = tier_probabilities(signal, question)
        assert not reading.decided
        assert likely == {"high": 1.0, "low": 0.0}
    policy, _ = calibrated(signal)
    assert policy.decide("").cost == 5.0
    rule, _ = calibrated(KeywordRule(), mislabelled=0.3)
    assert rule.decide("").cost == 5.0


def test_a_per_request_policy_survives_its_file_and_differs_from_a_hard_one(tmp_path: Path) -> None:
    policy, _ = calibrated(KeywordRule())
    policy.save(tmp_path / "per_request.json")
    again = Policy.load(tmp_path / "per_request.json")
    assert again == policy
    assert again.decide("Who signed?") == policy.decide("Who signed?")
    record = {**policy.model_dump(by_alias=True), "soft": None}
    hard = Policy.from_record(record)
    assert hard != policy
    with pytest.raises(BadInput, match="own cost"):
        hard.decide("Who?", cost=3)
    tiers = {**record["tiers"], "low": {"cost": 1.0, "budget": 304}}
    with pytest.raises(BadInput, match="every tier's curve"):
        Policy.from_record({**policy.model_dump(by_alias=True), "tiers": tiers})


def test_the_coin_belongs_to_the_request_and_is_fair() -> None:
    by_question = [request_hash(f"question {i}") for i in range(2000)]
    by_image = [request_hash("What is the total?", f"image {i}") for i in range(2000)]
    for drawn in (by_question, by_image):
        assert np.mean(drawn) == pytest.approx(0.5, abs=0.03)
        assert np.mean(np.array(drawn) < 0.3) == pytest.approx(0.3, abs=0.04)
    assert (request_hash("question 7"), request_hash("What is the total?", "image 7")) == (by_question[7], by_image[7])
    assert request_hash("ab", "c") != request_hash("b", "ca")
    assert 0 <= request_hash("\ud800", "\ud800") < 1


@pytest.mark.parametrize(
    ("high", "low"),
    [("What is the total?", "Who signed?"), ("What is the invoice number?", "What is the vendor name?")],
)
def test_one_text_for_a_whole_tier_still_spends_the_mean(high: str, low: str) -> None:
    outcomes, samples = log(150)
    outcomes = [replace(outcome, prediction=str(outcome.budget)) for outcome in outcomes]  # another at every budget
    samples = [replace(one, question=high if one.tier == "high" else low) for one in samples]
    found = calibrate_per_request(outcomes, samples, KeywordRule(), COSTS, 304, "raw")
    assert 0.1 < found.share < 0.9  # some tie, so that a request_hash for all would go wrong
    assert found.estimate is not None
    assert found.estimate["tokens"] == pytest.approx(304, rel=0.06)
    tiers = {
        tier: TierPlan(cost=COSTS[tier], budget=304, curve=curve)
        for tier, curve in by_document(outcomes, COSTS).curves().items()
    }
    policy = Policy(mean_budget=304, tiers=tiers, soft=found)
    budgets = [policy.decide(one.question, about=one.id).budget for one in samples]
    assert np.mean(budgets) == pytest.approx(304, rel=0.06)
    assert budgets == [policy.decide(one.question, about=one.id).budget for one in samples]
    conditions = Conditions.of_policy(policy)
    assert conditions.mix == {"high": 0.5, "low": 0.5}
    for tier, allowed in conditions.disagreement.items():
        differ = np.mean([budget < 576 for one, budget in zip(samples, budgets, strict=True) if one.tier == tier])
        assert differ < allowed < differ + 0.13 or allowed == 0.999


def test_a_tier_that_is_read_in_the_tested_half_alone_gets_a_measured_budget() -> None:
    outcomes, samples = log(20)
    measured = by_document(outcomes, COSTS)
    halves = [set(measured.subset(rows).documents) for rows in measured.parts(2)]
    for mean, floor in ((250, None), (310, 96)):  # 250 and 310 are not on the grid
        for half in halves:
            special = next(one.id for one in samples if one.document in half)
            texts = ("What is the total?", "Who signed?")
            rare = [replace(one, question=texts[one.id != special]) for one in samples]
            estimate = calibrate_per_request(outcomes, rare, KeywordRule(), COSTS, mean, "raw", floor).estimate
            assert estimate is not None
            assert 0 < estimate["hard_tokens"] <= mean


def test_a_log_that_lacks_answers_is_refused() -> None:
    outcomes, samples = log(20)
    with pytest.raises(BadInput, match="lacks some"):
        calibrate_per_request(outcomes[:-1], samples, KeywordRule(), COSTS, 304)
