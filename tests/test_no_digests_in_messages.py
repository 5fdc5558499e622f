"""What people read names the model, the metric or the data that differs; a digest never stands in its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image
from tests.commands.test_doctor import _checks
from tests.evaluation.oracle import Oracle, write_samples
from tests.evaluation.runs import go
from tests.models.tiny import tiny
from tests.report.runs import make_run
from tests.report.runs import write_samples as write_run_samples
from typer.testing import CliRunner

from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.commands.report import report
from stakes.commands.serve import describe_policy, format_start
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting, fingerprint_of, resumable_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.gateway.reload import policy_warnings
from stakes.report.data import read_run
from stakes.report.html import report_html
from stakes.signals import KeywordRule

HEX = re.compile("[0-9a-f]{12}")


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Sample]:
    folder = tmp_path_factory.mktemp("pages")
    return prepare_samples(write_samples(folder, pages=6), folder, KeywordRule())


def refusal(log: Path, samples: list[Sample], model: Any, setting: Setting | None = None) -> str:
    with pytest.raises(BadInput) as caught:
        resumable_outcomes(log, fingerprint_of(samples, model, setting or Setting()))
    message = str(caught.value).replace(str(log.parent), "")
    assert not HEX.search(message), message
    return message


class Hashed(Oracle):
    """A model with the parts of a local one."""

    def __init__(self, **parts: str) -> None:
        super().__init__()
        self.parts = {"family": "qwen2.5-vl", "weights": "5f0c" * 8, "prompt": "ab12" * 4, "length": "16", **parts}

    def identity(self) -> dict[str, str]:
        return self.parts


MODELS: dict[str, tuple[dict[str, str], str]] = {
    "weights": ({"weights": "77aa" * 8}, "belongs to another experiment: other weights of the model; give --log"),
    "length": ({"weights": "77aa" * 8, "length": "64"}, "model.length was 16 and is 64, other weights of the model;"),
    "prompt": ({"prompt": "cd34" * 4}, "another prompt template"),
    "more": ({"engine": "00" * 8}, "another model.engine"),
    "new": ({"basis": "legibility"}, "model.basis was not set and is legibility"),
}


@pytest.mark.parametrize("kind", MODELS)
def test_another_model_is_named_by_what_differs(kind: str, samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    go(Hashed(), samples, log)
    parts, says = MODELS[kind]
    assert says in refusal(log, samples, Hashed(**parts))


def test_other_weights_of_a_real_model_are_named(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    go(tiny("qwen2_vl"), samples[:2], log, (12,))
    says = refusal(log, samples[:2], tiny("qwen2_5_vl"))
    assert "model.family was qwen2-vl and is qwen2.5-vl, other weights of the model" in says


CHANGES: dict[str, Callable[[list[Sample]], list[Sample]]] = {
    "other questions": lambda some: [replace(some[0], question="What?"), *some[1:]],
    "other images": lambda some: [replace(some[0], digest="0" * 32), *some[1:]],
    "other answers": lambda some: [replace(some[0], answers=("x",)), *some[1:]],
}


@pytest.mark.parametrize("kind", CHANGES)
def test_other_data_are_named(kind: str, samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    go(Oracle(), samples, log)
    assert kind in refusal(log, CHANGES[kind](samples), Oracle())


def test_another_metric_and_a_lost_description_are_named(samples: list[Sample], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    go(Oracle(), samples, log, setting=Setting(metric="relaxed"))
    assert "metric was relaxed and is value" in refusal(log, samples, Oracle())
    (tmp_path / "log.jsonl.meta.json").unlink()
    assert "what differs is not known without log.jsonl.meta.json" in refusal(log, samples, Oracle())


def test_doctor_serve_and_warnings_describe_a_policy_in_words(samples: list[Sample], tmp_path: Path) -> None:
    options = CalibrationOptions(grid=(32, 304, 576))
    found = calibrate(samples, Oracle(), costs={"high": 5, "low": 1}, signal=KeywordRule(), options=options)
    assert HEX.search(found.policy.fingerprint), "a calibrated policy has digests"
    path = tmp_path / "policy.json"
    found.policy.save(path)
    rows = _checks("--policy", path)[1]
    start = {"address": "a", "upstream": "b", "mode": "enforce", **describe_policy(found.policy)}
    edited = Policy.from_record(
        {**json.loads(path.read_text()), "certificate": {"budgets": {"high": 1}, "tiers": "read"}}
    )
    texts = [rows["policy"]["found"], format_start(start), *policy_warnings(edited)]
    assert len(texts) == 3
    for text in texts:
        assert not HEX.search(text), text
    assert "graded by value" in rows["policy"]["found"]


def test_a_report_describes_its_policy_in_words(tmp_path: Path) -> None:
    path = make_run(tmp_path, {"high": 5.0, "low": 1.0})
    record = json.loads(path.read_text())
    fingerprint = f"data:{'ab12' * 4} model:{'cd34' * 4} run:{'5f0c' * 8}"
    path.write_text(json.dumps({**record, "fingerprint": fingerprint, "model": "./my-vlm", "metric": "value"}))
    html = report_html(read_run(path))
    assert ": calibrated with ./my-vlm, graded by value." in html
    assert not any(word.partition(":")[2] in html for word in fingerprint.split())


def test_a_report_says_first_that_another_model_draws_the_tokens_or_gave_the_answers(tmp_path: Path) -> None:
    path = make_run(tmp_path, {"high": 5.0, "low": 1.0}, 6, mechanism="deletion")
    for number in range(3):
        Image.new("RGB", (560, 560), (200, 220, 240)).save(tmp_path / f"cal{number}.png")  # 400 tokens, as in the log
    samples = write_run_samples(tmp_path, tmp_path / "policy.outcomes.jsonl", "What is it?")
    record = {**json.loads(path.read_text()), "fingerprint": f"model:{'cd34' * 4}", "model": "./my-vlm"}
    path.write_text(json.dumps(record))
    plan = tmp_path / "policy.evaluation.jsonl.arms.json"
    about = {"answered_by": {"model": "ocr", "digest": "77aa" * 4}, "read_by": "as labelled"}
    plan.write_text(json.dumps({**json.loads(plan.read_text()), **about}))
    app = typer.Typer()
    app.command()(report)
    words = [str(path), "--samples", str(samples), "--model", "embedded-small"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    drawn = "Kept tokens are drawn by ANOTHER MODEL than the policy's: embedded-small; it was calibrated with ./my-vlm."
    assert done.stdout.splitlines()[0] == drawn
    html = unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert drawn in html
    other = "ANOTHER MODEL than the policy's: ocr answered; the policy was calibrated with ./my-vlm."
    assert f"{other} ANOTHER SIGNAL than the policy's: tiers are as labelled." in html
