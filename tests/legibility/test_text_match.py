import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.legibility.text_match import digits, normalize


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
def test_the_key_has_only_what_changes_a_value(text: str, key: str) -> None:
    assert normalize(text).key == key


def test_a_lost_point_changes_a_number_and_a_lost_comma_does_not() -> None:
    assert normalize("1,240").key == normalize("1240").key
    assert normalize("12.40").key != normalize("1240").key
    assert normalize("12.40").key != normalize("12,40").key


def test_a_number_is_not_found_inside_a_longer_one() -> None:
    assert normalize("13 of 30").find("3") == []
    assert normalize("13 of 3").find("3") == [(4, 5)]
    assert normalize("12345").find("1234", lost_spaces=True) == []


def test_a_long_answer_is_found_where_spaces_were_lost() -> None:
    text = normalize("DateFiled2/6/33")
    assert text.find("2/6/33") == []
    assert text.raw(*text.find("2/6/33", lost_spaces=True)[0]) == "2/6/33"
    assert text.find("filed", lost_spaces=True) == [(4, 9)]
    assert normalize("REFILED").find("filed", lost_spaces=True) == []


def test_the_nearest_span_has_whole_words() -> None:
    text = normalize("Name: Johnstowm Sugar Factory, Inc.")
    similarity, start, stop = text.nearest("johnstownsugarfactory")
    assert text.raw(start, stop) == "Johnstowm Sugar Factory"
    assert 0.9 < similarity < 1
    assert normalize("").nearest("x") == (0.0, 0, 0)


def test_digits_of_a_key_include_separators() -> None:
    assert digits(normalize("room 514, 2/6/33").key) == "5142/6/33"


@given(st.text(max_size=60))
def test_every_character_of_a_key_has_an_index_in_the_text(text: str) -> None:
    normalized = normalize(text)
    assert len(normalized.key) == len(normalized.source)
    assert list(normalized.source) == sorted(normalized.source)
    assert not any(char.isspace() for char in normalized.key)


@given(st.text(alphabet="ab12 .,-/$", max_size=30), st.integers(0, 29), st.integers(1, 10))
def test_find_agrees_with_a_plain_search_at_word_boundaries(text: str, start: int, length: int) -> None:
    normalized = normalize(text)
    key = normalized.key[start : start + length]
    expected = [
        (i, i + len(key))
        for i in range(len(normalized.key))
        if key
        and normalized.key.startswith(key, i)
        and normalized.is_boundary(i, lost_spaces=False)
        and normalized.is_boundary(i + len(key), lost_spaces=False)
    ]
    assert normalized.find(key) == expected
