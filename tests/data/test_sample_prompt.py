"""Samples may carry what their requests say: system text, a schema and earlier turns."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from stakes import BadInput, Prompt
from stakes.data.sample import Sample, read_samples
from stakes.data.validate import check
from stakes.evaluation.samples import prepare_samples
from stakes.signals import RequestSignal
from stakes.signals.prompt import SchemaField, Turn

LINE = {"id": "a", "question": "Process this.", "answers": ["42"], "image": None}


def write(folder: Path, **more: Any) -> Path:
    file = folder / "samples.jsonl"
    file.write_text(json.dumps({**LINE, **more}) + "\n")
    return file


def test_a_sample_says_what_its_request_says(tmp_path: Path) -> None:
    history = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    file = write(
        tmp_path, system="Extract the IBAN.", schema={"properties": {"iban": {}}}, history=history, task="bank"
    )
    (sample,) = read_samples(file)
    assert sample.prompt == Prompt(
        "Process this.",
        "Extract the IBAN.",
        (SchemaField("iban"),),
        (Turn("user", "Hello"), Turn("assistant", "Hi")),
        "bank",
    )
    assert sample.asked == "Extract the IBAN.\n\nProcess this."


def test_a_plain_sample_is_its_question() -> None:
    plain = Sample("a", "What is the total?", ("42",))
    assert plain.prompt == plain.asked == "What is the total?"


def test_the_signal_reads_all_of_it(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (56, 56)).save(out, "PNG")
    image = f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}"
    file = write(tmp_path, system="You write captions.", image=image)
    (sample,) = prepare_samples(read_samples(file), tmp_path, RequestSignal())
    assert sample.tier == "low"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"system": 3}, "system must be"),
        ({"schema": "total"}, "schema must be a JSON schema or a list of field names"),
        ({"history": "Hi"}, "history must be a list of turns"),
        ({"history": [{"role": "robot", "content": "x"}]}, "a turn of history is"),
    ],
)
def test_a_bad_key_is_refused_and_reported(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = write(tmp_path, **more)
    with pytest.raises(BadInput, match=message):
        read_samples(file)
    assert any(message in problem.message for problem in check(file).problems)
