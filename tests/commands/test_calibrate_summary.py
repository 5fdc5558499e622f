"""The summary of ``stakes calibrate`` claims no more about held-out documents than they show."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.result import Calibration
from stakes.commands.output.calibration import print_calibration
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 96, 208, 304, 400, 512, 576)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    folder = tmp_path_factory.mktemp("held")
    samples = prepare_samples(write_samples(folder, pages=40), folder, KeywordRule())
    options = CalibrationOptions(grid=GRID)
    return calibrate(samples, Oracle(), costs=COSTS, mean_budget=304, signal=KeywordRule(), options=options)


def line(found: Calibration, capsys: pytest.CaptureFixture[str], **other: object) -> str:
    """The sentence on held-out documents, with these fields of the check replaced."""
    assert found.held_out is not None
    check = replace(found.held_out, **other)  # type: ignore[arg-type]
    print_calibration(replace(found, held_out=check), "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Held out"))


def test_an_interval_above_zero_helps(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = line(found, capsys)
    assert "the choice helps on the other 20: CWE falls by " in sentence
    assert found.held_out is not None
    assert f" [{found.held_out.gain.low:.3f}, " in sentence


def test_a_rise_has_its_interval_in_the_same_direction(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    assert found.held_out is not None
    worse = replace(found.held_out.gain, value=-0.070, low=-0.167, high=0.006)
    assert "CWE rises by 0.070 [-0.006, 0.167] from uniform" in line(found, capsys, gain=worse)


def test_few_documents_have_no_interval_and_no_verdict(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    assert found.held_out is not None
    sentence = line(found, capsys, gain=replace(found.held_out.gain, units=9), tested_on=9)
    assert "helps" not in sentence
    assert f"CWE falls by {found.held_out.gain.value:.3f} (too few documents (9) for an interval)" in sentence
    assert "[" not in sentence
    assert "helps" in line(found, capsys, gain=replace(found.held_out.gain, units=10), tested_on=10)


def test_more_tokens_than_uniform_took_prove_nothing(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = line(found, capsys, mean_tokens=352.0, uniform_mean_tokens=302.0)
    assert "helps" not in sentence
    assert "tested on the other 20: CWE falls by " in sentence
    assert "at more tokens per image (352 against 302), so this is no proof; stakes evaluate compares" in sentence
    assert "helps" in line(found, capsys, mean_tokens=303.2, uniform_mean_tokens=302.0)
    assert "no proof" in line(found, capsys, mean_tokens=303.3, uniform_mean_tokens=302.0)


def test_a_choice_of_uniform_has_nothing_to_compare(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = line(found, capsys, budgets={"high": 304, "low": 304})
    assert sentence == (
        "Held out: chosen on 20 documents, the choice is uniform itself (304); there is nothing to compare on the "
        "other 20."
    )


def test_default_costs_are_called_the_default(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    for stated, text in ((True, "The cost ratio is 5; "), (False, "The cost ratio is 5 (the default; set yours with")):
        print_calibration(found, "samples.jsonl", Path("policy.json"), Path("log.jsonl"), stated=stated)
        assert text in capsys.readouterr().out
