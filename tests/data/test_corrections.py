"""Corrections become samples that a calibration reads, each once, and a bad one changes nothing."""

import json
from pathlib import Path

import pytest
from PIL import Image

from stakes.cli import main
from stakes.data.corrections import add_corrections, note_on_corrections
from stakes.data.sample import read_samples
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scans").mkdir()
    Image.new("RGB", (280, 280), "white").save(tmp_path / "scans" / "17.png")
    return tmp_path


def write(path: Path, *records: dict[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_a_corrected_image_and_a_corrected_request_become_samples(folder: Path) -> None:
    samples = folder / "mine" / "samples.jsonl"
    asked = write(folder / "asked.jsonl", {"id": "r1", "image": "scans/17.png", "question": "Who?", "tier": "low"})
    given = write(
        folder / "corrections.jsonl",
        {"image": "scans/17.png", "question": "What is the total?", "answer": "4.50", "tier": "high"},
        {"request": "r1", "answer": "Ogden"},
    )
    samples.parent.mkdir()
    assert add_corrections(given, samples, asked).added == 2
    first, second = prepare_samples(read_samples(samples), samples.parent)
    assert (first.question, first.answers, first.tier) == ("What is the total?", ("4.50",), "high")
    assert (second.id, second.answers, second.tier) == ("corrected/r1", ("Ogden",), "low")
    again = add_corrections(given, samples, asked)
    assert (again.added, again.known) == (0, 2)
    assert note_on_corrections([first, second]).startswith("2 of 2 samples are corrections by reviewers")
    assert note_on_corrections([]) == ""


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image": "scans/17.png", "question": "Who?"}, "line 1 of .* needs the right answer"),
        ({"image": "scans/99.png", "question": "Who?", "answer": "x"}, "there is no image .*99.png"),
        ({"image": "scans/17.png", "answer": "x"}, "needs an image and its question, or a request"),
        ({"request": "r9", "answer": "x"}, "request 'r9' has no image and question here; give .* --requests"),
    ],
)
def test_a_bad_correction_is_named_and_changes_nothing(folder: Path, record: dict[str, object], message: str) -> None:
    samples = write(folder / "samples.jsonl", {"id": "a", "question": "?", "answers": ["b"], "image": "scans/17.png"})
    before = samples.read_bytes()
    with pytest.raises(BadInput, match=message):
        add_corrections(write(folder / "corrections.jsonl", record), samples)
    assert samples.read_bytes() == before


@pytest.mark.parametrize("given", [{"answer": "4"}, {"answers": ["4"]}])
def test_the_reviewers_answer_counts_whatever_the_request_was_answered_with(
    folder: Path, given: dict[str, object]
) -> None:
    asked = {"image": "scans/17.png", "question": "Who?", "answer": "9", "answers": ["9"]}
    requests = write(folder / "asked.jsonl", {"id": 7, **asked})
    corrections = write(folder / "corrections.jsonl", {"request": 7, **given})
    add_corrections(corrections, folder / "samples.jsonl", requests)
    (sample,) = read_samples(folder / "samples.jsonl")
    assert (sample.id, sample.answers) == ("corrected/7", ("4",))
    empty = write(folder / "empty.jsonl", {"request": 7})
    with pytest.raises(BadInput, match="needs the right answer"):
        add_corrections(empty, folder / "samples.jsonl", requests)


def test_two_answers_to_one_request_are_refused(folder: Path) -> None:
    page = {"image": "scans/17.png", "question": "Who?"}
    given = write(folder / "corrections.jsonl", {**page, "answer": "a"}, {**page, "answer": "b"})
    with pytest.raises(BadInput, match="with other answers"):
        add_corrections(given, folder / "samples.jsonl")


def test_the_command_appends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = write(folder / "corrections.jsonl", {"image": "scans/17.png", "question": "Who?", "answer": "a"})
    with pytest.raises(SystemExit) as left:
        main(["corrections", "add", str(given), "--samples", str(folder / "samples.jsonl"), "--json"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["added"] == 1
