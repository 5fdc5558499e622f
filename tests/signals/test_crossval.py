"""Cross-validation reports what a learned signal does on unseen questions, and on what it leans."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from stakes.errors import BadInput
from stakes.signals import KeywordRule, LearnedSignal
from stakes.signals.agreement import Confusion
from stakes.signals.crossval import brier, calibration_error, cross_validate, score_folds

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


def test_the_report_counts_every_fold_and_writes_itself_as_json() -> None:
    questions, tiers, pages = corpus()
    report = LearnedSignal(folds=3).cross_validate(questions, tiers, pages, repeats=2)
    assert (report.n, report.tiers) == (80, {"high": 40, "low": 40})
    assert report.grouped is not None
    for scores in (report.plain, report.grouped):
        assert [(fold.repeat, fold.fold) for fold in scores.folds] == [(r, f) for r in range(2) for f in range(3)]
        assert sum(fold.n for fold in scores.folds) == 160
        assert scores.accuracy == scores.f1 == scores.kappa == 1.0
    assert json.loads(json.dumps(report.to_dict()))["plain"]["accuracy"] == 1.0
    assert "documents held out: accuracy 1.000" in str(report)


def test_folds_of_one_tier_leave_kappa_and_f1_as_they_are_and_no_nan_behind() -> None:
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
    grouped = score_folds(questions, tiers, pages, dearest="high", repeats=1, folds=4)
    assert {fold.kappa for fold in grouped.folds} == {None, 1.0}  # three documents of one tier, four folds
    assert {fold.f1 for fold in grouped.folds} == {None, 1.0}
    assert (grouped.accuracy, grouped.f1, grouped.kappa) == (1.0, 1.0, 1.0)
    assert "F1 1.000, kappa 1.000" in str(grouped)
    json.dumps(asdict(grouped), allow_nan=False)  # as Report.to_dict writes it


def test_kappa_and_f1_are_those_of_every_question_answered_once() -> None:
    rng = np.random.default_rng(2)
    tiers = ["high", "low"] * 40
    told = [tier if rng.random() < 0.8 else {"high": "low", "low": "high"}[tier] for tier in tiers]
    questions = [f"{'total' if tier == 'high' else 'title'} of {i}" for i, tier in enumerate(told)]
    found = score_folds(questions, tiers, None, dearest="high", repeats=1, folds=2)
    agreed = sum(a == b for a, b in zip(tiers, told, strict=True))  # the words are all that there is to learn
    table = Confusion.of(tiers, told, ("high", "low"))
    assert found.accuracy == pytest.approx(agreed / 80)
    assert found.kappa == pytest.approx(table.kappa)
    both = sum(a == b == "high" for a, b in zip(tiers, told, strict=True))
    assert found.f1 == pytest.approx(2 * both / (40 + told.count("high")))


def test_with_the_keywords_blanked_out_nothing_is_left_to_learn_from() -> None:
    tiers = ["high", "low"] * 30
    questions = [f"sheet{i % 7} line{i % 5}{' total' if tier == 'high' else ''}" for i, tier in enumerate(tiers)]
    report = cross_validate(questions, tiers, rule=KeywordRule(["total"]), dearest="high", repeats=1)
    assert report.plain.accuracy == 1.0
    assert report.masked.accuracy < 0.7  # one common blank in place of "total" would give 1.0 again


def test_keyword_terms_and_those_beyond_are_told_apart() -> None:
    questions, tiers, _ = corpus()
    questions = [text.replace("fax", "zip") for text in questions]
    report = cross_validate(questions, tiers, dearest="high", repeats=1)
    beyond, kept = dict(report.beyond), dict(report.keyword_terms)
    assert any("zip" in term and weight > 0 for term, weight in beyond.items())
    assert any("total" in term and weight > 0 for term, weight in kept.items())
    rule = KeywordRule()
    assert not any(rule.find(term) for term in beyond)
    assert all(rule.find(term) for term in kept)


def test_noise_cannot_be_learned() -> None:
    rng = np.random.default_rng(5)
    questions = [f"What is w{rng.integers(30)} of w{rng.integers(30)}?" for _ in range(120)]
    tiers = ["high", "low"] * 60
    plain = score_folds(questions, tiers, None, dearest="high", repeats=2)
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
        cross_validate(questions, tiers, dearest="gold")
    with pytest.raises(BadInput, match="repeat"):
        cross_validate(questions, tiers, dearest="high", repeats=0)


def test_on_the_600_real_questions_it_recovers_the_rule_better_than_the_paper(
    real_rows: Callable[[str], list[dict[str, Any]]],
) -> None:
    rows = real_rows("docvqa/questions.jsonl")
    questions, tiers = [row["question"] for row in rows], [row["tier"] for row in rows]
    plain = score_folds(questions, tiers, None, dearest="high", repeats=10)
    assert len(plain.folds) == 50
    assert plain.accuracy >= 0.98  # paper 0.943
    assert plain.kappa >= 0.96  # paper 0.887
    assert plain.brier < plain.brier_raw
    assert plain.ece < 0.02
    grouped = score_folds(questions, tiers, [row["document"] for row in rows], dearest="high", repeats=2)
    assert grouped.accuracy >= 0.943
    assert grouped.kappa >= 0.887
