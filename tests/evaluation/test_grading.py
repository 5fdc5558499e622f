"""Each metric against its official definition, quirks included."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import BadInput, grade
from stakes.evaluation.grading import METRICS, is_correct, is_piece, vqa_normalize

TEN_YES = ["yes"] * 10


@pytest.mark.parametrize(
    ("prediction", "answer", "score"),
    [
        ("$1,240.00", "$1,240.00", 1),
        ("  The TOTAL is $1,240.00. ", "$1,240.00", 1),
        ("1,240", "$1,240.00", 1),  # a piece of the answer: the paper's containment goes both ways
        ("1,241", "$1,240.00", 0),
        ("May 5.", "may 5", 1),
        ("", "May 5", 0),
        (".", "May 5", 0),
        ("   ", "May 5", 0),
        ("May 5", "", 0),
    ],
)
def test_relaxed_is_containment_either_way(prediction: str, answer: str, score: float) -> None:
    assert grade(prediction, [answer], "relaxed") == score


def test_a_truncated_piece_of_the_answer_is_not_right() -> None:
    assert grade("January 4", ["January 4, 1999"], "relaxed") == 1
    assert grade("January 4", ["January 4, 1999"], "relaxed", truncated=True) == 0
    assert grade("It is January 4, 1999 as the", ["January 4, 1999"], "relaxed", truncated=True) == 1
    assert grade("anything", [""], "relaxed", truncated=True) == 0


def test_the_default_metric_is_value_which_takes_no_fragment() -> None:
    for prediction, answer in (("4", "42.90"), ("119.00", "19.00"), ("6,161", "1")):
        assert (grade(prediction, [answer]), grade(prediction, [answer], "relaxed")) == (0, 1)
    assert grade("1.240,00 €", ["1,240.00"]) == 1


def test_exact_is_normalised_equality() -> None:
    assert grade(" Sargasso Sea.", ["sargasso sea"], "exact") == 1
    assert grade("the Sargasso Sea", ["sargasso sea"], "exact") == 0


@pytest.mark.parametrize(
    ("prediction", "answer", "score"),
    [
        ("abcd", "abcd", 1.0),
        ("abcx", "abcd", 0.75),
        ("abxy", "abcd", 0.5),  # exactly 0.5 is kept
        ("axyz", "abcd", 0.0),  # below 0.5 is nothing
        ("a  b", "a b", 1.0),  # white space collapses in the distance
        ("A B", "a b", 1.0),
        ("a   x", "a b", 1 - 1 / 5),  # but the length is that of the raw strings
    ],
)
def test_anls_at_one_half(prediction: str, answer: str, score: float) -> None:
    assert grade(prediction, [answer], "anls") == pytest.approx(score)


@pytest.mark.parametrize(
    ("prediction", "answer", "score"),
    [
        ("105", "100", 1),
        ("95", "100", 1),
        ("105.1", "100", 0),
        ("5", "5%", 0),
        ("5.2%", "5%", 1),
        ("0.05", "5%", 1),
        ("0.0", "0", 0),  # a gold answer of 0 is compared as a string
        ("0", "0", 1),
        ("1,000", "1000", 0),  # no commas in the official parser
        ("Female", "female", 1),
        ("Females", "female", 0),
        ("-100", "-104", 1),
        ("nan", "100", 0),
    ],
)
def test_chartqa_is_within_five_percent_or_equal(prediction: str, answer: str, score: float) -> None:
    assert grade(prediction, [answer], "chartqa") == score


@pytest.mark.parametrize(
    ("matching", "score"),
    [(0, 0.0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1.0), (10, 1.0)],
)
def test_vqa_leaves_each_annotator_out(matching: int, score: float) -> None:
    answers = ["tennis racket"] * matching + [f"other {i}" for i in range(10 - matching)]
    assert grade("Tennis racket", answers, "vqa") == pytest.approx(score)


@given(st.lists(st.sampled_from(["yes", "no", "maybe"]), min_size=3, max_size=12), st.sampled_from(["yes", "no"]))
def test_vqa_equals_the_loop_over_annotators(answers: list[str], prediction: str) -> None:
    scores = [
        min(1, sum(other == prediction for j, other in enumerate(answers) if j != i) / 3) for i in range(len(answers))
    ]
    assert grade(prediction, answers, "vqa") == pytest.approx(sum(scores) / len(scores))


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("The  two-door cars.", "2 door cars"),
        ("None", "0"),
        ("dont", "don't"),
        ("somebody'd", "somebodyd"),
        ("it is 3.5", "it is 3.5"),
        ("U.S.", "us"),
        ("yes, it is!", "yes it is"),
        ("what's", "what 's"),
        ("10 / 3", "10 3"),
        ("a\tb\nc", "b c"),
    ],
)
def test_vqa_normaliser_follows_the_official_one(raw: str, clean: str) -> None:
    assert vqa_normalize(raw) == clean


@pytest.mark.parametrize(
    ("prediction", "answer", "right"),
    [
        ("9.80", "9.00", False),  # anls: 0.75
        ("RM 9.00", "9.00", True),
        ("25/12/2013", "25/12/2018", False),
        ("25 Dec 2018", "25/12/2018", True),
        ("H-515", "H-514", False),
        ("INDAH GIFT & HOME DEC0", "INDAH GIFT & HOME DECO", True),  # value: a word differs
        ("INDAH", "INDAH GIFT & HOME DECO", False),
        ("27, JALAN DEDAP 18, JOHOR", "27, JALAN DEDAP 13, JOHOR", True),
    ],
)
def test_fields_forgives_a_misread_letter_in_text_and_no_digit_of_a_value(
    prediction: str, answer: str, right: bool
) -> None:
    assert is_correct(grade(prediction, [answer], "fields")) is right
    assert is_correct(grade(prediction, ["zzz 1", answer], "fields")) is right


def test_fields_does_not_take_the_piece_of_a_value_that_was_cut_off() -> None:
    assert grade("The total is 9.00", ["9.00"], "fields") == 1
    assert grade("The total is 9.00", ["9.00"], "fields", truncated=True) == 0
    assert grade("27, JALAN DEDAP", ["27, JALAN DEDAP 13"], "fields", truncated=True) > 0.5


def test_vqa_with_too_few_people_is_an_error_instead_of_all_wrong() -> None:
    with pytest.raises(BadInput, match="this sample has 1"):
        grade("yes", ["yes"], "vqa")


@pytest.mark.parametrize("metric", METRICS)
@given(answers=st.lists(st.text(), min_size=3, max_size=10), blank=st.sampled_from(["", " ", ".", "\n\t"]))
def test_an_empty_prediction_is_never_correct(metric: str, answers: list[str], blank: str) -> None:
    assert not is_correct(grade(blank, answers, metric))


@pytest.mark.parametrize("metric", METRICS)
@given(answers=st.lists(st.text(), min_size=3, max_size=10), prediction=st.text())
def test_scores_lie_in_the_unit_interval(metric: str, answers: list[str], prediction: str) -> None:
    assert 0 <= grade(prediction, answers, metric) <= 1


def test_unusable_requests_are_errors_with_advice() -> None:
    with pytest.raises(BadInput, match="unknown metric 'bleu'; choose one of value, fields, relaxed"):
        grade("a", ["a"], "bleu")
    with pytest.raises(BadInput, match="not the string 'yes'"):
        grade("yes", "yes")
    with pytest.raises(BadInput, match="predictions and answers are text, not None"):
        grade(None, ["a"])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="predictions and answers are text, not 7"):
        grade("a", ["a", 7])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="no answer to grade against"):
        grade("yes", [])
    assert is_correct(0.5)
    assert not is_correct(0.49)


@pytest.mark.parametrize(
    ("prediction", "answers", "piece"),
    [
        ("1,932", ["11,932"], True),
        ("3973-18.", ["3973-187"], True),
        ("12,215.76", ["$12,215.76"], False),
        ("45", ["45%"], False),
        ("11,932", ["11,932"], False),
        ("it is 11,932", ["11,932"], False),
        ("1,932", ["11,932", "1,932"], False),
        ("7", ["11,932"], False),
        ("", ["11,932"], False),
    ],
)
def test_a_piece_is_right_only_by_being_part_of_the_answer(prediction: str, answers: list[str], piece: bool) -> None:
    assert is_piece(prediction, answers) is piece


@pytest.mark.parametrize("metric", ["relaxed", "exact"])
def test_one_white_space_and_one_unicode_form_is_like_another(metric: str) -> None:
    assert grade("12\u00a0000 €", ["12 000 €"], metric) == 1
    assert grade("12 000", ["12\u202f000"], metric) == 1
    assert grade("re\u0301sume\u0301", ["r\u00e9sum\u00e9"], metric) == 1
    assert grade("12 001", ["12\u202f000"], metric) == 0
