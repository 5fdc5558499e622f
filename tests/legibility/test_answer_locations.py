"""Answer locations on hand-made lines: every character is ten pixels wide, every line twenty high."""

import pytest

from stakes.legibility.answer_locations import find_locations, read_at, word_locations
from stakes.legibility.engine import TextLine


def line(text: str, x: float = 0, y: float = 0, width: float = 10, height: float = 20, tilt: float = 0) -> TextLine:
    end = x + width * len(text)
    quad = ((x, y), (end, y + tilt), (end, y + tilt + height), (x, y + height))
    return TextLine(quad, text, 1.0, tuple((i + 0.5) / len(text) for i in range(len(text))))


def test_a_location_is_the_box_of_the_answer_within_its_line() -> None:
    (location,) = find_locations([line("Total: 4,500 USD", x=100, y=40)], ["4,500"])
    assert location.boxes == ((170, 40, 220, 60),)
    assert location.key == "4500"
    assert not location.fuzzy


def test_a_short_answer_elsewhere_does_not_make_it_legible() -> None:
    page = [line("Table 3 of 13"), line("Pages 8", y=40)]
    locations = find_locations(page, ["8"])
    assert read_at(locations, page).legible
    # The 8 is lost; other digits and another 8 are elsewhere, also in its line.
    garbled = [line("Table 8 of 18"), line("8ages B", y=40)]
    reading = read_at(locations, garbled)
    assert not reading.legible
    assert reading.text == "B"


def test_one_legible_location_of_several_is_enough() -> None:
    page = [line("March 1963"), line("in 1963", y=40)]
    locations = find_locations(page, ["1963"])
    assert len(locations) == 2
    assert read_at(locations, [line("Morch 1968"), line("in 1963", y=40)]).legible
    assert not read_at(locations, [line("Morch 1968"), line("in 1968", y=40)]).legible


def test_an_answer_with_an_added_digit_is_not_legible() -> None:
    page = [line("No 1234 x")]
    locations = find_locations(page, ["1234"])
    wider = line("No 12345 x", width=9)
    assert not read_at(locations, [wider]).legible


@pytest.mark.parametrize("now", ["TheGreat Western", "THE GREAT WESTERN", "The Great, Western."])
def test_spaces_case_and_commas_do_not_matter(now: str) -> None:
    locations = find_locations([line("The Great Western")], ["the great western"])
    stretched = line(now, width=170 / len(now))
    reading = read_at(locations, [stretched])
    assert reading.legible
    assert reading.text == "the great western"


def test_an_answer_continues_below_and_to_the_right() -> None:
    page = [line("Ship to 12 Long", x=0, y=0), line("Street, Ogden", x=0, y=25), line("Ref 77", x=400, y=25)]
    (location,) = find_locations(page, ["12 Long Street, Ogden"])
    assert len(location.boxes) == 2
    assert not location.fuzzy
    assert read_at([location], page).legible
    assert not read_at([location], [page[0], line("Sheet, Ogden", x=0, y=25)]).legible
    beside = [line("Invoice", x=0), line("No 99", x=90)]
    (location,) = find_locations(beside, ["invoice no 99"])
    assert [box[0] for box in location.boxes] == [0, 90]


def test_an_ocr_error_in_a_long_name_is_tolerated_and_one_in_a_digit_is_not() -> None:
    page = [line("Johnstowm Sugar Factory 1962")]
    (location,) = find_locations(page, ["Johnstown Sugar Factory"])
    assert location.fuzzy
    assert read_at([location], page).legible  # as at native size
    assert read_at([location], [line("Johnstown Sugar Factory 1962")]).legible  # or the correct text
    assert find_locations(page, ["Johnstown Sugar Factory 1963"]) == []


def test_an_answer_that_is_not_printed_has_no_location() -> None:
    assert find_locations([line("Yes, 14 items")], ["No", "15"]) == []
    assert find_locations([], ["14"]) == []
    assert find_locations([line("a -")], ["-"]) == []


def test_a_tilted_line_is_read_where_it_crosses_the_location() -> None:
    tilted = line("a long line that ends in 42", tilt=30)
    (location,) = find_locations([tilted, line("17 18 19 20 21 22 23 24 25 26", y=60)], ["42"])
    assert location.boxes[0][1] > 15
    assert read_at([location], [tilted]).legible
    assert not read_at([location], [line("a long line that ends in 42", tilt=0, y=-30)]).legible


def test_no_lines_give_an_empty_reading() -> None:
    locations = find_locations([line("Total 45")], ["45"])
    reading = read_at(locations, [])
    assert (reading.text, reading.legible) == ("", False)


def test_a_vertical_line_is_one_location() -> None:
    upright = TextLine(((0, 0), (20, 0), (20, 200), (0, 200)), "RJR 5017", 1.0, ())
    (location,) = find_locations([upright], ["5017"])
    assert location.boxes == ((0, 0, 20, 200),)
    assert read_at([location], [upright]).legible


def test_every_word_of_a_line_has_a_location() -> None:
    first, second = word_locations(line("abc def"))
    assert (first.answer, second.answer) == ("abc", "def")
    assert second.boxes == ((40, 0, 70, 20),)
