"""The paper's figures from a run are valid SVG with the run's own numbers, without addresses or scripts."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.report.runs import HOSTILE, make_run
from typer.testing import CliRunner

from stakes.cli import app
from stakes.report.data import read_run

pytest.importorskip("vl_convert", reason="drawings need the report extra")


def test_every_figure_is_drawn_with_the_runs_numbers(tmp_path: Path) -> None:
    from stakes.report.svg import draw_all

    run = read_run(make_run(tmp_path, {"high": 5.0, "low": 1.0}))
    made = {path.stem: path.read_text() for path in draw_all(run, tmp_path / "figures")}
    assert set(made) == {"frontier-a", "frontier-b", "framework", "motivation"}
    for text in made.values():
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
        assert str(tmp_path) not in text
    assert f"high {run.policy.budgets['high']}, low {run.policy.budgets['low']}" in made["framework"]
    assert f"high {run.policy.budgets['high']}" in made["frontier-a"]
    assert all(f"r = {ratio}" in made["frontier-b"] for ratio in (1, 5, 20))
    for tier in run.policy.tiers:  # where uniform loses more than a sliver, the bar says how much
        assert f"{tier}, 160 tokens:" in made["motivation"]
        assert f"{run.curves[tier].error(160):.0%} wrong" in made["motivation"]


def test_one_tier_has_no_frontier_and_a_hostile_name_stays_text(tmp_path: Path) -> None:
    from stakes.report.svg import draw_all

    run = read_run(make_run(tmp_path, {HOSTILE: 1.0}, evaluated=False))
    made = {path.stem: path.read_text() for path in draw_all(run, tmp_path / "figures")}
    assert set(made) == {"frontier-a", "framework"}
    for text in made.values():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert not tags & {"script", "img", "image"}


def test_the_command_writes_the_report_and_the_figures(tmp_path: Path) -> None:
    import json

    path = make_run(tmp_path, {"high": 5.0, "low": 1.0})
    done = CliRunner().invoke(app, ["report", str(path), "--svg", str(tmp_path / "figures"), "--json"])
    assert done.exception is None, done.output
    record = json.loads(done.stdout)
    assert (tmp_path / "report.html").stat().st_size == record["bytes"] < 5_000_000
    assert len(record["drawings"]) == 4
    refused = CliRunner().invoke(app, ["report", str(path), "--price-per-million", "-1"])
    assert "is no price; give dollars" in str(refused.exception)
    both = CliRunner().invoke(app, ["report", str(path), "--pages", "forms", "--samples", "x"])
    assert "not both" in str(both.exception)
    lone = CliRunner().invoke(app, ["report", str(path), "--model", "embedded"])
    assert "needs a deletion policy" in str(lone.exception)
