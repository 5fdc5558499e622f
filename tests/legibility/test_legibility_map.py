import pytest
from PIL import Image

from stakes.errors import BadInput
from stakes.legibility.word_map import BUDGETS, COLOURS, KEY, NEVER, Word, colours, draw_map, shares

WORDS = [Word("a", (10, 10, 60, 30), 64), Word("b", (10, 50, 60, 70), 576), Word("c", (10, 90, 60, 110), None)]


def test_words_are_tinted_by_their_budget_and_the_rest_is_left_alone() -> None:
    page = Image.new("RGB", (400, 200), "white")
    sheet = draw_map(page, WORDS)
    assert sheet.size == (400, 200 + KEY)
    blue, red, grey = (sheet.getpixel((30, y)) for y in (20, 60, 100))
    assert isinstance(blue, tuple)
    assert isinstance(red, tuple)
    assert isinstance(grey, tuple)
    assert blue[2] > blue[0]
    assert red[0] > red[2]
    assert len(set(grey)) == 1
    assert sheet.getpixel((200, 100)) == (255, 255, 255)
    assert page.getpixel((30, 20)) == (255, 255, 255)


def test_shares_grow_with_the_budget() -> None:
    found = shares(WORDS)
    assert found[64] == pytest.approx(1 / 3)
    assert found[448] == pytest.approx(1 / 3)
    assert found[576] == pytest.approx(2 / 3)
    with pytest.raises(BadInput, match="no words"):
        shares([])


def test_every_budget_has_its_own_colour() -> None:
    found = colours(BUDGETS)
    assert list(found.values()) == [*COLOURS, NEVER]
    assert colours([304]) == {304: COLOURS[0], None: NEVER}
    assert list(colours([64, 304]).values()) == [COLOURS[0], COLOURS[-1], NEVER]
    with pytest.raises(BadInput, match="7 budgets apart at most, not 8"):
        colours(range(1, 9))
