"""``stakes reproduce paper`` end to end on small files, as a user runs it; its results file; ``reproduce check``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")

from tests.data.hub.tables import write_hub
from tests.models.test_load import save
from tests.models.tiny import save_tiles

from stakes.cli import main
from stakes.experiments.results import PAPER, PaperResults
from stakes.experiments.tables import latency

LIMIT = 3
ANSWERS = ["\ufffd", "|"]  # what a random model often writes, so that some answers are right


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the benchmarks, and three random models: two Qwen2.5-VL and one with LLaVA's tiles."""
    folder = tmp_path_factory.mktemp("paper")
    write_hub(folder / "hub", 2 * LIMIT, ANSWERS)
    for name in ("random-qwen", "random-small"):
        settings = save("qwen2_5_vl", folder / name) / "preprocessor_config.json"
        record = json.loads(settings.read_text())
        record["size"]["longest_edge"] = 1300 * 28 * 28
        settings.write_text(json.dumps(record))
    save_tiles(folder / "random-llava")
    return folder


def words(place: Path, run: str) -> list[str]:
    """The command; ``run`` names the folder of its answers and its results file."""
    models = ["--model", "random-qwen", "--scale-model", "random-small", "--architecture-model", "random-llava"]
    options = ["--device", "cpu", "--dtype", "float32", "--max-tokens", "1", "--data", str(place / "hub")]
    named = [str(place / word) if word.startswith("random") else word for word in models]
    files = ["--folder", str(place / run), "-o", str(place / f"{run}.json")]
    return ["reproduce", "paper", *named, *options, "--limit", str(LIMIT), *files]


def finish(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert not left.value.code


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *arguments])
    assert left.value.code == 2
    return capsys.readouterr().err


def measure(place: Path, run: str) -> Path:
    """Run to the end, with the time of one page only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "TIMED", 1)
        finish(words(place, run))
    return place / f"{run}.json"


@pytest.fixture(scope="module")
def results(place: Path) -> Path:
    return measure(place, "whole")


def test_every_table_of_the_paper_is_there_beside_the_published_one(results: Path) -> None:
    found = PaperResults.load(results)
    assert (tuple(found.tables), found.left_out) == (PAPER, {})
    for name, table in found.tables.items():
        assert table.name == name
        assert {row[0] for row in table.rows} >= {"published", "stakes" if name == "labels" else "random-qwen"} - (
            {"random-qwen"} if name == "models" else set()
        )
    arms = [tuple(row[:3]) for row in found.tables["models"].rows if row[0] != "published"]
    assert arms == [
        (model, axis, arm)
        for axis, model in (("scale", "random-small"), ("architecture", "random-llava"))
        for arm in ("uniform", "cost", "anti")
    ]
    right = {float(row[2] or 0) for row in found.tables["within-task"].rows if row[0] == "random-qwen"}
    assert len(right) > 1, "answers are not all wrong, or the comparison below would show nothing"


def test_samples_are_drawn_where_the_paper_drew_them(results: Path) -> None:
    drawn = PaperResults.load(results).samples
    starts = {name: one.rows["start"] for name, one in drawn.items() if one.rows is not None}
    assert starts[f"docvqa-257-{LIMIT}"] == 257
    assert starts[f"docvqa-1184-{LIMIT}-task"] == 1184
    assert next(iter(drawn[f"docvqa-257-{LIMIT}"].samples)) == "docvqa_val_1257"
    tiers = [line.split()[0] for line in drawn[f"docvqa-257-{LIMIT}"].samples.values()]
    assert sorted(tiers) == ["high"] * LIMIT + ["low"] * LIMIT


def test_the_page_has_published_rows_below_ours(results: Path) -> None:
    lines = results.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    ours = next(i for i, line in enumerate(lines) if line.startswith("| random-qwen | cost |"))
    assert lines[ours + 1].startswith("| published | cost | 0.133 | 0.843 |")
    assert sum(line.startswith("## ") for line in lines) == len(PAPER) + 1
    assert str(results.parent) not in "\n".join(lines) + results.read_text(encoding="utf-8"), "no path of a machine"


def test_a_killed_run_resumes_to_the_same_file(place: Path, results: Path) -> None:
    """Killed in the middle of one log; to save time, the others are already there from the first run."""
    log = place / "killed" / f"random-qwen-docvqa-{2 * LIMIT}-deletion-redundancy-relaxed.jsonl"
    shutil.copytree(place / "whole", place / "killed")
    log.unlink()
    run = subprocess.Popen(
        [sys.executable, "-m", "stakes", *words(place, "killed")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not (log.exists() and log.stat().st_size > 3000):
        assert run.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert not (place / "killed.json").exists()
    measure(place, "killed")
    first, second = (json.loads((place / f"{run}.json").read_text()) for run in ("whole", "killed"))
    for record in (first, second):
        del record["tables"]["latency"]  # times
    assert json.dumps(first) == json.dumps(second)


def test_check_computes_the_tables_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(["reproduce", "check", str(results), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == 0
    again = [one["what"] for one in found["findings"] if "computed again, all equal" in one["what"]]
    assert len(again) == len(PAPER) - 2, "labels and latency cannot be"


def _changed_cell(record: dict[str, Any]) -> None:
    record["tables"]["within-task"]["rows"][0][2] = 0.123


def _changed_answer(record: dict[str, Any]) -> None:
    held = record["answers"][f"random-qwen-docvqa-{2 * LIMIT}-deletion-redundancy-relaxed"]
    name = next(name for name, text in held.items() if "304:" in text)
    before = held[name].split("304:")[1][0]
    held[name] = held[name].replace(f"304:{before}", "304:7" if before == "0" else "304:0")


def _lost_answer(record: dict[str, Any]) -> None:
    held = record["answers"][f"random-qwen-docvqa-{2 * LIMIT}-deletion-redundancy-relaxed"]
    name = next(iter(held))
    held[name] = " ".join(word for word in held[name].split() if not word.startswith("304"))


def _more_tokens(record: dict[str, Any]) -> None:
    held = record["answers"][f"random-llava-docvqa-{2 * LIMIT}-resolution-relaxed"]
    name, text = next(iter(held.items()))
    held[name] = text.replace(":", "/99:", 1)


def _fewer_samples(record: dict[str, Any]) -> None:
    lines = record["samples"][f"chartqa-0-{LIMIT}"]["samples"]
    del lines[next(iter(lines))]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_changed_cell, "within-task: row 1, 'high' says 0.123, and the answers give"),
        (_changed_answer, "within-task: row"),
        (_lost_answer, "lack 'docvqa_val_1257' at 304 tokens"),
        (_more_tokens, "models: cannot be computed again"),
        (_fewer_samples, f"samples chartqa-0-{LIMIT}: {2 * LIMIT - 1} of {2 * LIMIT}"),
        (lambda record: record["tables"].pop("mixed"), "tables: mixed missing"),
        (lambda record: record["versions"].pop("torch"), "versions: torch not stated"),
    ],
)
def test_check_finds_what_does_not_follow(
    change: Any, said: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads(results.read_text())
    for name in set(PAPER) - {"within-task", "models", "mixed"}:  # the others take time and show nothing more here
        record["left_out"][name] = "not needed"
        del record["tables"][name]
    change(record)
    (tmp_path / "theirs.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "check", str(tmp_path / "theirs.json")])
    shown = capsys.readouterr()
    assert left.value.code == 2
    assert any(line.startswith("WRONG") and said in line for line in shown.out.splitlines()), shown.out
    assert "do not use it" in shown.err


def test_check_refuses_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"schema": 7}')
    assert "not a results file of schema 1: schema" in refused(capsys, "check", str(path))
    path.write_text("[")
    assert "cannot be read as JSON" in refused(capsys, "check", str(path))
    assert "there is no file" in refused(capsys, "check", str(tmp_path / "gone.json"))
    assert "takes one results file" in refused(capsys, "check")
    assert "other tables take none" in refused(capsys, "within-task", str(path))


def test_a_dry_run_for_the_7b_prints_rows_answers_tokens_and_hours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("stakes.models.load", lambda *_, **__: pytest.fail("a model was loaded"))
    finish(["reproduce", "paper", "--model", "Qwen/Qwen2.5-VL-7B-Instruct", "--dry-run"])
    shown = capsys.readouterr().out
    for line in (
        "rows     docvqa 1,304, chartqa 568, infographicvqa 601, textvqa 120, vqav2 120",
        "answers  35,688 by Qwen/Qwen2.5-VL-7B-Instruct, Qwen/Qwen2.5-VL-3B-Instruct, llava-hf/llava-onevision",
        "tokens   16,2",
        "hours    about 5 GPU hours",
    ):
        assert line in shown
    assert list(tmp_path.iterdir()) == []
    finish(["reproduce", "paper", "--dry-run", "--json", "--limit", "20", "--scale-model", "none"])
    assert json.loads(capsys.readouterr().out)["answers"] < 35_688 / 8


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("paper --per-tier 9", "the table paper does not use --per-tier"),
        ("paper --selector random", "--selector is for the table invariance and selector-curves, not for paper"),
        ("within-task --limit 9", "--limit is for the table paper, not for within-task"),
        ("within-task --scale-model none", "is for the table invariance and models, not for within-task"),
        ("labels --device cpu", "the table labels does not use --device"),
        ("paper --data nowhere", "--data takes SET, SET=FILE or a folder of copies, not 'nowhere'"),
        ("paper --limit 1", "at least two questions of each tier, not 1"),
        ("paper --model http://127.0.0.1:9/v1 --dtype float32 --dry-run", "leave out --device and --dtype"),
    ],
)
def test_options_that_do_not_fit_are_refused(typed: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *typed.split())


def test_a_folder_without_a_benchmark_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hub").mkdir()
    said = refused(capsys, "paper", "--data", str(tmp_path / "hub"), "--dry-run")
    assert "holds no copy of docvqa; expected one of" in said
    (tmp_path / "questions.jsonl").write_text("")
    said = refused(capsys, "paper", "--data", f"docvqa={tmp_path / 'questions.jsonl'}", "--dry-run")
    assert "paper takes benchmarks as the hub has them" in said
