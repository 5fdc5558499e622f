"""The judge experiments run from an endpoint or a labels file, and say "not run" without either."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.signals import Judge, KeywordRule, predict_judge, stratified_sample, validate_with_judge

CUES = ["page number", "total", "date", "zip", "budget", "title", "author", "heading"]
QUESTIONS = [f"What is the {cue} of sheet {i}?" for i in range(12) for cue in CUES]
IDS = [f"s{i}" for i in range(len(QUESTIONS))]


def truth(question: str) -> str:
    """A judge who knows what the rule does not: page numbers are cheap, zip codes and budgets are dear."""
    return "high" if any(cue in question for cue in ("total", "date", "zip", "budget")) else "low"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        "".join(json.dumps({"id": i, "tier": truth(q)}) + "\n" for i, q in zip(IDS, QUESTIONS, strict=True))
    )
    return path


def test_without_a_judge_both_say_not_run() -> None:
    checked, predicted = validate_with_judge(QUESTIONS, None), predict_judge(QUESTIONS, None)
    assert checked.status == predicted.status == "not run"
    assert "labels file" in checked.why
    assert checked.agreement is None
    assert checked.kappa is None
    assert predicted.report is None
    assert json.loads(json.dumps(checked.to_dict()))["status"] == "not run"
    assert predicted.to_dict()["report"] is None


def test_from_labels_it_is_balanced_and_sorts_the_disagreements(labels: Path) -> None:
    checked = validate_with_judge(QUESTIONS, Judge(labels=labels), ids=IDS, per_tier=20, seed=7)
    rule = KeywordRule()
    assert sorted(rule(QUESTIONS[i]).tier for i in checked.sampled) == ["high"] * 20 + ["low"] * 20
    wrong = [QUESTIONS[i] for i in checked.sampled if rule(QUESTIONS[i]).tier != truth(QUESTIONS[i])]
    assert checked.agreement == pytest.approx(1 - len(wrong) / 40)
    assert [each.question for each in checked.disagreements] == wrong
    for each in checked.disagreements:
        assert each.kind == ("navigational number" if "page" in each.question else "missed transactional cue")
    assert checked.to_dict()["kinds"]["other"] == 0


def test_from_an_endpoint_it_gives_the_same(chat_server: Any, reply: Any, labels: Path) -> None:
    chat_server.script = lambda body, n: reply(truth(body["messages"][1]["content"]))
    with Judge(chat_server.url, "m1") as judge:
        asked = validate_with_judge(QUESTIONS, judge, ids=IDS, per_tier=20)
    read = validate_with_judge(QUESTIONS, Judge(labels=labels), ids=IDS, per_tier=20)
    assert (asked.sampled, asked.confusion) == (read.sampled, read.confusion)
    assert (asked.why, read.why) == ("judge m1", "judge labels labels.jsonl")


def test_what_the_judge_leaves_open_counts_for_neither_side(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps({"question": q, "tier": truth(q)}) + "\n" for q in QUESTIONS if "zip" not in q))
    checked = validate_with_judge(QUESTIONS, Judge(labels=path), per_tier=30)
    left_open = sum("zip" in QUESTIONS[i] for i in checked.sampled)
    assert checked.unjudged == left_open > 0
    assert checked.confusion is not None
    assert checked.confusion.n == 60 - left_open
    path.write_text('{"id": "elsewhere", "tier": "low"}\n')
    with pytest.raises(BadInput, match="decided none of the 60"):
        validate_with_judge(QUESTIONS, Judge(labels=path), per_tier=30)
    with pytest.raises(BadInput, match="decided none"):
        predict_judge(QUESTIONS, Judge(labels=path))


def test_the_predictor_learns_the_judges_cues_that_the_rule_lacks(labels: Path) -> None:
    predicted = predict_judge(QUESTIONS, Judge(labels=labels), ids=IDS, repeats=1)
    assert predicted.report is not None
    assert predicted.rule is not None
    assert predicted.report.plain.accuracy > 0.95 > predicted.rule.agreement
    beyond = dict(predicted.report.beyond)
    assert any("zip" in term and weight > 0 for term, weight in beyond.items())
    assert any("budget" in term and weight > 0 for term, weight in beyond.items())
    assert json.loads(json.dumps(predicted.to_dict()))["status"] == "run"


@given(st.permutations(range(30)), st.integers(0, 5))
def test_the_sample_does_not_depend_on_the_order_of_the_file(order: list[int], seed: int) -> None:
    tiers = ["high" if i % 3 else "low" for i in range(30)]
    keys = [f"s{i}" for i in range(30)]
    first = {keys[i] for i in stratified_sample(tiers, keys, 5, seed)}
    moved = [keys[i] for i in order]
    assert {moved[i] for i in stratified_sample([tiers[i] for i in order], moved, 5, seed)} == first


def test_another_seed_is_another_sample_and_the_first_is_fixed() -> None:
    tiers, keys = ["high", "low"] * 50, [f"s{i}" for i in range(100)]
    assert stratified_sample(tiers, keys, 3, seed=0) != stratified_sample(tiers, keys, 3, seed=1)
    assert stratified_sample(tiers, keys, 3, seed=0) == (1, 6, 18, 29, 49, 58)


def test_too_few_questions_of_a_tier_are_named() -> None:
    with pytest.raises(BadInput, match="'low': 1"):
        stratified_sample(["high", "high", "low"], ["a", "b", "c"], 2)
    with pytest.raises(BadInput, match="none"):
        stratified_sample([], [], 2)
    with pytest.raises(BadInput, match="one key"):
        stratified_sample(["high"], [], 1)
    with pytest.raises(BadInput, match="at least one"):
        stratified_sample(["high"], ["a"], 0)
