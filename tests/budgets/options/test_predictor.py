"""A predicted budget follows the image, is stored as plain numbers, and is paid from the same total."""

import random
from pathlib import Path

import pytest

from stakes import BadInput, Policy
from stakes.budgets.controller import Controller
from stakes.budgets.options.tier_plan import BudgetPredictor, OptionEvidence, TierPlan
from stakes.vision.image.statistics import STATISTICS

MEAN, BUDGETS = 304, (96, 304, 576)
COUNT = len(STATISTICS)


def predictor(price: float = 1e-3, **more: object) -> BudgetPredictor:
    """An image with a large first statistic needs more tokens."""
    record = {
        "statistics": STATISTICS, "center": [0.0] * COUNT, "scale": [1.0] * COUNT, "budgets": BUDGETS, "price": price,
        "level": [0.0, -4.6, *[0.0] * (COUNT - 1)], "slope": [9.4, *[0.0] * COUNT],
    }  # fmt: skip
    return BudgetPredictor.model_validate({**record, **more})


def image(first: float, second: float = 0.0) -> list[float]:
    return [first, second, *[0.0] * (COUNT - 2)]


def policy(**more: object) -> Policy:
    evidence = OptionEvidence(
        questions=300, documents=60, tokens=320, escalated=0, flagged=0, error=0.1, upper=0.2, level=0.95
    )
    high = {"cost": 5, "budget": 304, "predictor": predictor().model_dump(), "evidence": evidence.model_dump(), **more}
    low = TierPlan(cost=1, budget=96)
    return Policy.from_record(
        {"schema": 2, "mean_budget": MEAN, "floor": 32, "tiers": {"high": high, "low": low.model_dump()}}
    )


def test_an_image_that_needs_more_gets_more_and_a_higher_price_gives_less() -> None:
    easy, hard = predictor().predict([image(-3.0), image(1.0)], 304).tolist()
    assert (easy, hard) == (96, 576)
    assert predictor(price=0.1).predict([image(1.0)], 304).tolist() == [96]


def test_an_image_unlike_those_of_the_calibration_gets_no_less_than_the_fixed_budget() -> None:
    assert predictor().predict([image(-3.0, 9.0), image(1.0, 9.0)], 304).tolist() == [304, 576]


def test_it_survives_a_round_trip_and_changes_what_a_certificate_covers(tmp_path: Path) -> None:
    policy().save(tmp_path / "policy.json")
    loaded = Policy.load(tmp_path / "policy.json")
    assert loaded.tiers["high"].predictor == predictor()
    assert loaded == policy()
    assert loaded != policy(predictor=predictor(price=0.002).model_dump())
    assert not loaded.fixed
    assert not loaded.reads_confidence
    decision = loaded.decide("What is the total amount?")
    assert decision.option.predictor == predictor()
    assert "96 to 576 by image" in str(decision.option)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"statistics": ["ink"]}, "this version of stakes measures size, shape"),
        ({"level": [0.0]}, "a predictor has 9 centers and scales"),
        ({"budgets": [304, 96]}, "rising order"),
        ({"price": -1}, "predictor.price"),
        ({"price": 1e308}, "predictor.price"),
        ({"level": [1e308] * (COUNT + 1)}, "predictor.level"),  # its products would overflow to NaN
        ({"scale": [1e-320] * COUNT}, "predictor.scale"),
        ({"budgets": [16, 576]}, "tier 'high' has budget 16, below the floor of 32"),
    ],
)
def test_a_predictor_that_cannot_be_applied_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        policy(predictor={**predictor().model_dump(), **change})
    with pytest.raises(BadInput, match="a predicted budget or a second attempt, not both"):
        policy(escalate={"to": 576, "below": 0.9})


def test_a_grant_is_what_was_predicted_and_the_total_holds_whatever_is_predicted() -> None:
    controller = Controller.from_policy(policy())
    grant = controller.grant("high", [1000, 1000], predicted=[96, 576])
    assert grant.budgets == (96, 576)
    controller.settle(grant, grant.budgets)
    taken = sum(grant.budgets)
    for number in range(600):  # all hard, which the evidence denies
        grant = controller.grant("high", [1000], predicted=[576])
        controller.settle(grant, grant.budgets)
        taken += sum(grant.budgets)
        assert taken <= MEAN * (number + 3) + 32 * MEAN
    assert taken > 0.95 * MEAN * 602


def test_where_the_mean_does_not_pay_for_predictions_no_image_gets_more_than_the_plan() -> None:
    controller, dice = Controller.from_policy(policy(), burst=0), random.Random(1)
    for _ in range(200):
        grant = controller.grant("high", [1000], predicted=[dice.choice(BUDGETS)])
        assert grant.budgets[0] <= 304 + 576
        controller.settle(grant, grant.budgets)
    state = controller.state()
    assert state["tokens_spent"] <= MEAN * 200


def test_a_route_that_sees_no_image_gets_the_fixed_budget() -> None:
    assert Controller.from_policy(policy()).grant("high", [1000]).budgets == (304,)
