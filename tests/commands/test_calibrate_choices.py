"""``stakes calibrate --per-request`` and ``--adaptive``, with a tiny model of a real class on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.test_calibrate import RULES, place, stakes, write  # noqa: F401 (place is a fixture)

from stakes.budgets.policy import Policy
from stakes.commands.inputs import parse_served_signal
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes


def test_per_request_costs_have_a_price_and_an_estimate(place: Path, tmp_path: Path) -> None:  # noqa: F811
    words = ("--model", place / "vlm", *RULES, "--per-request", "-o", tmp_path / "priced.json")
    done = stakes("calibrate", place / "cal.jsonl", *words)
    policy = Policy.load(tmp_path / "priced.json")
    assert policy.per_request is not None
    assert policy.per_request.estimate is not None
    assert policy.per_request.estimate["right"] == 1.0
    assert policy.decide("What is the total?").budget in (12, 24, 30, 48)
    text = " ".join(done.stdout.split())
    assert "Per-request costs:" in text
    assert "100.0% right" in text
    assert "At cost ratios from" in text


def test_per_request_costs_are_evaluated_by_their_decisions_with_labels_too(place: Path, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "priced.json"
    stakes("calibrate", place / "cal.jsonl", "--model", place / "vlm", *RULES, "--per-request", "-o", path)
    policy = Policy.load(path)
    for signal in ((), ("--signal", "tier"), ("--signal", "task:a=high,b=low")):
        words = ("--policy", path, "--model", place / "vlm", "--arms", "uniform,cost", "--log", tmp_path / "log.jsonl")
        record = json.loads(stakes("evaluate", place / "test.jsonl", *words, *signal, "--json").stdout)
        lines = (place / "test.jsonl").read_text().splitlines()
        if "task:a=high,b=low" in signal:  # no sample has a task, so all are undecided: the most expensive
            policy.use(parse_served_signal("task:a=high,b=low", policy.costs))
        served = [policy.decide(one["question"], about=one["id"]).budget for one in map(json.loads, lines)]
        assert (record["per_request"], record["total"]) == (True, sum(served))
        assert record["per_request_costs"].startswith("Per-request costs:")


def test_adaptive_sampling_stays_within_its_passes_and_reports_what_it_ruled_out(place: Path, tmp_path: Path) -> None:  # noqa: F811
    samples = write(tmp_path / "data", "many", 8)
    words = ("--model", place / "vlm", *RULES, "--adaptive", "--passes", 48, "-o", tmp_path / "adaptive.json")
    record = json.loads(stakes("calibrate", samples, *words, "--json").stdout)
    assert record["adaptive"]["passes"] == len(read_outcomes(tmp_path / "adaptive.outcomes.jsonl")) <= 48
    assert record["adaptive"]["of"] == 64
    assert record["budgets"] == record["adaptive"]["budgets"] == Policy.load(tmp_path / "adaptive.json").budgets
    page = " ".join(stakes("calibrate", samples, *words).stdout.split())
    sampled = record["adaptive"]
    assert f"Adaptive sampling: {sampled['passes']} of 64 answers" in page
    assert f"; ruled out {sampled['ruled_out']} of {sampled['candidates']} choices, with 0.95 confidence." in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--passes", 10), "add --adaptive"),
        (("--adaptive", "--certify"), "a certificate needs every question"),
        (("--adaptive", "--per-request"), "per-request costs need every question"),
        (("--adaptive", "--confidence", 1), "between 0.5 and 1"),
        (("--per-request", "--certify"), "choose one"),
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
