"""The embedded readers load offline, read pages, and refuse files that differ from the shipped ones."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from stakes import models
from stakes.data import synthetic as pages
from stakes.errors import BadInput
from stakes.models import Request
from stakes.models import embedded as embedded_module


@pytest.fixture(scope="module")
def embedded() -> models.VLM:
    vlm: models.VLM = models.load("embedded")
    return vlm


def test_it_reads_swatches_and_most_of_a_form(embedded: models.VLM) -> None:
    swatch = pages.draw("swatches", 5, split="test")
    form = pages.draw("forms", 5, split="test")
    questions = [(page, question) for page in (swatch, form) for question in page.questions]
    answers = embedded.answer([Request(page.image, question.text) for page, question in questions])
    right = [answer.text == question.answers[0] for answer, (_, question) in zip(answers, questions, strict=True)]
    assert right[0]
    assert sum(right) > len(right) / 2


@pytest.mark.parametrize(("name", "native", "few"), [("embedded-small", 972, 150), ("embedded-llava", 1920, 640)])
def test_the_other_readers_read_most_of_some_charts_and_less_on_fewer_tokens(name: str, native: int, few: int) -> None:
    vlm: models.VLM = models.load(name)
    charts = [pages.draw("charts", seed, split="test") for seed in range(4)]
    questions = [(page, question) for page in charts for question in page.questions]

    def error(budget: int | None) -> float:
        answers = vlm.answer([Request(page.image, question.text, budget) for page, question in questions])
        wrong = [a.text != q.answers[0] for a, (_, q) in zip(answers, questions, strict=True)]
        return sum(wrong) / len(wrong)

    assert error(None) < 0.5 < error(few)
    form = pages.draw("forms", 0, split="test").image
    assert vlm.answer([Request(form, "What is the total?")])[0].native_tokens == native


@pytest.mark.parametrize("budget", [None, 3])
def test_a_ribbon_is_refused_in_words(embedded: models.VLM, budget: int | None) -> None:
    ribbon = Image.new("RGB", (3000, 10))
    with pytest.raises(BadInput, match="3000x10 has an aspect ratio of 300"):
        embedded.answer([Request(ribbon, "What?", budget, "deletion" if budget else "resolution")])


def test_the_same_page_gives_the_same_answer(embedded: models.VLM) -> None:
    first, again = (pages.draw("charts", 3, split="test") for _ in range(2))
    assert first.image.tobytes() == again.image.tobytes()
    texts = [[a.text for a in embedded.answer([Request(p.image, q.text) for q in p.questions])] for p in (first, again)]
    assert texts[0] == texts[1]


def test_shipped_files_are_small_safe_and_complete() -> None:
    for name in embedded_module.SHIPPED:
        folder = embedded_module.shipped_folder(name)
        assert {p.suffix for p in folder.iterdir()} <= {".json", ".jinja", ".safetensors"}
        assert max(p.stat().st_size for p in folder.iterdir()) <= 15_000_000
    assert sum(p.stat().st_size for p in embedded_module.WEIGHTS.rglob("*") if p.is_file()) <= 40_000_000


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "no list"])
def test_a_damaged_file_is_refused_by_name(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(embedded_module.WEIGHTS / "reader", tmp_path / "reader")
    monkeypatch.setattr(embedded_module, "WEIGHTS", tmp_path)
    path = sorted((tmp_path / "reader").glob("*.safetensors"))[0]
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[:-1])
    elif damage == "flip":
        path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    elif damage == "gone":
        path.unlink()
    else:
        path = tmp_path / "reader" / embedded_module.CHECKSUMS
        path.unlink()
    with pytest.raises(BadInput, match=path.name):
        models.load("embedded")
