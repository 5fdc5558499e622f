"""Samples are read as written; a bad line is named by its number."""

import json
from pathlib import Path

import pytest

from stakes import BadInput
from stakes.data.sample import Sample, read_samples

GOOD = {"id": "q1", "image": "p.png", "question": "Total?", "answers": ["$5"], "task": "docvqa", "document": "p"}


def _write(path: Path, lines: list[str]) -> Path:
    file = path / "samples.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_samples_are_read_in_order_with_what_they_carry(tmp_path: Path) -> None:
    second = {"id": 2, "question": "Zeile\u2028zwei?", "answers": ["a", "b"]}
    file = _write(tmp_path, [json.dumps(GOOD), "", json.dumps(second, ensure_ascii=False)])
    assert read_samples(file) == [
        Sample("q1", "Total?", ("$5",), "p.png", "docvqa", document="p"),
        Sample("2", "Zeile\u2028zwei?", ("a", "b")),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "line 17 of .* is not JSON"),
        ('{"id": ' + "1" * 5000 + "}", "line 17 of .* is not readable JSON: a number in it is too long"),
        ("[" * 200_000, "line 17 of .* is not readable JSON: .* its nesting too deep"),
        (json.dumps({**GOOD, "id": "x \ud83d"}), "line 17 of .* holds half of a surrogate pair"),
        (json.dumps({**GOOD, "question": "\udc00?"}), "line 17 of .* holds half of a surrogate pair"),
        ("[1]", "line 17 of .* is a JSON array, and samples are one object per line"),
        (json.dumps({"id": "x", "question": "?"}), "line 17 of .*: a sample needs 'answers'"),
        (json.dumps({"id": "x", "question": "?", "answers": []}), "line 17 of .*: answers must be a non-empty list"),
        (json.dumps({"id": "x", "question": "?", "answers": "yes"}), "line 17 of .*: answers must be a non-empty list"),
        (json.dumps({"id": "x", "question": 5, "answers": ["y"]}), "line 17 of .*: question must be a string, not 5"),
        (json.dumps({**GOOD, "id": "3"}), "line 17 of .* has the id '3' of line 4"),
    ],
)
def test_a_bad_line_17_is_named(tmp_path: Path, line: str, message: str) -> None:
    lines = [json.dumps({**GOOD, "id": str(i)}) for i in range(16)]
    with pytest.raises(BadInput, match=message):
        read_samples(_write(tmp_path, [*lines, line]))


def test_files_without_samples_say_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no file"):
        read_samples(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="holds no samples"):
        read_samples(_write(tmp_path, [""]))
    binary = tmp_path / "b.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="line 1 of .* is not UTF-8 at byte 1"):
        read_samples(binary)
