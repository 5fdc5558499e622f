"""A policy file decides the budget of every question, survives a round trip, and refuses what is not one."""

import json
from pathlib import Path

import pytest

from stakes import BadInput, Curve, KeywordRule, Policy, TaskIdentity
from stakes.budgets.policy import TierPlan
from stakes.signals import to_dict

TWICE = {"budgets": [9, 9], "errors": [0, 0], "counts": [1, 1]}


def _policy(high: int = 576, low: int = 32, **more: object) -> Policy:
    curve = Curve([32, 304, 576], [0.9, 0.3, 0.1], 300)
    tiers = {"high": TierPlan(cost=5, budget=high, curve=curve), "low": TierPlan(cost=1, budget=low, curve=curve)}
    return Policy.model_validate({"mean_budget": 304, "floor": 32, "tiers": tiers, "fingerprint": "abc", **more})


def test_a_question_gets_its_tiers_budget_and_the_reason() -> None:
    decision = _policy().decide("What is the invoice total?")
    assert (decision.tier, decision.budget, decision.cost, decision.probability) == ("high", 576, 5.0, 1.0)
    assert decision.why == 'keyword "total"'
    assert _policy().decide("Who signed the letter?").budget == 32


def test_an_empty_question_gets_the_most_expensive_tier() -> None:
    decision = _policy().decide("  ")
    assert decision.tier == "high"
    assert decision.why.startswith("undecided")


def test_a_policy_can_read_the_task_instead() -> None:
    policy = _policy(signal=to_dict(TaskIdentity({"docvqa": "high", "vqav2": "low"})))
    assert policy.decide("What colour is it?", task="vqav2").tier == "low"
    assert policy.decide("What colour is it?").tier == "high"


def test_a_policy_survives_a_round_trip_and_has_no_clock_in_it(tmp_path: Path) -> None:
    policy, path = _policy(certificate={"level": 0.95}), tmp_path / "deep" / "policy.json"
    policy.save(path)
    first = path.read_bytes()
    again = Policy.load(path)
    again.save(path)
    assert path.read_bytes() == first
    assert again.tiers == policy.tiers
    assert list(json.loads(first)) == [
        "schema", "family", "mechanism", "selector", "basis", "mean_budget", "floor", "burst", "tiers", "signal",
        "estimator", "certificate", "fingerprint",
    ]  # fmt: skip
    assert list(tmp_path.glob("**/*.part")) == []


def test_a_policy_by_deletion_keeps_its_selector_and_an_older_file_has_none(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    _policy(mechanism="deletion", selector="fastv:layer=2").save(path)
    assert Policy.load(path).selector == "fastv:layer=2"
    older = {key: value for key, value in json.loads(path.read_text()).items() if key != "selector"}
    path.write_text(json.dumps(older))
    assert (Policy.load(path).mechanism, Policy.load(path).selector) == ("deletion", None)


def test_policies_are_the_same_when_tiers_and_budgets_are() -> None:
    assert _policy() == _policy(fingerprint="other", mean_budget=300)
    assert hash(_policy()) == hash(_policy(fingerprint="other"))
    assert _policy() != _policy(high=512)
    assert _policy() != "a policy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 7}, "schema 7; this version of stakes reads 1"),
        ({"schema": True}, "schema True; this version of stakes reads 1"),
        ({"tiers": {}}, "tiers"),
        ({"tiers": {"high": {"cost": -1, "budget": 5}}}, "tiers.high.cost"),
        ({"tiers": {"high": {"cost": 5, "budget": 0}}}, "tiers.high.budget"),
        ({"tiers": {"high": {"cost": 5, "budget": 10**400}}}, "tiers.high.budget: .*less than or equal to 1000000000"),
        ({"mean_budget": 10**400}, "mean_budget: .*less than or equal to 1000000000"),
        ({"burst": 10**400}, "burst: .*less than or equal to 1000000000"),
        ({"floor": 64}, "tier 'low' has budget 32, below the floor of 64"),
        ({"mechanism": "magic"}, "mechanism"),
        ({"selector": "fastv"}, "'fastv' says which tokens deletion keeps; this is a resolution policy"),
        ({"surprise": 1}, "surprise"),
        ({"signal": {"kind": "oracle"}}, "unknown signal kind 'oracle'"),
        ({"signal": to_dict(TaskIdentity({"a": "gold"}, most_expensive="gold"))}, "can answer tier 'gold'"),
        ({"tiers": {"high": {"cost": 5, "budget": 9, "curve": TWICE}}}, "budget 9 appears twice"),
    ],
)  # fmt: skip
def test_a_bad_policy_is_refused_with_the_field_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "policy.json"
    _policy().save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadInput, match=message) as caught:
        Policy.load(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no policy file"):
        Policy.load(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(BadInput, match="holds a list, not an object"):
        Policy.load(tmp_path / "list.json")
    (tmp_path / "half.json").write_text('{"schema": 1')
    with pytest.raises(BadInput, match="is not a policy file"):
        Policy.load(tmp_path / "half.json")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(BadInput, match="deep.json is not a policy file"):
        Policy.load(tmp_path / "deep.json")


def test_a_judged_policy_needs_its_judge_brought() -> None:
    policy = _policy(signal={"kind": "judge", "tiers": ["high", "low"], "most_expensive": "high"})
    with pytest.raises(BadInput, match="give it with use"):
        policy.decide("What is the total?")
    policy.use(KeywordRule())
    assert policy.decide("What is the total?").tier == "high"


def test_a_failed_save_leaves_the_old_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.json"
    _policy().save(path)

    def full_disk(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        _policy(high=512).save(path)
    assert Policy.load(path) == _policy()
    assert list(tmp_path.glob("*.part")) == []
