"""What reviewers corrected, as labelled samples: appended to a samples file, so that the next calibration uses them.

    {"request": "req-17", "answer": "4,500.00"}
    {"image": "scans/17.png", "question": "What is the total?", "answer": "4,500.00", "tier": "high"}

A request's image and question come from a file of what was asked: samples without answers, with the request's ``id``.
Reviewers see the answers that were unsure. Samples of these alone are harder than the traffic, so rates and bounds that
are measured with them are of the mixture (``note_on_corrections``).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stakes.data.sample import KEYS, Sample, parse_object, read_lines, read_samples
from stakes.errors import BadInput
from stakes.files import write_whole

PREFIX = "corrected/"
"""Of the ids of such samples."""


@dataclass(frozen=True)
class Added:
    """How many samples were appended, and how many were there already."""

    added: int
    known: int


def add_corrections(corrections: Path, samples: Path, requests: Path | None = None) -> Added:
    """Append every correction to the samples file; all of them, or an error that names the line and none."""
    asked = {} if requests is None else {str(record.get("id")): record for _, record in _records(requests)}
    known = {sample.id: sample.answers for sample in read_samples(samples)} if samples.exists() else {}
    lines: list[str] = []
    already = 0
    for number, record in _records(corrections):
        where = f"line {number} of {corrections}"
        source = corrections
        if (request := record.get("request")) is not None:
            if requests is None or str(request) not in asked:
                looked = "give the file of what was asked with --requests" if requests is None else f"not in {requests}"
                raise BadInput(f"{where}: request {request!r} has no image and question here; {looked}")
            about = {key: value for key, value in asked[str(request)].items() if key not in ("answer", "answers")}
            record, source = {**about, **record}, requests
        sample = _sample(record, where, source.parent, samples.parent)
        if (before := known.get(sample["id"])) is not None:
            if list(before) != sample["answers"]:
                raise BadInput(
                    f"{where}: {samples} has {sample['id']!r} with other answers ({', '.join(before):.40}); remove one"
                )
            already += 1
            continue
        known[sample["id"]] = tuple(sample["answers"])
        lines.append(json.dumps(sample, ensure_ascii=False) + "\n")
    if lines:
        text = samples.read_text(encoding="utf-8") if samples.exists() else ""
        write_whole(samples, text + ("" if not text or text.endswith("\n") else "\n") + "".join(lines))
    return Added(len(lines), already)


def _records(path: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, line in read_lines(path):
        try:
            yield number, parse_object(line)
        except BadInput as error:
            raise BadInput(f"line {number} of {path}: {error}; repair or remove it") from None


def _sample(record: Mapping[str, Any], where: str, source: Path, target: Path) -> dict[str, Any]:
    """The line of a samples file; a path of an image becomes relative to that file."""
    answers = record.get("answers", [record["answer"]] if "answer" in record else None)
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one for one in answers):
        raise BadInput(f"{where}: a correction needs the right answer, as a text")
    image, question = record.get("image"), record.get("question")
    if not isinstance(image, str) or not isinstance(question, str) or not image or not question:
        raise BadInput(f"{where}: a correction needs an image and its question, or a request")
    if not image.startswith(("data:", "file:")):
        file = source / image
        if not file.is_file():
            raise BadInput(f"{where}: there is no image {file}; give a path relative to {source or '.'}")
        image = os.path.relpath(file, target)
    name = record.get("request") or hashlib.blake2b(f"{image}\n{question}".encode(), digest_size=8).hexdigest()
    sample = {**record, "id": f"{PREFIX}{name}", "image": image, "question": question, "answers": answers}
    return {key: sample[key] for key in KEYS if sample.get(key) is not None}


def note_on_corrections(samples: Iterable[Sample]) -> str:
    """That some samples are corrections, and what that means for the rates; empty where none is."""
    samples = list(samples)
    corrected = sum(sample.id.startswith(PREFIX) for sample in samples)
    if not corrected:
        return ""
    return (
        f"{corrected} of {len(samples)} samples are corrections by reviewers, who see unsure answers: errors, shares "
        "flagged and bounds are of this mixture, and those of the traffic are lower"
    )
