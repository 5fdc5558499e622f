"""docs/results.md, docs/reader.md and docs/speed.md say what the results files say."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "results": ("reader", "legibility", "labels"),
    "reader": ("reader-families", "reader"),
    "speed": ("latency-h200", "growth", "resize", "answering", "answering-h200"),
}


def test_the_script_says_how_it_is_used_and_fills_a_page_in_place(tmp_path: Path) -> None:
    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(DOCS / "fill.py"), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    told, alone = run("--help"), run(DOCS / "results.md")
    assert (told.returncode, told.stdout.split(" [")[0], told.stderr) == (0, "usage: fill.py", "")
    assert (alone.returncode, "required: results" in alone.stderr) == (2, True)
    page = tmp_path / "page.md"
    page.write_text("<!-- findings one -->\nold\n<!-- end -->\n")
    (tmp_path / "one.json").write_text('{"tables": {"one": {"findings": ["new"]}}}')
    assert run(page, tmp_path / "one.json").returncode == 0
    assert page.read_text() == "<!-- findings one -->\n- new\n<!-- end -->\n"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_its_files_make_of_it(page: str, fill: ModuleType) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    tables = fill.read_tables([DOCS / "results" / f"{name}.json" for name in PAGES[page]])
    assert fill.filled(text, tables) == text
    shown = [name for name in tables if f"<!-- table {name} -->" in text]
    assert shown
    changed = {name: {**table, "rows": [["0"] * len(table["columns"])]} for name, table in tables.items()}
    assert fill.filled(text, changed) != text


def test_every_measured_table_is_on_the_results_page() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    for name in json.loads((DOCS / "results" / "reader.json").read_text(encoding="utf-8"))["tables"]:
        assert f"<!-- table {name} -->" in text


def test_the_readme_shows_the_arms_of_the_results_file() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    table = json.loads((DOCS / "results" / "reader.json").read_text(encoding="utf-8"))["tables"]["within-task"]
    arms = readme.partition("mended : broken")[2].splitlines()
    for row in table["rows"]:
        if row[0] == "embedded":
            _, arm, high, low, _, cwe = row[:6]
            starts = (f"| {arm} ", f"| **{arm}** ")
            line = next(line for line in arms if line.startswith(starts))
            for number in (high, low, cwe):
                assert f"{number:.3f}" in line
