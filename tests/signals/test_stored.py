"""Signals travel in policy files as JSON; a judge's address never does."""

import json
from pathlib import Path
from typing import Any

import pytest

from stakes.errors import BadInput
from stakes.signals import Judge, KeywordRule, LearnedSignal, Signal, TaskIdentity, from_dict, to_dict

TEXTS = ["What is the total?", "Who signed?", "", "Is it No.5?", "the budget"]


def learned() -> LearnedSignal:
    return LearnedSignal(undecided_below=0.6).fit(["What is the total?", "Who signed?"] * 5, ["high", "low"] * 5)


@pytest.mark.parametrize(
    "signal",
    [
        KeywordRule(),
        KeywordRule(["budget"], high="dear", low="cheap"),
        TaskIdentity({"a": "gold", "b": "tin"}, dearest="gold"),
        learned(),
    ],
)
def test_a_signal_reads_the_same_after_the_journey(signal: Signal) -> None:
    again = from_dict(json.loads(json.dumps(to_dict(signal))))
    for text in TEXTS:
        for task in ("a", "b", "c", None):
            assert again(text, task) == signal(text, task)


def test_a_judge_is_brought_by_the_caller_and_its_address_and_key_stay_at_home(tmp_path: Path) -> None:
    judge = Judge("http://judge.example/v1", "m1", api_key="secret")
    stored = json.dumps(to_dict(judge))
    assert "example" not in stored
    assert "secret" not in stored
    with pytest.raises(BadInput, match="give the judge yourself"):
        from_dict(json.loads(stored))
    assert from_dict(json.loads(stored), judge) is judge
    judge.close()


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"kind": "magic"},
        {"kind": "keywords", "keywords": "total"},
        {"kind": "keywords", "keywords": [3]},
        {"kind": "keywords", "keywords": ["a"], "high": 5},
        {"kind": "task", "tasks": []},
        {"kind": "task", "tasks": {"a": 5}},
        {"kind": "task", "tasks": {"a": "high"}, "dearest": 5},
        {"kind": "learned"},
    ],
)
def test_a_broken_signal_is_one_clear_sentence(data: Any) -> None:
    with pytest.raises(BadInput):
        from_dict(data)


def test_a_signal_without_a_file_form_says_so() -> None:
    with pytest.raises(BadInput, match="no file form"):
        to_dict(lambda question, task=None: None)  # type: ignore[arg-type]


def test_a_keyword_rule_without_its_words_is_the_papers() -> None:
    rule = from_dict({"kind": "keywords"})
    assert rule("What is the total?").tier == "high"
    assert to_dict(rule) == to_dict(KeywordRule())
