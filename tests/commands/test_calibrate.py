"""``stakes calibrate`` and ``stakes evaluate`` as a person types them, with a tiny model of a real class on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.models.tiny import image_processor, picture, tiny, tokenizer
from typer.testing import CliRunner

from stakes.budgets.policy import Policy
from stakes.calibration.reading import serving_signal
from stakes.commands.calibrate import calibrate
from stakes.commands.evaluate import evaluate
from stakes.commands.options.inputs import parse_signal
from stakes.data.sample import Sample
from stakes.errors import BadInput, LedgerBreach
from stakes.evaluation.outcome_log import read_outcomes
from stakes.signals import LearnedSignal, RequestSignal, TaskIdentity

COSTS = {"high": 5.0, "low": 1.0}
# Raw: a model that reads nothing then gets one budget for all, and arms that so few pages can spend exactly.
RULES = ("--mean-budget", 30, "--grid", "12,24,30,48", "--estimator", "raw")


def stakes(*words: object) -> Any:
    app = typer.Typer()
    app.command()(calibrate)
    app.command()(evaluate)
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done


def write(folder: Path, name: str, pages: int) -> Path:
    folder.mkdir(exist_ok=True)
    lines = []
    for number in range(pages):
        picture(280, 224 + 28 * (number % 2), 10 * len(name) + number).save(folder / f"{name}{number}.png")
        for i, (question, tier) in enumerate([("What is the total?", "high"), ("Who signed?", "low")]):
            sample = {"id": f"{name}{number}{i}", "image": f"{name}{number}.png", "question": question}
            lines.append(json.dumps({**sample, "answers": ["a"], "tier": tier, "document": f"{name}{number}"}))
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, calibration samples and held-out samples."""
    folder = tmp_path_factory.mktemp("commands")
    model = tiny("qwen2_5_vl")
    model.model.save_pretrained(folder / "vlm")
    tokenizer().save_pretrained(folder / "vlm")
    image_processor("qwen2_5_vl").save_pretrained(folder / "vlm")
    (folder / "vlm" / "chat_template.jinja").write_text(model.processor.template, encoding="utf-8")
    write(folder, "cal", 4)
    write(folder, "test", 3)
    return folder


@pytest.fixture(scope="module")
def made(place: Path) -> Any:
    words = ("--model", place / "vlm", *RULES, "-o", place / "policy.json")
    return stakes("calibrate", place / "cal.jsonl", *words, "--json")


def test_calibrate_writes_a_policy_a_log_and_one_object(place: Path, made: Any) -> None:
    record = json.loads(made.stdout)
    policy = Policy.load(place / "policy.json")
    assert record["budgets"] == policy.budgets
    assert record["fingerprint"] == policy.fingerprint
    assert record["answers"]["total"] == record["answers"]["new"] == 8 * 4
    assert (record["policy"], record["log"]) == (str(place / "policy.json"), str(place / "policy.outcomes.jsonl"))
    assert len(read_outcomes(place / "policy.outcomes.jsonl")) == 32
    assert (record["signal"], record["signal_agreement"]) == ("requests", 1.0)
    assert set(record["held_out"]["budgets"]) == {"high", "low"}
    assert "calibrate: 32 of 32 answers to go" in made.stderr


def test_calibrating_again_answers_nothing_and_prints_a_summary(place: Path, made: Any) -> None:
    before = (place / "policy.json").read_bytes()
    words = ("--model", place / "vlm", *RULES, "-o", place / "policy.json")
    page = stakes("calibrate", place / "cal.jsonl", *words).stdout
    for part in (
        "Error by budget, raw",
        "CWE",
        "Held out: chosen on 2 documents",
        "At full resolution these questions take",
    ):
        assert part in page
    assert "answers are new" not in page
    assert (place / "policy.json").read_bytes() == before


def test_evaluate_compares_the_arms_and_saved_answers_are_compared_again(place: Path, made: Any) -> None:
    words = ("evaluate", place / "test.jsonl", "--policy", place / "policy.json")
    record = json.loads(stakes(*words, "--json").stdout)
    assert [row["arm"] for row in record["rows"]] == ["uniform", "content", "cost", "anti"]
    assert (record["held_out"], record["same_model"], record["density"]) == (True, True, "model")
    assert list(record["rows"][0]["ratios"]) == ["1.0", "2.0", "3.0", "5.0", "10.0", "20.0"]
    saved = ("--outcomes", place / "policy.evaluation.jsonl", "--metric", "exact", "--ratios", "2,7")
    again = json.loads(stakes(*words, *saved, "--json").stdout)
    assert (again["metric"], list(again["rows"][0]["ratios"])) == ("exact", ["2.0", "7.0"])
    assert [row["realised"] for row in again["rows"]] == [row["realised"] for row in record["rows"]]
    page = stakes(*words, *saved, "--cost", "high=2", "--cost", "low=1").stdout
    assert re.search(r"\bcost +\d\.\d{3} +\d\.\d{3} ", page)
    assert re.search(r"\bcost +-?\d\.\d{3} +\d+:\d+ +\d", page)
    assert "Against uniform; too few documents (3) for an interval" in page
    assert "3 high at cost 2, 3 low at cost 1; 3 documents; graded exact" in page
    assert "realised totals differ by" in page
    assert [line for line in page.splitlines() if line.startswith("Uniform")] == [again["uniform"]]
    assert "It does not help here, keep uniform: " in page
    other = "ANOTHER METRIC than the policy's: graded exact; the policy was calibrated with value."
    assert page.splitlines()[0] == other
    assert again["verdict"].startswith(f"{other} It does not help here, keep uniform: ")
    assert "Held out: the policy was calibrated on none of these documents." in page


def test_questions_of_the_calibration_are_not_held_out(place: Path, made: Any) -> None:
    mixed = place / "mixed.jsonl"
    mixed.write_text((place / "test.jsonl").read_text() + (place / "cal.jsonl").read_text())
    words = ("--policy", place / "policy.json", "--model", place / "vlm", "--arms", "uniform,cost")
    page = stakes("evaluate", mixed, *words, "--log", place / "mixed.log.jsonl").stdout
    assert "NOT held out" in page
    older = json.loads((place / "policy.json").read_text())
    assert len(older.pop("documents")) >= 4
    (place / "older.json").write_text(json.dumps(older))  # a file from before documents were kept
    again = ("evaluate", mixed, "--policy", place / "older.json", *words[2:], "--log", place / "mixed.log.jsonl")
    assert "held out is NOT known" in stakes(*again).stdout
    log = place / "older.outcomes.jsonl"
    log.write_bytes((place / "policy.outcomes.jsonl").read_bytes())
    assert json.loads(stakes(*again, "--json").stdout)["held_out"] is False
    log.write_text(log.read_text().replace(older["fingerprint"].split("run:")[1], "f" * 32))  # of another run
    assert json.loads(stakes(*again, "--json").stdout)["held_out"] is None


def test_pages_are_a_source_like_a_file(place: Path) -> None:
    words = ("--pages", "shapes", "--per-tier", 5, "--model", place / "vlm", "--signal", "tier", "--mean-budget", 20)
    record = json.loads(
        stakes(
            *("calibrate", *words, "--grid", "12,28", "--mechanism", "deletion", "--selector", "random"),
            *("-o", place / "p.json", "--json"),
        ).stdout
    )
    assert record["answers"]["total"] == 10 * 2
    assert "at least two independent units" in record["why_not_held_out"]
    policy = Policy.load(place / "p.json")
    assert (policy.mechanism, policy.selector) == ("deletion", "random")
    arms = (
        "evaluate",
        *words[:6],
        "--signal",
        "tier",
        "--policy",
        place / "p.json",
        "--arms",
        "uniform,cost",
        "--json",
    )
    with pytest.raises(BadInput, match="calibrated with 'random'; evaluate it with that, not with 'redundancy'"):
        stakes(*arms, "--selector", "redundancy")
    found = json.loads(stakes(*arms).stdout)
    assert found["counts"] == {"high": 5, "low": 5}
    assert {outcome.selector for outcome in read_outcomes(place / "p.evaluation.jsonl")} == {"random"}
    assert all(outcome.sample.startswith("shapes/test/") for outcome in read_outcomes(place / "p.evaluation.jsonl"))


def test_bad_input_is_refused_before_a_model_is_loaded(place: Path) -> None:
    def refused(message: str, *words: object, error: type[Exception] = BadInput) -> None:
        with pytest.raises(error, match=message):
            stakes("calibrate", *words, "-o", place / "none.json")

    cal = place / "cal.jsonl"
    refused("either a samples file or --pages", "--model", "x")
    refused("either a samples file or --pages", cal, "--pages", "forms")
    refused("there is no page family 'poems'", "--pages", "poems")
    refused("--grid takes whole numbers", cal, "--grid", "12,many")
    refused("no signal is called 'magic'", cal, "--signal", "magic")
    refused("the label 'low' has no cost; give one for every label", cal, "--cost", "high=5")
    refused("unknown metric 'bleu'", cal, "--metric", "bleu")
    refused("resolution or deletion, not 'magic'", cal, "--mechanism", "magic")
    refused("deletion with it", cal, "--selector", "random")
    deletion = (cal, "--model", place / "no model", "--mechanism", "deletion", "--selector")
    refused("^selector 'fastv' has no option 'laier=2'; it takes", *deletion, "fastv:laier=2")
    with pytest.raises(BadInput, match="is a folder, and a policy is a file"):
        stakes("calibrate", cal, "-o", place)
    with pytest.raises(BadInput, match="no policy file"):
        stakes("evaluate", cal, "--policy", place / "gone.json")
    with pytest.raises(LedgerBreach, match="sample 'cal00': a budget of 999 exceeds the image's 80 native tokens"):
        stakes("calibrate", cal, "--model", place / "vlm", "--grid", "12,999", "-o", place / "none.json")
    assert not (place / "none.json").exists()
    assert not (place / "none.outcomes.jsonl").exists()


def test_evaluate_refuses_what_makes_no_sense(place: Path, made: Any) -> None:
    words = ("evaluate", place / "test.jsonl", "--policy", place / "policy.json")
    with pytest.raises(BadInput, match="--cost is for saved outcomes"):
        stakes(*words, "--cost", "high=2")
    with pytest.raises(BadInput, match="--ratios takes numbers above 0"):
        stakes(*words, "--ratios", "1,-2")
    with pytest.raises(BadInput, match="there is no .*arms.json"):
        stakes(*words, "--outcomes", place / "policy.outcomes.jsonl")


def test_signals_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "map.json").write_text('{"docvqa": "high", "vqav2": "low"}')
    for word in (f"task:{tmp_path / 'map.json'}", "task:docvqa=high,vqav2=low"):
        signal = parse_signal(word, COSTS)
        assert isinstance(signal, TaskIdentity)
        assert (signal.tasks, signal.most_expensive) == ({"docvqa": "high", "vqav2": "low"}, "high")
    LearnedSignal().fit(["What date?", "Who?"] * 5, ["high", "low"] * 5).save(tmp_path / "learned.json")
    assert isinstance(parse_signal(f"learned:{tmp_path / 'learned.json'}", COSTS), LearnedSignal)
    assert parse_signal("tier", COSTS) is None
    (tmp_path / "bad.json").write_text("[1]")
    for word in ("task:docvqa", f"task:{tmp_path / 'bad.json'}", "learned", "task:"):
        with pytest.raises(BadInput):
            parse_signal(word, COSTS)


def labelled(*labels: tuple[str | None, str]) -> list[Sample]:
    return [Sample(str(i), "What?", ("x",), task=task, tier=tier) for i, (task, tier) in enumerate(labels)]


def test_labels_are_served_by_task_or_requests_or_not_at_all() -> None:
    by_task = [("docvqa", "gold"), ("vqav2", "tin")]
    signal = serving_signal(labelled(*by_task), {"gold": 9.0, "tin": 1.0})
    assert isinstance(signal, TaskIdentity)
    assert signal.most_expensive == "gold"
    signal = serving_signal(labelled((None, "gold"), (None, "tin")), {"tin": 1.0, "gold": 9.0})
    assert isinstance(signal, RequestSignal)
    assert (signal.tiers, signal.most_expensive) == (("gold", "tin"), "gold")
    with pytest.raises(BadInput, match="can be read neither off the task nor by requests"):
        serving_signal(labelled((None, "a"), (None, "b"), (None, "c")), {"a": 9.0, "b": 2.0, "c": 1.0})
