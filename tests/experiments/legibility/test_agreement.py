"""A stub reader that needs twice the tokens of the OCR engine: the shift is one doubling; nothing is answered twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from stakes.cli import main
from stakes.data.sample import Sample
from stakes.evaluation.samples import draw_samples
from stakes.experiments.legibility.agreement import Agreements, run_agreement
from stakes.experiments.legibility.tables import agreement_tables
from stakes.models.base import Answer, Request
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import probe
from stakes.vision.image.resize import fitted_size

PER_TIER, LOST = 24, 3


def needed(sample: str) -> int:
    """60 to 250 tokens, depending on the sample's name."""
    return 60 + hashlib.blake2b(sample.encode(), digest_size=2).digest()[0] * 190 // 255


class StubReader:
    """Correct from ``times`` the needed tokens."""

    family = "qwen2.5-vl"

    def __init__(self, times: float) -> None:
        self.times, self.requests = times, 0
        self.answers = {one.id: one.answers[0] for one in draw_samples("forms", "calibration", PER_TIER)}

    def identity(self) -> dict[str, str]:
        return {"reads": str(self.times)}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        self.requests += len(requests)
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        _, width, height = probe(request.image)
        assert request.budget is not None
        spent = request.budget
        if request.mechanism == "resolution":
            spent = fitted_size(width, height, request.budget, self.family).tokens
        right = spent >= self.times * needed(str(request.sample))
        text = self.answers[str(request.sample)] if right else "?"
        return Answer(text, count_tokens(self.family, width, height), request.budget, spent, False, {})


class StubEngine(StubReader):
    """Locates all answers but three."""

    basis = "legibility"

    def locate(self, samples: Sequence[Sample], done: Callable[[int, int], None]) -> dict[str, str]:
        done(1, 1)
        return {one.id: "not found" for one in samples[:LOST]}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agreement")


def measure(model: StubReader, out: Path) -> Agreements:
    engine: Any = StubEngine(1.0)
    return run_agreement(model, "twice", out, per_tier=PER_TIER, engine=engine)


@pytest.fixture(scope="module")
def results(out: Path) -> Agreements:
    return measure(StubReader(2.0), out)


def test_twice_the_tokens_is_a_shift_of_one_doubling(results: Agreements) -> None:
    assert set(results.alignments) == {"resolution", "deletion"}
    assert sum(results.questions.values()) == 2 * PER_TIER - LOST
    assert sum(results.excluded.values()) == LOST
    for row in results.alignments.values():
        assert row["all"].shift == pytest.approx(1, abs=0.15)
        assert row["all"].questions == row["high"].questions + row["low"].questions
        assert row["all"].rank_of_questions > 0.8
        assert sum(row["all"].only_first) == 0


def test_tables_and_record_agree(results: Agreements) -> None:
    tables = agreement_tables(results)
    assert [table.name for table in tables] == ["agreement-resolution", "agreement-deletion"]
    assert f"{LOST} more are excluded" in tables[0].findings[0]
    record = json.loads(json.dumps(results.record()))
    assert record["alignments"]["deletion"]["high"]["first"] == [row[1] for row in tables[1].rows]


def test_a_second_call_answers_nothing_again(results: Agreements, out: Path) -> None:
    again = StubReader(2.0)
    assert measure(again, out).record() == results.record()
    assert again.requests == 0


def test_the_command_takes_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["reproduce", "legibility-agreement", "--data", str(tmp_path)])
    assert exit_.value.code == 2
    assert "does not use --data; leave it out" in capsys.readouterr().err
