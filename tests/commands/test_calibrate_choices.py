"""``stakes calibrate`` on labels, ``--per-request`` and ``--adaptive``, with a tiny model of a real class on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands.test_calibrate import RULES, place, stakes, write  # noqa: F401 (place is a fixture)

from stakes.budgets.policy import Policy
from stakes.commands.options.inputs import parse_served_signal
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import read_outcomes

ADAPTIVE = ("--adaptive", "--estimator", "pooled")


@pytest.mark.parametrize("alike", [False, True])
def test_labels_with_a_cost_each_need_no_signal(place: Path, tmp_path: Path, alike: bool) -> None:  # noqa: F811
    """Fields of a receipt as tiers: in other words on every page they are read out of fold, in the same words not."""
    lines = [json.loads(line) for line in write(tmp_path, "r", 12).read_text().splitlines()]
    for number, line in enumerate(lines):
        field = "total" if line["tier"] == "high" else "company"
        where = "here" if alike else f"for word{number}"
        line |= {"tier": field, "question": f"What is the {field} {where}?"}
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    costs = ("--cost", "total=20", "--cost", "company=2")
    words = ("--model", place / "vlm", *RULES, *costs, "-o", tmp_path / "p.json")
    text = " ".join(stakes("calibrate", tmp_path / "r.jsonl", *words).stdout.split())
    assert "A signal was trained on the 24 labels (12 total, 12 company); the policy reads requests by it." in text
    checked = "it reads 100.0% of the labels (company 100.0%, total 100.0%; kappa 1.000); 0.0% are undecided"
    assert (checked in text, "the 24 questions have 2 texts" in text) == (not alike, alike)
    record = json.loads(stakes("calibrate", tmp_path / "r.jsonl", *words, "--json").stdout)
    assert (record["signal"], record["signal_agreement"]) == ("train", None if alike else 1.0)
    assert record["training"]["held_out"] is not alike
    policy = Policy.load(tmp_path / "p.json")
    assert [policy.decide(f"What is the {tier}?").tier for tier in ("total", "company")] == ["total", "company"]
    with pytest.raises(BadInput, match="train is a signal of calibrate only"):
        stakes("evaluate", tmp_path / "r.jsonl", "--policy", tmp_path / "p.json", "--signal", "train")


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


def test_adaptive_sampling_stays_within_its_passes_and_promises_nothing(place: Path, tmp_path: Path) -> None:  # noqa: F811
    samples = write(tmp_path / "data", "many", 8)
    words = ("--model", place / "vlm", *RULES, *ADAPTIVE, "--passes", 48, "-o", tmp_path / "adaptive.json")
    record = json.loads(stakes("calibrate", samples, *words, "--json").stdout)
    assert record["adaptive"]["passes"] == len(read_outcomes(tmp_path / "adaptive.outcomes.jsonl")) <= 48
    assert record["adaptive"]["of"] == 64
    assert record["budgets"] == record["adaptive"]["budgets"] == Policy.load(tmp_path / "adaptive.json").budgets
    text = " ".join(stakes("calibrate", samples, *words).stdout.split())
    assert f"Adaptive sampling: {record['adaptive']['passes']} of 64 answers" in text
    assert "That is no guarantee. --certify gives one" in text


def test_a_choice_of_adaptive_sampling_is_certified_on_other_documents(place: Path, tmp_path: Path) -> None:  # noqa: F811
    samples = write(tmp_path / "data", "many", 12)
    words = ("--model", place / "vlm", *RULES, *ADAPTIVE, "--certify", "-o", tmp_path / "certified.json")
    text = " ".join(stakes("calibrate", samples, *words).stdout.split())
    assert "What is guaranteed is in the certificate" in text
    record = json.loads(stakes("calibrate", samples, *words, "--json").stdout)
    assert record["answers"]["new"] == 0
    assert record["certificate"]["chosen_on"] + record["certificate"]["certified_on"] == 12
    assert record["adaptive"]["passes"] == record["answers"]["total"] < record["adaptive"]["of"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--passes", 10), "add --adaptive"),
        (("--adaptive", "--certify", "--ceiling", "high=0.5"), "ceilings need every question"),
        (("--adaptive", "--per-request"), "per-request costs need every question"),
        (("--adaptive", "--confidence", 0.9), "add --certify"),
        (("--adaptive",), "posterior of pooled, and raw has none"),  # as in RULES
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
