"""The verdict is made of the measured arms: help, harm or no significant difference, with the numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.runs import make_run, outcome, write_log

from stakes.evaluation.outcome_log import read_outcomes
from stakes.report.data import read_run
from stakes.report.sentences import describe_uniform, guarantees, other_arms, verdict

COSTS = {"high": 5.0, "low": 1.0}


def verdict_of(folder: Path, right: dict[str, tuple[int, int]], per_tier: int = 40) -> str:
    """The verdict when this many (high, low) answers of each arm are right, spread over documents."""
    path = make_run(folder, COSTS, per_tier, evaluated=False)
    budgets = {"uniform": {"high": 160, "low": 160}, "cost": {"high": 288, "low": 32}}
    samples = [(f"d{k}/{tier}", tier, k) for tier in COSTS for k in range(per_tier)]
    arms = {arm: [budgets[arm][tier] for _, tier, _ in samples] for arm in budgets}
    found = [
        outcome(name, tier, budgets[arm][tier], k < right[arm][tier == "low"], "resolution", "x")
        for arm in budgets
        for name, tier, k in samples
    ]
    log = folder / "policy.evaluation.jsonl"
    write_log(log, found)
    total = 160 * len(samples)
    plan = {"samples": [s for s, _, _ in samples], "nominal": arms, "budgets": arms, "total": total}
    log.with_name(log.name + ".arms.json").write_text(json.dumps({**plan, "mechanism": "resolution", "density": ""}))
    run = read_run(path)
    assert run.evaluation is not None
    assert other_arms(run.evaluation) == []
    return verdict(run.evaluation).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("model", "unsure", "warned"), [("embedded", 0.6, True), ("embedded", 0.5, False), ("my-vlm", 0.6, False)]
)
def test_a_run_of_an_embedded_reader_that_was_mostly_unsure_says_so(
    tmp_path: Path, model: str, unsure: float, warned: bool
) -> None:
    """Only answers at the largest budget count: with few tokens nobody is sure."""
    path = make_run(tmp_path, COSTS, 20)
    path.write_text(json.dumps({**json.loads(path.read_text()), "model": model}))
    log = tmp_path / "policy.outcomes.jsonl"
    answers = [replace(one, confidence=0.1) for one in read_outcomes(log)]
    largest = [at for at, one in enumerate(answers) if one.budget == 288]
    for at in largest[int(unsure * len(largest)) :]:
        answers[at] = replace(answers[at], confidence=0.99)
    write_log(log, answers)
    notes = " ".join(read_run(path).notes)
    assert ("The embedded reader was not sure of 24 of 40 answers at 288 tokens" in notes) is warned
    assert ("others may need a larger model" in notes) is warned


def test_a_clear_gain_is_reported_with_both_tiers_rates(tmp_path: Path) -> None:
    text = verdict_of(tmp_path, {"uniform": (20, 20), "cost": (38, 4)})
    assert "fall from 50.0 % to 5.0 %" in text
    assert "errors of tier low rise from 50.0 % to 90.0 %" in text
    assert "it helps" in text
    assert "80 questions on 40 documents" in text


def test_uniform_states_its_tokens_and_why_they_differ_from_the_mean_budget(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, COSTS, 20))
    assert run.evaluation is not None
    budgets = ", ".join(f"{tier} {budget}" for tier, budget in run.policy.budgets.items())
    whole = f"Uniform gives every image 160 tokens, the mean of the policy's own budgets ({budgets}) here"
    assert describe_uniform(run.evaluation, run.policy) == f"{whole}."
    seen = run.evaluation.comparison
    fewer = replace(run.evaluation, comparison=replace(seen, read_as={"high": 5, "low": 35}))
    fewer = replace(fewer, plan=replace(run.evaluation.plan, total=100 * 40))
    assert describe_uniform(fewer, run.policy) == (
        f"{whole.replace('160', '100', 1)}, with 5 of 40 read as high, 35 of 40 read as low; the policy's mean budget "
        "is 160 (calibrated on 20 high, 20 low)."
    )


def test_no_change_says_keep_uniform(tmp_path: Path) -> None:
    text = verdict_of(tmp_path, {"uniform": (20, 20), "cost": (20, 20)})
    assert text.startswith("It does not help here, keep uniform")
    assert "stays the same" in text


def test_a_gain_that_may_be_chance_is_not_called_one(tmp_path: Path) -> None:
    text = verdict_of(tmp_path, {"uniform": (20, 20), "cost": (21, 18)})
    assert text.startswith("No significant difference, keep uniform or label more: ")
    assert "which includes no change" in text


def test_few_documents_have_no_interval_and_prove_neither_help_nor_harm(tmp_path: Path) -> None:
    for right in ({"uniform": (0, 0), "cost": (9, 0)}, {"uniform": (9, 9), "cost": (0, 9)}):
        text = verdict_of(tmp_path, right, per_tier=9)
        assert text.startswith("Too few documents to decide, keep uniform and label more: ")
        assert "too few documents (9) for an interval (18 questions on 9 documents)" in text
        assert "95 %" not in text
    assert f"error is {5 / 6:.3f}, with" in verdict_of(tmp_path, {"uniform": (0, 0), "cost": (9, 0)}, per_tier=9)
    assert "it helps" in verdict_of(tmp_path, {"uniform": (0, 0), "cost": (10, 0)}, per_tier=10)


def test_harm_is_called_harm(tmp_path: Path) -> None:
    text = verdict_of(tmp_path, {"uniform": (30, 30), "cost": (5, 35)})
    assert text.startswith("It does harm here, keep uniform")
    assert "errors of tier high rise from 25.0 % to 87.5 %" in text


def test_without_a_certificate_nothing_is_guaranteed_and_a_failed_ceiling_is_reported() -> None:
    assert guarantees(None)[0].startswith("Nothing is guaranteed")
    failed = {"ceiling": 0.05, "budget": None, "largest": 576, "least": 0.21}
    bound = {"budget": 304, "error": 0.3, "upper": 0.41}
    record: dict[str, object] = {
        "confidence": 0.95, "shipped": "uniform", "why": "tiered budgets are not certified to help",
        "chosen_on": 10, "certified_on": 10, "ceilings": {"high": failed}, "upper_errors": {"high": bound},
    }  # fmt: skip
    lines = guarantees(record)
    assert any("NOT certified" in line and "21.0%" in line for line in lines)
    assert any("at most 41.0%" in line for line in lines)
    assert any("10 documents" in line for line in lines)
