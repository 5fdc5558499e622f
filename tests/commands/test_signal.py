"""A signal that is trained or written down: its agreement is reported, and the policy stores it."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.evaluate import evaluate
from stakes.calibration.result import Calibration
from stakes.cli import main
from stakes.commands.options.inputs import note_on_reading, parse_signal
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule, LearnedSignal, from_dict, to_dict

TIERS = {"high": ["total", "date"], "low": ["title", "author"]}
PLACES = ["of the letter", "on this page", "at the top", "in the table", "of the firm", "here"]


def stakes(*words: object) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    if left.value.code:
        raise BadInput(err.getvalue())
    return out.getvalue()


def write(folder: Path, names: dict[str, str] | None = None, least: int = 99) -> Path:
    """Twelve questions of each tier, each document with one of each topic; one line has no label."""
    names = names or {"high": "high", "low": "low"}
    rows: list[dict[str, Any]] = [
        {"id": f"{what}{i}", "question": f"What is the {what} {place}?", "answers": ["x"], "tier": names[tier]}
        | {"document": f"d{i}"}
        for tier, topics in TIERS.items()
        for what in topics
        for i, place in enumerate(PLACES[:least])
    ]
    rows.append({"id": "none", "question": "Why?", "answers": ["x"]})
    file = folder / "labelled.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(("tier", "says"), [("tin", {"agreement": 24 / 36, "kappa": 0.4}), ("lead", None)])
def test_the_keyword_rule_is_compared_where_there_are_two_tiers_whatever_they_are_called(
    tmp_path: Path, tier: str, says: dict[str, float] | None
) -> None:
    file = write(tmp_path, {"high": "gold", "low": "tin"})
    extra = [{"id": f"x{i}", "question": "Whose total?", "answers": ["x"], "tier": tier} for i in range(12)]
    file.write_text(file.read_text() + "".join(json.dumps(row) + "\n" for row in extra))
    words = ("-o", tmp_path / "s.json", "--most-expensive", "gold", "--repeats", 1, "--json")
    rule = json.loads(stakes("signal", "train", file, *words))["keyword_rule"]
    assert rule == (says and pytest.approx(says))


def test_training_reports_agreement_by_documents_and_the_file_reads_tiers(tmp_path: Path) -> None:
    target = tmp_path / "signal.json"
    out = stakes("signal", "train", write(tmp_path), "-o", target, "--repeats", 1)
    assert "Trained on 24 questions (12 high, 12 low) on 6 documents; 1 without a tier were skipped." in out
    assert "whole documents held out, and their texts: it agrees with 100.0% of the labels, kappa 1.000" in out
    assert "The keyword rule, untrained, agrees with 100.0% of the same labels, kappa 1.000." in out
    signal = parse_signal(f"learned:{target}", {"high": 5.0, "low": 1.0})
    assert isinstance(signal, LearnedSignal)
    assert (signal("Which date?").tier, signal("An author?").tier) == ("high", "low")
    known = ["what is  the TOTAL here?", "What is the total then?"]
    assert list(map(signal.trained_on, known)) == [True, False]
    again = from_dict(json.loads(json.dumps(to_dict(signal))))  # as a policy keeps it
    assert "trained on 1 of these 2 questions" in note_on_reading(again, known)
    assert note_on_reading(again, known[1:]) == note_on_reading(KeywordRule(), known) == ""


@pytest.mark.parametrize(
    ("names", "least", "words", "says"),
    [
        (None, 4, (), r"only 8 labelled questions of tier 'high' \(8 high, 8 low\); label at least 10 of each"),
        (
            {"high": "gold", "low": "tin"},
            99,
            (),
            "which of the tiers gold, tin is the most expensive; give the costs, as in",
        ),
        (None, 99, ("--most-expensive", "gold"), "no question is labelled 'gold'"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    tmp_path: Path, names: dict[str, str] | None, least: int, words: tuple[str, ...], says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        stakes("signal", "train", write(tmp_path, names, least), "-o", tmp_path / "s.json", *words)
    assert not (tmp_path / "s.json").exists()


def test_another_signal_asks_nothing_again_and_gives_the_policy_of_a_fresh_run(tmp_path: Path) -> None:
    """First by "total", then by the words of page 1: policy and evaluation are those of the second signal alone."""
    samples = write_samples(tmp_path, pages=6)
    rules = {
        name: KeywordRule(words) for name, words in (("total", ["total"]), ("word", [f"word1x{k}" for k in range(4)]))
    }

    def made(name: str, log: str, model: Oracle) -> Calibration:
        prepared, options = prepare_samples(samples, tmp_path, rules[name]), CalibrationOptions(grid=(32, 304, 576))
        costs, file = {"high": 5.0, "low": 1.0}, tmp_path / log
        return calibrate(prepared, model, costs=costs, mean_budget=304, signal=rules[name], log=file, options=options)

    fresh, model = made("word", "fresh.jsonl", Oracle()), Oracle()
    made("total", "log.jsonl", Oracle())
    again = made("word", "log.jsonl", model)
    assert (model.batches, again.run.retiered) == ([], 12)
    assert again.policy.model_dump() == fresh.policy.model_dump()
    assert again.curves == fresh.curves != made("total", "log.jsonl", Oracle()).curves
    judged = []
    for log, names in (("once.jsonl", ["word"]), ("twice.jsonl", ["total", "word"])):
        for name in names:
            found = evaluate(
                Oracle(), prepare_samples(samples, tmp_path, rules[name]), fresh.policy, log=tmp_path / log
            )
        judged.append(found.comparison)
    assert judged[0] == judged[1]


def test_keywords_of_ones_own_travel_in_the_policy(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("Betrag\n\nwie  viel\n", encoding="utf-8")
    rule = parse_signal(f"keywords:{file}", {"teuer": 9.0, "billig": 1.0})
    assert isinstance(rule, KeywordRule)
    assert (rule.keywords, rule.tiers) == (("betrag", "wie viel"), ("teuer", "billig"))
    assert from_dict(to_dict(rule))("Wie viel kostet es?").tier == "teuer"
    plain = parse_signal(f"keywords:{file}", {"low": 1.0, "high": 1.0})
    assert plain is not None
    assert plain.tiers == ("high", "low")
    file.write_text("\n")
    with pytest.raises(BadInput, match="holds no keyword; write one per line"):
        parse_signal(f"keywords:{file}", {})
