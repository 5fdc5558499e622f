"""Receipts replace the paper's documents: tiers as labelled, graded by ``fields``, small ones enlarged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.experiments.test_tables import Scholar

from stakes.cli import main
from stakes.data.sample import Sample
from stakes.experiments.study import LEAST_TOKENS, RECEIPTS_METRIC, Study, enlarged
from stakes.experiments.tables import experiment
from stakes.experiments.tables.receipts import of_receipts
from stakes.models.base import Answer, Request
from stakes.signals import KeywordRule
from stakes.vision.geometry import count_tokens

SIZES = [(463, 605), (457, 1170), (752, 2214)]  # 374, 672 and 2,133 tokens
FIELDS = {
    "total": ("How much was paid?", "9.00", "high"),
    "shop": ("Which shop is it?", "GRAYDALE TOOLS", "low"),
    "cashier": ("Who took the total amount?", "ANNA", "low"),  # the keyword rule would read high
}


class Clerk(Scholar):
    """A scholar that is sure of what it can read, and reads at most 1,300 tokens."""

    def native_tokens(self, width: int, height: int, mechanism: str) -> int:
        most = 1300 * 784 if mechanism == "deletion" else None
        return count_tokens(self.family, width, height, **({"max_pixels": most} if most else {}))

    def answer(self, requests: Sequence[Request]) -> list[Answer]:
        return [
            replace(
                answer,
                native_tokens=self.native_tokens(*_size(one.image), one.mechanism),
                confidence=0.5 if answer.text == "unreadable" else 0.9,
            )
            for one, answer in zip(requests, super().answer(requests), strict=True)
        ]


def _size(image: Any) -> tuple[int, int]:
    from stakes.vision.image.decode import open_image

    return open_image(image).size


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = []
    for i in range(12):
        width, height = SIZES[i % 3]
        Image.new("L", (width, height), 100 + i).save(tmp_path / f"{i}.png")
        for field, (question, answer, tier) in FIELDS.items():
            rows.append({
                "id": f"receipt_{i}_{field}", "image": f"{i}.png", "question": question, "answers": [answer],
                "document": str(i), "tier": tier,
            })  # fmt: skip
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def study(folder: Path) -> Study:
    data = {"docvqa": "sroie", "sroie": str(folder / "questions.jsonl")}
    study = Study(Clerk(), "clerk", folder / "runs", per_tier=24, data=data, metric=RECEIPTS_METRIC)
    assert isinstance(study.model, Scholar)
    study.model.learn(study.questions("sroie"), 600)
    return study


@given(st.integers(250, 3000), st.floats(1.0, 3.5))
def test_an_enlarged_page_has_the_papers_least_tokens_and_little_more(width: int, ratio: float) -> None:
    sample = Sample(id="a", question="?", answers=("1",), size=(width, round(width * ratio)), digest="d")
    page = enlarged(sample, "qwen2.5-vl")
    before, after = (count_tokens("qwen2.5-vl", *one.size) for one in (sample, page))
    assert after >= LEAST_TOKENS
    if before >= LEAST_TOKENS:
        assert page is sample
    else:
        assert after <= 1.15 * LEAST_TOKENS
        assert page.size[1] / page.size[0] == pytest.approx(sample.size[1] / sample.size[0], rel=0.02)


def test_tiers_are_as_labelled_and_no_receipt_is_left_out(study: Study) -> None:
    samples = study.questions(study.source("docvqa"))
    assert {sample.question: sample.tier for sample in samples} == {q: tier for q, _, tier in FIELDS.values()}
    assert {KeywordRule()(question).tier for question, _, _ in FIELDS.values()} == {"high", "low"}
    assert KeywordRule()(FIELDS["cashier"][0]).tier == "high"
    assert len({sample.document for sample in samples}) == 12
    assert min(count_tokens("qwen2.5-vl", *sample.size) for sample in samples) >= LEAST_TOKENS
    assert {SIZES[1], SIZES[2]} < {sample.size for sample in samples}
    small = next(sample for sample in samples if sample.document == "0")
    assert _size(small.load()) == small.size
    assert np.ptp(np.asarray(small.load())) == 0


@pytest.mark.parametrize("mechanism", ["deletion", "resolution"])
def test_arms_and_curves_run_on_receipts_under_names_of_their_own(study: Study, mechanism: str) -> None:
    study = replace(study, mechanism="deletion" if mechanism == "deletion" else "resolution")
    made = of_receipts(experiment("within-task").table(study), study)
    assert made.name == "receipts-within-task" + ("-resolution" if mechanism == "resolution" else "")
    assert made.title.endswith(f"on sroie, by {mechanism}")
    assert made.meta["metric"] == "fields"
    said = "real receipts: 36 questions on 12 different receipts, 4 of which were enlarged"
    assert sum(line.startswith(said) for line in made.findings) == 1
    assert made.findings[-1].startswith("* not printed in the paper")
    errors = {row[1]: row[2] for row in made.rows if row[0] == "clerk"}
    assert isinstance(errors["cost"], float)
    assert isinstance(errors["anti"], float)
    assert errors["cost"] < errors["anti"]
    curves = of_receipts(experiment("curves").table(study), study)
    assert curves.name == "receipts-curves", "it is by both mechanisms"
    assert "by deletion: the error never rises with more tokens" in curves.findings


def test_receipts_are_counted_field_by_field(study: Study) -> None:
    assert isinstance(study.model, Clerk)
    for sample in study.questions("sroie")[:3]:  # nobody can read the first receipt
        study.model.known[sample.id] = sample.answers[0], 10_000
    made = of_receipts(experiment("receipts").table(study), study)
    assert made.name == "receipts"
    assert [row[1:4] for row in made.rows] == [(field, tier, 12) for field, (_, _, tier) in FIELDS.items()]
    for row in made.rows:
        errors = [cell for cell in row[4:8] if isinstance(cell, float)]
        assert errors == sorted(errors, reverse=True)
        assert (errors[-1], row[8]) == (1 / 12, "11 of 12")
    assert made.findings[0].startswith("all tokens are 667 to 1281 of a receipt")
    assert made.findings[1].endswith("below 0.85 marks 3 of 3 wrong and 0 of 33 right answers")


def test_the_command_takes_a_folder_of_receipts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    words = ["reproduce", "within-task", "--data", f"sroie={folder}", "--per-tier", "2", "--folder", str(folder / "r")]
    with pytest.raises(SystemExit) as left:
        main([*words, "--json"])
    assert not left.value.code
    made = json.loads(capsys.readouterr().out)["tables"]["receipts-within-task"]
    assert made["command"] == "stakes reproduce within-task --per-tier 2 --mechanism deletion --data sroie"
    assert made["meta"]["questions"] == {"high": 2, "low": 2}
    assert str(folder) not in json.dumps(made)
