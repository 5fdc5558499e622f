"""One tier, ten tiers, no deletion outcomes, 20 samples, a failing certificate: each report is true and readable."""

import json
from pathlib import Path

import pytest
from tests.report.edges import NAMES, make
from tests.report.test_html import Reading
from typer.testing import CliRunner

from stakes.cli import app
from stakes.report.run import read_run

pytest.importorskip("vl_convert", reason="a report needs the report extra")

# Sentences that must stand on the page, and those that would be untrue there.
TOLD = {
    "one tier": (["nothing to move tokens between", "have not been answered"], ["Diamonds are optima"]),
    "ten tiers": (["and 7 more tiers move as tabled", "Diamonds are optima"], ["nothing to move tokens between"]),
    "no deletion outcomes": (
        ["no policy.outcomes.jsonl beside the policy", "by deletion with redundancy", "not known without a log"],
        ["Milliseconds an answer", "darkened"],
    ),
    "20 samples": (["20 questions on 5 documents", "label more", "too few documents (5)"], ["it helps", "may be luck"]),
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
    page = Reading((tmp_path / "report.html").read_text(encoding="utf-8"))
    there, absent = TOLD[name]
    text = page.text.replace("\u00a0", " ")
    assert [told for told in there if told not in text] == []
    assert [told for told in absent if told in text] == []
    run, facts = read_run(policy), json.loads(page.blocks["facts"])
    assert facts["budgets"] == run.policy.budgets
    assert [tier["name"] for tier in facts["tiers"]] == list(run.policy.tiers)
    cards = json.loads(page.blocks["pictures"])
    assert bool(cards) == (samples is not None)
