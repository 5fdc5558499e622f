"""A judge's verdicts on disk: a cache that the judge writes, and labels files that people write.

The cache is append-only JSONL, one ``{"key", "tier", "model", "question"}`` per line, each written and flushed at once.
A killed run loses at most the line that it was writing, and a torn last line is removed at the next start. A file that
is not a cache is refused and left unchanged: a cache has a whole verdict, or a last line that begins like one. One
process at a time per file. A labels file is JSONL ``{"id": …, "tier": …}`` or ``{"question": …, "tier": …}``.

>>> verdict_key("judge-1", "rubric", "What is the total?")[:12]
'ae3345156d71'
"""

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from stakes.errors import BadInput
from stakes.files import is_torn


def verdict_key(model: str, rubric: str, question: str) -> str:
    """The cache key of one question put to one model under one rubric."""
    return hashlib.sha256(json.dumps([model, rubric, question]).encode()).hexdigest()


class VerdictCache:
    """Verdicts by key, in memory and (with a path) in a file; safe to use from several threads."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._verdicts: dict[str, str] = {}
        self._lock = threading.Lock()
        if self.path is not None:
            self._open(self.path)

    def _open(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            raw = path.read_bytes() if path.exists() else b""
            whole = raw[: raw.rfind(b"\n") + 1]
            # read before truncating: a file that is not a cache must stay as it was
            for number, record in _records(whole, path):
                self._verdicts[_text(record, "key", path, number)] = _text(record, "tier", path, number)
            if len(whole) < len(raw):
                if not self._verdicts and not is_torn(raw[len(whole) :], ("key", "tier")):
                    raise BadInput(
                        f"{path} is not a judge's cache: no line of it is a verdict or begins like one; it is left as "
                        "it was, so give another file"
                    )
                os.truncate(path, len(whole))
        except OSError as error:
            raise BadInput(f"cannot use {path} as the judge's cache: {error.strerror}") from None

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, key: str) -> str | None:
        """The tier stored under a key, or None."""
        return self._verdicts.get(key)

    def put(self, key: str, tier: str, **about: str) -> None:
        """Store a verdict; on return the operating system has it, so it survives a killed process."""
        line = json.dumps({"key": key, "tier": tier, **about}, ensure_ascii=False) + "\n"
        with self._lock:
            self._verdicts[key] = tier
            if self.path is not None:
                with self.path.open("ab", buffering=0) as file:
                    file.write(line.encode("utf-8", "backslashreplace"))


class Labels:
    """Tiers by sample id or by question, read from a file."""

    def __init__(self, path: str | Path, tiers: tuple[str, ...]) -> None:
        self.path = Path(path)
        self._by_id: dict[str, str] = {}
        self._by_question: dict[str, str] = {}
        try:
            raw = self.path.read_bytes()
        except OSError as error:
            raise BadInput(f"cannot read the labels file {path}: {error.strerror}") from None
        for number, record in _records(raw, self.path):
            tier = _text(record, "tier", self.path, number)
            if tier not in tiers:
                raise BadInput(f"{path} line {number} has tier {tier!r}; the tiers are {', '.join(tiers)}")
            if "id" not in record and "question" not in record:
                raise BadInput(f"{path} line {number} names neither an id nor a question")
            for field, table in (("id", self._by_id), ("question", self._by_question)):
                if field in record:
                    name = _text(record, field, self.path, number)
                    # one question may be asked of many pages, so its text may recur, but only with the same tier
                    if table.setdefault(name, tier) != tier:
                        raise BadInput(f"{path} line {number} gives {field} {name!r} a second, different tier")
        if not self._by_id and not self._by_question:
            raise BadInput(f"the labels file {path} is empty")

    def get(self, question: str, sample: str | None = None) -> str | None:
        """The tier of a sample, by its id if that is known, else by its question; None where neither is."""
        tier = None if sample is None else self._by_id.get(sample)
        return self._by_question.get(question) if tier is None else tier


def _records(raw: bytes, path: Path) -> list[tuple[int, dict[str, Any]]]:
    records = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(f"{path} line {number} is not JSON") from None
        if not isinstance(record, dict):
            raise BadInput(f"{path} line {number} is not a JSON object")
        records.append((number, record))
    return records


def _text(record: dict[str, Any], field: str, path: Path, number: int) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{path} line {number} needs {field!r} as non-empty text")
    return value
