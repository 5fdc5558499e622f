"""One question about one image, with its acceptable answers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.errors import BadInput


@dataclass(frozen=True)
class Sample:
    """What is asked. ``document`` groups the questions on one page, which are not independent of each other."""

    id: str
    image: str | None  # a path relative to the samples file, a file: URL or a data: URL; None for text-only files
    question: str
    answers: tuple[str, ...]
    task: str | None = None
    tier: str | None = None
    document: str | None = None


# Files with one JSON object a line: samples in, anything out; a bad line is named, never skipped.
#
#     samples = read_samples("questions.jsonl")
#
# A sample is ``{"id", "image", "question", "answers", "task"?, "tier"?, "document"?}``.


TABLES = {".csv": "CSV", ".tsv": "TSV", ".xlsx": "a spreadsheet", ".xls": "a spreadsheet", ".parquet": "Parquet"}


def check_kind(path: str | Path) -> None:
    """Refuse what is no file of lines: a folder, with the samples in it by name, and tables."""
    path = Path(path)
    if path.is_dir():
        inside = sorted(path.glob("*.jsonl"), key=lambda one: (one.name != "samples.jsonl", one.name))
        give = f"give {inside[0]}" if inside else "give a JSONL file of samples"
        raise BadInput(f"{path} is a folder; {give}")
    if path.suffix.lower() in TABLES and path.exists():
        what = TABLES[path.suffix.lower()]
        raise BadInput(f"{path} is {what}, and samples are read as JSONL: one JSON object a line, not {what}")


def read_records(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's number and object; blank lines are passed over."""
    check_kind(path)
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as UTF-8 text ({error}); is it a JSONL file?") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = parse_object(line)
        except BadInput as error:
            raise BadInput(f"line {number} of {path} {error}; mend or remove it") from None
        yield number, record


def parse_object(line: str) -> dict[str, Any]:
    """The object that a line holds; a ``BadInput`` says what the line "is" or "holds" instead, without its place."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"is not JSON ({error.msg} at character {error.pos + 1})") from None
    except (ValueError, RecursionError):  # a number of thousands of digits; brackets nested as deep
        raise BadInput("is not JSON that can be read: a number or a nesting in it is endless") from None
    if not isinstance(record, dict):
        raise BadInput(f"is a {type(record).__name__}, not an object")
    if "\\ud" in line.lower() and _has_half_a_pair(record):
        raise BadInput("holds half of a surrogate pair (\\ud800 to \\udfff), which is no character")
    return record


def _has_half_a_pair(record: dict[str, Any]) -> bool:
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def read_samples(path: str | Path) -> list[Sample]:
    """All samples of a file, in its order; ids must be unique."""
    samples: list[Sample] = []
    seen: dict[str, int] = {}
    for number, record in read_records(path):
        try:
            sample = _sample(record)
        except BadInput as error:
            raise BadInput(f"line {number} of {path}: {error}") from None
        if sample.id in seen:
            raise BadInput(
                f"line {number} of {path} has the id {sample.id!r} of line {seen[sample.id]}; make ids unique"
            )
        seen[sample.id] = number
        samples.append(sample)
    if not samples:
        raise BadInput(f"{path} holds no samples; each line needs id, question and answers")
    return samples


def _sample(record: dict[str, Any]) -> Sample:
    for key in ("id", "question", "answers"):
        if key not in record:
            raise BadInput(f"a sample needs {key!r}, and this one has only {', '.join(record) or 'nothing'}")
    answers = record["answers"]
    if not isinstance(answers, list) or not answers or not all(isinstance(a, str) for a in answers):
        raise BadInput(f"answers must be a non-empty list of strings, not {answers!r}")
    for key in ("question", "image", "task", "tier", "document"):
        if record.get(key) is not None and not isinstance(record[key], str):
            raise BadInput(f"{key} must be a string, not {record[key]!r}")
    return Sample(
        id=str(record["id"]),
        image=record.get("image"),
        question=record["question"],
        answers=tuple(answers),
        task=record.get("task"),
        tier=record.get("tier"),
        document=record.get("document"),
    )
