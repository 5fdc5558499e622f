"""Adaptive sampling asks little, rarely drops the best, and decides as all answers would."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.replay import replay
from benchmarks.scenarios import published
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.adaptive.evidence import BET_SIZES
from stakes.calibration.adaptive.sampler import AdaptiveSampling, _Sampler, sample_adaptively
from stakes.calibration.adaptive.units import Columns, leveled_curves, slice_numbers
from stakes.calibration.by_document import ByDocument
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import Terms, choose
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

COARSE = (32, 160, 304, 448, 576)
COSTS = {"high": 5.0, "low": 1.0}


def coarse(errors: dict[str, list[float]] | None = None) -> dict[str, Curve]:
    found = errors or {tier: [curve.error(b) for b in COARSE] for tier, curve in published().items()}
    return {tier: Curve(COARSE, rates, 300) for tier, rates in found.items()}


def terms(measured: ByDocument, ratio: float = 5.0) -> Terms:
    return Terms({"high": ratio, "low": 1.0}, measured.counts, 304 * sum(measured.counts.values()))


def test_a_third_of_the_passes_decides_nearly_as_well_as_all() -> None:
    gaps, truth = [], published()
    for seed in range(8):
        measured = simulate(truth, {"high": 300, "low": 300}, np.random.default_rng(seed))
        on = terms(measured)
        found = sample_adaptively(measured, on, replay(measured), AdaptiveSampling(max_passes=2730))
        assert found.passes <= 2730 < found.of == 7800
        full = choose(measured, on, "pooled").budgets
        gaps.append(cwe_at(truth, found.budgets, COSTS, on.counts) - cwe_at(truth, full, COSTS, on.counts))
    assert np.mean(gaps) < 0.005


def test_the_best_choice_is_ruled_out_no_more_often_than_stated() -> None:
    # all choices are exactly alike, so that every leader is as good as its rivals: the hardest null
    truth = coarse({"high": [0.5] * 5, "low": [0.3] * 5})
    rng, lost = np.random.default_rng(0), 0
    for _ in range(60):
        measured = simulate(truth, {"high": 60, "low": 35}, rng, per_document=1.5, likeness=0.4)
        found = sample_adaptively(
            measured, terms(measured), replay(measured), AdaptiveSampling(estimator="raw", confidence=0.8)
        )
        lost += (304, 160) not in found.remaining
    assert lost / 60 <= 0.2 + 2 * np.sqrt(0.2 * 0.8 / 60)


def test_a_unit_never_chooses_the_leader_that_it_is_judged_by() -> None:
    # before the first answer the most even choice leads, however bad it then turns out
    truth = coarse({"high": [1.0, 1.0, 1.0, 0.0, 0.0], "low": [0.0, 1.0, 1.0, 1.0, 1.0]})
    measured = simulate(truth, {"high": 30, "low": 30}, np.random.default_rng(0))
    sampler = _Sampler(measured, terms(measured), replay(measured), AdaptiveSampling(estimator="raw"))
    sampler.ask_units([sampler.units[0]], sampler.open_columns(sampler.alive), sampler.alive)
    budgets = [tuple(sampler.candidates.budgets(i).values()) for i in range(len(sampler.alive))]
    at = {choice: np.exp(sampler.wealth.log_wealth[i]) for i, choice in enumerate(budgets)}
    assert at[304, 304] == pytest.approx(np.ones(len(BET_SIZES)))
    assert at[576, 32] == pytest.approx(
        (1 - BET_SIZES) * (1 - BET_SIZES / 5)
    )  # right where the leader was wrong, twice
    assert at[448, 160] == pytest.approx(1 - BET_SIZES)


def test_what_clearly_loses_is_not_asked_again() -> None:
    truth = coarse({"high": [0.9, 0.9, 0.9, 0.05, 0.05], "low": [0.1, 0.1, 0.1, 0.1, 0.1]})
    measured = simulate(truth, {"high": 200, "low": 200}, np.random.default_rng(0))
    found = sample_adaptively(measured, terms(measured, 10.0), replay(measured))
    asked = found.measured.asked["high"].sum(axis=0)
    assert found.budgets["high"] in (448, 576)
    assert max(asked[:3]) < 60 < asked[3]
    assert found.passes < 0.8 * found.of
    assert found.dropped_early == 0
    assert all(high >= 448 for high, _ in found.remaining)


def test_a_dip_that_contradicts_monotony_is_found_by_evidence() -> None:
    truth = coarse({"high": [0.6, 0.05, 0.6, 0.6, 0.6], "low": [0.5, 0.5, 0.5, 0.5, 0.1]})
    measured = simulate(truth, {"high": 200, "low": 200}, np.random.default_rng(1))
    found = sample_adaptively(
        measured, terms(measured), replay(measured), AdaptiveSampling(max_passes=900, estimator="raw")
    )
    assert (160, 448) in found.remaining or (160, 304) in found.remaining
    assert found.budgets["high"] == 160


@given(st.integers(120, 1500), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_it_never_asks_more_than_it_may_nor_the_same_twice(passes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    measured = simulate(coarse(), {"high": 60, "low": 40}, rng, per_document=2.0)
    seen: set[tuple[int, str, int]] = set()
    count = 0

    def ask_once(rows: Sequence[int], cells: Columns) -> dict[str, NDArray[np.int64]]:
        nonlocal count
        for tier, columns in cells.items():
            pairs = {(row, tier, column) for row in rows for column in columns}
            assert not pairs & seen
            seen.update(pairs)
            count += sum(int(measured.asked[tier][row, 0]) for row in rows) * len(columns)
        answered = replay(measured)(rows, cells)
        return dict(answered)

    found = sample_adaptively(measured, terms(measured), ask_once, AdaptiveSampling(estimator="raw", max_passes=passes))
    assert found.passes == count <= passes
    assert sum(measured.counts[t] * b for t, b in found.budgets.items()) <= 304 * 100
    assert tuple(found.budgets.values()) in found.remaining
    assert found.ruled_out + len(found.remaining) == found.candidates


def test_levelling_puts_an_early_budget_where_all_questions_would_have() -> None:
    wrong, asked = np.zeros((4, 2), dtype=np.int64), np.ones((4, 2), dtype=np.int64)
    wrong[:, 1] = [0, 0, 1, 1]  # the last two are hard ones
    wrong[:2, 0], asked[2:, 0] = [1, 0], 0
    measured = ByDocument(tuple("abcd"), (32, 64), {"t": wrong}, {"t": asked})
    assert measured.curves()["t"].errors == (0.5, 0.5)
    assert leveled_curves(measured)["t"].errors == (1.0, 0.5)


def test_slices_hold_one_question_a_tier_and_not_by_place() -> None:
    asked = [(f"d{d}/{q}", f"d{d}", "high" if q < 6 else "low") for d in range(40) for q in range(9)]
    place = slice_numbers(asked)
    for document in {document for _, document, _ in asked}:
        for tier, number in (("high", 6), ("low", 3)):
            assert sorted(place[s] for s, d, t in asked if (d, t) == (document, tier)) == list(range(number))
    first = [int(sample.partition("/")[2]) for sample, at in place.items() if at == 0 and "/" in sample]
    assert len(set(first)) == 9


def test_a_model_is_sampled_adaptively_and_the_rest_can_be_asked_later(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=24, per_page=2), tmp_path, KeywordRule())
    model, log = Oracle(), tmp_path / "log.jsonl"
    cap = 5 * 96 // 2
    adaptive = calibrate(
        samples,
        model,
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=COARSE, estimator="raw", sampling=AdaptiveSampling(0.95, cap)),
    )
    assert adaptive.adaptive is not None
    assert len(read_outcomes(log)) == adaptive.adaptive.passes == adaptive.run.answered <= cap
    assert adaptive.policy.budgets == adaptive.adaptive.budgets
    assert "adaptive sampling" in adaptive.why_not_held_out
    again = calibrate(
        samples,
        model,
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=COARSE, estimator="raw", sampling=AdaptiveSampling(0.95, cap)),
    )
    assert again.run.answered == 0
    assert again.policy.model_dump() == adaptive.policy.model_dump()
    full = calibrate(
        samples,
        model,
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=log,
        options=CalibrationOptions(grid=COARSE, estimator="raw"),
    )
    assert full.run.answered == 480 - adaptive.adaptive.passes
    assert (
        adaptive.native_tokens == full.native_tokens
    )  # pages of one size; adaptive sampling asks some of the questions only
    costs = {tier: plan.cost for tier, plan in full.policy.tiers.items()}
    counts = {"high": 48, "low": 48}
    gap = cwe_at(full.curves, adaptive.policy.budgets, costs, counts) - cwe_at(
        full.curves, full.policy.budgets, costs, counts
    )
    assert 0 <= gap < 0.05


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ({"floor": 160}, (1, 5)),  # the smallest budget may not be had,
        ({"total": 134 * 140}, (0, 3)),  # the largest cannot be paid for,
        ({"floor": 160, "total": 230 * 140}, (1, 4)),  # or both
    ],
)
def test_budgets_that_nobody_may_have_are_as_good_as_not_in_the_grid(
    rule: dict[str, int], columns: tuple[int, int]
) -> None:
    measured = simulate(coarse(), {"high": 60, "low": 80}, np.random.default_rng(2), per_document=1.5)
    on = replace(terms(measured), **rule)  # type: ignore[arg-type]
    held = COARSE[columns[0] : columns[1]]
    wrong, asked = (
        {t: table[:, slice(*columns)] for t, table in of.items()} for of in (measured.wrong, measured.asked)
    )
    cut = ByDocument(measured.documents, held, wrong, asked)
    found, same = (
        sample_adaptively(table, on, replay(table), AdaptiveSampling(estimator="raw")) for table in (measured, cut)
    )
    assert found.record() | {"of": 0} == same.record() | {"of": 0}
    assert found.fitted == same.fitted
    capped = sample_adaptively(measured, on, replay(measured), AdaptiveSampling(max_passes=500))
    assert capped.budgets["high"] in held


def test_one_tier_may_have_a_floor_of_its_own() -> None:
    # the high-cost tier's curve then begins at 304, the other's at 32
    truth = coarse({"high": [0.0, 0.0, 0.9, 0.9, 0.1], "low": [0.1, 0.9, 0.9, 0.9, 0.9]})
    measured = simulate(truth, {"high": 60, "low": 60}, np.random.default_rng(0))
    on = replace(terms(measured), floors={"high": 304})
    found = sample_adaptively(measured, on, replay(measured), AdaptiveSampling(estimator="raw", max_passes=400))
    assert found.budgets == {"high": 576, "low": 32}
    assert not found.measured.asked["high"][:, :2].any()


def test_a_model_is_sampled_adaptively_above_a_floor(tmp_path: Path) -> None:
    samples = prepare_samples(write_samples(tmp_path, pages=8, per_page=2), tmp_path, KeywordRule())
    adaptive = calibrate(
        samples,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=tmp_path / "log.jsonl",
        options=CalibrationOptions(floor=96, sampling=AdaptiveSampling(0.95, 300)),
    )
    assert adaptive.adaptive is not None
    assert adaptive.policy.floor == 96
    assert min(adaptive.policy.budgets.values()) >= 96
    assert min(outcome.budget for outcome in read_outcomes(tmp_path / "log.jsonl")) >= 96
    assert adaptive.policy.budgets == adaptive.adaptive.budgets


def test_what_adaptive_sampling_cannot_do_is_an_error(tmp_path: Path) -> None:
    measured = simulate(coarse(), {"high": 20, "low": 20}, np.random.default_rng(0))
    with pytest.raises(BadInput, match="at least 30 passes"):
        sample_adaptively(measured, terms(measured), replay(measured), AdaptiveSampling(max_passes=5))
    with pytest.raises(BadInput, match="confidence"):
        sample_adaptively(measured, terms(measured), replay(measured), AdaptiveSampling(confidence=1.0))
    with pytest.raises(InfeasibleBudget, match="no choice"):
        sample_adaptively(measured, Terms(COSTS, measured.counts, 100), replay(measured))
    samples = prepare_samples(write_samples(tmp_path, pages=4), tmp_path, KeywordRule())
    with pytest.raises(BadInput, match="choose one"):
        calibrate(
            samples,
            Oracle(),
            costs=COSTS,
            mean_budget=304,
            signal=KeywordRule(),
            log=tmp_path / "l",
            options=CalibrationOptions(certification=Certification(0.9), sampling=AdaptiveSampling(0.95)),
        )
