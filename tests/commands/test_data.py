"""``stakes data``: a summary or one object, every bad line named, exit status 2 if a file cannot be used."""

import io
import json
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from tests.data.hub.tables import HIGH, LOW, row, write_copy

from stakes import cli
from stakes.commands import data
from stakes.data.synthetic import FAMILIES
from stakes.evaluation import progress


@pytest.fixture(autouse=True)
def _with_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands under the name ``data``, whether or not the real application has them."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.add_typer(data.app, name="data")
    monkeypatch.setattr(cli, "app", app)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _stakes(*words: object, err: io.StringIO | None = None) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), err or io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        cli.main([str(word) for word in words])
    return subprocess.CompletedProcess([], int(left.value.code or 0), out.getvalue(), err.getvalue())


def _samples(folder: Path, count: int = 4) -> Path:
    Image.new("RGB", (560, 700)).save(folder / "p.png")
    lines = [
        {"id": i, "image": "p.png", "question": f"{HIGH if i % 2 else LOW} {i}", "answers": ["x"], "document": "p"}
        for i in range(count)
    ]
    file = folder / "samples.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_a_good_file_gives_a_summary_and_status_0(tmp_path: Path) -> None:
    done = _stakes("data", "check", _samples(tmp_path), "--largest-budget", 500)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "samples    4 questions (4 distinct) on 1 document, 1 image, at most 4 on one image",
        "tiers      low 2, high 2 (4 by the keyword rule)",
        "native     500 to 500 visual tokens in qwen2.5-vl, median 500",
        "With --certify, three quarters of them test the choice: even without one mistake there, at 95% confidence a "
        "tier's error is then known to be at most low 98% (1 document), high 98% (1 document). Too few to learn or "
        "certify a tier from: low, high.",
        "Every line can be used.",
        "costs      those in the next command are examples: write what a mistake in each tier costs you",
        f"Next: stakes calibrate {tmp_path / 'samples.jsonl'} --cost low=1 --cost high=5 --mean-budget 264",
    ]


def test_blank_margins_are_stated_with_the_option_that_leaves_them_out(tmp_path: Path) -> None:
    file = _samples(tmp_path)
    page = Image.new("RGB", (560, 700), "white")
    for top in range(56, 640, 14):  # lines of print in the middle
        page.paste("black", (140, top, 420, top + 5))
    page.save(tmp_path / "p.png")
    line = "margins    55% of the area is blank margin; resizing spends no tokens on it"
    assert line in _stakes("data", "check", file, "--largest-budget", 500).stdout.splitlines()
    assert json.loads(_stakes("data", "check", file, "--json").stdout)["margins"] == pytest.approx(0.5545)
    assert "blank margin;" not in _stakes("data", "check", file, "--quick").stdout  # reads no pixels


def test_images_below_the_largest_budget_are_named_and_the_file_stays_usable(tmp_path: Path) -> None:
    done = _stakes("data", "check", _samples(tmp_path))
    assert done.returncode == 0
    assert "note       lines 1, 2, 3, 4: the image p.png has 500 native tokens, fewer than the" in done.stdout
    assert "4 samples have fewer native tokens than 576: enlarge" in done.stdout
    assert "measure no budget above 500." in done.stdout
    assert "unusable" not in done.stdout
    assert done.stdout.splitlines()[-3] == "Every line can be used at budgets up to 500."


def test_a_tiff_of_several_pages_is_named_and_the_file_stays_usable(tmp_path: Path) -> None:
    file, page = _samples(tmp_path), Image.new("L", (560, 700))
    page.save(tmp_path / "scan.tiff", save_all=True, append_images=[page, page])
    file.write_text(file.read_text().replace("p.png", "scan.tiff"))
    done = _stakes("data", "check", file, "--largest-budget", 500)
    assert done.returncode == 0
    line = "note       lines 1, 2, 3, 4: only the first of the 3 pages of the image scan.tiff is read; split it"
    assert line in done.stdout.splitlines()


def test_a_bad_file_names_each_line_and_leaves_with_status_2(tmp_path: Path) -> None:
    file = _samples(tmp_path)
    before = file.read_text() + "{\n" + '{"id": 0, "image": "none.png", "question": "?", "answers": []}\n'
    file.write_text(before)
    done = _stakes("data", "check", file, "--largest-budget", 500)
    assert done.returncode == 2
    assert "unusable   line 5: the line is not JSON" in done.stdout
    assert "unusable   line 6: answers must be a non-empty list of strings, not []" in done.stdout
    assert "unusable   line 6: the id '0' is that of line 1" in done.stdout
    assert "unusable   line 6: the image none.png is unreadable" in done.stdout
    assert "Every line can be used" not in done.stdout
    assert done.stderr == (
        f"stakes: {file} cannot be used as it is: 4 problems on 2 lines, all named above; fix or remove them\n"
    )
    assert file.read_text() == before
    machine = _stakes("data", "check", file, "--json")
    record = json.loads(machine.stdout)
    assert (machine.returncode, machine.stderr.count("\n"), record["usable"]) == (2, 1, False)
    assert record["bad_lines"] == [5, 6]


def test_json_is_one_object(tmp_path: Path) -> None:
    done = _stakes("data", "check", _samples(tmp_path), "--json", "--family", "claude")
    record: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (record["samples"], record["tiers"], record["family"]) == (4, {"low": 2, "high": 2}, "claude")


def test_what_cannot_be_looked_at_is_one_sentence(tmp_path: Path) -> None:
    for words in (
        ("check", tmp_path / "none.jsonl"),
        ("check", _samples(tmp_path), "--family", "qwen-2.5"),
        ("check", _samples(tmp_path), "--largest-budget", 0),
        ("fetch", "squad", "--out", tmp_path / "o"),
        ("fetch", "docvqa", "--out", tmp_path / "o", "--parquet", tmp_path / "none"),
        ("draw", "novels", "--out", tmp_path / "o"),
        ("draw", "swatches", "--out", tmp_path / "p.png"),
    ):
        done = _stakes("data", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), words


def test_the_help_of_draw_names_every_family() -> None:
    shown = _stakes("data", "draw", "--help").stdout
    assert all(family in shown for family in FAMILIES)


def test_fetch_writes_a_usable_set_and_the_next_set_shares_no_row(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    table = [row("docvqa", i, HIGH if i % 2 else LOW) for i in range(20)]
    copy = write_copy("docvqa", tmp_path / "copy", table)
    pilot, main = tmp_path / "pilot", tmp_path / "main"
    words = ("data", "fetch", "docvqa", "--parquet", copy, "--per-tier", 3)
    first = _stakes(*words, "--out", pilot)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines() == [
        f"samples  high 3, low 3 in {pilot / 'samples.jsonl'}",
        "scanned  6 rows: rows 0 to 5 of docvqa validation; a later set may start with --skip 6",
        "skipped  0 with fewer than 640 native tokens at the permitted size, 0 of a tier that was full",
        f"Next: stakes data check {pilot / 'samples.jsonl'}",
    ]
    refused = _stakes(*words, "--out", main, "--skip", 5, "--exclude", pilot)
    assert refused.returncode == 2
    assert "start it at row 6 or after" in refused.stderr
    record = json.loads(_stakes(*words, "--out", main, "--skip", 6, "--exclude", pilot, "--json").stdout)
    assert (record["start"], record["scanned"], record["stop"], record["taken"]) == (6, 6, 12, {"high": 3, "low": 3})
    for folder in (pilot, main):
        checked = json.loads(_stakes("data", "check", folder / "samples.jsonl", "--json").stdout)
        assert (checked["usable"], checked["problems"], checked["samples"]) == (True, [], 6)
        assert checked["native"] == {"least": 972, "median": 972, "most": 972}


def test_fetch_takes_a_task_as_its_tier(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    copy = write_copy("textvqa", tmp_path / "copy", [row("textvqa", i) for i in range(5)])
    out = tmp_path / "o"
    done = _stakes(
        "data", "fetch", "textvqa", "--parquet", copy, "--per-tier", 4, "--as-tier", "medium", "--out", out, "--json"
    )
    assert json.loads(done.stdout)["taken"] == {"medium": 4}


def test_draw_writes_the_solid_colours(tmp_path: Path) -> None:
    done = _stakes("data", "draw", "swatches", "--out", tmp_path / "o", "--per-tier", 3, "--json")
    assert json.loads(done.stdout)["count"] == 3
    checked = json.loads(_stakes("data", "check", tmp_path / "o" / "samples.jsonl", "--json").stdout)
    assert (checked["usable"], checked["tiers"], checked["native"]["least"]) == (True, {"low": 3}, 1296)


def test_output_that_is_no_terminal_gets_plain_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    done = _stakes("data", "check", _samples(tmp_path), "--json")
    assert json.loads(done.stdout)["samples"] == 4
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == [
        f"checking: {share}%" for share in (25, 50, 75, 100)
    ]


def test_a_terminal_gets_a_bar_and_the_object_stays_alone(tmp_path: Path) -> None:
    done = _stakes("data", "check", _samples(tmp_path), "--json", err=_Terminal())
    assert "checking" in done.stderr
    assert json.loads(done.stdout)["samples"] == 4
