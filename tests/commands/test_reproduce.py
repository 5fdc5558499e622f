"""``stakes reproduce``: a checkpoint in the hub's folder layout, the options of each table, and the files written."""

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

pytest.importorskip("datasets")

from tests.data.hub.tables import HIGH, LOW, picture, row, write_copy
from tests.models.test_load import save

from stakes.cli import app, main
from stakes.commands import reproduce
from stakes.commands.reproduce import format_command, with_earlier_tables
from stakes.commands.reproduce import options as reproduce_options
from stakes.experiments.study import OFFLINE, Study
from stakes.experiments.tables import TABLES, experiment
from stakes.signals import Judge


def test_within_task_runs_on_a_checkpoint_and_a_copy_of_the_hub(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save("qwen2_5_vl", tmp_path / "Qwen2.5-VL-tiny")
    settings = json.loads((model / "preprocessor_config.json").read_text())
    settings["size"]["longest_edge"] = 1300 * 28 * 28
    (model / "preprocessor_config.json").write_text(json.dumps(settings))
    page = picture(600, 800)
    rows = [row("docvqa", i, (HIGH, LOW)[i % 2], page if i < 257 else None) for i in range(265)]
    copy = write_copy("docvqa", tmp_path / "hub", rows)
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
        (["within-task", "--data", "mnist"], "--data takes SET, SET=FILE or a folder of copies"),
        (["within-task", "--data", "docvqa", "--data", "docvqa=a"], "--data names docvqa twice"),
        (["within-task", "--data", "sroie"], "give --data sroie=FOLDER with questions.jsonl"),
        (["curves", "--data", "sroie=nowhere"], "--data sroie=nowhere: no nowhere is there"),
        (["curves", "--data", "docvqa=a", "--data", "sroie=."], "sroie replaces docvqa"),
        (["receipts"], "receipts are real pages; give a folder or a samples file: --data sroie=FOLDER"),
        (["within-task", "--quick", "--per-tier", "9"], "give it or --per-tier, not both"),
        (["legibility-agreement", "--per-tier", "0"], "at least two questions of each tier, not 0"),
        (["all", "--judge", "labels.jsonl"], "which is left out: labels are validated on real question texts"),
    ],
)
def test_bad_options_end_in_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels.jsonl").write_text('{"id": "q", "tier": "high"}\n')
    assert said in refused(capsys, *words)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *words])
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("published --quick", "the table published does not use --quick; leave it out"),
        ("published --data docvqa", "the table published does not use --data"),
        ("within-task --every", "--every is for the table published, not for within-task; leave it out"),
        (
            "within-task --selector random",
            "is for the table invariance and selector-curves, not for within-task",
        ),
        ("within-task --data chartqa=a", "the table within-task asks about docvqa, not about chartqa"),
        ("map --data chartqa=a", "the table map asks about docvqa, solid_color, not about chartqa"),
        ("labels --per-tier 9", "the table labels does not use --per-tier"),
        ("labels --signal keywords", "the table labels does not use --signal"),
        ("latency --mechanism resolution", "the table latency does not use --mechanism"),
        ("legibility --model ocr", "the table legibility does not use --model"),
        ("legibility-check --folder a", "the table legibility-check does not use --folder"),
        ("legibility-agreement --judge a", "--judge is for the table labels, not for legibility-agreement"),
        ("labels --trim", "the table labels does not use --trim"),
        ("latency --trim", "the table latency does not use --trim"),
        ("paper --trim", "the table paper does not use --trim"),
        ("legibility-check --trim", "the table legibility-check does not use --trim"),
        ("legibility-map --quick", "the table legibility-map does not use --quick"),
        ("all --every", "--every is for the table published, not for all"),
    ],
)
def test_an_option_that_a_table_does_not_use_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words.split())


def test_every_table_declares_its_options_and_data_sets() -> None:
    known = {option for name in reproduce.NAMES for option in reproduce_options.options_of(name)}
    typed = {opt for one in get_command(app).commands["reproduce"].params for opt in one.opts}  # type: ignore[attr-defined]
    assert known <= typed
    writing = [name for name in (*reproduce.NAMES, "all") if name != reproduce_options.CHECK]
    assert all("-o" in reproduce_options.options_of(name) for name in writing)
    assert {name for table in TABLES for name in experiment(table).DATASETS} == set(OFFLINE)


def test_published_figures_are_written_to_a_file_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.json"
    for _ in range(2):  # the second time over the first
        with pytest.raises(SystemExit) as left:
            main(["reproduce", "published", "-o", str(path), "--json"])
        assert not left.value.code
        printed = json.loads(capsys.readouterr().out)
        assert json.loads(path.read_text("utf-8")) == {"command": "stakes reproduce published", **printed}
    assert len(printed["checks"]) == sum(printed["verdicts"].values()) > 100
    said = refused(capsys, "within-task", "--quick", "-o", str(path))
    assert "was made by stakes reproduce published, and would be lost; give -o another name for within-task" in said
    gathered = json.dumps({"model": "embedded", "versions": {}, "tables": {"map": {}}})
    path.write_text(gathered, "utf-8")
    for table in (["published"], ["legibility-agreement", "--quick"]):
        said = refused(capsys, *table, "-o", str(path))
        assert f"holds tables of embedded, and {table[0]} has a file of its own; give -o another name" in said
    assert path.read_text("utf-8") == gathered


def test_a_family_of_synthetic_pages_replaces_a_data_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "receipts").mkdir()
    given = ["docvqa=receipts", "chartqa=./receipts"]
    assert reproduce_options.parse_data(given) == {"docvqa": "receipts", "chartqa": "chartqa"}
    assert reproduce_options.find_copies(given) == {"chartqa": Path("receipts")}
    command = ["reproduce", "within-task", "--data", "docvqa=receipts", "--per-tier", "5", "-o", "made.json"]
    with pytest.raises(SystemExit) as left:
        main(command)
    assert not left.value.code
    made = json.loads((tmp_path / "made.json").read_text("utf-8"))["tables"]["within-task"]
    assert "receipts" in made["title"]
    assert "--data docvqa=receipts" in made["command"]


def test_a_table_of_pages_without_margins_stands_beside_that_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--trim"]):
        words = ["--data", "docvqa=receipts", "--per-tier", "5", "-o", "made.json"]
        with pytest.raises(SystemExit) as left:
            main(["reproduce", "within-task", *words, *more])
        assert not left.value.code
    whole, trimmed = json.loads((tmp_path / "made.json").read_text("utf-8"))["tables"].values()
    assert (whole["name"], trimmed["name"]) == ("within-task", "within-task-trimmed")
    assert trimmed["command"] == whole["command"].replace(" --data", " --trim --data")
    assert ("trim" in whole["meta"], trimmed["meta"]["trim"]) == (False, True)
    assert "margins of pages were cut off before they were fitted" in trimmed["findings"]
    logs = {path.name for path in (tmp_path / "runs" / "reproduce").glob("*.jsonl")}
    assert len(logs) == 2
    assert {log.endswith("-trimmed.jsonl") for log in logs} == {True, False}


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("within-task", "stakes reproduce within-task --per-tier 9 --mechanism deletion --data docvqa"),
        ("latency", "stakes reproduce latency --per-tier 9 --data docvqa"),
        ("labels", "stakes reproduce labels --data docvqa --judge labels.jsonl"),
    ],
)
def test_the_command_in_a_file_uses_the_options_of_its_table(table: str, command: str, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"id": "q", "tier": "high"}\n')
    judge = Judge(labels=labels) if table == "labels" else None
    model: Any = None  # not asked
    study = Study(model, "embedded", tmp_path, per_tier=9, judge=judge)
    named = None if judge is None else str(labels)
    assert format_command(table, ["docvqa=q.jsonl"], study, "tier", named) == command


def test_infeasible_tables_are_left_out_of_all_and_refused_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reproduce, reproduce_options):
        monkeypatch.setattr(module, "TABLES", {name: TABLES[name] for name in ("within-task", "latency")})
    words = ["--model", "embedded-llava", "--per-tier", "9", "--folder", str(tmp_path / "runs"), "--json"]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "all", *words])
    found = json.loads(capsys.readouterr().out)
    assert (left.value.code or 0, list(found["tables"])) == (0, ["within-task"])
    assert list(found["left_out"]) == ["labels", "receipts", "latency"]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "within-task", "--mechanism", "resolution", *words])
    assert left.value.code == 2
    assert "embedded-llava cannot take by resizing; try --mechanism deletion" in capsys.readouterr().err


def test_a_file_collects_the_tables_of_one_model(tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    new = {"model": "embedded", "versions": {"torch": "2"}, "tables": {"map": {"rows": [1]}}}
    assert with_earlier_tables(new, path) == new
    path.write_text(json.dumps({**new, "tables": {"map": {"rows": []}, "frontier": {"rows": [2]}}}), "utf-8")
    assert with_earlier_tables(new, path)["tables"] == {"map": {"rows": [1]}, "frontier": {"rows": [2]}}
    assert with_earlier_tables({**new, "versions": {"torch": "3"}}, path)["tables"] == new["tables"]
    path.write_text("[]", "utf-8")
    assert with_earlier_tables(new, path) == new


def test_a_file_is_written_without_torch_and_names_only_what_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name in ("torch", "transformers"):
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr("stakes.models.load", lambda name: None)  # labels asks no model
    samples, output = tmp_path / "samples.jsonl", tmp_path / "tables.json"
    lines = [
        {"id": f"{cue}{i}", "question": f"What is the {cue} of sheet {i}?", "answers": ["x"], "document": f"d{i}"}
        for i in range(12)
        for cue in ("total", "title")
    ]
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "labels", "--data", f"docvqa={samples}", "-o", str(output)])
    assert not left.value.code, capsys.readouterr().err
    written = json.loads(output.read_text("utf-8"))
    assert list(written["tables"]) == ["labels"]
    assert {"stakes", "numpy", "pillow"} <= set(written["versions"])
    assert not {"torch", "transformers"} & set(written["versions"])


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stakes.models.load", lambda name: pytest.fail("a model was loaded"))
    (tmp_path / "file").write_text("")
    assert "is a folder" in refused(capsys, "within-task", "--quick", "-o", str(tmp_path))
    assert "cannot be written" in refused(
        capsys, "within-task", "--quick", "-o", str(tmp_path / "file" / "tables.json")
    )
