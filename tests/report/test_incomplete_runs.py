"""Reports of runs with one tier, ten tiers, no outcomes, 20 samples or a failed certificate say what is true."""

import json
from pathlib import Path

import pytest
from tests.report.incomplete_runs import NAMES, make
from tests.report.test_html import ParsedReport
from typer.testing import CliRunner

from stakes.cli import app
from stakes.report.data import read_run

pytest.importorskip("vl_convert", reason="a report needs the report extra")

# Sentences that the report must contain, and those that would be untrue there.
SENTENCES = {
    "one tier": (["nothing to move tokens between", "Not tested yet"], ["Diamonds are"]),
    "ten tiers": (
        ["the table has the other 7 tiers", "Diamonds are the best points"],
        ["nothing to move tokens between"],
    ),
    "no deletion outcomes": (
        ["no policy.outcomes.jsonl beside the policy", "by deletion with redundancy", "not known without a log"],
        ["Milliseconds an answer", "darkened"],
    ),
    "20 samples": (["20 questions on 5 documents", "label more", "too few documents (5)"], ["it helps", "significant"]),
    "failing certificate": (
        ["The certificate failed, so this policy gives every tier the same budget", "NOT certified", "at most 66.2%"],
        ["it helps"],
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_report_says_what_is_true_of_its_run(name: str, tmp_path: Path) -> None:
    policy, samples = make(name, tmp_path)
    done = CliRunner().invoke(app, ["report", str(policy), *(["--samples", str(samples)] if samples else [])])
    assert done.exception is None, done.output
    page = ParsedReport((tmp_path / "report.html").read_text(encoding="utf-8"))
    present, absent = SENTENCES[name]
    text = page.text.replace("\u00a0", " ")
    assert [sentence for sentence in present if sentence not in text] == []
    assert [sentence for sentence in absent if sentence in text] == []
    run, data = read_run(policy), json.loads(page.blocks["data-json"])
    assert data["budgets"] == run.policy.budgets
    assert [tier["name"] for tier in data["tiers"]] == list(run.policy.tiers)
    cards = json.loads(page.blocks["gallery-json"])
    assert bool(cards) == (samples is not None)
