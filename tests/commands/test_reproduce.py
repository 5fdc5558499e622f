"""The same command for a real model: a checkpoint in the hub's folder layout, questions in the hub's columns."""

import json
from pathlib import Path

import pytest

pytest.importorskip("datasets")

from tests.data.hub_tables import HIGH, LOW, row, write_copy
from tests.models.test_load import save

from stakes.cli import main
from stakes.commands import reproduce
from stakes.experiments.measured import TABLES


def test_within_task_runs_on_a_checkpoint_and_a_copy_of_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save("qwen2_5_vl", tmp_path / "Qwen2.5-VL-tiny")
    settings = json.loads((model / "preprocessor_config.json").read_text())
    settings["size"]["longest_edge"] = 1300 * 28 * 28
    (model / "preprocessor_config.json").write_text(json.dumps(settings))
    copy = write_copy("docvqa", tmp_path / "hub", [row("docvqa", i, (HIGH, LOW)[i % 2]) for i in range(8)])
    command = ["reproduce", "within-task", "--model", str(model), "--data", f"docvqa={copy}", "--per-tier", "2"]
    with pytest.raises(SystemExit) as left:
        main([*command, "--folder", str(tmp_path / "runs"), "--json"])
    assert not left.value.code
    made = json.loads(capsys.readouterr().out)["tables"]["within-task"]
    ours = [line for line in made["rows"] if line[0] == str(model)]
    assert [line[1] for line in ours] == ["uniform", "content", "cost", "anti"]
    assert {line[-1] for line in ours} == {2 * (512 + 96)}, "every arm realises one total"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nine"], "there is no table 'nine'"),
        (["within-task", "--per-tier", "1"], "at least two questions"),
        (["within-task", "--mechanism", "magic"], "deletion or resolution"),
        (["invariance", "--selector", "best"], "no selector is called 'best'"),
        (["within-task", "--selector", "random"], "the table invariance, not of within-task; leave it out"),
        (["within-task", "--data", "mnist"], "--data takes SET or SET=FILE"),
    ],
)
def test_what_cannot_be_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_tables_that_a_model_cannot_take_are_left_out_of_all_and_refused_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "TABLES", {name: TABLES[name] for name in ("within-task", "latency")})
    words = ["--model", "embedded-llava", "--per-tier", "9", "--folder", str(tmp_path / "runs"), "--json"]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "all", *words])
    found = json.loads(capsys.readouterr().out)
    assert (left.value.code or 0, list(found["tables"]), list(found["left_out"])) == (0, ["within-task"], ["latency"])
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "within-task", "--mechanism", "resolution", *words])
    assert left.value.code == 2
    assert "embedded-llava cannot take by resizing; try --mechanism deletion" in capsys.readouterr().err


def test_a_file_gathers_the_tables_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    new = {"model": "embedded", "versions": {"torch": "2"}, "tables": {"map": {"rows": [1]}}}
    assert reproduce._added(new, path) == new
    path.write_text(json.dumps({**new, "tables": {"map": {"rows": []}, "frontier": {"rows": [2]}}}), "utf-8")
    assert reproduce._added(new, path)["tables"] == {"map": {"rows": [1]}, "frontier": {"rows": [2]}}
    assert reproduce._added({**new, "versions": {"torch": "3"}}, path)["tables"] == new["tables"]
    path.write_text("[]", "utf-8")
    assert reproduce._added(new, path) == new
