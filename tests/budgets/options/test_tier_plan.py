"""A tier's option says when a question is asked again and when a person reviews; a policy carries it as schema 2."""

import json
from pathlib import Path

import pytest

from stakes import BadInput, Curve, Policy
from stakes.budgets.digests import edited_parts, sealed
from stakes.budgets.options.tier_plan import Escalation, OptionEvidence, TierOption
from stakes.budgets.policy import TierPlan
from stakes.models.base import CONFIDENCE

CURVE = Curve([32, 304, 576], [0.9, 0.3, 0.1], 300)
EVIDENCE = OptionEvidence(
    questions=200, documents=90, tokens=400, escalated=0.2, flagged=0.06, error=0.004, upper=0.01, level=0.95
)


def _policy(**high: object) -> Policy:
    tiers = {"high": {"cost": 5, "budget": 304, "curve": CURVE, **high}, "low": {"cost": 1, "budget": 32}}
    return Policy.model_validate({"mean_budget": 304, "tiers": tiers, "confidence": CONFIDENCE})


def test_an_unsure_answer_is_asked_again_and_a_sure_one_stands() -> None:
    option = TierOption(304, Escalation(to=576, below=0.9))
    assert [option.next_budget(confidence) for confidence in (0.899, 0.9, 1.0, None)] == [576, None, None, 576]
    assert (option.most_tokens, TierOption(304).most_tokens) == (880, 304)
    assert TierOption(304).next_budget(None) is None


def test_an_answer_without_a_confidence_is_reviewed_where_the_tier_has_review() -> None:
    assert [TierOption(304, review_below=0.6).flags(confidence) for confidence in (0.59, 0.6, None)] == [
        True,
        False,
        True,
    ]
    assert not TierOption(304).flags(None)


def test_a_policy_with_thresholds_survives_a_round_trip_and_decides_by_them(tmp_path: Path) -> None:
    policy = _policy(escalate={"to": 576, "below": 0.9}, review_below=0.6, evidence=EVIDENCE)
    policy.save(tmp_path / "policy.json")
    record, again = json.loads((tmp_path / "policy.json").read_text()), Policy.load(tmp_path / "policy.json")
    assert record["confidence"] == CONFIDENCE
    assert record["tiers"]["high"]["escalate"] == {"to": 576, "below": 0.9}
    assert "evidence" not in record["tiers"]["low"]
    assert again == policy
    assert again.tiers == policy.tiers
    decision = again.decide("What is the invoice total?")
    assert decision.option == TierOption(304, Escalation(to=576, below=0.9), 0.6)
    assert again.decide("Who signed the letter?").option.fixed


def test_policies_differ_where_their_thresholds_do() -> None:
    assert _policy(escalate={"to": 576, "below": 0.9}) != _policy(escalate={"to": 576, "below": 0.8})
    assert _policy(review_below=0.5) != _policy()


@pytest.mark.parametrize(
    ("high", "more", "message"),
    [
        ({"escalate": {"to": 304, "below": 0.9}}, {}, "escalate.to is 304, and the first attempt takes 304 tokens"),
        ({"escalate": {"to": 576, "below": 1.5}}, {}, "tiers.high.escalate.below"),
        ({"escalate": {"to": 576}}, {}, "tiers.high.escalate.below"),
        ({"review_below": 0}, {}, "tiers.high.review_below"),
        ({"review_below": 0.5}, {"confidence": None}, "'high' has a threshold, but .* does not name the confidence"),
        ({"review_below": 0.5}, {"confidence": "vibes"}, "confidence: Input should be 'geometric mean"),
        ({"escalate": {"to": 576, "below": 0.9}}, {"menu": [32, 304]}, "576 tokens, which is no entry of the engine"),
    ],
)  # fmt: skip
def test_a_rule_that_cannot_be_served_is_refused(
    high: dict[str, object], more: dict[str, object], message: str
) -> None:
    record = _policy().model_dump(by_alias=True)
    record["tiers"]["high"] |= high
    with pytest.raises(BadInput, match=message):
        Policy.from_record({**record, **more})


def test_a_changed_threshold_ends_the_certificate_and_an_old_certificate_stays_valid() -> None:
    plain = sealed(_policy().model_copy(update={"certificate": {"budgets": {"high": 304, "low": 32}}}))
    assert edited_parts(plain) == []
    assert plain.certificate is not None
    older = {**plain.certificate, "digest": {k: v for k, v in plain.certificate["digest"].items() if k != "thresholds"}}
    assert edited_parts(plain.model_copy(update={"certificate": older})) == []
    tiers = {**plain.tiers, "high": TierPlan(cost=5, budget=304, curve=CURVE, review_below=0.5)}
    assert edited_parts(plain.model_copy(update={"tiers": tiers})) == ["thresholds"]
