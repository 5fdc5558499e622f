"""Samples from a table: one row per document and one column per field becomes one question per field.

    table = read_table(Path("invoices.csv"))
    fields = Fields(("total", "date"), {"date": "When was it issued?"}, {"total": "total", "date": "other"})
    samples, empty = rows_as_samples(table, fields, Places("file", Path("scans")))

A table is CSV (comma, semicolon, tab or bar), a JSON array of objects, or JSON lines of any keys. A cell of the image
column is a path, the name of a file in a folder with or without its ending, or a page of a PDF as ``invoice.pdf#3``.
"""

import csv
import io
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stakes.data.sample import SYNONYMS, Sample
from stakes.errors import BadInput
from stakes.formats import counted

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".pdf")
OTHER = "other"
"""The tier of fields without one, where others have one."""


@dataclass(frozen=True)
class TableFile:
    """Rows as text by column; ``numbers`` are the rows' own, as a spreadsheet counts them."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    numbers: tuple[int, ...]

    def need(self, option: str, column: str) -> str:
        """A column of the table, or an error that names those there are."""
        if column not in self.columns:
            raise BadInput(f"{option} {column}: {self.path} has no such column; it has {', '.join(self.columns)}")
        return column


def read_table(path: Path) -> TableFile:
    """A CSV file, a JSON array of objects, or JSON lines."""
    try:
        data = path.read_bytes()
        if data.startswith(b"PK\x03\x04"):
            raise BadInput(f"{path} is a spreadsheet, not text; export its sheet as CSV in UTF-8")
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}; check the path") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 at byte {error.start + 1}; save it as CSV in UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a CSV file") from None
    if text.lstrip()[:1] in ("[", "{"):
        return _json_table(path, text)
    return _csv_table(path, text)


def _csv_table(path: Path, text: str) -> TableFile:
    head = text.partition("\n")[0]
    delimiter = max(",;\t|", key=head.count)  # the first at a tie: a comma
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, numbers, columns = [], [], tuple[str, ...]()
    try:
        for cells in lines:
            if not any(cell.strip() for cell in cells) or (lines.line_num == 1 and head.strip() == f"sep={delimiter}"):
                continue  # spreadsheets write sep=; above the names
            if not columns:
                columns = _columns(path, cells)
                continue
            if len(cells) > len(columns) and not any(cell.strip() for cell in cells[len(columns) :]):
                cells = cells[: len(columns)]
            if len(cells) != len(columns):
                raise BadInput(
                    f"line {lines.line_num} of {path} has {counted(len(cells), 'cell')}, and the table has "
                    f"{counted(len(columns), 'column')}; quote cells that contain {delimiter!r}"
                )
            rows.append(dict(zip(columns, (cell.strip() for cell in cells), strict=True)))
            numbers.append(lines.line_num)
    except csv.Error as error:
        raise BadInput(f"line {lines.line_num} of {path} is not CSV ({error}); save the table again as CSV") from None
    if not rows:
        raise BadInput(f"{path} has no rows; the first line names the columns, and each further one is a document")
    return TableFile(path, columns, tuple(rows), tuple(numbers))


def _columns(path: Path, cells: Sequence[str]) -> tuple[str, ...]:
    names = tuple(cell.strip() for cell in cells)
    while not names[-1]:  # spreadsheets write delimiters after the last column
        names = names[:-1]
    for name in names:
        if not name:
            raise BadInput(f"a column of {path} has no name; name every column in the first line")
        if names.count(name) > 1:
            raise BadInput(f"{path} has two columns {name!r}; rename one of them")
    return names


def _json_table(path: Path, text: str) -> TableFile:
    try:
        lines = filter(str.strip, text.split("\n"))
        records = json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in lines]
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); give an array of objects, or one object per line") from None
    if len(records) == 1 and isinstance(records[0], dict):
        for name, value in records[0].items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                raise BadInput(f"{path} is one object, and its documents are in {name!r}; save that array as a file")
    columns: dict[str, None] = {}
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise BadInput(f"entry {number} of {path} is a {type(record).__name__}, not an object of fields")
        columns |= dict.fromkeys(record)
    if not columns:
        raise BadInput(f"{path} has no entries; give an array of objects, each a document")
    rows = tuple({name: _text(record.get(name)) for name in columns} for record in records)
    return TableFile(path, tuple(columns), rows, tuple(range(1, len(rows) + 1)))


def _text(value: Any) -> str:
    """A cell; a list of one answer is that answer, and other lists stay JSON."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return ""
    return value.strip() if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _answers(cell: str) -> tuple[str, ...]:
    """The acceptable answers of a cell: its text, or the texts of a JSON list."""
    if cell.startswith("["):
        with suppress(ValueError):
            found = json.loads(cell)
            if found and all(isinstance(one, str) for one in found):
                return tuple(found)
    return (cell,)


@dataclass(frozen=True)
class Fields:
    """What becomes a question: the columns of answers, their questions and their tiers."""

    answers: tuple[str, ...]
    questions: Mapping[str, str]
    """By column of answers; of one that is not here it is "What is the {field}?"."""
    tiers: Mapping[str, str] = field(default_factory=dict)
    question_column: str | None = None
    """The column that holds the question of each row, in place of ``questions``."""

    def question(self, name: str, row: Mapping[str, str]) -> str:
        """The question of a field."""
        if self.question_column is not None:
            return row[self.question_column]
        return self.questions.get(name, "What is the {field}?").replace("{field}", name.replace("_", " "))


@dataclass(frozen=True)
class Places:
    """Where a row's image, document and group are."""

    image: str
    folder: Path
    document: str | None = None
    group: str | None = None


def find_column(table: TableFile, key: str) -> str | None:
    """The column with a common name of this key, if there is exactly one."""
    found = [name for name in table.columns if name.lower() in SYNONYMS[key]]
    return found[0] if len(found) == 1 else None


def rows_as_samples(table: TableFile, fields: Fields, places: Places) -> tuple[list[Sample], int]:
    """A sample per field and row, and the number of empty cells, which are left out.

    ``sample.image`` is the path as found, with ``#3`` for a page of a PDF. Every file that is missing is named.
    """
    samples, empty, missing = [], 0, []
    for number, row in zip(table.numbers, table.rows, strict=True):
        try:
            image = find_image(row[places.image], places.folder)
        except BadInput as error:
            missing.append(f"line {number}: {error}")
            continue
        document = row[places.document] if places.document else os.path.relpath(image.partition("#")[0], places.folder)
        for name in fields.answers:
            question = fields.question(name, row)
            if not row[name] or not question:
                empty += 1
                continue
            samples.append(
                Sample(
                    id=f"{number}/{name}",
                    question=question,
                    answers=_answers(row[name]),
                    image=image,
                    tier=fields.tiers.get(name, ""),
                    document=document,
                    group=row[places.group] if places.group else "",
                )
            )
    if missing:
        more = f" (and {len(missing) - 3} more)" if len(missing) > 3 else ""
        raise BadInput(f"{'; '.join(missing[:3])}{more}; {_remedy(table, places, len(missing))}")
    if not samples:
        raise BadInput(f"every cell of {', '.join(fields.answers)} in {table.path} is empty, so there is no question")
    return samples, empty


def _remedy(table: TableFile, places: Places, missing: int) -> str:
    """What to do about rows without an image: name their folder, or remove them where other rows have one."""
    if missing < len(table.rows):
        found = counted(len(table.rows) - missing, "other row")
        return f"images of {found} were found: add these files, or remove their rows"
    if not places.folder.is_dir():
        return f"there is no folder {places.folder}: give that of the images with --images"
    with suppress(OSError):
        for below in sorted(path for path in places.folder.iterdir() if path.is_dir()):
            with suppress(BadInput):
                find_image(table.rows[0][places.image], below)
                return f"{below} has the first one: give --images {shlex.quote(str(below))}"
    return "give the folder of the images with --images"


def find_image(cell: str, folder: Path) -> str:
    """The path of a cell's image, below ``folder`` unless it is absolute; its ending may be missing."""
    name, mark, page = cell.partition("#")
    if not name:
        raise BadInput("the image column is empty")
    if "://" in name:
        raise BadInput(f"{cell} is an address, and images are files; download it")
    if mark and (not page.isdecimal() or int(page) < 1 or not name.lower().endswith(".pdf")):
        raise BadInput(f"{cell!r} is no page of a PDF; write invoice.pdf#3 for its third page")
    path = folder / name
    if "\\" in name and not path.is_file():  # written on Windows
        path = folder / name.replace("\\", "/")
    if path.is_file():
        return f"{path}{mark}{page}"
    near = [other for other in path.parent.glob(f"{_plain(path.name)}.*") if other.suffix.lower() in IMAGES]
    if len(near) == 1:
        return f"{near[0]}{mark}{page}"
    why = "there is no file" if not near else f"{', '.join(sorted(one.name for one in near))} all match"
    raise BadInput(f"{why} {path}" if not near else f"{why} {name!r}; write the name in full")


def _plain(name: str) -> str:
    """A file's name, as ``glob`` takes it literally."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
