"""Synthetic office documents are reproducible, print answers in their boxes, and ask what has one answer."""

from collections import Counter

import numpy as np
import pytest
from training.documents import FIELDS, KINDS, words
from training.documents.letters import body
from training.documents.sheet import Sheet, draw_look
from training.documents.tables import table
from training.documents.values import KINDS as VALUES
from training.documents.values import LABELS, ONCE, entries
from training.documents.wording import FACTS, QUESTIONS, Desk
from training.families import FAMILIES, SIZES, draw

from stakes.data.synthetic import SPLITS
from stakes.data.synthetic.dice import roll
from stakes.data.synthetic.page import Page


@pytest.fixture(scope="module")
def held_out_pages() -> list[Page]:
    return [draw("documents", seed, "test") for seed in range(40)]


@pytest.fixture(scope="module")
def training_pages() -> list[Page]:
    return [draw("documents", seed, "train") for seed in range(25)]


@pytest.mark.parametrize("split", SPLITS)
def test_a_page_is_the_same_for_the_same_seed(split: str) -> None:
    first, again = draw("documents", 7, split), draw("documents", 7, split)
    assert first.image.tobytes() == again.image.tobytes()
    assert (first.questions, first.glyphs) == (again.questions, again.glyphs)
    assert first.image.tobytes() != draw("documents", 8, split).image.tobytes()


def test_documents_are_a_family_of_whole_token_canvases(held_out_pages: list[Page]) -> None:
    assert "documents" in FAMILIES
    assert all(width % 28 == 0 and height % 28 == 0 for width, height in SIZES["documents"])
    assert all(640 <= width * height // 784 <= 1300 for width, height in SIZES["documents"])
    assert {page.image.size for page in held_out_pages} <= {*SIZES["documents"]}


def test_the_glyphs_of_a_question_are_its_answer_inside_its_box(held_out_pages: list[Page]) -> None:
    for page in held_out_pages:
        for index, question in enumerate(page.questions):
            mine = [g for g in page.glyphs if g.question == index]
            if not mine:
                continue  # a second wording: the glyphs belong to the first one
            assert "".join(g.char for g in mine) == question.answers[0].replace(" ", "")
            assert question.box is not None
            left, top, right, bottom = question.box
            assert all(left <= g.x <= right and top <= g.y <= bottom for g in mine)


def test_answers_of_worn_pages_stay_on_the_page(training_pages: list[Page]) -> None:
    assert sum(len(page.questions) for page in training_pages) > 200
    for page in training_pages:
        for question in page.questions:
            assert question.box is not None
            left, top, right, bottom = question.box
            assert 0 <= left < right <= page.image.width
            assert 0 <= top < bottom <= page.image.height


def test_an_answer_has_ink_on_the_page(held_out_pages: list[Page]) -> None:
    for page in held_out_pages:
        gray = np.asarray(page.image.convert("L"))
        for question in page.questions:
            assert question.box is not None
            left, top, right, bottom = question.box
            assert gray[top:bottom, left:right].min() < np.median(gray) - 60, (page.document, question)


def test_questions_are_unique_ascii_short_and_about_known_fields(
    held_out_pages: list[Page], training_pages: list[Page]
) -> None:
    for page in [*held_out_pages, *training_pages]:
        assert not page.questions or max(Counter(q.text for q in page.questions).values()) == 1
        for question in page.questions:
            (answer,) = question.answers
            assert question.field in FIELDS
            assert question.tier in ("high", "low")
            assert 1 <= len(answer) <= words.LONGEST
            assert (question.text + answer).isascii()
            assert "{" not in question.text + answer


def test_every_kind_asks_something() -> None:
    for kind in KINDS:
        asked = 0
        for seed in range(6):
            dice = roll("documents", "test", seed)
            sheet = Sheet((784, 1008), dice, draw_look(dice, 1.0))
            kind(sheet, Desk(dice))
            asked += len(sheet.questions)
        assert asked > 12, kind.__name__


def test_a_fact_is_answered_by_the_value_in_its_sentence() -> None:
    dice = roll("documents", "test", 3)
    sheet = Sheet((784, 1008), dice, draw_look(dice, 1.0))
    body(sheet, 2, 5)
    printed = " ".join(run[2] for run in sheet._runs)
    facts = [q for q in sheet.questions if q.field == "fact"]
    assert len(facts) >= 3
    assert all(q.answers[0] in printed for q in facts)


def test_a_total_row_adds_up() -> None:
    found = 0
    for seed in range(60):
        dice = roll("documents", "test", seed)
        sheet = Sheet((1008, 784), dice, draw_look(dice, 1.0))
        table(sheet, Desk(dice), 6)
        sums = [q for q in sheet.questions if q.field == "sum"]
        if not sums:
            continue
        right = (sums[0].box or (0, 0, 0, 0))[2]
        column = [t for x, _, t, f, _ in sheet._runs if abs(x + f.width(t) - right) < 3 and t[0].isdigit()]
        values = [float(t.replace(",", "")) for t in column if t != sums[0].answers[0]]
        total = float(sums[0].answers[0].replace(",", ""))
        head = 1 if values and values[0] in range(1955, 2010) else 0
        assert total == pytest.approx(sum(values[head:]), abs=0.06)
        found += 1
    assert found >= 5


def test_every_label_and_fact_has_a_kind_of_value() -> None:
    assert {*LABELS} == {*VALUES}
    assert {kind for _, kind, _ in FACTS} <= {*VALUES}
    drawn = entries(roll("documents", "test", 1), 30)
    assert len({label for label, _, _ in drawn}) == 30
    assert max(Counter(kind for _, kind, _ in drawn if kind in ONCE).values()) == 1


def test_wordings_are_held_out_of_training() -> None:
    texts = [{q.text for s in range(300) for q in Desk(roll("documents", split, s)).ask("sender")} for split in SPLITS]
    unseen = QUESTIONS["sender"].partition("||")[2]
    assert unseen not in texts[0]
    assert unseen in texts[2]
    assert len(texts[0]) >= 8


def test_only_training_pages_are_worn(held_out_pages: list[Page], training_pages: list[Page]) -> None:
    def rows(page: Page) -> float:
        return len({round(g.y, 2) for g in page.glyphs}) / len(page.glyphs)

    assert all(rows(page) < 0.35 for page in held_out_pages)
    assert sum(rows(page) > 0.5 for page in training_pages) > 8
