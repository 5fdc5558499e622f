"""Arms spend the same, share answers, and are compared by the statistics of their own outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.evaluation.oracle import Oracle, page, write_samples
from tests.models.tiny import blank, picture, tiny

from stakes.budgets.policy import Policy, calibration_digests
from stakes.calibration.arms import density
from stakes.calibration.arms.comparison import compare
from stakes.calibration.arms.plan import densities, plan_arms
from stakes.calibration.calibrate import CalibrationOptions
from stakes.calibration.certify.drift import Conditions
from stakes.calibration.evaluate import Evaluation, EvaluationOptions, evaluate, regrade
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget, LedgerBreach
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import cwe, discordant
from stakes.models.base import Answer, Request
from stakes.models.identity import image_features
from stakes.signals import KeywordRule


def policy(high: int = 512, low: int = 96, mechanism: str = "resolution", **more: Any) -> Policy:
    tiers = {"high": {"cost": 5, "budget": high}, "low": {"cost": 1, "budget": low}}
    record = {"schema": 1, "mean_budget": 304, "mechanism": mechanism, "tiers": tiers, **more}
    return Policy.from_record(record)


def mixed_pages(folder: Path, count: int = 40) -> list[Sample]:
    """Pages of many shapes and densities, two or three questions each, unequal tiers."""
    samples = write_samples(folder, count, per_page=1)
    dice = np.random.default_rng(0)
    for number in range(count):
        width, height = int(dice.integers(700, 1009)), int(dice.integers(850, 1200))
        image = page(number, width, height)
        noise = dice.integers(0, 255, (height // 8, width // 8), dtype=np.uint8)
        image.paste(Image.fromarray(noise).resize((width, 20 * (number % 30) + 1)), (0, 0))
        image.save(folder / f"page{number}.png", compress_level=1)
    extra = [replace(s, id=f"{s.id}+", question=f"Again: {s.question}") for s in samples if s.tier == "low"][::2]
    return prepare_samples([*samples, *extra], folder, KeywordRule())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluate")


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    return mixed_pages(folder)


@pytest.fixture(scope="module", params=["resolution", "deletion"])
def found(request: pytest.FixtureRequest, samples: list[Sample], folder: Path) -> tuple[Evaluation, Path, Policy]:
    rules = policy(mechanism=request.param)
    log = folder / f"{request.param}.jsonl"
    return evaluate(Oracle(), samples, rules, log=log), log, rules


def test_all_arms_spend_the_same_total(found: tuple[Evaluation, Path, Policy], samples: list[Sample]) -> None:
    judged, _, rules = found
    assert {sum(shares) for shares in judged.plan.nominal.values()} == {judged.plan.total}
    assert judged.plan.total == sum(rules.budgets[one.tier] for one in samples)
    totals = {row.arm: row.realised for row in judged.comparison.rows}
    assert list(totals) == ["uniform", "content", "cost", "anti"]
    if rules.mechanism == "deletion":
        assert set(totals.values()) == {judged.plan.total}
    else:
        assert judged.deviation == max(totals.values()) / min(totals.values()) - 1
        assert judged.plan.total * 0.996 < min(totals.values()) <= max(totals.values()) <= judged.plan.total
    content = judged.plan.nominal["content"]
    assert max(content) > 2 * min(content), "dense pages get more"


def test_the_table_equals_the_outcomes(found: tuple[Evaluation, Path, Policy]) -> None:
    judged, log, _ = found
    logged = {(outcome.sample, outcome.budget): outcome for outcome in read_outcomes(log)}
    arms = {
        arm: [logged[key] for key in zip(judged.plan.samples, budgets, strict=True)]
        for arm, budgets in judged.plan.budgets.items()
    }
    seen = judged.comparison
    assert (seen.most_expensive, seen.counts, seen.documents) == ("high", {"high": 40, "low": 60}, 40)
    for row in seen.rows:
        outcomes = arms[row.arm]
        right = [outcome.correct for outcome in outcomes]
        assert row.average == pytest.approx(1 - sum(right) / 100)
        for ratio, value in row.ratios.items():
            assert value == pytest.approx(cwe(right, [ratio if o.tier == "high" else 1 for o in outcomes]))
        assert row.cwe == row.ratios[5]
        if row.arm != "uniform":
            pairs = [(a.correct, b.correct) for a, b in zip(arms["uniform"], outcomes, strict=True) if b.tier == "high"]
            assert row.high_cost == discordant(*zip(*pairs, strict=True))
            assert row.gain is not None
            assert row.gain.value == pytest.approx(seen.rows[0].cwe - row.cwe)
            assert row.gain.low <= row.gain.value <= row.gain.high
            assert row.gain.units == 40
    cost = seen.rows[2]
    assert cost.gain is not None
    assert cost.gain.low > 0
    lost, gained = cost.errors["low"] - seen.rows[0].errors["low"], seen.rows[0].errors["high"] - cost.errors["high"]
    assert cost.break_even == pytest.approx(60 * lost / (40 * gained))


def test_an_answer_serves_every_arm_that_asks_for_it(samples: list[Sample], tmp_path: Path) -> None:
    model = Oracle()
    judged = evaluate(
        model,
        samples,
        policy(304, 304, "deletion"),
        log=tmp_path / "log.jsonl",
        options=EvaluationOptions(arms=["uniform", "cost", "anti"]),
    )
    assert judged.answered == len(samples) == len(read_outcomes(tmp_path / "log.jsonl"))
    assert all(row.cwe == judged.comparison.rows[0].cwe for row in judged.comparison.rows)


def test_a_cut_log_resumes_to_the_same_comparison_without_planning_again(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    first = evaluate(Oracle(), samples, policy(), log=log)
    log.write_bytes(log.read_bytes()[:20_000])
    blind = [replace(one, load=lambda: b"") for one in samples]  # densities would need the images
    with pytest.raises(ValueError, match="sample|image"):
        evaluate(Oracle(), blind, policy(), log=log)
    again = evaluate(Oracle(), samples, policy(), log=log)
    assert 0 < again.answered < first.answered
    assert (again.comparison, again.plan) == (first.comparison, first.plan)
    done = evaluate(Oracle(), blind, policy(), log=log)
    assert (done.answered, done.comparison) == (0, first.comparison)


def test_saved_outcomes_are_judged_again_with_no_model(
    found: tuple[Evaluation, Path, Policy], samples: list[Sample], tmp_path: Path
) -> None:
    judged, log, rules = found
    answers = {one.id: one.answers for one in samples}
    assert regrade(log, answers, rules).comparison == judged.comparison
    exact = regrade(log, answers, rules, metric="exact", costs={"high": 2, "low": 1}, ratios=[2, 7])
    assert exact.comparison.metric == "exact"
    assert [row.cwe for row in exact.comparison.rows] == [row.ratios[2] for row in judged.comparison.rows]
    none = regrade(log, dict.fromkeys(answers, ("something else",)), rules, metric="exact")
    assert {row.average for row in none.comparison.rows} == {1.0}
    with pytest.raises(BadInput, match="the log holds sample 'p0q0', which the samples file does not"):
        regrade(log, {}, rules)
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:50]))
    with pytest.raises(BadInput, match="there is no .*short.jsonl.arms.json"):
        regrade(short, answers, rules)
    (tmp_path / "short.jsonl.arms.json").write_bytes(log.with_name(f"{log.name}.arms.json").read_bytes())
    with pytest.raises(BadInput, match="the log lacks .* of arm 'uniform''s 100 answers"):
        regrade(short, answers, rules)
    (tmp_path / "short.jsonl.arms.json").write_text('{"samples": 3}')
    with pytest.raises(BadInput, match="is not a plan of arms"):
        regrade(short, answers, rules)


def test_what_was_calibrated_on_is_not_held_out(samples: list[Sample], tmp_path: Path) -> None:
    from stakes.calibration.calibrate import calibrate

    rules = calibrate(
        samples,
        Oracle(),
        costs={"high": 5.0, "low": 1.0},
        mean_budget=304,
        signal=KeywordRule(),
        log=tmp_path / "c.jsonl",
        options=CalibrationOptions(grid=[96, 304, 512]),
    ).policy
    same = evaluate(
        Oracle(), samples, rules, log=tmp_path / "same.jsonl", options=EvaluationOptions(arms=["uniform", "cost"])
    )
    assert (same.held_out, same.same_model) == (False, True)
    part = evaluate(
        Oracle(name="b"),
        samples[:60],
        rules,
        log=tmp_path / "part.jsonl",
        options=EvaluationOptions(arms=["uniform", "cost"]),
    )
    assert (part.held_out, part.same_model) == (False, False)
    assert json.loads(json.dumps(part.record()))["held_out"] is False
    assert Conditions.of_policy(rules) == Conditions.of(read_outcomes(tmp_path / "c.jsonl"), rules.budgets)
    assert rules.documents is not None
    assert len(rules.documents) == 2 * 40  # by name and by image
    rules.save(tmp_path / "policy.json")
    assert not any(
        one.document in (tmp_path / "policy.json").read_text() for one in samples
    )  # and no name stands there


def test_whether_documents_are_held_out_is_known_by_name_by_image_or_not_at_all(
    samples: list[Sample], tmp_path: Path
) -> None:
    seen, new = samples[:40], [one for one in samples if one.document not in {one.document for one in samples[:40]}]
    rules = policy(documents=calibration_digests(seen))
    older = policy()
    renamed = [replace(one, document=f"other {one.document}") for one in seen]

    def held_out(questions: list[Sample], rules: Policy, **more: Any) -> bool | None:
        return evaluate(
            Oracle(), questions, rules, log=tmp_path / "log.jsonl", options=EvaluationOptions(arms=["uniform"], **more)
        ).held_out

    documents = {one.document for one in seen}
    for questions, expected in ((new, True), ([*new, seen[0]], False), (renamed, False)):
        assert held_out(questions, rules) is expected
        assert held_out(questions, older) is None
        (tmp_path / "log.jsonl").unlink()
    assert held_out(new, older, calibrated_on=documents) is True
    assert regrade(tmp_path / "log.jsonl", {one.id: one.answers for one in new}, rules).held_out is True
    assert regrade(tmp_path / "log.jsonl", {one.id: one.answers for one in new}, older).held_out is None
    elsewhere = policy(documents=calibration_digests(new[-1:]))
    assert regrade(tmp_path / "log.jsonl", {one.id: one.answers for one in new}, elsewhere).held_out is False
    (tmp_path / "log.jsonl").unlink()
    assert held_out([*new, seen[0]], older, calibrated_on=documents) is False


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
        (flat, rich), named = densities(samples, model)
        assert named == kind
        assert flat < rich
    assert densities(samples, Oracle())[0][0] == 0
    features = image_features(tiny("qwen2_5_vl"), picture(280, 224, 1))
    assert densities(samples, tiny("qwen2_5_vl"))[0][1] == pytest.approx(density(features), abs=1e-5)
    assert densities(samples, Oracle())[0][1] != pytest.approx(density(features), abs=1e-3)


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


def test_arms_of_other_samples_are_not_compared(found: tuple[Evaluation, Path, Policy]) -> None:
    _, log, _ = found
    rows = read_outcomes(log)[:4]
    with pytest.raises(BadInput, match="did not answer the samples of the uniform arm in their order"):
        compare({"uniform": rows, "cost": rows[::-1]}, {"high": 5, "low": 1})
    with pytest.raises(BadInput, match="no uniform arm"):
        compare({"cost": rows}, {"high": 5, "low": 1})
    with pytest.raises(BadInput, match="has no cost"):
        compare({"uniform": rows}, {"high": 5})
