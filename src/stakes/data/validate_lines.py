"""What is wrong with each line of a samples file? A reader that goes on after a fault, and names all of them.

``read_samples`` refuses a file at its first bad line, which is right for a run; a person who mends a file wants the
whole list. Every line that ``read_samples`` refuses has a fault here. Beyond those, an empty question, answers that
are all empty, and an id that is no text or number are faults too.

    for line in read_lines("questions.jsonl"):
        line.number, line.sample, [fault.message for fault in line.faults]
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.data.sample import Sample, check_kind, parse_object
from stakes.errors import BadInput

KEYS = ("id", "image", "question", "answers", "task", "tier", "document")


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a line: its kind in one word, and a sentence."""

    kind: str
    message: str


@dataclass(frozen=True)
class Line:
    """One line that is not blank; ``sample`` holds what could be read of it, and is whole where there is no fault."""

    number: int
    bytes: int
    sample: Sample | None
    faults: tuple[Fault, ...] = ()
    ignored: tuple[str, ...] = ()  # keys that no sample has


def read_lines(path: str | Path) -> Iterator[Line]:
    """Each line that is not blank, in order."""
    check_kind(path)
    try:
        with Path(path).open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip():
                    yield _line(number, raw)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); is it a JSONL file?") from None


def _line(number: int, raw: bytes) -> Line:
    try:
        record = parse_object(raw.decode("utf-8").rstrip("\n"))
    except UnicodeDecodeError as error:
        return _malformed(number, raw, f"is not UTF-8 at byte {error.start + 1}")
    except BadInput as error:
        return _malformed(number, raw, str(error))
    faults = tuple(_faults(record))
    ignored = tuple(key for key in record if key not in KEYS)
    return Line(number, len(raw), _readable(record), faults, ignored)


def _malformed(number: int, raw: bytes, what: str) -> Line:
    return Line(number, len(raw), None, (Fault("malformed", f"the line {what}"),))


def _faults(record: dict[str, Any]) -> Iterator[Fault]:
    for key in ("id", "question", "answers"):
        if key not in record:
            yield Fault(key, f"{key!r} is missing; the line has {_shown(list(record))}")
    if "id" in record and not _is_id(record["id"]):
        yield Fault("id", f"the id must be text or a whole number, not {_shown(record['id'])}")
    if "question" in record and not _is_text(record["question"]):
        yield Fault("question", f"the question must be text, not {_shown(record['question'])}")
    if "answers" in record:
        answers = record["answers"]
        if not isinstance(answers, list) or not answers or not all(isinstance(a, str) for a in answers):
            yield Fault("answers", f"answers must be a non-empty list of strings, not {_shown(answers)}")
        elif not any(map(_is_text, answers)):
            yield Fault("answers", "every answer is empty, so no prediction could be right")
    for key in ("image", "task", "tier", "document"):
        if record.get(key) is not None and not _is_text(record[key]):
            yield Fault(key, f"{key} must be text or left out, not {_shown(record[key])}")


def _readable(record: dict[str, Any]) -> Sample:
    def text(key: str) -> str | None:
        return record[key] if _is_text(record.get(key)) else None

    answers = record.get("answers")
    return Sample(
        id=str(record["id"]) if _is_id(record.get("id")) else "",
        image=text("image"),
        question=text("question") or "",
        answers=tuple(a for a in answers if isinstance(a, str)) if isinstance(answers, list) else (),
        task=text("task"),
        tier=text("tier"),
        document=text("document"),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_id(value: object) -> bool:
    return _is_text(value) or (isinstance(value, int) and not isinstance(value, bool))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
