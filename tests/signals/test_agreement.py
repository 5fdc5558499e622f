"""Confusion, agreement, kappa and the gold-answer check."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.signals import KeywordRule
from stakes.signals.agreement import Confusion, gold_check, is_quantitative


@pytest.mark.parametrize(
    ("cells", "agreement", "kappa"),
    [((271, 204, 29, 96), 0.792, 0.583), ((70, 75, 30, 25), 0.725, 0.450)],
)
def test_the_published_counts_give_the_published_kappa(
    cells: tuple[int, int, int, int], agreement: float, kappa: float
) -> None:
    table = Confusion.two(hh=cells[0], ll=cells[1], hl=cells[2], lh=cells[3])
    assert round(table.agreement, 3) == agreement
    assert round(table.kappa, 3) == kappa


pairs = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), min_size=1, max_size=60)


@given(pairs)
def test_kappa_equals_scikit_learn(rated: list[tuple[str, str]]) -> None:
    from sklearn.metrics import cohen_kappa_score

    first, second = zip(*rated, strict=True)
    table = Confusion.of(first, second)
    if len({*first, *second}) == 1:
        assert math.isnan(table.kappa)
    else:
        assert table.kappa == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_rows_are_the_first_rater() -> None:
    table = Confusion.of(["high", "high", "low"], ["low", "high", "low"], tiers=("high", "low"))
    assert table.counts == ((1, 1), (0, 1))


def test_bad_counts_are_refused() -> None:
    with pytest.raises(BadInput, match="same questions"):
        Confusion.of(["high"], [])
    with pytest.raises(BadInput, match="unknown tier 'high_cost'"):
        Confusion.of(["high_cost"], ["high"], tiers=("high", "low"))
    with pytest.raises(BadInput, match="at least one"):
        Confusion.of([], [])
    with pytest.raises(BadInput, match="whole numbers"):
        Confusion.two(hh=-1, ll=1, hl=1, lh=1)
    with pytest.raises(BadInput, match="rows"):
        Confusion(("high", "low"), ((1,),))


@pytest.mark.parametrize("answer", ["2/6/33", "$ ten", "five %", "₹", "€", "٣", "room 5"])
def test_a_digit_or_a_currency_or_percent_sign_is_quantitative(answer: str) -> None:
    assert is_quantitative(["President", answer])


@pytest.mark.parametrize("answers", [[], [""], ["President", "two hundred"]])
def test_words_are_not_quantitative(answers: list[str]) -> None:
    assert not is_quantitative(answers)


def test_one_bare_text_is_refused_since_its_letters_would_be_read_as_answers() -> None:
    with pytest.raises(BadInput, match="list of texts"):
        is_quantitative("12")


def test_the_real_docvqa_answers_agree_with_the_rule_as_measured(
    real_rows: Callable[[str], list[dict[str, Any]]],
) -> None:
    rows = real_rows("questions/docvqa_val.jsonl")
    rule = KeywordRule()
    table = Confusion.of([rule(row["question"]).tier for row in rows], gold_check(row["answers"] for row in rows))
    assert [round(row[0] / sum(row), 3) for row in table.counts] == [0.916, 0.204]
    assert round(table.kappa, 2) == 0.69
