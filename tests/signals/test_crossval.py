"""Cross-validation reports what a learned signal does on unseen questions, and on what it leans."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion
from stakes.signals.crossval import brier, calibration_error, score_folds

TOPICS = {"high": ["total", "date", "fax", "year"], "low": ["title", "author", "city", "heading"]}


def corpus() -> tuple[list[str], list[str], list[str]]:
    rows = [
        (f"What is the {topic} on sheet{page}?", tier, f"page {page}")
        for tier, topics in TOPICS.items()
        for topic in topics
        for page in range(10)
    ]
    questions, tiers, pages = zip(*rows, strict=True)
    return list(questions), list(tiers), list(pages)


def test_words_that_decide_are_learned_whole_and_the_scores_can_be_written_as_json() -> None:
    questions, tiers, pages = corpus()
    for groups in (None, pages):
        scores = score_folds(questions, tiers, groups, most_expensive="high", repeats=2, folds=3)
        assert scores.accuracy == scores.f1 == scores.kappa == 1.0
        assert json.loads(json.dumps(asdict(scores)))["accuracy"] == 1.0


def test_folds_of_one_tier_do_not_change_kappa_and_f1_and_give_no_nan() -> None:
    rows = [
        (
            f"What is the total amount {page}{i}?" if page < 3 else f"Who signed letter {page}{i}?",
            page < 3,
            f"page {page}",
        )
        for page in range(12)
        for i in range(3)
    ]
    questions, high, pages = (list(column) for column in zip(*rows, strict=True))
    tiers = ["high" if one else "low" for one in high]
    grouped = score_folds(questions, tiers, pages, most_expensive="high", repeats=1, folds=4)
    # three documents of one tier, four folds: one fold has no question of it
    assert (grouped.accuracy, grouped.f1, grouped.kappa) == (1.0, 1.0, 1.0)
    json.dumps(asdict(grouped), allow_nan=False)


def test_kappa_and_f1_are_those_of_every_question_answered_once() -> None:
    rng = np.random.default_rng(2)
    tiers = ["high", "low"] * 40
    noisy = [tier if rng.random() < 0.8 else {"high": "low", "low": "high"}[tier] for tier in tiers]
    questions = [f"{'total' if tier == 'high' else 'title'} of {i}" for i, tier in enumerate(noisy)]
    scores = score_folds(questions, tiers, None, most_expensive="high", repeats=1, folds=2)
    agreed = sum(a == b for a, b in zip(tiers, noisy, strict=True))  # the words are all that there is to learn
    table = Confusion.of(tiers, noisy, ("high", "low"))
    assert scores.accuracy == pytest.approx(agreed / 80)
    assert scores.kappa == pytest.approx(table.kappa)
    both = sum(a == b == "high" for a, b in zip(tiers, noisy, strict=True))
    assert scores.f1 == pytest.approx(2 * both / (40 + noisy.count("high")))


def test_noise_cannot_be_learned() -> None:
    rng = np.random.default_rng(5)
    questions = [f"What is w{rng.integers(30)} of w{rng.integers(30)}?" for _ in range(120)]
    tiers = ["high", "low"] * 60
    plain = score_folds(questions, tiers, None, most_expensive="high", repeats=2)
    assert abs(plain.accuracy - 0.5) < 0.15
    assert abs(plain.kappa) < 0.3


def test_brier_and_calibration_error_by_hand() -> None:
    chances = [[0.8, 0.2], [0.6, 0.4]]
    assert brier(chances, [0, 1]) == pytest.approx((0.2**2 + 0.6**2) / 2)
    assert calibration_error(chances, [0, 1], bins=1) == pytest.approx(abs(0.7 - 0.5))
    assert calibration_error(chances, [0, 1], bins=2) == pytest.approx((0.2 + 0.6) / 2)


def test_bad_requests_are_refused() -> None:
    questions, tiers, _ = corpus()
    with pytest.raises(BadInput, match="'gold'"):
        score_folds(questions, tiers, None, most_expensive="gold")
    with pytest.raises(BadInput, match="repeat"):
        score_folds(questions, tiers, None, most_expensive="high", repeats=0)


def test_on_the_600_real_questions_it_recovers_the_rule_better_than_the_paper(
    real_rows: Callable[[str], list[dict[str, Any]]],
) -> None:
    rows = real_rows("docvqa/questions.jsonl")
    questions, tiers = [row["question"] for row in rows], [row["tier"] for row in rows]
    plain = score_folds(questions, tiers, None, most_expensive="high", repeats=10)
    assert plain.accuracy >= 0.98  # paper 0.943
    assert plain.kappa >= 0.96  # paper 0.887
    assert plain.brier < plain.brier_raw
    assert plain.ece < 0.02
    grouped = score_folds(questions, tiers, [row["document"] for row in rows], most_expensive="high", repeats=2)
    assert grouped.accuracy >= 0.943
    assert grouped.kappa >= 0.887
