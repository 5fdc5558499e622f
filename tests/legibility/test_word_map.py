import pytest
from PIL import Image

from stakes.errors import BadInput
from stakes.legibility.word_map import (
    BUDGETS,
    COLORS,
    KEY_HEIGHT,
    NEVER,
    Word,
    budget_colors,
    draw_map,
    legible_shares,
)

WORDS = [Word("a", (10, 10, 60, 30), 64), Word("b", (10, 50, 60, 70), 576), Word("c", (10, 90, 60, 110), None)]


def test_words_are_tinted_by_their_budget_and_the_rest_is_unchanged() -> None:
    page = Image.new("RGB", (400, 200), "white")
    sheet = draw_map(page, WORDS)
    assert sheet.size == (400, 200 + KEY_HEIGHT)
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
    shares = legible_shares(WORDS)
    assert shares[64] == pytest.approx(1 / 3)
    assert shares[448] == pytest.approx(1 / 3)
    assert shares[576] == pytest.approx(2 / 3)
    with pytest.raises(BadInput, match="no words"):
        legible_shares([])


def test_every_budget_has_its_own_color() -> None:
    colors = budget_colors(BUDGETS)
    assert list(colors.values()) == [*COLORS, NEVER]
    assert budget_colors([304]) == {304: COLORS[0], None: NEVER}
    assert list(budget_colors([64, 304]).values()) == [COLORS[0], COLORS[-1], NEVER]
    with pytest.raises(BadInput, match="1 to 7 budgets, not for 8"):
        budget_colors(range(1, 9))
