"""A signal is stored in a policy file as JSON; a judge's address never is."""

import json
from typing import Any

import pytest

from stakes.aliases import KEYS
from stakes.errors import BadInput
from stakes.signals import Judge, KeywordRule, LearnedSignal, Signal, TaskIdentity, from_dict, to_dict

TEXTS = ["What is the total?", "Who signed?", "", "Is it No.5?", "the budget"]


def learned() -> LearnedSignal:
    return LearnedSignal(undecided_below=0.6).fit(["What is the total?", "Who signed?"] * 5, ["high", "low"] * 5)


@pytest.mark.parametrize(
    "signal",
    [
        KeywordRule(),
        KeywordRule(["budget"], high="high_cost", low="cheap"),
        TaskIdentity({"a": "gold", "b": "tin"}, most_expensive="gold"),
        learned(),
    ],
)
def test_a_stored_signal_reads_the_same_as_before(signal: Signal) -> None:
    again = from_dict(json.loads(json.dumps(to_dict(signal))))
    for text in TEXTS:
        for task in ("a", "b", "c", None):
            assert again(text, task) == signal(text, task)


def test_the_caller_provides_a_judge_and_its_address_and_key_are_not_stored() -> None:
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
        {"kind": "task", "tasks": {"a": ["high"]}},
        {"kind": "task", "tasks": {"a": "high"}, "most_expensive": 5},
        {"kind": "learned"},
    ],
)
def test_a_broken_signal_is_one_clear_sentence(data: Any) -> None:
    with pytest.raises(BadInput):
        from_dict(data)


@pytest.mark.parametrize("signal", [TaskIdentity({"a": "gold", "b": "tin"}, most_expensive="gold"), learned()])
def test_a_signal_with_the_keys_of_version_0_1_still_loads(signal: Signal) -> None:
    stored = to_dict(signal)
    (old,) = [key for key, new in KEYS.items() if new == "most_expensive"]
    stored[old] = stored.pop("most_expensive")
    again = from_dict(stored)
    assert again.most_expensive == signal.most_expensive
    assert [again(text, "c") for text in TEXTS] == [signal(text, "c") for text in TEXTS]


def test_a_signal_without_a_file_form_says_so() -> None:
    with pytest.raises(BadInput, match="no file form"):
        to_dict(lambda question, task=None: None)  # type: ignore[arg-type]


def test_a_keyword_rule_without_its_words_is_the_papers() -> None:
    rule = from_dict({"kind": "keywords"})
    assert rule("What is the total?").tier == "high"
    assert to_dict(rule) == to_dict(KeywordRule())
