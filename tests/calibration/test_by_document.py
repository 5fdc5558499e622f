"""Tables by document are the log's counts; their parts depend on nothing but what was asked."""

import random

import numpy as np
import pytest
from benchmarks.scenarios import published

from stakes.budgets.curve_files import curves_from_outcomes
from stakes.calibration.by_document import ByDocument, by_document, check_split
from stakes.calibration.certify.power import simulate
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome


def _outcome(sample: str, document: str, tier: str, budget: int, correct: bool) -> Outcome:
    return Outcome(
        sample, document, tier, "resolution", None, budget, 900, budget, "", False, float(correct), correct,
        "relaxed", 1.0, "run",
    )  # fmt: skip


def _log() -> list[Outcome]:
    rng = random.Random(0)
    return [
        _outcome(f"{page}{tier}{i}", f"page{page}", tier, budget, rng.random() < budget / 600)
        for page in range(12)
        for tier in ("high", "low")
        for i in range(1 + page % 2)
        for budget in (32, 304, 576)
    ]


def test_the_curves_are_the_logs() -> None:
    log = _log()
    measured = by_document(log)
    assert measured.curves() == curves_from_outcomes(log)
    assert measured.counts == {"high": 18, "low": 18}
    assert len(measured) == 12


def test_parts_are_the_same_in_any_order_of_the_log_and_alike_in_size() -> None:
    log = _log()
    shuffled = random.Random(1).sample(log, len(log))
    splits = [by_document(rows, ["high", "low"]).split() for rows in (log, shuffled)]
    assert [part.documents for part in splits[0]] == [part.documents for part in splits[1]]
    assert [len(part) for part in splits[0]] == [3, 9], "a quarter to choose on"
    assert splits[0][1].counts == {"high": 14, "low": 14}
    halves = [by_document(log).subset(rows) for rows in by_document(log).parts(2)]
    assert halves[0].counts == halves[1].counts == {"high": 9, "low": 9}
    parts = by_document(log).parts(5)
    assert sorted(np.concatenate(parts).tolist()) == list(range(12))


def test_a_budget_that_a_tier_was_never_asked_at_is_left_out_of_its_curve() -> None:
    log = [row for row in _log() if (row.tier, row.budget) != ("low", 304)]
    curves = by_document(log).curves()
    assert curves["low"].budgets == (32, 576)
    assert curves["high"].budgets == (32, 304, 576)


def test_too_few_documents_are_refused_before_and_after_measuring() -> None:
    with pytest.raises(BadInput, match="the part to choose on has no question of tier 'high'"):
        check_split([("a", "high"), ("b", "high"), ("c", "low")], ["high", "low"])
    check_split([("a", "high"), ("b", "high"), ("a", "low"), ("b", "low")], ["high", "low"])
    with pytest.raises(BadInput, match="is not one of high"):
        by_document(_log(), ["high"])
    with pytest.raises(BadInput, match="not documents × budgets"):
        ByDocument(("a",), (32,), {"high": np.zeros((2, 1), np.int64)}, {})


@pytest.mark.parametrize("dependence", [0.0, 0.5, 1.0])
def test_imagined_answers_have_the_true_errors_whatever_the_dependence(dependence: float) -> None:
    truth = published()
    measured = simulate(
        truth, {"high": 20_000, "low": 10_000}, np.random.default_rng(0), dependence=dependence, per_document=3,
        likeness=0.5,
    )  # fmt: skip
    for tier, curve in measured.curves().items():
        assert curve.errors == pytest.approx(truth[tier].errors, abs=0.03)
    assert measured.counts == {"high": 20_000, "low": 10_000}
    assert len(measured) == 10_000


def test_a_simulated_document_has_the_requested_number_of_questions_on_average() -> None:
    for per_document in (1, 1.5, 2, 4):
        measured = simulate(published(), {"high": 90, "low": 30}, np.random.default_rng(0), per_document=per_document)
        asked = sum(table[:, 0] for table in measured.asked.values())
        assert np.mean(asked) == per_document
        assert np.min(asked) == 1
        assert (np.ptp(asked) == 0) == (per_document == 1)  # pages differ in how many they hold
        both = (measured.asked["high"][:, 0] > 0) & (measured.asked["low"][:, 0] > 0)
        assert both.any() == (per_document > 1)  # and tiers meet on a page


def test_imagined_answers_hang_together_as_the_papers_do() -> None:
    """54 : 4 of 300 between 304 and 512 tokens, 65 : 5 between 304 and 576."""
    measured = simulate(published(), {"high": 60_000, "low": 1}, np.random.default_rng(0))
    wrong = measured.wrong["high"].astype(bool)
    before = wrong[:, measured.column(304)]
    for budget, fixed, broken in ((512, 54, 4), (576, 65, 5)):
        after = wrong[:, measured.column(budget)]
        assert (before & ~after).sum() / 200 == pytest.approx(fixed, abs=3)
        assert (~before & after).sum() / 200 == pytest.approx(broken, abs=2.5)
    sure = simulate(published(), {"high": 500, "low": 1}, np.random.default_rng(0), dependence=1.0)
    assert (np.diff(sure.wrong["high"], axis=1) <= 0).all()  # one needed budget: never right, then wrong again


def test_pages_alike_fail_together() -> None:
    def spread(likeness: float) -> float:
        measured = simulate(
            published(), {"high": 4000, "low": 1}, np.random.default_rng(0), per_document=4, likeness=likeness
        )
        column, asked = measured.column(304), measured.asked["high"][:, 6]
        return float(np.var(measured.wrong["high"][:, column] - 0.3 * asked))

    assert spread(0.8) > 1.5 * spread(0.0)


def test_impossible_worlds_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, match="dependence is a share between 0 and 1, not 1.5"):
        simulate(published(), {"high": 5, "low": 5}, rng, dependence=1.5)
    with pytest.raises(BadInput, match="at least one question, not 0.5"):
        simulate(published(), {"high": 5, "low": 5}, rng, per_document=0.5)
