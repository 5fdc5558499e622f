"""Tables, findings and quoted numbers of the documentation are those of the results files."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stakes.experiments.replay import check
from stakes.experiments.results import PaperResults

DOCS = Path(__file__).parents[2] / "docs"
FILES = sorted((DOCS / "results").glob("*.json"))
PAGES = ["escalation.md", "results.md", "appendix.md", "paper.md", "dev/reader.md"]


def prose(page: str) -> str:
    """A page with real minus signs replaced and lines joined."""
    return " ".join((DOCS / page).read_text(encoding="utf-8").replace("−", "-").replace("**", "").split())


@pytest.fixture(scope="module")
def legibility() -> Any:
    return json.loads((DOCS / "results" / "legibility.json").read_text(encoding="utf-8"))


def arms(found: Any) -> dict[str, Any]:
    return {row["arm"]: row for row in found["comparison"]["rows"]}


def gain(value: Any) -> str:
    """+0.027 [-0.005, +0.077], or without plus signs in the brackets where both ends are above 0."""
    sign = "+" if value["low"] < 0 < value["high"] else ""
    return f"{value['value']:+.3f} [{value['low']:.3f}, {sign}{value['high']:.3f}]"


def test_the_script_prints_its_usage_and_fills_a_page_in_place(tmp_path: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(DOCS / "fill.py"), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    usage, alone = run("--help"), run(DOCS / "results.md")
    assert (usage.returncode, usage.stdout.split(" [")[0], usage.stderr) == (0, "usage: fill.py", "")
    assert (alone.returncode, "required: results" in alone.stderr) == (2, True)
    page = tmp_path / "page.md"
    page.write_text("<!-- findings one -->\nold\n<!-- end -->\n")
    (tmp_path / "one.json").write_text('{"tables": {"one": {"findings": ["new"]}}}')
    assert run(page, tmp_path / "one.json").returncode == 0
    assert page.read_text() == "<!-- findings one -->\n- new\n<!-- end -->\n"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_the_files_hold(page: str, fill: ModuleType) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    tables = fill.read_tables(FILES)
    assert fill.filled(text, tables) == text
    assert any(f"<!-- table {name} -->" in text for name in tables) or "<!-- cell " in text
    changed = {
        name: {**table, "rows": [[cell if isinstance(cell, str) else "?" for cell in row] for row in table["rows"]]}
        for name, table in tables.items()
    }
    assert fill.filled(text, changed) != text


def test_a_number_in_a_sentence_is_a_cell_of_a_table(fill: ModuleType) -> None:
    rows = [["embedded", "cost", 0.25, 0.5], ["embedded", "anti", 0.75, 1.0]]
    tables = {"arms": {"columns": ["source", "arm", "high", "high"], "rows": rows, "findings": []}}
    text = "It falls to <!-- cell arms | embedded | cost | high#2 -->?<!-- end -->."
    assert fill.filled(text, tables) == text.replace("?", "0.500")
    for wrong in ("arms | embedded | high", "arms | embedded | cost | low", "arms | embedded | cost | high#3"):
        with pytest.raises(SystemExit, match="names . rows and . columns"):
            fill.filled(f"<!-- cell {wrong} -->?<!-- end -->", tables)


def test_a_number_in_a_sentence_may_stand_in_a_finding(fill: ModuleType) -> None:
    findings = [
        "by deletion: error 0.2, p = 1.5e-04 by document",
        "cost gains +0.150 [0.059, 0.281]; a rest",
        "55% of CWE",
    ]
    tables = {"arms": {"columns": [], "rows": [], "findings": findings}}
    for words, number in (
        ("by deletion: … p = {} by", "1.5e-04"),
        ("gains {}; a", "+0.150 [0.059, 0.281]"),
        ("gains {} [", "+0.150"),
        ("{} of CWE", "55%"),
    ):
        for bar in ("|", "\\|"):
            text = f"It is <!-- number arms {bar} {words} -->?<!-- end -->."
            assert fill.filled(text, tables) == text.replace("?", number)
    with pytest.raises(SystemExit, match="is in 0 findings, not in one"):
        fill.filled("<!-- number arms | anti gains {} -->?<!-- end -->", tables)


def test_results_files_of_the_paper_follow_from_their_answers(fill: ModuleType, tmp_path: Path) -> None:
    for path in FILES:
        if "schema" in json.loads(path.read_text(encoding="utf-8")):
            assert not [one.what for one in check(PaperResults.load(path)) if one.ok is False], path
    (tmp_path / "paper-7b.json").write_text('{"schema": 1, "tables": {"mixed": {"rows": []}}}')
    assert list(fill.read_tables([tmp_path / "paper-7b.json"])) == ["paper-7b-mixed"]


def test_every_measured_table_is_on_some_page(fill: ModuleType) -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    for name in fill.read_tables(FILES):
        assert f"<!-- table {name} -->" in text, name


def test_quoted_gains_on_real_pages_are_those_of_the_results(legibility: Any) -> None:
    page, sets = prose("results.md"), legibility["sets"]
    for name in ("docvqa", "chartqa", "sroie"):
        assert gain(arms(sets[name]["arms"])["cost"]["gain"]) in page
    assert gain(arms(sets["sroie"]["arms"])["print"]["gain"]) in page
    assert gain(sets["docvqa"]["held_out"]["gain"]) in page
    assert gain(arms(legibility["mixed"]["arms"])["cost"]["gain"]) in page
    cost = {name: arms(one["arms"])["cost"] for name, one in sets.items()}
    paired = cost["docvqa"]["high_cost"]
    assert f"wins {paired['b']} high-cost answers and loses {paired['c']}" in page
    assert f"It pays from r = {cost['docvqa']['break_even']:.2f}" in page
    assert f"It pays from a cost ratio of {cost['sroie']['break_even']:.2f}" in page
    assert cost["chartqa"]["break_even"] is None
    assert f"(p = {sets['docvqa']['slopes']['p']:.2g} by documents)" in page
    assert f"On SROIE they do (p = {sets['sroie']['slopes']['p']:.2g})" in page
    long, short = (sets["sroie"]["length"][tier] for tier in ("low", "high"))
    assert f"have {long:g} characters at the median, amounts and dates {short:g}" in page
    assert f"rank correlation {sets['sroie']['arms']['content_print_rank']:.2f}" in page


def test_the_readme_quotes_the_same_numbers(legibility: Any) -> None:
    readme = " ".join((DOCS.parent / "README.md").read_text(encoding="utf-8").split())
    for name, words in (("sroie", "lower"), ("docvqa", "higher"), ("chartqa", "higher")):
        found = arms(legibility["sets"][name]["arms"])["cost"]["gain"]
        low, high = sorted((abs(found["low"]), abs(found["high"])))
        assert (found["value"] > 0) == (words == "lower")
        assert re.search(rf"{abs(found['value']):.3f} {words}\W+{low:.3f}, {high:.3f}\]", readme), name


def test_what_the_reader_gains_on_receipts_is_that_of_the_results(fill: ModuleType) -> None:
    tables, page, readme = fill.read_tables(FILES), prose("results.md"), prose("../README.md")
    for name, plain in (("receipts-within-task", True), ("receipts-within-task-resolution", False)):
        rows = {row[1]: dict(zip(tables[name]["columns"], row, strict=True)) for row in tables[name]["rows"][:4]}
        uniform, cost = rows["uniform"], rows["cost"]
        assert f"from {uniform['high']:.3f} to {cost['high']:.3f} ({cost['b:c']}, p = {cost['p']})" in page
        assert cost["CWE gain"] in page
        wins, losses = cost["b:c"].split(":")
        lower = f"{cost['CWE gain'][1:6]} lower {cost['CWE gain'][7:]}"
        assert (f"{lower} | helps: {wins} totals and dates won, {losses} lost" in readme) is plain


def test_agreement_with_the_reader_is_that_of_the_results() -> None:
    by_mechanism = json.loads((DOCS / "results" / "legibility-agreement.json").read_text(encoding="utf-8"))[
        "alignments"
    ]
    resized, deleted = by_mechanism["resolution"]["all"], by_mechanism["deletion"]["all"]
    page = prose("results.md")
    assert f"about {2 ** resized['shift']:.2f} times the tokens" in page
    assert f"rank correlation {resized['rank_of_questions']:.2f}" in page
    assert f"({deleted['rank_of_questions']:.2f})" in page


def test_no_text_of_a_real_page_is_in_the_documentation(real_data: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [*FILES, *DOCS.rglob("*.md")])
    for name in ("docvqa", "chartqa", "sroie"):
        for line in (real_data / name / "questions.jsonl").read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            assert sample["question"] not in text
            assert not any(len(answer) > 12 and answer in text for answer in sample["answers"])
