"""What calibrate says of documents that the choice was not made on claims no more than they show."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.calibration.calibrate import Calibration, calibrate
from stakes.commands.calibrate_summary import print_calibration
from stakes.evaluation.items import ask
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 96, 208, 304, 400, 512, 576)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibration:
    folder = tmp_path_factory.mktemp("held")
    asked = ask(write_samples(folder, pages=40), folder, KeywordRule())
    return calibrate(Oracle(), asked, COSTS, 304, KeywordRule(), log=folder / "log.jsonl", grid=GRID)


def line(found: Calibration, capsys: pytest.CaptureFixture[str], **other: object) -> str:
    """The page's sentence on held-out documents, with these things of the check otherwise."""
    assert found.held_out is not None
    check = replace(found.held_out, **other)  # type: ignore[arg-type]
    print_calibration(replace(found, held_out=check), "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    return next(told for told in capsys.readouterr().out.splitlines() if told.startswith("Held out"))


def test_an_interval_above_zero_helps(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    told = line(found, capsys)
    assert "the choice helps on the other 20: CWE falls by +" in told
    assert " [+" in told


def test_few_documents_have_no_interval_and_help_nobody(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    assert found.held_out is not None
    told = line(found, capsys, gain=replace(found.held_out.gain, units=9), tested_on=9)
    assert "helps" not in told
    assert f"CWE falls by {found.held_out.gain.value:+.3f} (too few documents (9) for an interval)" in told
    assert "[" not in told
    assert "helps" in line(found, capsys, gain=replace(found.held_out.gain, units=10), tested_on=10)


def test_more_tokens_than_uniform_took_prove_nothing(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    told = line(found, capsys, mean_tokens=352.0, uniform_mean_tokens=302.0)
    assert "helps" not in told
    assert "tested on the other 20: CWE falls by +" in told
    assert "at more tokens an image (352 against 302), so this is no proof; stakes evaluate compares at equal" in told
    assert "helps" in line(found, capsys, mean_tokens=303.2, uniform_mean_tokens=302.0)
    assert "no proof" in line(found, capsys, mean_tokens=303.3, uniform_mean_tokens=302.0)


def test_uniform_chosen_is_told_as_uniform_and_not_as_luck(
    found: Calibration, capsys: pytest.CaptureFixture[str]
) -> None:
    told = line(found, capsys, budgets={"high": 304, "low": 304})
    assert told == (
        "Held out: chosen on 20 documents, the choice is uniform itself (304); there is nothing to compare on the "
        "other 20."
    )


def test_costs_that_nobody_gave_are_called_the_default(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    for stated, told in ((True, "You put the ratio at 5;"), (False, "The ratio is 5 (the default; say yours with")):
        print_calibration(found, "samples.jsonl", Path("policy.json"), Path("log.jsonl"), stated=stated)
        assert told in capsys.readouterr().out
