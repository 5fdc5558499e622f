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
        "schema", "model", "family", "mechanism", "selector", "basis", "metric", "trim", "trim_above", "confidence",
        "mean_budget", "floor", "burst", "max_harm", "tiers", "signal", "estimator", "certificate", "fingerprint",
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
        ({"schema": 7}, "schema 7; this version of stakes reads 1 and 2; update stakes, or calibrate again"),
        ({"schema": True}, "schema True; this version of stakes reads 1 and 2"),
        ({"schema": "2"}, "schema '2'; this version of stakes reads 1 and 2"),
        ({"model": 7}, "model"),
        ({"model": ""}, "model.name"),
        ({"model": {"name": "vlm", "key": "secret"}}, "model.key"),
        ({"max_harm": {"medium": 0.1}}, "max_harm limits tier 'medium', which this policy does not have; its tiers"),
        ({"max_harm": {"low": 1.5}}, "max_harm.low: .*less than or equal to 1"),
        ({"max_harm": {"low": -0.1}}, "max_harm.low: .*greater than or equal to 0"),
        ({"max_harm": 0.15}, "max_harm"),
        ({"trim": "yes, please"}, "trim"),
        ({"confidence": "mean_logprob"}, "confidence: Input should be 'geometric mean token"),
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


def test_what_this_version_cannot_do_for_a_tier_is_refused_and_never_ignored() -> None:
    record = _policy().model_dump(by_alias=True)
    assert record["tiers"]["low"]["predictor"] is None
    record["tiers"]["low"]["predictor"] = "print"
    with pytest.raises(BadInput, match="tiers.low.predictor: Input should be a valid dictionary"):
        Policy.from_record(record)


def test_a_file_of_schema_1_loads_as_schema_2_with_the_new_fields_empty(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    _policy().save(path)
    new = json.loads(path.read_text())
    older = {
        key: value for key, value in new.items() if key not in ("model", "metric", "trim", "confidence", "max_harm")
    }
    plans = ("cost", "budget", "curve", "fitted", "disagreement")
    tiers = {name: {key: plan[key] for key in plans} for name, plan in new["tiers"].items()}
    path.write_text(json.dumps({**older, "schema": 1, "tiers": tiers}))
    policy = Policy.load(path)
    assert (policy.schema_version, policy.model, policy.metric, policy.max_harm) == (2, None, None, None)
    policy.save(path)
    assert json.loads(path.read_text()) == new


def test_a_policy_says_where_its_budgets_come_from_in_words() -> None:
    at = {"name": "vlm", "endpoint": "http://127.0.0.1:8000/v1"}
    assert _policy(model="./my-vlm", metric="value").origin == "calibrated with ./my-vlm, graded by value"
    assert _policy(model=at).origin == "calibrated with vlm at http://127.0.0.1:8000/v1"
    assert _policy().origin == "calibrated with a model that it does not name"
    assert _policy(fingerprint="uncalibrated").origin == "chosen, not calibrated"


@pytest.mark.parametrize(
    "model", ["embedded", {"name": "vlm", "endpoint": "http://h/v1"}, {"name": "x", "max_tokens": 64}]
)
def test_a_model_is_written_as_it_was_given(model: object, tmp_path: Path) -> None:
    _policy(model=model, max_harm={"low": 0.15}).save(tmp_path / "policy.json")
    record = json.loads((tmp_path / "policy.json").read_text())
    assert (record["model"], record["max_harm"]) == (model, {"low": 0.15})
    assert Policy.load(tmp_path / "policy.json").model == _policy(model=model).model


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
