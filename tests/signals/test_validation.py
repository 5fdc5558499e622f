"""The judge experiments run with an endpoint or with a labels file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.signals import Judge, KeywordRule
from stakes.signals.validation import predict_judge, stratified_sample, validate_with_judge

CUES = ["page number", "total", "date", "zip", "budget", "title", "author", "heading"]
QUESTIONS = [f"What is the {cue} of sheet {i}?" for i in range(12) for cue in CUES]
IDS = [f"s{i}" for i in range(len(QUESTIONS))]


def truth(question: str) -> str:
    """A judge who knows what the rule does not: page numbers are cheap, zip codes and budgets are high-cost."""
    return "high" if any(cue in question for cue in ("total", "date", "zip", "budget")) else "low"


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.jsonl"
    path.write_text(
        "".join(json.dumps({"id": i, "tier": truth(q)}) + "\n" for i, q in zip(IDS, QUESTIONS, strict=True))
    )
    return path


def test_from_labels_it_is_balanced_and_sorts_the_disagreements(labels: Path) -> None:
    checked = validate_with_judge(QUESTIONS, Judge(labels=labels), ids=IDS, per_tier=20, seed=7)
    rule = KeywordRule()
    assert sorted(rule(QUESTIONS[i]).tier for i in checked.sampled) == ["high"] * 20 + ["low"] * 20
    wrong = [QUESTIONS[i] for i in checked.sampled if rule(QUESTIONS[i]).tier != truth(QUESTIONS[i])]
    assert checked.confusion.agreement == pytest.approx(1 - len(wrong) / 40)
    assert [question for question, _ in checked.disagreements] == wrong
    for question, kind in checked.disagreements:
        assert kind == ("navigational number" if "page" in question else "missed transactional cue")


def test_from_an_endpoint_it_gives_the_same(chat_server: Any, reply: Any, labels: Path) -> None:
    chat_server.script = lambda body, n: reply(truth(body["messages"][1]["content"]))
    with Judge(chat_server.url, "m1") as judge:
        asked = validate_with_judge(QUESTIONS, judge, ids=IDS, per_tier=20)
    read = validate_with_judge(QUESTIONS, Judge(labels=labels), ids=IDS, per_tier=20)
    assert (asked.sampled, asked.confusion) == (read.sampled, read.confusion)


def test_undecided_verdicts_count_for_neither_side(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps({"question": q, "tier": truth(q)}) + "\n" for q in QUESTIONS if "zip" not in q))
    checked = validate_with_judge(QUESTIONS, Judge(labels=path), per_tier=30)
    undecided = sum("zip" in QUESTIONS[i] for i in checked.sampled)
    assert len(checked.sampled) - len(checked.judged) == undecided > 0
    assert checked.confusion.n == 60 - undecided
    path.write_text('{"id": "another sample", "tier": "low"}\n')
    with pytest.raises(BadInput, match="decided none of the 60"):
        validate_with_judge(QUESTIONS, Judge(labels=path), per_tier=30)
    with pytest.raises(BadInput, match="decided none"):
        predict_judge(QUESTIONS, Judge(labels=path))


def test_the_predictor_learns_the_judges_cues_that_the_rule_lacks(labels: Path) -> None:
    scores = predict_judge(QUESTIONS, Judge(labels=labels), ids=IDS, repeats=1)
    rule = KeywordRule()
    agreement = sum(rule(question).tier == truth(question) for question in QUESTIONS) / len(QUESTIONS)
    assert scores.accuracy > 0.95 > agreement


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
