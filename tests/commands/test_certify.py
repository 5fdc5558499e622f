"""``stakes calibrate --certify`` and ``stakes plan --samples`` as a person types them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.evaluation.oracle import Oracle, write_samples
from typer.testing import CliRunner

from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.result import Calibration
from stakes.commands.calibrate import _choices
from stakes.commands.calibrate import calibrate as command
from stakes.commands.output.calibration import print_calibration, print_shipped
from stakes.commands.plan import plan
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 96, 208, 304, 400, 512, 576)


def typed(*words: object) -> Any:
    app = typer.Typer()
    app.command()(plan)
    app.command()(command)
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None:
        raise done.exception
    return done


def calibrated(folder: Path, certification: Certification, pages: int = 40) -> Calibration:
    samples = prepare_samples(write_samples(folder, pages=pages), folder, KeywordRule())
    options = CalibrationOptions(grid=GRID, certification=certification)
    log = folder / "log.jsonl"
    return calibrate(samples, Oracle(), costs=COSTS, mean_budget=304, signal=KeywordRule(), log=log, options=options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certify")


@pytest.fixture(scope="module")
def found(folder: Path) -> Calibration:
    return calibrated(folder, Certification(0.9, ceilings={"high": 0.5}))


def test_the_certificate_is_in_the_policy_and_survives_the_file(found: Calibration, folder: Path) -> None:
    assert found.certificate is not None
    found.policy.save(folder / "policy.json")
    again = Policy.load(folder / "policy.json")
    assert again.certificate == found.policy.certificate == found.record()["certificate"]
    assert again.certificate is not None
    assert {**found.certificate.record(), "digest": again.certificate["digest"]} == again.certificate
    assert again.estimator == "pooled"
    assert again.budgets == dict(found.certificate.budgets)
    assert again.tiers["high"].fitted is not None
    assert again.tiers["high"].fitted == found.fitted["high"]
    assert found.spent == sum(160 // 2 * budget for budget in again.budgets.values())


def test_what_is_not_certified_does_not_ship_even_if_it_was_chosen(
    found: Calibration, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = calibrated(folder, Certification(1 - 1e-12))
    assert strict.run.answered == 0
    assert strict.plan.allocation.budgets == {"high": 576, "low": 32}
    assert strict.policy.budgets == {"high": 304, "low": 304}
    assert strict.spent == 304 * 160
    assert strict.certificate is not None
    assert "tiered budgets are not certified to help" in strict.certificate.why
    print_calibration(strict, "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    page = capsys.readouterr().out
    assert "Budgets, before the certificate" in page
    assert "uniform budgets ship" in page


def test_a_certificate_replaces_the_held_out_number(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    print_calibration(found, "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    page = capsys.readouterr().out
    assert found.policy.budgets == found.plan.allocation.budgets
    assert "before the certificate" not in page
    assert found.held_out is not None
    assert "Held out: " not in page
    print_calibration(replace(found, certificate=None), "samples.jsonl", Path("policy.json"), Path("log.jsonl"))
    assert "Held out: " in capsys.readouterr().out


def test_a_policy_from_before_certificates_still_loads(found: Calibration, folder: Path) -> None:
    found.policy.save(folder / "old.json")
    record = json.loads((folder / "old.json").read_text())
    del record["certificate"], record["estimator"]
    for tier in record["tiers"].values():
        del tier["fitted"]
    old = Policy.from_record(record)
    assert (old.certificate, old.estimator, old.tiers["high"].fitted) == (None, "raw", None)


def test_the_summary_shows_what_ships_and_its_bounds(found: Calibration, capsys: pytest.CaptureFixture[str]) -> None:
    print_shipped(found)
    page = capsys.readouterr().out
    assert found.certificate is not None
    assert f"Certificate at 0.9 confidence: {found.certificate.shipped} budgets ship" in page
    assert "Chosen on 10 documents by pooled, certified on the other 30" in page
    assert "Tiers as read by the signal, costs by the label; misreading is counted." in page
    assert "high error <= 0.5 with 0.9 confidence from" in page


def test_too_few_documents_are_refused_before_anything_is_answered(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1 documents are too few"):
        calibrated(tmp_path, Certification(0.95), pages=1)
    assert not (tmp_path / "log.jsonl").exists()


def test_options_of_a_certificate_are_checked() -> None:
    assert _choices(False, None, False, None, None) == (None, None)
    assert _choices(False, None, True, None, ["high=0.1"]) == (None, Certification(0.95, {"high": 0.1}))
    with pytest.raises(BadInput, match="add --certify"):
        _choices(False, None, False, 0.9, None)
    with pytest.raises(BadInput, match="--max-per-document belong to a certificate"):
        _choices(False, None, False, None, None, 4)
    with pytest.raises(BadInput, match="at least one question of a document"):
        _choices(False, None, True, None, None, 0)
    with pytest.raises(BadInput, match="--confidence lies between 0.5 and 1, not at 95"):
        _choices(False, None, True, 95, None)
    with pytest.raises(BadInput, match="--ceiling high=10 is no error rate"):
        _choices(False, None, True, None, ["high=10"])
    with pytest.raises(BadInput, match="there is no estimator 'best'"):
        typed("calibrate", "nothing.jsonl", "--estimator", "best")


@pytest.mark.parametrize("name", ["hybrid", "hybrid:prior.json", "isotonic", "bootstrap", "smooth", "auto"])
@pytest.mark.parametrize("words", [("calibrate", "nothing.jsonl"), ("plan", "--published", "docvqa")])
def test_a_removed_estimator_names_its_replacement(name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=f"the estimator '{name.partition(':')[0]}' was removed .*; use pooled"):
        typed(*words, "--estimator", name)


def test_plan_estimates_how_many_to_label() -> None:
    costs = ("--cost", "high=20", "--cost", "low=1")
    done = typed("plan", "--published", "docvqa", "--samples", *costs, "--repeats", 10, "--power", 0.3, "--json")
    record = json.loads(done.stdout)
    assert record["needed"]["high"] == record["rows"][-1]["samples"]["high"]
    assert record["rows"][-1]["ships"] >= 0.3
    page = typed("plan", "--published", "docvqa", "--samples", "--ceiling", "high=0.1", "--repeats", 10).stdout
    assert "No number of questions certifies high error <= 0.1" in page
    assert "the paper's, not this project's" in page


def test_plan_takes_an_estimator_and_refuses_what_it_cannot_do(folder: Path, found: Calibration) -> None:
    raw, pooled = (
        json.loads(typed("plan", "--published", "docvqa", "--estimator", name, "--json").stdout)
        for name in ("raw", "pooled")
    )
    assert raw["allocation"]["errors"] != pooled["allocation"]["errors"]
    assert pooled["estimator"] == "pooled"
    logged = json.loads(typed("plan", "--curves", folder / "log.jsonl", "--estimator", "pooled", "--json").stdout)
    assert logged["allocation"]["budgets"] == found.plan.allocation.budgets
    with pytest.raises(BadInput, match="need answers to certify: add --samples here"):
        typed("plan", "--published", "docvqa", "--ceiling", "high=0.1")
    with pytest.raises(BadInput, match="--samples takes --mean-budget"):
        typed("plan", "--published", "docvqa", "--samples", "--total", 1000)
    with pytest.raises(BadInput, match="add --certify"):
        typed("calibrate", "nothing.jsonl", "--ceiling", "high=0.1")
