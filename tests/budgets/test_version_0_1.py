"""Policies and a log written by version 0.1 (a stub model, synthetic samples) load and serve as they did then."""

import json
from pathlib import Path
from typing import Any

import pytest

from stakes import Policy
from stakes.aliases import ESTIMATORS
from stakes.budgets.controller import Controller
from stakes.budgets.controller_path import certified_budgets
from stakes.budgets.curve_files import read_curves
from stakes.evaluation.outcome_log import read_outcomes

FILES = Path(__file__).parents[1] / "fixtures" / "v0.1"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
POLICIES = ["policy.json", "policy-certified.json", "policy-per-request.json"]


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_decides_as_before(name: str) -> None:
    policy = Policy.load(FILES / name)
    rows = [row for row in EXPECTED["decisions"] if row["policy"] == name]
    assert rows
    for row in rows:
        decision = policy.decide(row["question"], row["task"], row["cost"], row["about"])
        assert {key: getattr(decision, key) for key in row["decision"]} == row["decision"]


@pytest.mark.parametrize("name", EXPECTED["grants"])
def test_a_policy_grants_the_same_budgets_to_the_same_traffic(name: str) -> None:
    controller = Controller.from_policy(Policy.load(FILES / name))
    for tier, native, budget in EXPECTED["grants"][name]:
        grant = controller.grant(tier, [native])
        controller.settle(grant, grant.budgets)
        assert grant.budgets == (budget,)


def test_a_certificate_still_covers_its_budgets() -> None:
    certified = certified_budgets(Policy.load(FILES / "policy-certified.json"))
    assert certified is not None
    assert {tier: budgets.ships for tier, budgets in certified.items()} == {"high": 576, "low": 32}


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_saved_again_keeps_its_keys_and_what_schema_2_added_is_null(name: str, tmp_path: Path) -> None:
    Policy.load(FILES / name).save(tmp_path / name)
    before, after = (json.loads((folder / name).read_text(encoding="utf-8")) for folder in (FILES, tmp_path))
    assert (before.pop("schema"), after.pop("schema")) == (1, 2)
    added = [after.pop(field) for field in ("model", "metric", "trim", "trim_above", "confidence", "max_harm")]
    added += [
        plan.pop(field) for plan in after["tiers"].values() for field in ("escalate", "review_below", "predictor")
    ]
    assert set(added) == {None}
    assert {**after, "signal": None} == {**before, "signal": None}
    assert Policy.load(tmp_path / name) == Policy.load(FILES / name)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_policy_of_a_removed_estimator_loads(estimator: str) -> None:
    record = json.loads((FILES / "policy.json").read_text(encoding="utf-8"))
    assert Policy.from_record({**record, "estimator": estimator}).budgets == Policy.load(FILES / "policy.json").budgets


def test_a_log_gives_the_same_curves() -> None:
    curves = read_curves(FILES / "outcomes.jsonl")
    assert len(read_outcomes(FILES / "outcomes.jsonl")) == 120
    assert {tier: [*curve.budgets] for tier, curve in curves.items()} == {
        tier: curve["budgets"] for tier, curve in EXPECTED["curves"].items()
    }
    for tier, curve in curves.items():
        assert [*curve.errors] == EXPECTED["curves"][tier]["errors"]
        assert [*curve.counts] == EXPECTED["curves"][tier]["counts"]
    assert read_curves(FILES / "policy.json") == curves
