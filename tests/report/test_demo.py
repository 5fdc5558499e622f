"""``stakes demo`` on fewer pages: it calibrates, evaluates and writes a report."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stakes.budgets.policy import Policy
from stakes.cli import app
from stakes.report.data import read_run

pytest.importorskip("vl_convert", reason="the demo needs the report extra")


def test_the_demo_measures_judges_and_reports(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--per-tier", "4", "-o", str(tmp_path / "demo"), "--json"])
    assert done.exception is None, done.output
    record = json.loads(done.stdout)
    run = read_run(tmp_path / "demo")
    assert run.notes == ()
    assert record["budgets"] == Policy.load(tmp_path / "demo" / "policy.json").budgets
    assert len(run.outcomes) == 8 * 7
    assert len({outcome.document for outcome in run.outcomes}) == 2
    assert {row.arm for row in run.evaluation.comparison.rows} == {"uniform", "content", "cost", "anti"}  # type: ignore[union-attr]
    limited, other = record["limited"], read_run(tmp_path / "demo" / "limited.json")
    assert other.outcomes == run.outcomes  # a second policy from the same answers
    assert limited["max_harm"] == other.policy.max_harm == {"high": 0.15, "low": 0.15}
    low = other.fitted["low"]
    assert low.error(limited["budgets"]["low"]) <= low.error(304) + 0.15 + 1e-9
    spent = {row.arm: row.realised for row in other.evaluation.comparison.rows}  # type: ignore[union-attr]
    assert spent["cost"] == spent["uniform"]
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert record["verdict"].split(";")[0].split(",")[0] in page
    assert '"kept":{"redundancy":"' in page
