"""The gateway predicts a budget from the image as calibration does, and asks once."""

from tests.budgets.options.test_predictor import BUDGETS, predictor
from tests.gateway.escalation.unsure import post, text_of
from tests.gateway.gateways import blank, gateway, page, policy
from tests.gateway.upstream import Upstream

from stakes import Policy
from stakes.vision.image.statistics import STATISTICS, page_statistics


def predicting() -> Policy:
    """Pages with as much ink as the usual one need the largest budget, and blank ones the smallest."""
    ink = page_statistics(page())[STATISTICS.index("ink")]
    only = [name == "ink" for name in STATISTICS]
    rule = predictor(
        center=[0.75 * ink if one else 0.0 for one in only],
        scale=[1.0 if one else 100.0 for one in only],
        level=[0.0, *(-4 * 4.6 / ink if one else 0.0 for one in only)],
    )
    tiers = {
        "high": {"cost": 5, "budget": BUDGETS[1], "predictor": rule.model_dump()},
        "low": {"cost": 1, "budget": 64},
    }
    return policy(tiers=tiers, mean_budget=576, burst=8192)


def test_budgets_follow_the_image_and_no_confidence_is_asked_for(upstream: Upstream) -> None:
    made = predicting()
    option = made.tiers["high"].option
    assert option.predictor is not None
    expected = option.predictor.predict([page_statistics(page())], option.budget).tolist()[0]
    with gateway(upstream.url, made) as front:
        full, empty = post(front), post(front, "What is the total?", blank(1))
        assert full.headers["x-stakes-budget"] == str(expected) != empty.headers["x-stakes-budget"]
        assert int(full.headers["x-stakes-budget"]) > int(empty.headers["x-stakes-budget"])
        assert text_of(full) == full.headers["x-stakes-predicted-tokens"]
        assert "x-stakes-attempts" not in full.headers
        assert not any("logprobs" in one.json for one in upstream.posts())
