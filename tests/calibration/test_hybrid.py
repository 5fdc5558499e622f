"""A prior helps where answers are few, gives way where they are many, and never touches a certificate's evidence."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.scenarios import GRID, published
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.calibrate import calibrate
from stakes.calibration.certify.certificate import certify
from stakes.calibration.estimators import check_name, fit
from stakes.calibration.estimators.choose import Terms, choose
from stakes.calibration.estimators.hybrid import hybrid, read_prior
from stakes.calibration.estimators.pooled import average, pairing, pooled
from stakes.calibration.holdout import held_out
from stakes.commands.calibrate_options import wanted
from stakes.errors import BadInput
from stakes.evaluation.items import ask
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
FEW = (32, 304, 576)


def outcome(document: str, tier: str, budget: int, correct: bool, run: str = "r") -> Outcome:
    return Outcome(
        sample=f"{document}{tier}", document=document, tier=tier, mechanism="resolution", selector=None, budget=budget,
        native=900, realised=budget, prediction="", truncated=False, score=float(correct), correct=correct,
        metric="relaxed", ms=0.0, run=run,
    )  # fmt: skip


def log(path: Path, outcomes: list[Outcome]) -> Path:
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in outcomes), encoding="utf-8")
    return path


def answers(pages: int, seed: int, run: str = "r") -> list[Outcome]:
    """High answers need about 300 tokens, low ones about 60."""
    rng = np.random.default_rng(seed)
    need = {"high": 2 ** rng.normal(8.2, 0.4, pages), "low": 2 ** rng.normal(6, 0.4, pages)}
    return [
        outcome(f"page{i}", tier, budget, bool(budget >= need[tier][i]), run)
        for i in range(pages)
        for tier in COSTS
        for budget in (32, 64, 96, 160, 304, 448, 576)
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.integers(20, 500),
)
def test_curves_keep_their_grid_and_stay_rates(wrong: list[int], prior: list[float], n: int) -> None:
    few = {"high": Curve(FEW, [w / 20 for w in wrong], 20), "low": Curve(FEW, [0.5] * 3, 20)}
    made = hybrid(few, {tier: Curve(FEW, prior, n) for tier in few})
    for tier, curve in made.items():
        assert curve.budgets == FEW
        assert curve.counts == few[tier].counts
        assert all(0 <= e <= 1 for e in curve.errors)


def test_many_answers_overrule_any_prior() -> None:
    truth = published()
    wrong_way = {tier: Curve(GRID, list(curve.errors[::-1]), 300) for tier, curve in truth.items()}
    many = {tier: Curve(GRID, curve.errors, 100_000) for tier, curve in truth.items()}
    made = hybrid(many, wrong_way)
    for tier, curve in truth.items():
        assert np.allclose(made[tier].errors, curve.errors, atol=0.005)


def test_a_prior_is_worth_no_more_answers_than_it_rests_on() -> None:
    few = {"high": Curve(FEW, [0.9, 0.5, 0.4], 20)}
    thin, thick = (hybrid(few, {"high": Curve(FEW, [0.9, 0.5, 0.1], n)})["high"] for n in (2, 5000))
    assert thick.error(576) < thin.error(576) - 0.02
    assert abs(thin.error(576) - 0.4) < 0.04


def test_one_answer_leaves_the_prior_nearly_as_it_is() -> None:
    truth = published()
    one = {tier: Curve(GRID, [float(round(e)) for e in curve.errors], 1) for tier, curve in truth.items()}
    made = hybrid(one, truth)
    for tier, curve in truth.items():
        assert max(abs(a - b) for a, b in zip(made[tier].errors, curve.errors, strict=True)) < 0.25


def test_with_few_answers_the_true_curve_is_nearer_than_what_was_measured() -> None:
    truth = published()
    # the prior is another reader's: in log-odds half as steep and shifted
    odds = {tier: np.log(np.array(c.errors) / (1 - np.array(c.errors))) for tier, c in truth.items()}
    prior = {tier: Curve(GRID, list(1 / (1 + np.exp(-(1 + 0.5 * o)))), 5000) for tier, o in odds.items()}
    rng = np.random.default_rng(0)
    off = {"raw": 0.0, "hybrid": 0.0}
    for _ in range(40):
        few = {t: Curve(GRID, [rng.binomial(10, e) / 10 for e in c.errors], 10) for t, c in truth.items()}
        for name, made in (("raw", few), ("hybrid", hybrid(few, prior))):
            off[name] += sum(float(np.square(np.subtract(made[t].errors, c.errors)).sum()) for t, c in truth.items())
    assert off["hybrid"] < 0.35 * off["raw"]


@pytest.mark.parametrize("prior", [[0.95] * 6 + [0.05] * 7, [0.95] * 12 + [0.05], [0.2] * 2 + [0.9] * 9 + [0.3] * 2])
def test_a_prior_that_misleads_is_not_heard(prior: list[float]) -> None:
    """Steps and a hump where the answers fall evenly: around the mapped prior alone they are off by 0.07 and more."""
    few = {"high": Curve(GRID, [round(e * 40) / 40 for e in np.linspace(0.9, 0.1, 13)], 40)}
    heard, alone = (made["high"].errors for made in (hybrid(few, {"high": Curve(GRID, prior, 5000)}), pooled(few)))
    assert np.allclose(heard, alone, atol=0.03)


def test_the_answers_of_one_question_count_as_its_own() -> None:
    """Errors at all budgets rise and fall together with the questions that were drawn: less is seen than is counted."""
    truth = published()
    few = {tier: Curve(GRID, [round(e * 20) / 20 for e in curve.errors], 20) for tier, curve in truth.items()}
    place = np.arange(20)[:, None]
    wrong = {tier: (place < np.round(np.array(curve.errors) * 20)).astype(int) for tier, curve in few.items()}
    asked = {tier: np.ones_like(rows) for tier, rows in wrong.items()}
    paired = ByDocument(tuple(map(str, range(20))), GRID, wrong, asked)
    assert pairing(paired) > 0.9
    assert hybrid(few, truth, paired) != hybrid(few, truth)


def test_two_groups_of_settings_are_as_likely_beforehand_however_many_they_are() -> None:
    one, many = np.zeros(1), np.zeros(9)
    assert average([(one, np.full((1, 2), 0.2)), (many, np.full((9, 2), 0.6))]) == pytest.approx([0.4, 0.4])
    likelier = average([(one + np.log(3), np.full((1, 2), 0.2)), (many, np.full((9, 2), 0.6))])
    assert likelier == pytest.approx([0.3, 0.3])


def test_a_prior_on_another_grid_is_read_between_its_budgets() -> None:
    few = {"high": Curve([32, 48, 64], [0.5, 0.5, 0.5], 1)}
    made = hybrid(few, {"high": Curve([32, 64], [0.9, 0.1], 1000)})["high"]
    assert made.errors[0] > made.errors[1] > made.errors[2]


def test_a_prior_that_points_the_wrong_way_says_nothing() -> None:
    falling = Curve(GRID, list(np.linspace(0.95, 0.05, 13)), 400)
    rising = Curve(GRID, list(np.linspace(0.05, 0.95, 13)), 400)
    flat = Curve(GRID, [0.5] * 13, 400)
    assert hybrid({"high": falling}, {"high": rising}) == hybrid({"high": falling}, {"high": flat})


def test_a_missing_tier_or_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no curve of tier 'low'"):
        hybrid(published(), {"high": published()["high"]})
    with pytest.raises(BadInput, match="there is no estimator 'hybrid:'"):
        check_name("hybrid:")
    with pytest.raises(BadInput, match="there is no file"):
        fit(f"hybrid:{tmp_path / 'none.json'}", published())


def test_documents_under_test_are_left_out_of_the_prior(tmp_path: Path) -> None:
    path = log(tmp_path / "prior.jsonl", answers(8, 0))
    whole, part = read_prior(path), read_prior(path, {"page0", "page1"})
    assert whole["high"].counts[0] == 8
    assert part["high"].counts[0] == 6
    with pytest.raises(BadInput, match="very documents"):
        read_prior(path, {f"page{i}" for i in range(8)})
    curves = tmp_path / "curves.json"
    curves.write_text(json.dumps({tier: asdict(curve) for tier, curve in whole.items()}))
    assert read_prior(curves) == whole
    with pytest.raises(BadInput, match="does not say which documents"):
        read_prior(curves, {"page0"})


def by_luck(pages: int) -> list[Outcome]:
    """Answers that say nothing, so that a prior decides."""
    rng = np.random.default_rng(3)
    return [replace(one, correct=bool(rng.random() < 0.5)) for one in answers(pages, 0)]


def spoiled(honest: list[Outcome], documents: set[str]) -> list[Outcome]:
    """The same prior, but thirty questions on each of these documents say that all is the other way round."""
    told = [
        replace(outcome(name, tier, budget, correct=tier == "high" or budget == 576, run="prior"), sample=f"{name}{i}")
        for name in documents
        for tier in COSTS
        for budget in (32, 64, 96, 160, 304, 448, 576)
        for i in range(30)
    ]
    return [one for one in honest if one.document not in documents] + told


def test_a_certificate_rests_on_outcomes_and_not_on_the_prior(tmp_path: Path) -> None:
    """What a prior says of the documents under test changes nothing, though it would change the choice."""
    outcomes, honest = by_luck(24), answers(24, 2, "prior")
    measured = by_document(outcomes, COSTS)
    second = measured.halves()[1]
    names = [
        f"hybrid:{log(tmp_path / f'{i}.jsonl', rows)}"
        for i, rows in enumerate((honest, spoiled(honest, set(second.documents))))
    ]
    terms = Terms(COSTS, measured.counts, 304 * 48)
    assert choose(measured, terms, names[0]).budgets != choose(measured, terms, names[1]).budgets
    first, other = (certify(measured, COSTS, 304, estimator=name) for name in names)
    assert first.record() == {**other.record(), "estimator": first.estimator}
    # and its figures are those of the VLM's own outcomes on these documents
    curves = second.curves()
    assert first.no_harm is not None
    even, tiered = (
        cwe_at(curves, budgets, COSTS, second.counts) for budgets in (dict.fromkeys(COSTS, 304), first.no_harm.budgets)
    )
    assert first.no_harm.gain == pytest.approx(even - tiered)
    assert {t: u.error for t, u in first.upper_errors.items()} == {
        t: curves[t].error(b) for t, b in first.budgets.items()
    }


def test_a_held_out_check_leaves_its_documents_out_of_the_prior(tmp_path: Path) -> None:
    outcomes, honest = by_luck(24), answers(24, 2, "prior")
    tested = set(list(dict.fromkeys(one.document for one in outcomes))[1::2])
    names = [f"hybrid:{log(tmp_path / f'{i}.jsonl', rows)}" for i, rows in enumerate((honest, spoiled(honest, tested)))]
    assert held_out(outcomes, COSTS, 304, None, names[0]) == held_out(outcomes, COSTS, 304, None, names[1])


def test_a_prior_that_praises_bad_budgets_does_not_ship(tmp_path: Path) -> None:
    measured = by_document(by_luck(40), COSTS)
    prior = [
        outcome(f"other{i}", tier, budget, budget == (576 if tier == "high" else 32), "p")
        for i in range(100)
        for tier in COSTS
        for budget in (32, 304, 576)
    ]
    made = certify(measured, COSTS, 304, estimator=f"hybrid:{log(tmp_path / 'p.jsonl', prior)}")
    assert made.shipped == "uniform"
    assert set(made.budgets.values()) == {304}


def test_the_command_says_so_before_answers_are_paid_for(tmp_path: Path) -> None:
    curves = tmp_path / "curves.json"
    curves.write_text(json.dumps({tier: asdict(curve) for tier, curve in published().items()}))
    assert wanted(f"hybrid:{curves}", False, None, None)[0] == f"hybrid:{curves}"
    with pytest.raises(BadInput, match="does not say which documents"):
        wanted(f"hybrid:{curves}", True, None, None)
    with pytest.raises(BadInput, match="there is no file"):
        wanted(f"hybrid:{tmp_path / 'none.json'}", False, None, None)
    with pytest.raises(BadInput, match="a prior may have seen them"):
        calibrate(None, [], COSTS, 304, KeywordRule(), log=tmp_path / "log", estimator=f"hybrid:{curves}", race=0.95)  # type: ignore[arg-type]


def test_a_calibration_with_a_prior_from_a_log_to_a_policy(tmp_path: Path) -> None:
    samples = write_samples(tmp_path, 6)
    asked = ask(samples, tmp_path)
    path = log(tmp_path / "prior.jsonl", answers(200, 5))
    made = calibrate(
        Oracle(),
        asked,
        COSTS,
        304,
        KeywordRule(),
        log=tmp_path / "log.jsonl",
        grid=[32, 304, 576],
        estimator=f"hybrid:{path}",
        confidence=0.9,
    )
    assert made.policy.estimator == f"hybrid:{path}"
    assert made.policy.tiers["high"].fitted is not None
    assert made.fitted["high"] != made.curves["high"]
    assert made.held_out is not None
    assert made.certificate is not None
    plain = calibrate(
        Oracle(), asked, COSTS, 304, KeywordRule(), log=tmp_path / "log.jsonl", grid=[32, 304, 576], estimator="raw"
    )
    assert plain.run.answered == 0
    assert plain.curves == made.curves  # what was measured is shown as measured
