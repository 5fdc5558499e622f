"""A policy with per-request costs is evaluated by the decisions that it serves, question by question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.policy import Policy
from stakes.calibration.arms import mirrored
from stakes.calibration.arms.plan import plan_arms
from stakes.calibration.evaluate import Evaluation, EvaluationOptions, evaluate, regrade
from stakes.commands.evaluate import print_evaluation
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import prepare_samples
from stakes.report.data import read_run
from stakes.report.sentences import describe_per_request
from stakes.signals import KeywordRule, TaskIdentity, to_dict

CURVES = {"high": [0.9, 0.5, 0.1], "low": [0.5, 0.3, 0.2]}
# At this price a question read as low is worth 304 tokens exactly as much as 96: some get the one, some the other.
TIED = 0.2 * 1.0 / (304 - 96)
TRUST = {"high": {"high": 1.0, "low": 0.0}, "low": {"high": 0.0, "low": 1.0}}


def policy(per_request: Any = True, mechanism: str = "deletion", **more: Any) -> Policy:
    counts = [100, 100, 100]
    tiers = {
        tier: {
            "cost": cost,
            "budget": budget,
            "curve": {"budgets": [96, 304, 512], "errors": CURVES[tier], "counts": counts},
        }
        for tier, cost, budget in (("high", 5, 512), ("low", 1, 96))
    }
    plan = {"price": TIED, "share": 0.5, "trust": TRUST}
    record = {
        "schema": 1,
        "mean_budget": 304,
        "mechanism": mechanism,
        "tiers": tiers,
        "soft": plan if per_request is True else per_request,
    }
    return Policy.from_record({**record, **more})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("per_request")


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    return prepare_samples(write_samples(folder, 30, per_page=1), folder, KeywordRule())


@pytest.fixture(scope="module", params=["resolution", "deletion"])
def found(request: pytest.FixtureRequest, samples: list[Sample], folder: Path) -> tuple[Evaluation, Path, Policy]:
    rules, log = policy(mechanism=request.param), folder / f"{request.param}.evaluation.jsonl"
    return evaluate(Oracle(), samples, rules, log=log), log, rules


def test_the_cost_arm_is_what_is_served_and_every_arm_spends_its_total(
    found: tuple[Evaluation, Path, Policy], samples: list[Sample]
) -> None:
    judged, _, rules = found
    served = [rules.decide(one.question, one.task, about=one.id).budget for one in samples]
    assert judged.plan.nominal["cost"] == tuple(served)
    low = {budget for one, budget in zip(samples, served, strict=True) if one.tier == "low"}
    assert low == {96, 304}, "one budget per tier would not distinguish the two"
    assert judged.plan.total == sum(served) != sum(rules.budgets[one.tier] for one in samples)
    assert {sum(shares) for shares in judged.plan.nominal.values()} == {sum(served)}
    assert judged.deviation <= (0 if rules.mechanism == "deletion" else 0.004)
    assert (judged.plan.per_request, judged.record()["per_request"]) == (True, True)


def test_the_task_takes_part_in_the_decision(samples: list[Sample]) -> None:
    rules = policy(signal=to_dict(TaskIdentity({"bills": "high", "photos": "low"})))
    tasked = [replace(one, task="photos" if i % 2 else "bills") for i, one in enumerate(samples)]
    cost = plan_arms(tasked, rules, Oracle(), Setting("deletion"), ["uniform", "cost"]).nominal["cost"]
    assert set(cost[::2]) == {512}
    assert set(cost[1::2]) == {96, 304}


def test_samples_bring_their_task(folder: Path) -> None:
    samples = [replace(sample, task="bills") for sample in write_samples(folder, 1)]
    assert {one.task for one in prepare_samples(samples, folder)} == {"bills"}


def test_anti_gives_the_most_expensive_question_the_smallest_budget(found: tuple[Evaluation, Path, Policy]) -> None:
    judged, _, _ = found
    assert sorted(judged.plan.nominal["anti"]) == sorted(judged.plan.nominal["cost"])
    assert mirrored([512, 96, 304, 96], [5, 1, 2, 0.5]) == (96, 304, 96, 512)
    assert mirrored([512, 96], [5, 1], native=[600, 400]) == (208, 400), "what an image cannot take goes to the others"
    with pytest.raises(InfeasibleBudget):
        mirrored([512, 96], [5, 1], native=[200, 200])


def test_the_report_names_per_request_costs(
    found: tuple[Evaluation, Path, Policy], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    judged, log, rules = found
    print_evaluation(judged, rules, str(log))
    page = " ".join(capsys.readouterr().out.split())
    assert "Per-request costs: the policy's own arm gives each question the budget that its expected cost" in page
    assert f"pays for, at {TIED:.3g} of cost a token" in page
    assert "readings high is right 100.0 % of the time" in page
    assert "the mean of the policy's own decisions for each question here" in page
    assert "(high 512, low 96)" not in page
    rules.save(tmp_path / "policy.json")
    assert read_run(tmp_path / "policy.json", evaluation=log).notes[0] == describe_per_request(rules)
    own = policy(per_request={"price": 0.01})
    assert "tiers are as likely as its signal says" in describe_per_request(own)
    assert describe_per_request(policy(per_request=None)) == ""


def test_a_plan_made_under_another_price_or_by_tier_is_not_taken_up(samples: list[Sample], tmp_path: Path) -> None:
    def cost(rules: Policy) -> tuple[int, ...]:
        return evaluate(
            Oracle(), samples, rules, log=tmp_path / "log.jsonl", options=EvaluationOptions(arms=["uniform", "cost"])
        ).plan.nominal["cost"]

    by_tier, by_request = cost(policy(per_request=None)), cost(policy())
    assert by_tier != by_request
    high_cost = cost(policy(per_request={"price": 1.0}))
    assert set(high_cost) == {96}, "at so high a price nothing pays"


def test_saved_arms_of_other_stakes_are_refused(samples: list[Sample], tmp_path: Path) -> None:
    log, answers = tmp_path / "log.jsonl", {one.id: one.answers for one in samples}
    evaluate(Oracle(), samples, policy(), log=log, options=EvaluationOptions(arms=["uniform", "cost"]))
    assert regrade(log, answers, policy()).plan.per_request
    with pytest.raises(BadInput, match="planned with per-request costs, and this policy has one budget per tier"):
        regrade(log, answers, policy(per_request=None))
    plan = tmp_path / "log.jsonl.arms.json"
    record = json.loads(plan.read_text())
    del record["soft"]  # a plan from before per-request costs were evaluated
    plan.write_text(json.dumps(record))
    with pytest.raises(BadInput, match="planned with one budget per tier, and this policy has per-request costs"):
        regrade(log, answers, policy())


def test_an_evaluation_at_another_price_is_refused(
    found: tuple[Evaluation, Path, Policy], samples: list[Sample]
) -> None:
    _, log, rules = found
    answers = {one.id: one.answers for one in samples}
    assert regrade(log, answers, rules).plan.per_request
    assert rules.per_request is not None
    more_expensive = rules.model_copy(update={"per_request": rules.per_request.model_copy(update={"price": 2 * TIED})})
    with pytest.raises(BadInput, match="this evaluation used a price of .* run stakes evaluate again"):
        regrade(log, answers, more_expensive)
