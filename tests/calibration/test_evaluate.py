"""Arms spend the same, share answers, and are compared by the statistics of their own outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.calibration.evaluations import mixed_pages, policy
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.digests import calibration_digests
from stakes.budgets.policy import Policy
from stakes.calibration.arms.comparison import compare
from stakes.calibration.calibrate import CalibrationOptions
from stakes.calibration.certify.drift import Conditions
from stakes.calibration.evaluate import Evaluation, EvaluationOptions, evaluate, regrade
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import cwe, discordant
from stakes.report.sentences import describe_reading
from stakes.signals import KeywordRule


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
            both = zip(arms["uniform"], outcomes, strict=True)
            pairs = [(a.correct, b.correct, b.document) for a, b in both if b.tier == "high"]
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


def test_arms_of_other_samples_are_not_compared(found: tuple[Evaluation, Path, Policy]) -> None:
    _, log, _ = found
    rows = read_outcomes(log)[:4]
    with pytest.raises(BadInput, match="did not answer the samples of the uniform arm in their order"):
        compare({"uniform": rows, "cost": rows[::-1]}, {"high": 5, "low": 1})
    with pytest.raises(BadInput, match="no uniform arm"):
        compare({"cost": rows}, {"high": 5, "low": 1})
    with pytest.raises(BadInput, match="has no cost"):
        compare({"uniform": rows}, {"high": 5})


def test_budgets_follow_the_reading_and_errors_costs_and_tests_the_label_and_the_group(tmp_path: Path) -> None:
    raw = write_samples(tmp_path, pages=24)
    other = {"high": "low", "low": "high"}
    mislabelled = [
        replace(one, tier=other[one.tier] if i % 6 == 0 else one.tier, group=f"supplier {int(one.document[4:]) // 4}")
        for i, one in enumerate(raw)
    ]
    samples = prepare_samples(mislabelled, tmp_path, KeywordRule())
    log, rules = tmp_path / "log.jsonl", policy(mechanism="deletion")
    judged = evaluate(Oracle(), samples, rules, log=log)
    seen = judged.comparison
    labels, readings = [one.label for one in samples], [one.tier for one in samples]
    assert seen.counts == {tier: labels.count(tier) for tier in ("high", "low")}
    assert seen.read_as == {tier: readings.count(tier) for tier in ("high", "low")} != seen.counts
    assert seen.agreement == sum(map(str.__eq__, labels, readings)) / len(labels) < 1
    assert (seen.unit, seen.documents) == ("group", 6)
    logged = {(outcome.sample, outcome.budget): outcome for outcome in read_outcomes(log)}
    right = [logged[one.id, rules.budgets[one.tier]].correct for one in samples]
    cost = next(row for row in seen.rows if row.arm == "cost")
    assert cost.cwe == cwe(right, [rules.costs[label] for label in labels])
    assert cost.errors["high"] == pytest.approx(
        1 - sum(r for r, label in zip(right, labels, strict=True) if label == "high") / labels.count("high")
    )
    assert cost.high_cost is not None
    assert cost.high_cost.clustered
    assert cost.high_cost.p_by_document != cost.high_cost.p
    again = regrade(log, {one.id: one.answers for one in samples}, rules)
    assert (again.comparison, again.plan) == (seen, judged.plan)
    assert describe_reading(seen).startswith("Budgets follow the signal's reading, which agrees with 83")
    unlabelled = prepare_samples([replace(one, tier="") for one in mislabelled], tmp_path, KeywordRule())
    plain = evaluate(Oracle(), unlabelled, rules, log=log).comparison
    assert (plain.agreement, plain.counts) == (None, seen.read_as)
