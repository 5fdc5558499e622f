import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.legibility.text_match import digits, spelled


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("The  Great\tWestern", "thegreatwestern"),
        ("$1,240.50", "$1240.50"),
        ("1.240", "1.240"),
        ("2/6/33", "2/6/33"),
        ("1990 – 1995", "1990-1995"),
        ("Dr. O'Neil, Jr.", "droneiljr"),
        ("No. 5.", "no5"),
        ("50 %", "50%"),
        ("ＡＢ１", "ab1"),
        ("--- . ,", ""),
    ],
)
def test_the_key_keeps_what_changes_a_value_and_nothing_else(text: str, key: str) -> None:
    assert spelled(text).key == key


def test_a_lost_point_is_another_number_and_a_lost_comma_is_not() -> None:
    assert spelled("1,240").key == spelled("1240").key
    assert spelled("12.40").key != spelled("1240").key
    assert spelled("12.40").key != spelled("12,40").key


def test_a_number_is_not_found_inside_a_longer_one() -> None:
    assert spelled("13 of 30").find("3") == []
    assert spelled("13 of 3").find("3") == [(4, 5)]
    assert spelled("12345").find("1234", glued=True) == []


def test_a_lost_space_hides_nothing_from_a_long_answer() -> None:
    text = spelled("DateFiled2/6/33")
    assert text.find("2/6/33") == []
    assert text.raw(*text.find("2/6/33", glued=True)[0]) == "2/6/33"
    assert text.find("filed", glued=True) == [(4, 9)]
    assert spelled("REFILED").find("filed", glued=True) == []


def test_the_nearest_span_is_of_whole_words() -> None:
    text = spelled("Name: Johnstowm Sugar Factory, Inc.")
    like, start, stop = text.nearest("johnstownsugarfactory")
    assert text.raw(start, stop) == "Johnstowm Sugar Factory"
    assert 0.9 < like < 1
    assert spelled("").nearest("x") == (0.0, 0, 0)


def test_digits_of_a_key_are_what_a_likeness_may_not_change() -> None:
    assert digits(spelled("room 514, 2/6/33").key) == "5142/6/33"


@given(st.text(max_size=60))
def test_every_character_of_a_key_stands_in_the_text(text: str) -> None:
    found = spelled(text)
    assert len(found.key) == len(found.source)
    assert list(found.source) == sorted(found.source)
    assert not any(char.isspace() for char in found.key)


@given(st.text(alphabet="ab12 .,-/$", max_size=30), st.integers(0, 29), st.integers(1, 10))
def test_find_agrees_with_a_plain_search_bounded_by_words(text: str, start: int, length: int) -> None:
    found = spelled(text)
    wanted = found.key[start : start + length]
    expected = [
        (i, i + len(wanted))
        for i in range(len(found.key))
        if wanted
        and found.key.startswith(wanted, i)
        and found.opens(i, glued=False)
        and found.opens(i + len(wanted), glued=False)
    ]
    assert found.find(wanted) == expected
