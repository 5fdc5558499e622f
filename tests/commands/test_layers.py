"""``--selector fastv:count=layers`` as a person types it, with the reader that ships."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stakes.cli import main
from stakes.evaluation.outcome_log import read_outcomes

pytest.importorskip("torch", reason="the embedded reader needs it")


def stakes(*words: object) -> int:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return int(left.value.code or 0)


def test_budgets_averaged_over_layers_are_calibrated_and_their_arms_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, log = tmp_path / "layers.json", tmp_path / "layers.evaluation.jsonl"
    pages = ("--pages", "forms", "--per-tier", 5)
    words = ("--mechanism", "deletion", "--selector", "fastv:count=layers", "--grid", "416,544", "--mean-budget", 480)
    assert stakes("calibrate", *pages, *words, "-o", policy) == 0
    assert "Budgets are tokens averaged over the decoder's layers." in capsys.readouterr().out
    arms = ("evaluate", *pages, "--policy", policy, "--arms", "uniform,cost")
    assert stakes(*arms, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["counted"] == "tokens averaged over layers"
    assert record["deviation"] <= record["rounding"] < 0.002
    for row in record["rows"]:
        assert record["total"] / (1 + record["rounding"]) < row["layers"] <= record["total"]
        assert row["realised"] < row["layers"]
    for one in read_outcomes(log):  # FastV drops before the third of five layers
        assert one.layers == (2 * one.native + 3 * one.realised) / 5
        assert one.budget - 0.6 < one.layers <= one.budget
    assert stakes(*arms, "--outcomes", log) == 0
    page = capsys.readouterr().out
    assert "tokens per layer" in page
    assert f"Planned {record['total']:,} tokens averaged over layers in every arm by deletion; realised totals" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--selector", "redundancy:count=layers"), "selector 'redundancy' drops before the language model"),
        (("--selector", "fastv:count=layers", "--grid", "96,512"), "the smallest feasible budget is 390"),
        (("--selector", "fastv:count=layers"), "give --grid with budgets that they can"),
    ],
)
def test_what_cannot_be_averaged_is_one_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = ("calibrate", "--pages", "forms", "--per-tier", 5, "--mechanism", "deletion")
    assert stakes(*pages, *words, "-o", tmp_path / "none.json") == 2
    assert said in capsys.readouterr().err
    assert [path for path in tmp_path.iterdir() if path.stat().st_size] == []
