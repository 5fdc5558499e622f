"""A ``Sample`` is one labelled question about one image; samples are read from JSONL files.

    samples = read_samples("questions.jsonl")

A line is ``{"id", "image", "question", "answers", "task"?, "tier"?, "document"?, "group"?, "system"?, "schema"?,
"history"?, "box"?}``. A bad line is an error that names the line; it is never skipped. ``group`` is what documents have
in common, such as a supplier or a template. ``system`` is the system text of the requests that the sample stands for,
``schema`` their JSON schema or a list of field names, ``history`` a list of ``{"role", "content"}``. ``box`` is where
the answer is printed, ``[left, top, right, bottom]`` in pixels of the upright image; only pictures use it.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stakes.errors import BadInput
from stakes.signals.prompt import Prompt, Turn, read_schema

if TYPE_CHECKING:
    from PIL.Image import Image


def _not_prepared() -> "bytes | Image":
    raise BadInput("the sample has no image loaded; call stakes.evaluation.samples.prepare_samples first")


@dataclass(frozen=True)
class Sample:
    """One question with its acceptable answers, as labelled in a file and later as prepared for a run.

    A file gives ``id`` to ``document``; ``tier`` and ``document`` are "" where it does not. Preparation fills in the
    tier (read by a signal, if one is given; ``label`` keeps the file's), ``size``, ``digest`` and ``load``. It also
    joins documents of one group and documents that share an image: ``document`` becomes the independent unit, and
    ``named`` keeps the file's name where that differs. Questions on one document are not independent of each other, nor
    are documents of one group. ``schema`` and ``history`` are as in the file.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    image: str | None = None  # path relative to the samples file, file: URL, data: URL or base64; None: text only
    task: str | None = None
    tier: str = ""
    document: str = ""
    size: tuple[int, int] = (0, 0)  # upright (width, height)
    digest: str = ""  # of the image file, or of a drawn page
    load: "Callable[[], bytes | Image]" = field(default=_not_prepared, compare=False, repr=False)
    named: str = ""
    group: str = ""
    label: str = ""
    system: str = ""
    schema: Any = field(default=None, compare=False)
    history: tuple[Turn, ...] = ()
    box: tuple[float, float, float, float] | None = None

    @property
    def prompt(self) -> str | Prompt:
        """What a signal reads: all that the request says, or the question alone where it says no more."""
        if not (self.system or self.schema or self.history or self.task):
            return self.question
        return Prompt(self.question, self.system, read_schema(self.schema), self.history, self.task)

    @property
    def asked(self) -> str:
        """What the model is asked: the system text and the question."""
        return f"{self.system}\n\n{self.question}" if self.system else self.question


KEYS = (
    "id", "image", "question", "answers", "task", "tier", "document", "group", "system", "schema", "history", "box",
)  # fmt: skip
"""The keys of a sample in a file, in the order in which they are written."""
SYNONYMS = {
    "image": ("image", "file", "filename", "file_name", "image_path", "path", "img", "picture", "scan", "page", "pdf"),
    "question": ("question", "query", "prompt", "q", "instruction"),
    "answers": ("answers", "answer", "label", "labels", "gold", "target", "expected", "ground_truth", "value"),
    "id": ("id", "uid", "sample_id", "question_id", "questionid", "qid"),
    "document": ("document", "doc", "doc_id", "document_id", "docid"),
    "group": ("group", "supplier", "vendor", "template", "layout"),
}
"""Common names of what a sample has."""
TABLES = {".csv": "CSV", ".tsv": "TSV", ".xlsx": "a spreadsheet", ".xls": "a spreadsheet", ".parquet": "Parquet"}


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number.

    What is not a file of lines is refused: a folder (the message names a samples file in it) and tables.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"), key=lambda file: (file.name != "samples.jsonl", file.name))
        raise BadInput(f"{path} is a folder; give {files[0] if files else 'a JSONL file of samples'}")
    table = TABLES.get(path.suffix.lower())
    if table and path.exists():
        advice = f"; run: stakes data from-csv {path}" if path.suffix.lower() in (".csv", ".tsv") else ""
        raise BadInput(f"{path} is {table}, and samples are read as JSONL: one JSON object per line{advice}")
    try:
        with path.open("rb") as file:
            yield from ((number, line) for number, line in enumerate(file, start=1) if line.strip())
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); is it a JSONL file?") from None


def parse_object(raw: bytes) -> dict[str, Any]:
    """The object of a line."""
    try:
        line = raw.decode("utf-8").rstrip("\n")
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise BadInput(f"the line is not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        if line.strip() in ("[", "[{"):
            raise BadInput(
                "a JSON array begins here, and samples are one object per line; stakes data from-csv reads it"
            ) from None
        raise BadInput(f"the line is not JSON ({error.msg} at character {error.pos + 1})") from None
    except (ValueError, RecursionError):  # thousands of digits in a number, or of nested brackets
        raise BadInput("the line is not readable JSON: a number in it is too long, or its nesting too deep") from None
    if isinstance(record, list):
        raise BadInput(
            "the line is a JSON array, and samples are one object per line; stakes data from-csv reads arrays"
        )
    if not isinstance(record, dict):
        raise BadInput(f"the line is a {type(record).__name__}, not an object")
    if "\\ud" in line.lower():
        try:
            json.dumps(record, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise BadInput("the line holds half of a surrogate pair (\\ud800 to \\udfff), no character") from None
    return record


def read_samples(path: str | Path) -> list[Sample]:
    """All samples of a file, in its order; ids must be unique."""
    samples: list[Sample] = []
    line_of: dict[str, int] = {}
    for number, line in read_lines(path):
        try:
            record = parse_object(line)
            _require_readable(record)
        except BadInput as error:
            raise BadInput(f"line {number} of {path}: {error}; repair or remove it") from None
        sample = to_sample(record)
        if (first := line_of.setdefault(sample.id, number)) != number:
            raise BadInput(f"line {number} of {path} has the id {sample.id!r} of line {first}; make ids unique")
        samples.append(sample)
    if not samples:
        raise BadInput(f"{path} holds no samples; each line needs id, question and answers")
    return samples


def _require_readable(record: dict[str, Any]) -> None:
    for key in ("id", "question", "answers"):
        if key not in record:
            hint = rename_hint(record, key)
            raise BadInput(f"a sample needs {key!r}, and this one has only {', '.join(record) or 'nothing'}{hint}")
    answers = record["answers"]
    if not isinstance(answers, list) or not answers or not all(isinstance(a, str) for a in answers):
        raise BadInput(f"answers must be a non-empty list of strings, not {answers!r}")
    for key in ("question", "image", "task", "tier", "document", "group", "system"):
        if record.get(key) is not None and not isinstance(record[key], str):
            raise BadInput(f"{key} must be a string, not {record[key]!r}")
    if not isinstance(record.get("schema"), dict | list | None):
        raise BadInput(f"schema must be a JSON schema or a list of field names, not {record['schema']!r:.60}")
    read_history(record.get("history"))
    read_box(record.get("box"))


def read_box(value: Any) -> tuple[float, float, float, float] | None:
    """Where a sample's answer is printed, from ``[left, top, right, bottom]``."""
    if value is None:
        return None
    numbers = isinstance(value, list) and len(value) == 4 and all(isinstance(n, int | float) for n in value)
    if not numbers or not (value[0] < value[2] and value[1] < value[3]):
        raise BadInput(f"box is [left, top, right, bottom] in pixels, left < right and top < bottom, not {value!r:.60}")
    left, top, right, bottom = map(float, value)
    return left, top, right, bottom


def rename_hint(keys: Iterable[str], missing: str) -> str:
    """``rename query to question``: advice where a key is missing and another has one of its common names."""
    near = next((key for key in keys if key.lower() in SYNONYMS.get(missing, ()) and key != missing), None)
    return "" if near is None else f"; rename {near} to {missing}"


def read_history(value: Any) -> tuple[Turn, ...]:
    """The earlier turns of a sample, from a list of ``{"role", "content"}``."""
    turns = [] if value is None else value
    if not isinstance(turns, list):
        raise BadInput(f"history must be a list of turns, not {value!r:.60}")
    read = []
    for turn in turns:
        role, content = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None, None)
        if role not in ("user", "assistant") or not isinstance(content, str):
            raise BadInput(f'a turn of history is {{"role": "user" or "assistant", "content": text}}, not {turn!r:.60}')
        read.append(Turn(role, content))
    return tuple(read)


def to_sample(record: dict[str, Any]) -> Sample:
    """The sample of a line's object; a key that is missing is empty."""
    return Sample(
        id=str(record.get("id", "")),
        question=record.get("question", ""),
        answers=tuple(record.get("answers", ())),
        image=record.get("image"),
        task=record.get("task"),
        tier=record.get("tier") or "",
        document=record.get("document") or "",
        group=record.get("group") or "",
        system=record.get("system") or "",
        schema=record.get("schema"),
        history=read_history(record.get("history")),
        box=read_box(record.get("box")),
    )
