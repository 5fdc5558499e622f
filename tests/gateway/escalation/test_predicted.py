"""The gateway predicts a budget from the image as calibration does, and asks once."""

from threading import Event

import pytest
from tests.budgets.options.test_predictor import BUDGETS, predictor
from tests.gateway.escalation.unsure import post, text_of
from tests.gateway.gateways import blank, encoded, gateway, page, policy
from tests.gateway.upstream import Upstream

from stakes import Policy
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import measure_bytes, predict_budgets
from stakes.gateway.settings import Limits
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


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_a_prediction_keeps_the_limits_of_decoding_in_every_mode(upstream: Upstream, mode: str) -> None:
    pixels = page().width * page().height
    with gateway(upstream.url, predicting(), mode=mode, limits=Limits(decode_bytes=8 * pixels)) as front:
        assert post(front).status_code == 200
    with gateway(upstream.url, predicting(), mode=mode, limits=Limits(decode_bytes=8 * pixels - 1)) as front:
        reply = post(front)
        assert reply.status_code == (200 if mode == "observe" else 422)
        assert front.metric("would_reject_total", reason="too_many_pixels") == (mode == "observe")


def test_a_prediction_that_nobody_waits_for_ends_before_the_next_image() -> None:
    abandoned, option = Event(), predicting().tiers["high"].option
    image = measure_bytes(encoded(page()), "qwen2.5-vl", Limits())
    assert len(predict_budgets(option, "qwen2.5-vl", [image], abandoned)) == 1
    abandoned.set()
    with pytest.raises(Refused, match="nobody waits"):
        predict_budgets(option, "qwen2.5-vl", [image], abandoned)
