"""The HTML report is one file that matches its run, and treats strangers' words as text."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.runs import HOSTILE, make_run, outcome, write_log, write_samples

from stakes.budgets.digests import document_digests
from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.report.data import read_run
from stakes.report.gallery import samples_from_file, samples_from_pages
from stakes.report.html import Pricing, report_html, safe_json

pytest.importorskip("vl_convert", reason="a report needs the report extra")
COSTS = {"high": 5.0, "low": 1.0}


class ParsedReport(HTMLParser):
    """A report's scripts, JSON blocks, visible text, and every address that it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.blocks: dict[str, str] = {}
        self.fetched: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.csp = ""
        self._in: tuple[str, str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [str(given[key]) for key in ("src", "href") if key in given]
        self.handlers += [key for key in given if key.startswith("on")]
        if given.get("http-equiv") == "Content-Security-Policy":
            self.csp = str(given["content"])
        self._in = (tag, str(given.get("id", ""))) if tag in ("script", "style") else None

    def handle_data(self, data: str) -> None:
        if self._in is None:
            self.text += data
        elif self._in[0] == "script" and self._in[1]:
            self.blocks[self._in[1]] = self.blocks.get(self._in[1], "") + data
        elif self._in[0] == "script":
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in = None


def parsed(path: Path, **options: object) -> ParsedReport:
    return ParsedReport(report_html(read_run(path), **options))  # type: ignore[arg-type]


def test_a_complete_run_fills_every_section_with_its_numbers(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS)
    run = read_run(path)
    samples = samples_from_file(
        write_samples(tmp_path, tmp_path / "policy.outcomes.jsonl", "What is the total of"), run
    )
    page = ParsedReport(report_html(run, samples, pricing=Pricing(2.5)))
    data = json.loads(page.blocks["data-json"])
    assert data["budgets"] == Policy.load(path).budgets
    assert [tier["errors"] for tier in data["tiers"]] == [list(curve.errors) for curve in run.curves.values()]
    assert len(data["latency"]) == 5
    assert set(json.loads(page.blocks["specs-json"])) == {"curves", "frontier", "arms", "latency"}
    assert run.evaluation is not None
    for row in run.evaluation.comparison.rows:
        assert f"{row.cwe:.3f}" in page.text
    assert "2.5" in report_html(run, samples, pricing=Pricing(2.5)).split('id="price"')[1][:80]
    cards = json.loads(page.blocks["gallery-json"])
    assert 4 <= len(cards) <= 8
    assert all(view["image"].startswith("data:image/webp;base64,") for card in cards for view in card["views"])
    questions = json.loads(page.blocks["questions-json"])
    assert len(questions) == 40
    assert any(row["differ"] for row in questions if row["tier"] == "low")  # "total" is a keyword, so low is contested


def test_nothing_is_fetched_and_only_the_reports_own_scripts_may_run(tmp_path: Path) -> None:
    page = parsed(make_run(tmp_path, COSTS))
    assert page.fetched == []
    allowed = set(re.findall(r"'sha256-([^']+)'", page.csp))
    digests = {base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts if s.strip()}
    assert digests == allowed
    assert len(page.scripts) == 5
    assert page.csp.startswith("default-src 'none'; img-src data:;")
    assert "unsafe-eval" not in page.csp


def test_hostile_questions_predictions_and_tiers_stay_text(tmp_path: Path) -> None:
    costs = {f"a{HOSTILE}": 5.0, "low": 1.0}
    path = make_run(tmp_path, costs, text=HOSTILE)
    run = read_run(path)
    page = ParsedReport(
        report_html(run, samples_from_file(write_samples(tmp_path, tmp_path / "policy.outcomes.jsonl", HOSTILE), run))
    )
    assert len(page.scripts) == 5
    assert page.handlers == []
    assert page.fetched == []
    assert HOSTILE in page.text
    assert HOSTILE in json.loads(page.blocks["questions-json"])[0]["question"]
    assert json.loads(page.blocks["gallery-json"])[0]["views"][0]["prediction"] == HOSTILE
    assert "<" not in safe_json("</script>\u2028&")
    assert json.loads(safe_json("</script>\u2028&")) == "</script>\u2028&"


def test_one_tier_ten_tiers_and_missing_logs_are_reported(tmp_path: Path) -> None:
    one = parsed(make_run(tmp_path / "one", {"all": 1.0}, evaluated=False))
    assert "nothing to move tokens between" in one.text
    assert "frontier" not in json.loads(one.blocks["specs-json"])
    assert "Not tested yet" in one.text
    ten = parsed(make_run(tmp_path / "ten", {f"t{i}": float(i + 1) for i in range(10)}, 4))
    assert len(json.loads(ten.blocks["data-json"])["tiers"]) == 10
    assert "the table has the other 7 tiers" in ten.text
    bare = parsed(make_run(tmp_path / "bare", COSTS, logged=False, evaluated=False))
    assert "no policy.outcomes.jsonl beside the policy" in bare.text
    assert json.loads(bare.blocks["data-json"])["latency"] == []
    hand = tmp_path / "hand.json"
    plans = {t: {"cost": c, "budget": 100} for t, c in COSTS.items()}
    Policy.from_record({"schema": 1, "mean_budget": 100, "tiers": plans}).save(hand)
    assert "carries no measured curves" in parsed(hand).text


def test_an_evaluation_on_the_calibrations_documents_is_called_not_held_out(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS)
    assert not any("NOT held out" in note for note in read_run(path).notes)
    log = tmp_path / "policy.outcomes.jsonl"
    log.write_text(log.read_text().replace('"cal0', '"test0'))
    assert any("calibrated on 1 of the evaluation's documents" in note for note in read_run(path).notes)
    log.unlink()
    assert any("held out is not known" in note for note in read_run(path).notes)
    seen = {outcome.document for outcome in read_run(path).arm_outcomes}
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "documents": sorted(document_digests(seen))}))
    assert any("NOT held out: the policy was calibrated on some" in note for note in read_run(path).notes)
    path.write_text(json.dumps({**record, "documents": sorted(document_digests(["elsewhere"]))}))
    assert not any("held out" in note for note in read_run(path).notes)


def test_a_failed_certificate_is_in_the_report(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS)
    record = json.loads(path.read_text())
    budgets = {tier: plan["budget"] for tier, plan in record["tiers"].items()}
    record["certificate"] = {
        "confidence": 0.95, "shipped": "uniform", "budgets": budgets, "no_harm": None, "estimator": "raw",
        "why": "tiered budgets are not certified to help", "chosen_on": 7, "certified_on": 8, "upper_errors": {},
        "ceilings": {"high": {"ceiling": 0.1, "budget": None, "largest": 288, "least": 0.4}},
    }  # fmt: skip
    path.write_text(json.dumps(record))
    text = parsed(path).text
    assert "NOT certified" in text
    assert "certified on 8 others" in text


def test_a_log_of_another_run_is_noted_and_wrong_files_are_refused(tmp_path: Path) -> None:
    path = make_run(tmp_path, COSTS, seed=1)
    make_run(tmp_path / "other", COSTS, seed=2)
    run = read_run(path, tmp_path / "other" / "policy.outcomes.jsonl")
    assert any("unfinished or of another run" in note for note in run.notes)
    with pytest.raises(BadInput, match="none of the run's"):
        samples_from_pages("forms", run)
    with pytest.raises(BadInput, match="give the policy that it belongs to"):
        read_run(tmp_path / "policy.outcomes.jsonl")
    with pytest.raises(BadInput, match="no outcome log"):
        read_run(path, tmp_path / "nowhere.jsonl")


def test_pages_are_drawn_again_and_deletion_draws_the_kept_tokens(tmp_path: Path) -> None:
    from tests.models.tiny import tiny

    from stakes.data.synthetic import samples
    from stakes.report.gallery import make_gallery
    from stakes.report.seen_pages import bits, indices

    path = make_run(tmp_path, COSTS, mechanism="deletion", evaluated=False)
    questions = [(f"{page.document}/{page.questions.index(q)}", q) for page, q in samples("forms", "test", 1)]
    rows = [outcome(name, q.tier, b, b > 40, "deletion", "7", 88) for name, q in questions for b in (16, 32, 64)]
    write_log(tmp_path / "policy.outcomes.jsonl", rows)
    run = read_run(path)
    drawn = samples_from_pages("forms", run)
    assert [drawn[name].question for name, _ in questions] == [q.text for _, q in questions]
    model = tiny("qwen2_5_vl")
    (card, *_), notes = make_gallery(run, drawn, model, ["redundancy", "fastv"])
    rows_, columns = card["grid"]
    assert rows_ / columns == pytest.approx(card["size"][1] / card["size"][0], rel=0.1)
    for view in card["views"]:
        kept = base64.b64decode(view["kept"]["redundancy"])
        assert sum(byte.bit_count() for byte in kept) == view["budget"]
    assert any("inside the model" in note for note in notes)
    write_log(tmp_path / "policy.outcomes.jsonl", [replace(row, native=90) for row in rows])
    with pytest.raises(BadInput, match="the model that the run was made with"):
        make_gallery(read_run(path), drawn, model, ["redundancy"])
    assert base64.b64decode(bits([0, 9], 12)) == bytes([1, 2])
    assert indices(bits([0, 9], 12)) == [0, 9]
