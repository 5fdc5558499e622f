"""Real receipts are split into validation and held-out ones, and answers are compared by value, not by string."""

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs the [local] extra")
pytest.importorskip("transformers", reason="the trainer needs the [local] extra")

from PIL import Image  # noqa: E402
from training.images import relight  # noqa: E402

from stakes.models.base import Answer, Request  # noqa: E402
from training import real  # noqa: E402


class _Answers:
    """A model that gives prepared answers by question."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def answer(self, requests: list[Request]) -> list[Answer]:
        return [Answer(self.texts[request.question], 6, None, 6, truncated=False) for request in requests]


@pytest.fixture
def receipts(tmp_path: Path) -> Path:
    """25 receipts with four questions each."""
    (tmp_path / "sroie").mkdir()
    Image.new("RGB", (56, 84), "white").save(tmp_path / "sroie" / "page.png")
    gold = {"total": "41.70", "date": "28/03/2014", "company": "NORTHGATE TOOLS", "address": "1 MAIN ST"}
    rows = [
        {
            "id": f"s_{i:03d}_{field}",
            "document": f"s_{i:03d}",
            "image": "page.png",
            "question": field,
            "answers": [text],
        }
        for i in range(25)
        for field, text in gold.items()
    ]
    (tmp_path / "sroie" / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_the_first_twenty_receipts_validate_and_the_others_are_held_out(receipts: Path) -> None:
    validation, held_out = (real.read_rows(receipts, name) for name in (real.RECEIPTS, real.HELD_OUT))
    assert len({row["document"] for row in validation}) == 20
    assert len({row["document"] for row in held_out}) == 5
    assert not {row["document"] for row in validation} & {row["document"] for row in held_out}
    assert {real.field_of(row) for row in validation} == {"total", "date", "company"}


@pytest.mark.parametrize(
    ("field", "answer", "right", "exact"),
    [
        ("total", "USD 41.70", 5, 0),
        ("total", "41,70", 5, 0),
        ("total", "417.0", 0, 0),
        ("date", "28-03-14", 5, 0),
        ("date", "28/03/2015", 0, 0),
        ("company", "NORTHGAT TOOLS", 5, 0),
        ("company", "NORTHGATE TOOLS", 5, 5),
        ("company", "JADE GAS", 0, 0),
    ],
)
def test_answers_are_right_by_value_and_names_by_anls(
    receipts: Path, field: str, answer: str, right: int, exact: int
) -> None:
    model = _Answers({"total": "x", "date": "x", "company": "x", field: answer})
    found = real.answer_all(model, real.read_rows(receipts, real.HELD_OUT))  # type: ignore[arg-type]
    (row,) = [row for row in real.by_field(real.HELD_OUT, found) if row[1] == field]
    assert row[3:5] == [5, right]
    assert row[6] == exact


def test_a_large_page_is_shrunk_to_the_budget_and_a_small_one_kept(tmp_path: Path) -> None:
    for name, size in (("large", (2000, 3000)), ("small", (300, 400))):
        Image.new("RGB", size).save(tmp_path / f"{name}.png")
    large, small = real.load_page(tmp_path / "large.png"), real.load_page(tmp_path / "small.png")
    assert 0.99 < large.width * large.height / (real.TOKENS * real.PIXELS_PER_TOKEN) <= 1
    assert small.size == (300, 400)


def test_other_light_changes_levels_and_not_shapes() -> None:
    page = torch.full((8, 56, 84, 3), 200, dtype=torch.uint8)
    page[:, 10:20] = 20
    lit = relight(page)
    assert lit.shape == page.shape
    assert lit.dtype == torch.uint8
    assert (lit[:, 40].float().mean((1, 2)) <= 215).all()
    assert (lit != page).any()
