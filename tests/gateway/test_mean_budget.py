"""``serve --mean-budget`` with a policy: its budgets are chosen again for that mean, or refused with the reason."""

import json
from pathlib import Path

import httpx
import pytest
from tests.budgets.controllers import DOCVQA
from tests.budgets.controllers import policy as calibrated
from tests.gateway.gateways import ask, policy
from tests.gateway.processes import process
from tests.gateway.upstream import Upstream

from stakes import Policy, StakesError
from stakes.budgets.per_request import PerRequestPlan
from stakes.cli import main
from stakes.commands.options.served_policy import at_mean, read_policy

SAME = dict.fromkeys(("high", "low"), DOCVQA["high"])


@pytest.mark.parametrize("mean", [96, 160, 448])
def test_the_budgets_are_those_of_plan_for_that_mean(
    mean: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.json"
    calibrated(max_harm={"low": 0.5}).save(path)
    with pytest.raises(SystemExit, match="0"):
        main(["plan", "--curves", str(path), "--mean-budget", str(mean), "--json"])
    planned = json.loads(capsys.readouterr().out)["allocation"]["budgets"]
    found = read_policy(path, None, mean, "qwen2.5-vl")
    assert (found.mean_budget, found.budgets) == (mean, planned)
    assert found.budgets != Policy.load(path).budgets
    assert found.fingerprint != Policy.load(path).fingerprint


def test_the_policys_own_mean_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    calibrated(certificate={"budgets": {"high": 576, "low": 32}}).save(path)
    assert read_policy(path, None, 304, "qwen2.5-vl").model_dump() == Policy.load(path).model_dump()


@pytest.mark.parametrize(
    ("rules", "mean", "sentence"),
    [
        (calibrated(certificate={"budgets": {}}), 400, "certified for a mean budget of 304, not 400; leave"),
        (calibrated(curves=SAME, soft=PerRequestPlan(price=0.01)), 400, "price a token is for a mean budget of 304"),
        (policy(), 100, "no curve of tier 'high' to choose budgets on; leave --mean-budget out, or calibrate again"),
        (calibrated(), 20, "give --mean-budget 32 or more"),
    ],
)  # fmt: skip
def test_a_mean_that_the_policy_cannot_be_planned_for_is_refused(rules: Policy, mean: int, sentence: str) -> None:
    with pytest.raises(StakesError, match=sentence):
        at_mean(rules, mean)


def test_a_changed_budget_has_no_bound_on_its_disagreement() -> None:
    record = calibrated().model_dump(by_alias=True)
    for plan in record["tiers"].values():
        plan["disagreement"] = 0.16
    rules = Policy.model_validate(record)
    found = at_mean(rules, 330).tiers
    assert {plan.disagreement for plan in found.values()} == {0.16, None}
    for name, plan in found.items():
        assert (plan.disagreement is None) == (plan.budget != rules.tiers[name].budget)


def test_it_is_served_from_the_command_line_the_environment_and_a_file(
    upstream: Upstream, http: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, settings = tmp_path / "policy.json", tmp_path / "gateway.toml"
    calibrated().save(path)
    settings.write_text(f'policy = "{path}"\nmean-budget = 64\nburst = 0\n')
    with process("--settings", str(settings), "--upstream", upstream.url) as (_, about):
        assert about["mean_budget"] == 64
        assert about["notes"] == ["keeps a mean of 64 tokens (--mean-budget) in place of the policy file's"]
        tokens = [http.post(f"{about['address']}/chat/completions", json=ask()) for _ in range(8)]
        spent = [int(reply.headers["x-stakes-predicted-tokens"]) for reply in tokens]
        assert all(sum(spent[:n]) <= 64 * n for n in range(1, 9))
    monkeypatch.setenv("STAKES_MEAN_BUDGET", "96")
    with process("--settings", str(settings), "--upstream", upstream.url) as (_, about):
        assert about["mean_budget"] == 96
