"""``--max-harm`` as a person types it, and the note on a tier that is given up, which comes first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.evaluation.oracle import Oracle, write_samples
from typer.testing import CliRunner

from stakes.budgets.harm import harm_checks
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.result import Calibration
from stakes.commands.calibrate import calibrate as command
from stakes.commands.calibrate import parse_harm
from stakes.commands.doctor import doctor
from stakes.commands.output.calibration import print_calibration, print_certificate
from stakes.commands.plan import plan
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

NOTE = "The error of low rises from 37.3% at uniform's 304 tokens to 91.0% at 32."
GRID = (32, 208, 256, 304, 352, 400, 576)


def typed(*words: object) -> Any:
    app = typer.Typer()
    for one in (plan, command, doctor):
        app.command()(one)
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("max-harm")


def calibrated(folder: Path, **options: Any) -> Calibration:
    samples = prepare_samples(write_samples(folder, pages=60), folder, KeywordRule())
    costs = {"high": 5.0, "low": 1.0}
    return calibrate(
        samples, Oracle(), costs=costs, mean_budget=304, signal=KeywordRule(), log=folder / "log.jsonl",
        options=CalibrationOptions(grid=GRID, **options),
    )  # fmt: skip


def test_plan_says_first_that_a_tier_is_given_up_and_what_a_limit_costs() -> None:
    shown = typed("plan", "--published", "docvqa").stdout
    assert shown.startswith(NOTE)
    assert "--max-harm 0.15: high 384, low 224, and a CWE of 0.278 in place of 0.235 (uniform: 0.312)" in shown
    record = json.loads(typed("plan", "--published", "docvqa", "--json").stdout)
    assert record["harm"]["note"].startswith(NOTE)
    assert record["harm"]["limited_budgets"] == {"high": 384, "low": 224}


@pytest.mark.parametrize(
    ("words", "budgets", "limits"),
    [
        (["0.15"], {"high": 384, "low": 224}, {"high": 0.15, "low": 0.15}),
        (["low=0.32"], {"high": 448, "low": 160}, {"low": 0.32}),
        (["0.01", "low=0.15"], {"high": 384, "low": 224}, {"high": 0.01, "low": 0.15}),
        (["low=0"], {"high": 304, "low": 304}, {"low": 0.0}),
    ],
)
def test_plan_keeps_the_limits(words: list[str], budgets: dict[str, int], limits: dict[str, float]) -> None:
    options = [word for limit in words for word in ("--max-harm", limit)]
    record = json.loads(typed("plan", "--published", "docvqa", *options, "--json").stdout)
    assert record["allocation"]["budgets"] == budgets
    assert record["max_harm"] == limits
    assert (record["harm"] is None) == (budgets["low"] > 160)
    assert "within their harm limits: " in typed("plan", "--published", "docvqa", *options).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["15"], "15 points are 0.15"),
        (["low=15"], "'low' is 15; .*15 points are 0.15"),
        (["much"], "--max-harm much: give a rise of the error rate, as 0.15 for all tiers or low=0.15"),
        (["low=much"], "'much' is not a number"),
        (["medium=0.1"], "the tiers are high, low"),
        (["0.1", "0.2"], "one limit for all tiers, not 0.1 and 0.2"),
        (["low=0.1", "low=0.2"], "twice"),
    ],
)
def test_what_is_no_limit_is_refused_before_any_answer(words: list[str], message: str, folder: Path) -> None:
    with pytest.raises(BadInput, match=message):
        parse_harm(words, ["high", "low"])
    options = [word for limit in words for word in ("--max-harm", limit)]
    with pytest.raises(BadInput, match=message):
        typed("calibrate", folder / "samples.jsonl", *options)


def test_calibrate_says_first_that_a_tier_is_given_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(folder)
    print_calibration(found, "mine", folder / "policy.json", folder / "log.jsonl")
    shown = capsys.readouterr().out
    assert found.harm is not None
    assert shown.startswith(f"{found.harm}\n")
    assert "--max-harm 0.15" in shown.splitlines()[0]
    limited = calibrated(folder, max_harm=0.15)
    print_calibration(limited, "mine", folder / "policy.json", folder / "log.jsonl")
    shown = capsys.readouterr().out
    assert not shown.startswith("The error of")
    assert "Errors against uniform 304, within their harm limits: high " in shown


def test_the_certificate_shows_every_bound(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrated(folder, max_harm=0.3, certification=Certification(0.8))
    assert found.certificate is not None
    print_certificate(found.certificate)
    shown = capsys.readouterr().out
    for tier, bound in found.certificate.harm.items():
        verdict = "within" if bound.kept else "not certified to stay within"
        rise = f"a rise of {bound.rise:.3f}, at most {bound.upper:.3f}"
        assert f"{tier} error against uniform 304: {rise}, {verdict}" in shown


def test_doctor_warns_of_a_tier_that_is_given_up_and_shows_limits(folder: Path) -> None:
    free, limited = calibrated(folder), calibrated(folder, max_harm={"low": 0.15})
    certified = calibrated(folder, max_harm={"low": 0.35}, certification=Certification(0.8))
    found = [harm_checks(one.policy) for one in (free, limited, certified)]
    assert [[check[0] for check in checks] for checks in found] == [["warning"], ["good"], ["good"]]
    assert "calibrate with --max-harm 0.15" in found[0][0][2]
    assert "limit 0.15, not certified" in found[1][0][1]
    assert "limit 0.35, certified: at most" in found[2][0][1]
    strict = calibrated(folder, max_harm={"low": 0.35}, certification=Certification(1 - 1e-9))
    assert strict.policy.budgets == {"high": 304, "low": 304}  # nothing is certified to help
    assert [check[0] for check in harm_checks(strict.policy)] == ["good"]
    assert "kept by uniform itself" in harm_checks(strict.policy)[0][1]
    edited = certified.policy.model_copy(update={"max_harm": {"low": 0.4}})
    assert "limit 0.4, not certified" in harm_checks(edited)[0][1]
    free.policy.save(folder / "policy.json")
    checks = json.loads(typed("doctor", "--policy", folder / "policy.json", "--json").stdout)["checks"]
    assert [check["state"] for check in checks if check["check"] == "harm"] == ["warning"]


def test_plan_takes_a_policys_own_limits(folder: Path) -> None:
    limited = calibrated(folder, max_harm={"low": 0.15})
    limited.policy.save(folder / "limited.json")
    record = json.loads(typed("plan", "--curves", folder / "limited.json", "--json").stdout)
    assert record["allocation"]["budgets"] == limited.policy.budgets
    assert record["max_harm"] == {"low": 0.15}
