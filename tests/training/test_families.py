"""Training adds formats of values and typefaces to training pages; other pages are those of the package."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from training.documents.sheet import draw_look as draw_document_look
from training.families import draw

from stakes.data import synthetic
from stakes.data.synthetic import SPLITS, typefaces
from stakes.data.synthetic.dice import Dice, roll
from stakes.data.synthetic.page import Page
from stakes.data.synthetic.receipts import look
from training import families


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three typefaces; what a test adds is removed after it."""
    source = next(typefaces.FONTS.glob("Karla-Regular.?tf"))
    for name in ("x-courier-till", "x-vt323", "Hand"):
        (tmp_path / f"{name}{source.suffix}").write_bytes(source.read_bytes())
    (tmp_path / "handwriting.txt").write_text("Hand\n")
    monkeypatch.setattr(families, "_extras", families._extras)
    return tmp_path


def rolled(family: str, split: str, seed: int) -> Dice:
    dice = roll(family, split, seed)
    dice.extras = families._extras
    return dice


def test_a_folder_of_typefaces_is_for_training_receipts_and_documents(folder: Path) -> None:
    before = {split: draw("receipts", 3, split).image.tobytes() for split in SPLITS}
    assert families.add_typefaces(folder) == 3
    extras = families._extras
    assert extras.typefaces == (str(folder / "x-courier-till"), str(folder / "x-vt323"))
    assert extras.handwriting == (str(folder / "Hand"),)
    receipts = {s: {look.draw_look(rolled("receipts", s, i), 1.0).name for i in range(40)} for s in SPLITS}
    assert [s for s, names in receipts.items() if any(str(folder) in name for name in names)] == ["train"]
    typed = {draw_document_look(rolled("documents", "train", i), 1.0) for i in range(40)}
    assert {extras.typefaces[0]} < {one.body for one in typed}
    assert {one.hand for one in typed} == {"", *extras.handwriting}
    changed = [
        s
        for s in SPLITS
        if any(draw("receipts", i, s).glyphs != synthetic.draw("receipts", i, s).glyphs for i in range(6))
    ]
    assert changed == ["train"]
    assert all(draw("receipts", 3, s).image.tobytes() == before[s] for s in ("calibration", "test"))


def test_receipt_formats_reach_only_training_pages() -> None:
    def foreign(draw_form: Callable[[str, int, str], Page]) -> int:
        drawn = [draw_form("forms", seed, "train") for seed in range(10)]
        return sum(bool(re.match(r"(Rs\.|R\$|CHF )\d", q.answers[0])) for page in drawn for q in page.questions)

    assert foreign(draw) > 3
    assert foreign(synthetic.draw) == 0
    for family in synthetic.FAMILIES:
        for split in ("calibration", "test"):
            mine, package = draw(family, 3, split), synthetic.draw(family, 3, split)
            assert mine.image.tobytes() == package.image.tobytes()
            assert (mine.questions, mine.glyphs) == (package.questions, package.glyphs)


def test_a_trainer_leaves_nothing_behind_in_the_package(folder: Path) -> None:
    before = synthetic.draw("receipts", 3), synthetic.draw("forms", 3)
    families.add_typefaces(folder)
    draw("receipts", 3), draw("forms", 3)
    assert (synthetic.draw("receipts", 3).glyphs, synthetic.draw("forms", 3).questions) == (
        before[0].glyphs,
        before[1].questions,
    )
