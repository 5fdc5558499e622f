"""A reader that needs twice the tokens that print needs: the experiment must say so, and ask nothing twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from stakes.cli import main
from stakes.evaluation.items import Asked, ask_pages
from stakes.experiments.legibility.agreement import Agreements, agreement_tables, run_agreement
from stakes.models.base import Answer, Request
from stakes.vision.geometry import count_tokens
from stakes.vision.image.decode import probe
from stakes.vision.image.resize import fitted_size

PER_TIER, LOST = 24, 3


def needed(sample: str) -> int:
    """60 to 250 tokens, by its name."""
    return 60 + hashlib.blake2b(sample.encode(), digest_size=2).digest()[0] * 190 // 255


class Reads:
    """Right from ``times`` the needed tokens on."""

    family = "qwen2.5-vl"

    def __init__(self, times: float) -> None:
        self.times, self.asked = times, 0
        self.answers = {one.id: one.answers[0] for one in ask_pages("forms", "calibration", PER_TIER)}

    def identity(self) -> dict[str, str]:
        return {"reads": str(self.times)}

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        self.asked += len(requests)
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


class Engine(Reads):
    """Finds all answers but three."""

    basis = "legibility"

    def locate(self, asked: Sequence[Asked], done: Callable[[int, int], None]) -> dict[str, str]:
        done(1, 1)
        return {one.id: "not found" for one in asked[:LOST]}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agreement")


def measure(model: Reads, out: Path) -> Agreements:
    engine: Any = Engine(1.0)
    return run_agreement(model, "twice", out, per_tier=PER_TIER, engine=engine)


@pytest.fixture(scope="module")
def found(out: Path) -> Agreements:
    return measure(Reads(2.0), out)


def test_twice_the_tokens_is_one_doubling(found: Agreements) -> None:
    assert set(found.found) == {"resolution", "deletion"}
    assert sum(found.questions.values()) == 2 * PER_TIER - LOST
    assert sum(found.apart.values()) == LOST
    for row in found.found.values():
        assert row["all"].shift == pytest.approx(1, abs=0.15)
        assert row["all"].questions == row["high"].questions + row["low"].questions
        assert row["all"].rank_of_questions > 0.8
        assert sum(row["all"].only_first) == 0


def test_tables_and_record_say_the_same(found: Agreements) -> None:
    made = agreement_tables(found)
    assert [table.name for table in made] == ["agreement-resolution", "agreement-deletion"]
    assert f"{LOST} more are set apart" in made[0].findings[0]
    record = json.loads(json.dumps(found.record()))
    assert record["alignments"]["deletion"]["high"]["first"] == [row[1] for row in made[1].rows]


def test_a_second_call_asks_nothing(found: Agreements, out: Path) -> None:
    again = Reads(2.0)
    assert measure(again, out).record() == found.record()
    assert again.asked == 0


def test_the_command_draws_its_own_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "legibility-agreement", "--data", str(tmp_path)])
    assert left.value.code == 2
    assert "does not look at --data; leave it out" in capsys.readouterr().err
