"""No command overwrites what it reads, under whatever name; bad options are refused before any answer."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from PIL import Image
from tests.report.runs import make_run

from stakes import cli
from stakes.data.hub import FILE
from stakes.models.base import Answer


def stakes(*words: object) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as left:
        cli.main([str(word) for word in words])
    return int(left.value.code or 0), err.getvalue()


class Nobody:
    """A model that must not be asked."""

    family = "qwen2.5-vl"

    def answer(self, requests: object) -> list[Answer]:
        raise AssertionError("something was asked")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with its logs, questions, a task map, and what a fetched folder says of itself."""
    make_run(tmp_path, {"high": 5.0, "low": 1.0})
    Image.effect_noise((840, 840), 40).save(tmp_path / "page.png")
    rows = [
        {"id": f"{i}{tier}", "image": "page.png", "question": asked, "answers": ["x"], "tier": tier}
        for i in range(12)
        for tier, asked in (("high", f"What is the total {i}?"), ("low", f"Who signed {i}?"))
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks.json").write_text('{"docvqa": "high", "vqav2": "low"}')
    selection = {"dataset": "docvqa", "split": "validation", "start": 0, "scanned": 9}
    (tmp_path / FILE).write_text(json.dumps(selection))
    (tmp_path / "link.json").symlink_to("q.jsonl")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stakes.models.load", lambda name, **options: Nobody())
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "calibrate q.jsonl -o q.jsonl",
        "calibrate q.jsonl -o sub/../q.jsonl",
        "calibrate q.jsonl -o link.json",
        "calibrate q.jsonl -o new.json --log new.json",
        "calibrate q.jsonl -o new.json --log sub/../new.json",
        "calibrate q.jsonl -o tasks.json --signal task:tasks.json",
        "evaluate q.jsonl --policy policy.json --log policy.json",
        "evaluate q.jsonl --policy policy.json --log q.jsonl",
        "report policy.json -o policy.json",
        "report policy.json -o policy.outcomes.jsonl",
        "report . -o policy.evaluation.jsonl",
        "report policy.json --samples q.jsonl -o link.json",
        "signal train q.jsonl -o q.jsonl",
        "signal train q.jsonl -o link.json",
        "reproduce within-task --data docvqa=q.jsonl -o q.jsonl",
        "reproduce legibility-map --data page.png -o page.png",
        f"data fetch docvqa --out . --exclude {FILE} --parquet none.parquet",
    ],
)
def test_what_a_command_reads_is_not_overwritten(here: Path, command: str) -> None:
    before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    status, said = stakes(*command.split())
    assert status == 2, said
    assert "is a file that this command itself needs" in said
    assert said.count("\n") == 1
    assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before


def test_another_name_for_a_hard_link_is_seen_too(here: Path) -> None:
    os.link(here / "q.jsonl", here / "twin.jsonl")
    status, said = stakes("signal", "train", "q.jsonl", "-o", "twin.jsonl")
    assert (status, "twin.jsonl is a file that this command itself needs (as q.jsonl)" in said) == (2, True)


def test_writing_over_what_one_wrote_before_stays_allowed(here: Path) -> None:
    for _ in range(2):
        assert stakes("signal", "train", "q.jsonl", "-o", "signal.json") == (0, "")
        assert stakes("report", "policy.json", "-o", "report.html") == (0, "")


def test_a_demo_does_not_overwrite_a_policy_of_another_run(here: Path) -> None:
    pytest.importorskip("vl_convert", reason="the demo needs the report extra")
    (here / "sub" / "policy.json").write_text("mine")
    status, said = stakes("demo", "-o", "sub")
    assert (status, "sub/policy.json exists already and is not from a demo" in said) == (2, True)
    assert (here / "sub" / "policy.json").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--grid 32,304 --floor 400", "the floor of 400 lies above every budget of the grid (at most 304)"),
        ("--floor 300 --mean-budget 290", "at or above the floor of 300 is 366, above the mean budget of 290"),
        ("--floor 0", "the floor is at least one token, not 0"),
        ("--floor -5", "the floor is at least one token, not -5"),
        ("--cost high=1e308 --cost low=1e308", "the cost of tier 'high' is 1e+308"),
        ("--mean-budget 2000000000 --grid 32,304", "the mean budget is 1 to 1,000,000,000 tokens per image"),
    ],
)
def test_mistakes_that_need_no_answer_are_reported_before_any(here: Path, words: str, says: str) -> None:
    status, said = stakes("calibrate", "q.jsonl", "-o", "new.json", *words.split())
    assert (status, said.count("\n")) == (2, 1), said
    assert says in said
    assert not (here / "new.outcomes.jsonl").exists()
