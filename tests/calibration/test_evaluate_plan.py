"""Arms are planned to spend the same total by every mechanism, and arms that cannot are refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.calibration.evaluations import mixed_pages, policy
from tests.evaluation.oracle import Oracle, page, write_samples
from tests.models.tiny import blank, picture, tiny

from stakes.budgets.policy import Policy
from stakes.calibration.arms import density
from stakes.calibration.arms.plan import densities, density_kind, plan_arms
from stakes.calibration.evaluate import EvaluationOptions, evaluate
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.samples import prepare_samples
from stakes.models.base import Answer, Request
from stakes.models.identity import image_features
from stakes.signals import KeywordRule


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    return mixed_pages(tmp_path_factory.mktemp("plan"))


def test_pages_of_one_shape_that_stop_short_of_a_budget_still_land_on_the_total(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, 25, per_page=2)
    for number in range(25):
        page(number, 672, 784).save(tmp_path / f"page{number}.png", compress_level=1)
    samples = prepare_samples(samples, tmp_path, KeywordRule())
    plan = plan_arms(samples, policy(288, 32), Oracle(), Setting())
    low = [budget for one, budget in zip(samples, plan.budgets["cost"], strict=True) if one.tier == "low"]
    assert set(low) == {30, 42}, "30 is the most within 32, and alone would leave 0.6 % of the total"
    assert 32 * 50 - 42 < sum(low) <= 32 * 50
    for arm, budgets in plan.budgets.items():
        assert 0.999 * plan.total <= sum(budgets) <= plan.total, arm


def test_arms_that_would_not_balance_are_refused_before_anything_is_answered(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, 2, per_page=1)
    for number in range(2):
        page(number, 672, 784).save(tmp_path / f"page{number}.png", compress_level=1)
    model = Oracle()
    with pytest.raises(LedgerBreach, match="arms do not spend the same.*too coarse for 4 samples"):
        evaluate(model, prepare_samples(samples, tmp_path), policy(288, 32), log=tmp_path / "log.jsonl")
    assert model.batches == []


def test_llavas_rungs_are_aligned_to_the_total(samples: list[Sample], tmp_path: Path) -> None:
    rules = policy(3000, 2000, family="llava-onevision")
    judged = evaluate(
        Oracle("llava-onevision"),
        samples,
        rules,
        log=tmp_path / "log.jsonl",
        options=EvaluationOptions(arms=["uniform", "cost"]),
    )
    assert judged.plan.mechanism == "anyres"
    assert judged.deviation <= 0.0002


def test_a_budget_below_the_lowest_rung_is_refused_and_not_raised_to_it(samples: list[Sample], tmp_path: Path) -> None:
    rules = policy(900, 96, family="reader-llava")
    with pytest.raises(InfeasibleBudget, match="^arm 'cost', sample 'p.*takes 96 tokens or fewer with reader-llava"):
        evaluate(
            Oracle("reader-llava"),
            samples,
            rules,
            log=tmp_path / "log.jsonl",
            options=EvaluationOptions(arms=["uniform", "cost"]),
        )


def test_an_arm_that_no_rungs_can_pay_is_named(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, 2, per_page=1), tmp_path)
    rules = policy(3001, 2002, family="llava-onevision")
    with pytest.raises(InfeasibleBudget, match="^arm 'uniform' cannot spend .* give more samples"):
        evaluate(
            Oracle("llava-onevision"),
            samples,
            rules,
            log=tmp_path / "log.jsonl",
            options=EvaluationOptions(arms=["uniform", "cost"]),
        )


def test_arms_that_cannot_be_or_do_not_balance_are_errors(samples: list[Sample], tmp_path: Path) -> None:
    def refused(error: type[Exception], says: str, rules: Policy, **more: Any) -> None:
        with pytest.raises(error, match=says):
            evaluate(
                more.pop("model", Oracle()),
                samples,
                rules,
                log=tmp_path / "log.jsonl",
                options=EvaluationOptions(**more),
            )

    with pytest.raises(BadInput, match="fewer than two; give more pages"):
        evaluate(Oracle(), samples[:2], policy(), log=tmp_path / "log.jsonl")
    refused(BadInput, "there is no arm 'random'", policy(), arms=["uniform", "random"])
    refused(BadInput, "uniform among them", policy(), arms=["cost"])
    refused(LedgerBreach, "arm 'cost', sample 'p.*exceed the image's", policy(1400, 96))
    refused(BadInput, "the policy was calibrated by resolution", policy(), setting=Setting("deletion"))
    gold = {"gold": {"cost": 1, "budget": 96}}
    signal = {"kind": "task", "tasks": {"t": "gold"}, "most_expensive": "gold"}
    refused(BadInput, "tier 'high' has no budget", policy(tiers=gold, signal=signal))

    class Miser(Oracle):
        """Spends less than it was given whenever it was given much, as a server that resizes again would."""

        def _answer(self, request: Request) -> Answer:
            answer = super()._answer(request)
            return replace(answer, realised_tokens=min(answer.realised_tokens, 400))

    refused(LedgerBreach, "arms do not spend the same", policy(), model=Miser(), arms=["uniform", "cost"])


def test_density_comes_from_the_model_where_it_shows_features(tmp_path: Path) -> None:
    blank(280, 224).save(tmp_path / "blank.png")
    picture(280, 224, 1).save(tmp_path / "noise.png")
    samples = [Sample(name, "Who?", ("x",), f"{name}.png", tier="low") for name in ("blank", "noise")]
    samples = prepare_samples(samples, tmp_path)
    for model, kind in ((tiny("qwen2_5_vl"), "model"), (Oracle(), "patches-28")):
        flat, rich = densities(samples, model)
        assert density_kind(model) == kind
        assert flat < rich
    assert densities(samples, Oracle())[0] == 0
    features = image_features(tiny("qwen2_5_vl"), picture(280, 224, 1))
    assert densities(samples, tiny("qwen2_5_vl"))[1] == pytest.approx(density(features), abs=1e-5)
    assert densities(samples, Oracle())[1] != pytest.approx(density(features), abs=1e-3)


def test_a_real_model_class_spends_what_every_arm_planned(tmp_path: Path) -> None:
    samples: list[Sample] = []
    for number in range(6):
        picture(260 + 20 * number, 250, number).save(tmp_path / f"{number}.png")
        samples += [
            Sample(f"{number}{tier}", f"What {tier}?", ("a",), f"{number}.png", tier=tier) for tier in ("high", "low")
        ]
    samples = prepare_samples(samples, tmp_path)
    model = tiny("qwen2_5_vl")
    judged = evaluate(model, samples, policy(40, 12, "deletion"), log=tmp_path / "deletion.jsonl")
    assert {row.realised for row in judged.comparison.rows} == {6 * 52}
    assert judged.plan.density == "model"
    plan = plan_arms(samples, policy(40, 12), model, Setting(), ["uniform"])
    judged = evaluate(
        model,
        samples,
        policy(40, 12, floor=2),
        log=tmp_path / "resolution.jsonl",
        options=EvaluationOptions(arms=["uniform"]),
    )
    assert judged.comparison.rows[0].realised == sum(plan.budgets["uniform"])
