"""Places on hand-made lines: every character ten pixels wide, every line twenty high."""

import pytest

from stakes.legibility.answer_places import find_places, place_of, read_at
from stakes.legibility.engine import Line


def line(text: str, x: float = 0, y: float = 0, width: float = 10, height: float = 20, tilt: float = 0) -> Line:
    end = x + width * len(text)
    quad = ((x, y), (end, y + tilt), (end, y + tilt + height), (x, y + height))
    return Line(quad, text, 1.0, tuple((i + 0.5) / len(text) for i in range(len(text))))


def test_a_place_is_the_box_of_the_answer_within_its_line() -> None:
    (place,) = find_places([line("Total: 4,500 USD", x=100, y=40)], ["4,500"])
    assert place.boxes == ((170, 40, 220, 60),)
    assert place.key == "4500"
    assert not place.slip


def test_a_short_answer_elsewhere_does_not_make_it_legible() -> None:
    page = [line("Table 3 of 13"), line("Pages 8", y=40)]
    places = find_places(page, ["8"])
    assert read_at(places, page).same
    # The 8 is gone, and other digits and another 8 stand elsewhere, in its line too.
    garbled = [line("Table 8 of 18"), line("8ages B", y=40)]
    found = read_at(places, garbled)
    assert not found.same
    assert found.text == "B"


def test_any_of_several_places_is_enough_and_none_is_not() -> None:
    page = [line("March 1963"), line("in 1963", y=40)]
    places = find_places(page, ["1963"])
    assert len(places) == 2
    assert read_at(places, [line("Morch 1968"), line("in 1963", y=40)]).same
    assert not read_at(places, [line("Morch 1968"), line("in 1968", y=40)]).same


def test_an_answer_grown_by_a_digit_is_not_the_same() -> None:
    page = [line("No 1234 x")]
    places = find_places(page, ["1234"])
    wider = line("No 12345 x", width=9)
    assert not read_at(places, [wider]).same


@pytest.mark.parametrize("now", ["TheGreat Western", "THE GREAT WESTERN", "The Great, Western."])
def test_spaces_case_and_commas_carry_no_words(now: str) -> None:
    places = find_places([line("The Great Western")], ["the great western"])
    stretched = line(now, width=170 / len(now))
    found = read_at(places, [stretched])
    assert found.same
    assert found.text == "the great western"


def test_an_answer_runs_on_below_and_to_the_right() -> None:
    page = [line("Ship to 12 Long", x=0, y=0), line("Street, Ogden", x=0, y=25), line("Ref 77", x=400, y=25)]
    (place,) = find_places(page, ["12 Long Street, Ogden"])
    assert len(place.boxes) == 2
    assert not place.slip
    assert read_at([place], page).same
    assert not read_at([place], [page[0], line("Sheet, Ogden", x=0, y=25)]).same
    beside = [line("Invoice", x=0), line("No 99", x=90)]
    (place,) = find_places(beside, ["invoice no 99"])
    assert [box[0] for box in place.boxes] == [0, 90]


def test_a_slip_of_the_engine_in_a_long_name_is_forgiven_and_a_digit_is_not() -> None:
    page = [line("Johnstowm Sugar Factory 1962")]
    (place,) = find_places(page, ["Johnstown Sugar Factory"])
    assert place.slip
    assert read_at([place], page).same  # reads as at native size
    assert read_at([place], [line("Johnstown Sugar Factory 1962")]).same  # or as it should
    assert find_places(page, ["Johnstown Sugar Factory 1963"]) == []


def test_an_answer_without_print_has_no_place() -> None:
    assert find_places([line("Yes, 14 items")], ["No", "15"]) == []
    assert find_places([], ["14"]) == []
    assert find_places([line("a -")], ["-"]) == []


def test_a_tilted_line_is_read_where_it_passes_the_place() -> None:
    tilted = line("a long line that ends in 42", tilt=30)
    (place,) = find_places([tilted, line("17 18 19 20 21 22 23 24 25 26", y=60)], ["42"])
    assert place.boxes[0][1] > 15
    assert read_at([place], [tilted]).same
    assert not read_at([place], [line("a long line that ends in 42", tilt=0, y=-30)]).same


def test_nothing_read_is_nothing_said() -> None:
    places = find_places([line("Total 45")], ["45"])
    found = read_at(places, [])
    assert (found.text, found.same) == ("", False)


def test_a_line_on_its_side_is_one_place() -> None:
    upright = Line(((0, 0), (20, 0), (20, 200), (0, 200)), "RJR 5017", 1.0, ())
    (place,) = find_places([upright], ["5017"])
    assert place.boxes == ((0, 0, 20, 200),)
    assert read_at([place], [upright]).same


def test_place_of_takes_the_characters_given() -> None:
    place = place_of(line("abc def"), 4, 6)
    assert place.boxes == ((40, 0, 70, 20),)
    assert place.answer == "def"
