"""The plain-Python model equals scikit-learn's, and a stranger's file is checked before it is used."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from stakes.errors import BadInput
from stakes.signals.linear import LinearModel, ngrams, softmax, words

QUESTIONS = [
    "What is the date of the letter?", "Who signed the letter?", "What is the total?", "What is the title of it?",
    "Is it No.5 or no. 6?", "What is 25% of the total total?", "Who is the author of the title?", "Which date is it?",
]  # fmt: skip
LABELS = [1, 0, 1, 0, 1, 1, 0, 1]


def test_percent_and_no_are_words() -> None:
    assert words("Is No.5 25%?") == ["is", "no.", "5", "25", "%"]
    assert words("casino. no one") == ["casino", "no", "one"]
    assert ngrams("a b c") == ["a", "b", "c", "a b", "b c"]
    assert ngrams("?!") == []


@pytest.mark.parametrize("tiers", [2, 3])
@pytest.mark.parametrize("use_idf", [False, True])
def test_plain_python_equals_scikit_learn(use_idf: bool, tiers: int) -> None:
    view = TfidfVectorizer(analyzer=ngrams, binary=True, norm=None, use_idf=use_idf)
    matrix = view.fit_transform(QUESTIONS)
    labels = LABELS if tiers == 2 else [0, 1, 2, 0, 1, 2, 0, 1]
    fitted = LogisticRegression(C=3.0).fit(matrix, labels)
    rows = np.vstack([np.zeros_like(fitted.coef_), fitted.coef_]) if tiers == 2 else fitted.coef_
    bias = [0.0, *fitted.intercept_] if tiers == 2 else list(fitted.intercept_)
    vocabulary = tuple(view.get_feature_names_out())
    idf = tuple(view.idf_) if use_idf else (1.0,) * len(vocabulary)
    model = LinearModel(
        tuple("abc"[:tiers]), vocabulary, idf, tuple(map(tuple, rows)), tuple(bias), 1.0, (0.0,) * tiers, ("x",)
    )
    for question in [*QUESTIONS, "What what what?", "unseen words", "", "25% 25%"]:
        expected = fitted.predict_proba(view.transform([question]))[0]
        assert model.probabilities(question) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5))
def test_softmax_sums_to_one_and_keeps_the_order(logits: list[float]) -> None:
    chances = softmax(logits)
    assert math.isclose(sum(chances), 1.0)
    assert chances[logits.index(max(logits))] == max(chances)


def small() -> LinearModel:
    return LinearModel(
        ("high", "low"),
        ("date", "who"),
        (2.0, 1.0),
        ((1.5, -1.0), (0.0, 0.25)),
        (-1.0, 0.5),
        2.0,
        (0.0, 0.1),
        ("date", "who"),
    )


def test_scores_and_calibration_by_hand() -> None:
    assert small().scores("Who? Which date?") == [-1.0 + 2 * 1.5 - 1.0, 0.5 + 0.25]
    odds = math.exp((2 * 1.0 + 0.0) - (2 * 0.75 + 0.1))
    assert small().probabilities("Who? Which date?")[0] == pytest.approx(odds / (1 + odds), abs=1e-12)


def test_reasons_are_signed_log_odds_and_the_loudest_comes_first() -> None:
    assert small().reasons("who date", "high", "low") == [("date", 6.0), ("who", -2.5)]
    assert small().reasons("who date", "low", "high", most=1) == [("date", -6.0)]


def test_the_file_form_gives_the_same_model() -> None:
    assert LinearModel.from_dict(json.loads(json.dumps(small().to_dict()))) == small()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tiers": ["high"]}, "at least two tiers"),
        ({"tiers": ["high", "high"]}, "twice"),
        ({"tiers": "high"}, "list of non-empty strings"),
        ({"vocabulary": ["date", 3]}, "vocabulary"),
        ({"idf": [1.0]}, "idf must be a list of 2"),
        ({"idf": [1.0, math.inf]}, "not a finite number"),
        ({"intercepts": [1.0, math.nan]}, "not a finite number"),
        ({"intercepts": [1.0, 10**400]}, "not a finite number"),
        ({"intercepts": [1.0, True]}, "not a finite number"),
        ({"coefficients": [[1.0, 2.0]]}, "2 rows"),
        ({"coefficients": [[1.0], [2.0]]}, "row of coefficients"),
        ({"coefficients": None}, "2 rows"),
        ({"calibration": {"slope": -1.0, "offsets": [0, 0]}}, "above zero"),
        ({"calibration": {"offsets": [0, 0]}}, "slope"),
        ({"calibration": 3}, "calibration"),
        ({"known": None}, "known"),
    ],
)
def test_a_broken_file_is_one_clear_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        LinearModel.from_dict({**small().to_dict(), **change})
