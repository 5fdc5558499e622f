"""Synthetic pages are reproducible, unambiguous, print answers in their boxes, and treat the tiers alike."""

import subprocess
import sys
from collections import Counter
from hashlib import sha256
from statistics import mean

import numpy as np
import pytest

from stakes.data import synthetic as pages
from stakes.data.synthetic import dice, forms, signs, typefaces
from stakes.data.synthetic.receipts import look, shops
from stakes.errors import BadInput

QUESTIONS = {
    "forms": (12, 30),
    "charts": (6, 16),
    "infographics": (12, 25),
    "signs": (2, 4),
    "shapes": (3, 6),
    "swatches": (1, 1),
    "receipts": (8, 30),
}
LONGEST = {"receipts": shops.LONGEST}  # characters of an answer, where not 24
FINGERPRINT = """
from hashlib import sha256
from stakes.data import synthetic as pages
digest = sha256()
for family in pages.FAMILIES:
    page = pages.draw(family, 5, "test")
    digest.update(page.image.tobytes())
    digest.update(repr((page.questions, page.glyphs)).encode())
print(digest.hexdigest())
"""


def some(family: str, count: int = 12, split: str = "test") -> list[pages.Page]:
    return [pages.draw(family, seed, split) for seed in range(count)]


def test_two_processes_draw_the_same_bytes() -> None:
    runs = {
        subprocess.run([sys.executable, "-c", FINGERPRINT], capture_output=True, text=True).stdout for _ in range(2)
    }
    assert len(runs) == 1
    assert len(runs.pop().strip()) == 64


def test_drawing_other_pages_first_changes_nothing() -> None:
    first = pages.draw("forms", 3)
    pages.draw("charts", 9)
    again = pages.draw("forms", 3)
    assert (first.image.tobytes(), first.questions, first.glyphs) == (
        again.image.tobytes(),
        again.questions,
        again.glyphs,
    )


@pytest.mark.parametrize("family", [f for f in pages.FAMILIES if f != "swatches"])
def test_splits_and_seeds_share_no_page(family: str) -> None:
    drawn = [pages.draw(family, seed, split) for split in pages.SPLITS for seed in range(4)]
    assert len({sha256(p.image.tobytes()).digest() for p in drawn}) == len(drawn)
    assert len({p.document for p in drawn}) == len(drawn)


@pytest.mark.parametrize("family", pages.FAMILIES)
def test_canvases_are_whole_tokens_of_a_few_sizes(family: str) -> None:
    assert all(page.image.size in pages.SIZES[family] and page.image.mode == "RGB" for page in some(family, 6))
    for width, height in pages.SIZES[family]:
        assert width % 28 == 0
        assert height % 28 == 0
        assert 640 <= width * height // 784 <= 1300
    assert len(pages.SIZES[family]) <= 11


@pytest.mark.parametrize("family", pages.FAMILIES)
def test_questions_are_short_ascii_and_unique_on_their_page(family: str) -> None:
    for page in some(family):
        least, most = QUESTIONS[family]
        assert least <= len(page.questions) <= most, page.document
        assert max(Counter(q.text for q in page.questions).values()) == 1
        for question in page.questions:
            (answer,) = question.answers
            assert question.field in pages.FIELDS[family]
            assert question.tier in ("high", "low")
            assert 1 <= len(answer) <= LONGEST.get(family, 24)
            assert len(question.text) <= 64
            assert (question.text + answer).isascii()
            assert (question.text + answer).isprintable()
            assert "{" not in question.text
            assert not question.text.endswith("Answer briefly.")


@pytest.mark.parametrize("family", ["forms", "charts", "infographics", "signs"])
def test_the_glyphs_of_a_question_are_its_answer_inside_its_box(family: str) -> None:
    for page in some(family, 8):
        for index, question in enumerate(page.questions):
            mine = [g for g in page.glyphs if g.question == index]
            assert "".join(g.char for g in mine) == question.answers[0].replace(" ", "")
            assert question.box is not None
            left, top, right, bottom = question.box
            assert 0 <= left < right <= page.image.width
            assert 0 <= top < bottom <= page.image.height
            assert all(left <= g.x <= right and top <= g.y <= bottom for g in mine)


def test_there_is_ink_where_glyphs_are() -> None:
    for page in some("forms", 4):
        grey = page.image.convert("L")
        paper = max(range(256), key=grey.histogram().__getitem__)
        for question in page.questions:
            assert question.box is not None
            darkest = grey.crop(question.box).getextrema()[0]
            assert isinstance(darkest, int)
            assert abs(paper - darkest) > 60, (page.document, question)


@pytest.mark.parametrize("family", ["forms", "charts", "infographics"])
def test_answers_of_both_tiers_have_similar_length_and_type_size(family: str) -> None:
    questions = [question for _, question in pages.samples(family, "test", 300)]
    length = {t: mean(len(q.answers[0]) for q in questions if q.tier == t) for t in ("high", "low")}
    tall = {t: mean(q.box[3] - q.box[1] for q in questions if q.tier == t and q.box) for t in ("high", "low")}
    assert abs(length["high"] - length["low"]) < 1.5, length
    assert abs(tall["high"] / tall["low"] - 1) < 0.08, tall


@pytest.mark.parametrize("family", ["forms", "charts", "infographics"])
def test_the_keyword_rule_agrees_with_tiers_as_often_as_in_the_paper(family: str) -> None:
    from stakes.signals.keywords import KeywordRule

    rule = KeywordRule()
    questions = [question for _, question in pages.samples(family, "test", 300)]
    seen = Counter((question.tier, rule(question.text).tier) for question in questions)
    agreement = (seen["high", "high"] + seen["low", "low"]) / len(questions)
    assert len(questions) == 600
    assert 0.74 <= agreement <= 0.84, seen
    assert 0.48 <= 2 * agreement - 1 <= 0.68  # kappa: the truth is balanced, so chance agrees half of the time
    assert min(seen["high", "low"], seen["low", "high"]) >= 20, "disagreements of both kinds"


def test_no_face_is_below_the_smallest_size() -> None:
    assert typefaces.face("Go-Regular", 3).size == typefaces.SMALLEST


def test_density_prints_smaller() -> None:
    def height(density: float) -> float:
        drawn = [pages.draw("forms", seed, "test", density) for seed in range(8)]
        return mean(q.box[3] - q.box[1] for page in drawn for q in page.questions if q.box)

    assert height(0.7) > height(1.0) > height(1.5)


def test_training_never_shows_what_is_reserved_for_test() -> None:
    novel = {split: [dice.roll("forms", split, seed).novel for seed in range(400)] for split in pages.SPLITS}
    assert not any(novel["train"])
    for split in ("calibration", "test"):
        assert 0.2 < sum(bool(n) for n in novel[split]) / 400 < 0.4
    for choices in (typefaces.FORMS, typefaces.POSTERS, typefaces.SIGNS):
        reserved = {name for names in choices.unseen for name in names}
        assert reserved.isdisjoint(name for names in (*choices.seen, *choices.training) for name in names)
    for printers in (look.MONO, look.SANS):
        assert {*printers.unseen}.isdisjoint((*printers.seen, *printers.training))
    assert all(kind not in forms.KINDS.seen for kind in forms.KINDS.unseen)


def test_training_has_typefaces_and_distortions_of_its_own() -> None:
    """Training-only typefaces and distorted letters appear in no other split."""
    names = {
        split: {
            name for seed in range(200) for name in typefaces.typeface(dice.roll("forms", split, seed), typefaces.FORMS)
        }
        for split in pages.SPLITS
    }
    extra = {name for pair in typefaces.TRAINING for name in pair}
    extra -= {name for pair in typefaces.FORMS.seen for name in pair}
    assert extra <= {name.partition("~")[0] for name in names["train"]}
    assert {name.partition("~")[2] for name in names["train"]} == {"", *map(str, range(len(typefaces.DISTORTIONS)))}
    for split in ("calibration", "test"):
        assert not any("~" in name or name in extra for name in names[split])


def test_a_plain_page_has_no_training_only_typeface(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def face(name: str, size: int) -> typefaces.Face:
        shown.append(name)
        return whole(name, size)

    whole = typefaces.face
    monkeypatch.setattr(signs, "face", face)
    allowed = {name for pair in typefaces.SIGNS.seen for name in pair}
    for seed in range(30):
        pages.draw("signs", seed, plain=True)
    assert shown
    assert {*shown} <= allowed
    for seed in range(30):
        pages.draw("signs", seed)
    assert not {*shown} <= allowed


def test_every_typeface_has_a_license_a_use_and_every_character() -> None:
    """Characters that a font file lacks are all drawn as the same empty box."""
    stored = {path.stem for path in typefaces.FONTS.glob("*.?tf")}
    rows = (typefaces.FONTS / "LICENSES.md").read_text().split("|---|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    named = [name.split(" (")[0].strip() for row in rows for name in row.split("|")[1].split(",")]
    assert sorted(named) == sorted(stored)
    pools = (typefaces.FORMS, typefaces.POSTERS, typefaces.SIGNS)
    assert stored == {name for p in pools for names in (*p.seen, *p.unseen, *p.training) for name in names}
    for name in stored:
        drawn = {typefaces.face(name, 72).mask(char).tobytes() for char in map(chr, range(33, 127))}
        assert len(drawn) == 94, name
        assert all(map(any, drawn)), name


@pytest.mark.parametrize("index", range(len(typefaces.DISTORTIONS)))
@pytest.mark.parametrize("size", [11, 30, 72])
def test_a_distorted_letter_is_complete_and_at_the_same_position(index: int, size: int) -> None:
    """Nothing is cut off at the sides of its cell, and its baseline and center stay."""
    straight, distorted = typefaces.face("Go-Regular", size), typefaces.face(f"Go-Regular~{index}", size)
    width, _, weight = typefaces.DISTORTIONS[index]
    least, most = (1.02, 1.7) if weight > 0 else (0.6, 0.98) if weight < 0 else (0.9, 1.1)
    for char in "HgfW8":
        plain, other = np.asarray(straight.mask(char)), np.asarray(distorted.mask(char))
        ink = other.sum() / plain.sum() / width
        assert least < ink < most, char
        assert other[:, [0, -1]].max() < 128, char
        rows = [np.flatnonzero(mask.max(axis=1) > 100)[[0, -1]] for mask in (plain, other)]
        assert np.abs(rows[0] - rows[1]).max() <= 1, char


def test_samples_are_balanced_and_grouped_by_page() -> None:
    drawn = list(pages.samples("forms", "calibration", 10, per_page=2))
    assert Counter(question.tier for _, question in drawn) == {"high": 10, "low": 10}
    assert max(Counter(page.document for page, _ in drawn).values()) <= 4
    assert {page.document.split("/")[1] for page, _ in drawn} == {"calibration"}
    assert Counter(q.tier for _, q in pages.samples("swatches", "test", 5)) == {"low": 5}


def test_errors_list_the_valid_choices() -> None:
    with pytest.raises(BadInput, match="forms"):
        pages.draw("maps", 1)
    with pytest.raises(BadInput, match="calibration"):
        pages.draw("forms", 1, "validation")
    with pytest.raises(BadInput, match="density"):
        pages.draw("forms", 1, density=0)
