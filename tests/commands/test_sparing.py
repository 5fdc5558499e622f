"""``stakes calibrate --soft`` and ``--race`` as a person types them, with a tiny model of a real class on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.test_calibrate import RULES, place, stakes, write  # noqa: F401 (place is a fixture)

from stakes.budgets.policy import Policy
from stakes.commands.inputs import served_signal
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes


def test_soft_writes_a_price_and_prints_the_promise(place: Path, tmp_path: Path) -> None:  # noqa: F811
    words = ("--model", place / "vlm", *RULES, "--soft", "-o", tmp_path / "soft.json")
    done = stakes("calibrate", place / "cal.jsonl", *words)
    policy = Policy.load(tmp_path / "soft.json")
    assert policy.soft is not None
    assert policy.soft.promise is not None
    assert policy.soft.promise["right"] == 1.0
    assert policy.decide("What is the total?").budget in (12, 24, 30, 48)
    text = " ".join(done.stdout.split())
    assert "Soft stakes:" in text
    assert "100.0% right" in text
    assert "At cost ratios from" in text


def test_a_soft_policy_is_evaluated_by_its_decisions_with_labels_too(place: Path, tmp_path: Path) -> None:  # noqa: F811
    soft = tmp_path / "soft.json"
    stakes("calibrate", place / "cal.jsonl", "--model", place / "vlm", *RULES, "--soft", "-o", soft)
    policy = Policy.load(soft)
    for signal in ((), ("--signal", "tier"), ("--signal", "task:a=high,b=low")):
        words = ("--policy", soft, "--model", place / "vlm", "--arms", "uniform,cost", "--log", tmp_path / "log.jsonl")
        record = json.loads(stakes("evaluate", place / "test.jsonl", *words, *signal, "--json").stdout)
        lines = (place / "test.jsonl").read_text().splitlines()
        if "task:a=high,b=low" in signal:  # no sample has a task, so all are undecided: the dearest
            policy.use(served_signal("task:a=high,b=low", policy.costs))
        served = [policy.decide(one["question"], about=one["id"]).budget for one in map(json.loads, lines)]
        assert (record["soft"], record["total"]) == (True, sum(served))
        assert record["soft_stakes"].startswith("Soft stakes:")


def test_race_stays_within_its_passes_and_says_what_it_left_out(place: Path, tmp_path: Path) -> None:  # noqa: F811
    samples = write(tmp_path / "data", "many", 8)
    words = ("--model", place / "vlm", *RULES, "--race", "--passes", 48, "-o", tmp_path / "raced.json")
    record = json.loads(stakes("calibrate", samples, *words, "--json").stdout)
    assert record["race"]["passes"] == len(read_outcomes(tmp_path / "raced.outcomes.jsonl")) <= 48
    assert record["race"]["of"] == 64
    assert record["budgets"] == record["race"]["budgets"] == Policy.load(tmp_path / "raced.json").budgets
    page = " ".join(stakes("calibrate", samples, *words).stdout.split())
    race = record["race"]
    assert f"Raced: {race['passes']} of 64 answers" in page
    assert f"; ruled out {race['ruled_out']} of {race['candidates']} choices, with 0.95 confidence." in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--passes", 10), "add --race"),
        (("--race", "--certify"), "--certify needs every question"),
        (("--race", "--soft"), "--soft needs every question"),
        (("--race", "--confidence", 1), "between 0.5 and 1"),
        (("--soft", "--certify"), "leave one of them out"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_any_answer(
    place: Path,  # noqa: F811
    tmp_path: Path,
    words: tuple[object, ...],
    said: str,
) -> None:
    with pytest.raises(BadInput, match=said):
        stakes("calibrate", place / "cal.jsonl", "--model", place / "vlm", *RULES, *words, "-o", tmp_path / "p.json")
    assert not (tmp_path / "p.outcomes.jsonl").exists()
