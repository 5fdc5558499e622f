"""The whole experiment on blank pages, with a stub OCR engine that reads text of eight pixels or more.

The engine itself is tested in tests/legibility/test_model.py. With the stub, three sets at 13 budgets take seconds, and
every figure can be worked out by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("rapidocr", reason="needs the extra [ocr]")

from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.experiments.legibility import LegibilityResults, run_legibility
from stakes.experiments.legibility.real_pages import SIDE, print_weights, real_set, share_within_tiers
from stakes.experiments.legibility.tables import legibility_tables
from stakes.experiments.study import scale_page
from stakes.legibility.engine import TextLine
from stakes.legibility.model import Legibility
from stakes.vision.geometry import count_tokens

PAGES, LEGIBLE_FROM = 12, 8.0
PRINT = {"high": 24.0, "low": 16.0}  # heights on the smallest page; others are up to twice as high


class StubEngine:
    """Two lines on every page, whose height depends on the page's gray; a line below eight pixels is misread."""

    def detect(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        height, width = pixels.shape[:2]
        grow = 1 + (int(pixels[0, 0, 0]) - 100) / 100
        boxes = []
        for top, tier in ((0.2, "high"), (0.6, "low")):
            y, x, high = top * height, 0.1 * width, PRINT[tier] * grow * height / SIDE
            boxes.append([[x, y], [x + 0.3 * width, y], [x + 0.3 * width, y + high], [x, y + high]])
        return np.asarray(boxes, np.float32)

    def recognize(self, pixels: NDArray[np.uint8], quad: NDArray[np.float32]) -> TextLine:
        a, b, c, d = ((float(x), float(y)) for x, y in quad)
        high = d[1] - a[1]
        text = "total 4500" if a[1] < 0.4 * pixels.shape[0] else "by Ogden"
        text = text if high >= LEGIBLE_FROM else "xxxxxxxx"
        return TextLine((a, b, c, d), text, 0.9, tuple((i + 0.5) / len(text) for i in range(len(text))))


def write(folder: Path, name: str, size: tuple[int, int]) -> None:
    (folder / name).mkdir(parents=True)
    lines = []
    for number in range(PAGES):
        Image.new("RGB", size, (100 + 8 * number,) * 3).save(folder / name / f"{number}.png")
        for tier, answer in (("high", "4,500"), ("low", "Ogden")):
            question = "What is the total?" if tier == "high" else "Who signed?"
            row = {"id": f"{name}{number}{tier}", "image": f"{number}.png", "question": question, "answers": [answer]}
            lines.append(json.dumps({**row, "tier": tier, "document": f"{name}{number}", "task": name}))
    row = {"id": f"{name}x", "image": "0.png", "question": "Who?", "answers": ["nobody"], "tier": "low"}
    lines.append(json.dumps(row))
    (folder / name / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    for name in ("docvqa", "chartqa", "sroie"):  # the same pages, so that all three share readings
        write(folder, name, (784, 1008))
    return folder


def reader(folder: Path) -> Legibility:
    model = Legibility(cache=folder)
    model.pages.engine = StubEngine()  # type: ignore[assignment]
    return model


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def results(data: Path, out: Path) -> LegibilityResults:
    return run_legibility(data, out, model=reader(out / "cache"))


def test_pages_are_scaled_to_one_side_and_small_ones_are_named(data: Path, tmp_path: Path) -> None:
    write(tmp_path, "chartqa", (392, 504))
    one = real_set(tmp_path, "chartqa")[0][0]
    assert one.size == (784, 1008)
    image: Any = one.load()
    assert image.size == one.size
    same_size = real_set(data, "docvqa")[0][0]
    assert scale_page(same_size, SIDE) is same_size
    assert scale_page(same_size, 504).digest != same_size.digest
    write(tmp_path, "sroie", (100, 1008))
    samples, small = real_set(tmp_path, "sroie")
    assert not samples
    assert len(small) == 2 * PAGES + 1
    with pytest.raises(BadInput, match=r"there is no .*docvqa"):
        real_set(tmp_path, "docvqa")


def test_margins_are_cut_off_scaled_pages_and_small_ones_stay_left_out(tmp_path: Path) -> None:
    for number, (size, border) in enumerate([((392, 504), 20), ((784, 1008), 160), ((300, 1008), 20)]):
        write(tmp_path, str(number), size)
        for path in (tmp_path / str(number)).glob("*.png"):
            page = Image.new("RGB", size, "white")
            for top in (*range(border, size[1] - border - 40, 40), size[1] - border - 8):
                page.paste("black", (border, top, size[0] - border, top + 8))
            page.save(path)
    slightly, deeply = (real_set(tmp_path, name, True)[0][0] for name in "01")
    assert slightly.size == (728, 952), "of 40 pixels at each edge some are kept"
    assert deeply.size[0] / deeply.size[1] == pytest.approx(484 / 708, rel=0.01)
    assert 640 <= count_tokens("qwen2.5-vl", *deeply.size) < 700
    image: Any = deeply.load()
    assert image.size == deeply.size
    assert real_set(tmp_path, "2", True) == real_set(tmp_path, "2"), "all are small with their margins"
    assert not real_set(tmp_path, "2")[0]


def test_a_run_without_margins_has_logs_and_tables_of_its_own(
    data: Path, out: Path, results: LegibilityResults
) -> None:
    before = {path.name: path.read_bytes() for path in out.glob("*.json*")}
    trimmed = run_legibility(data, out, sets=["sroie"], model=reader(out / "cache"), trim=True)
    assert trimmed.sets == (results.sets[2],), "these pages have no margins"
    assert before.items() <= {path.name: path.read_bytes() for path in out.glob("*.json*")}.items()
    new = {path.name for path in out.glob("*.jsonl")} - before.keys()
    assert new == {f"legibility-sroie-{2 * PAGES}-resolution-relaxed-trimmed.jsonl"}
    assert (out / "sroie-trimmed.apart.json").exists()
    assert (trimmed.record()["trim"], "trim" in results.record()) == (True, False)
    tables = legibility_tables(trimmed)
    assert [table.name for table in tables] == [f"sroie-{name}-trimmed" for name in ("curves", "arms", "frontier")]
    assert all(table.meta["trim"] and "margins of pages were cut off" in table.findings[-1] for table in tables)


def test_curves_match_the_stub_engine(results: LegibilityResults) -> None:
    docvqa = results.sets[0]
    assert docvqa.counts == {"high": PAGES, "low": PAGES}
    assert docvqa.excluded == {"low": 1}
    for tier, curve in docvqa.curves.items():
        assert list(curve.errors) == sorted(curve.errors, reverse=True)
        # 576 tokens of 1008: a scale of 0.75, so text of 10.7 pixels is legible; all of it is larger
        assert curve.error(576) == 0
        # 128 tokens: about 0.36, so text of 23 pixels is legible
        lost = sum(PRINT[tier] * (1 + 8 * n / 100) * 0.355 < LEGIBLE_FROM for n in range(PAGES)) / PAGES
        assert curve.error(128) == pytest.approx(lost, abs=0.13)
    assert all(share == (height >= LEGIBLE_FROM) for height, (_, share) in docvqa.legible_by_height.items())
    assert sum(count for count, _ in docvqa.legible_by_height.values()) == 13 * 2 * PAGES
    assert docvqa.if_excluded_were_lost("low", 576) == pytest.approx(1 / (PAGES + 1))


def test_sets_with_the_same_pages_have_the_same_curves(results: LegibilityResults) -> None:
    docvqa, chartqa, sroie = results.sets
    assert docvqa.curves == sroie.curves
    assert chartqa.curves["high"].errors == docvqa.curves["high"].errors


def test_cost_gains_nothing_where_the_high_cost_tier_has_large_print(results: LegibilityResults) -> None:
    arms = {row.arm: row for row in results.sets[0].arms.comparison.rows}
    assert set(arms) == {"uniform", "content", "cost", "anti", "print", "cost+print"}
    assert arms["cost"].errors["low"] > arms["uniform"].errors["low"]
    assert results.sets[0].arms.deviation < 0.004
    # All pages have one size, so only small print matters, and more tokens make some of it legible.
    assert arms["print"].average <= arms["uniform"].average


def test_the_record_is_json_without_texts_of_pages(results: LegibilityResults) -> None:
    text = json.dumps(results.record())
    assert "Ogden" not in text
    assert "total" in text  # the arms' totals, not the question
    assert "Who signed" not in text
    record = json.loads(text)
    assert record["basis"] == "legibility"
    assert set(record["sets"]) == {"docvqa", "chartqa", "sroie"}
    assert record["mixed"]["each"] == 2 * PAGES


def test_tables_contain_the_published_figures(results: LegibilityResults) -> None:
    tables = {table.name: table for table in legibility_tables(results)}
    assert len(tables) == 10
    arms = tables["docvqa-arms"].rows
    assert ("published", "cost", 0.133, 0.843, 0.252) in [row[:5] for row in arms]
    assert {row[0] for row in tables["sroie-arms"].rows} == {"legibility"}
    assert tables["legibility-mixed"].rows[-1][0] == "published"
    assert "legibility, not a VLM's error" in tables["docvqa-curves"].findings[0]
    assert any("slopes" in line for line in tables["chartqa-curves"].findings)


def test_a_second_run_uses_the_cache(data: Path, out: Path, results: LegibilityResults) -> None:
    again = reader(out / "cache")
    again.pages.engine = None  # type: ignore[assignment]
    second = run_legibility(data, out, sets=["sroie"], model=again)
    assert second.sets[0].record() == results.sets[2].record()
    assert json.loads((out / "sroie.apart.json").read_text())["why"] == {
        "sroiex": "its answer is not found on the page at native size"
    }


def test_cost_print_keeps_the_total_of_every_tier(data: Path, tmp_path: Path) -> None:
    model = reader(tmp_path / "cache")
    samples: list[Sample] = [one for one in real_set(data, "docvqa")[0] if not one.id.endswith("x")]
    native = [model.native_tokens(*one.size, "resolution") for one in samples]
    weights = print_weights(model, samples, native)
    assert weights[0] == max(weights)  # the smallest print needs most
    tiers = [one.tier for one in samples]
    cost = [512 if tier == "high" else 96 for tier in tiers]
    shared = share_within_tiers(tiers, cost, weights, native, 4)
    for tier, budget in (("high", 512), ("low", 96)):
        assert sum(b for b, t in zip(shared, tiers, strict=True) if t == tier) == budget * PAGES
    assert shared[0] > 512 > shared[-2]
