"""A race asks little, drops the best seldom, and decides as all answers would."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.scenarios import published
from stakes.calibration.adaptive.evidence import BETS
from stakes.calibration.adaptive.race import _Race, race
from stakes.calibration.adaptive.rows import Cells, asker, levelled, slices
from stakes.calibration.by_document import ByDocument
from stakes.calibration.calibrate import calibrate
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators.choose import Terms, choose
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.items import ask
from stakes.evaluation.outcome_log import read_outcomes
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
        found = race(measured, on, asker(measured), passes=2730)
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
        found = race(measured, terms(measured), asker(measured), estimator="raw", confidence=0.8)
        lost += (304, 160) not in found.left
    assert lost / 60 <= 0.2 + 2 * np.sqrt(0.2 * 0.8 / 60)


def test_a_unit_never_chooses_the_leader_that_it_is_judged_by() -> None:
    # before the first answer the most even choice leads, however bad it then turns out
    truth = coarse({"high": [1.0, 1.0, 1.0, 0.0, 0.0], "low": [0.0, 1.0, 1.0, 1.0, 1.0]})
    measured = simulate(truth, {"high": 30, "low": 30}, np.random.default_rng(0))
    run = _Race(measured, terms(measured), asker(measured), "raw", 9e9)
    run.look([run.units[0]], run.cells(run.alive), run.alive)
    budgets = [tuple(run.choices.budgets(i).values()) for i in range(len(run.alive))]
    at = {choice: np.exp(run.bets.capital[i]) for i, choice in enumerate(budgets)}
    assert at[304, 304] == pytest.approx(np.ones(len(BETS)))
    assert at[576, 32] == pytest.approx((1 - BETS) * (1 - BETS / 5))  # right where the leader was wrong, twice
    assert at[448, 160] == pytest.approx(1 - BETS)


def test_what_clearly_loses_is_not_asked_again() -> None:
    truth = coarse({"high": [0.9, 0.9, 0.9, 0.05, 0.05], "low": [0.1, 0.1, 0.1, 0.1, 0.1]})
    measured = simulate(truth, {"high": 200, "low": 200}, np.random.default_rng(0))
    found = race(measured, terms(measured, 10.0), asker(measured))
    asked = found.measured.asked["high"].sum(axis=0)
    assert found.budgets["high"] in (448, 576)
    assert max(asked[:3]) < 60 < asked[3]
    assert found.passes < 0.8 * found.of
    assert found.set_aside == 0
    assert all(high >= 448 for high, _ in found.left)


def test_a_dip_that_contradicts_monotony_is_found_by_evidence() -> None:
    truth = coarse({"high": [0.6, 0.05, 0.6, 0.6, 0.6], "low": [0.5, 0.5, 0.5, 0.5, 0.1]})
    measured = simulate(truth, {"high": 200, "low": 200}, np.random.default_rng(1))
    found = race(measured, terms(measured), asker(measured), passes=900, estimator="isotonic")
    assert (160, 448) in found.left or (160, 304) in found.left
    assert found.budgets["high"] == 160


@given(st.integers(120, 1500), st.integers(0, 50))
@settings(max_examples=25, deadline=None)
def test_it_never_asks_more_than_it_may_nor_the_same_twice(passes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    measured = simulate(coarse(), {"high": 60, "low": 40}, rng, per_document=2.0)
    seen: set[tuple[int, str, int]] = set()
    count = 0

    def ask_once(rows: Sequence[int], cells: Cells) -> dict[str, NDArray[np.int64]]:
        nonlocal count
        for tier, columns in cells.items():
            pairs = {(row, tier, column) for row in rows for column in columns}
            assert not pairs & seen
            seen.update(pairs)
            count += sum(int(measured.asked[tier][row, 0]) for row in rows) * len(columns)
        answered = asker(measured)(rows, cells)
        return dict(answered)

    found = race(measured, terms(measured), ask_once, estimator="raw", passes=passes)
    assert found.passes == count <= passes
    assert sum(measured.counts[t] * b for t, b in found.budgets.items()) <= 304 * 100
    assert tuple(found.budgets.values()) in found.left
    assert found.ruled_out + len(found.left) == found.candidates


def test_levelling_puts_an_early_budget_where_all_questions_would_have() -> None:
    wrong, asked = np.zeros((4, 2), dtype=np.int64), np.ones((4, 2), dtype=np.int64)
    wrong[:, 1] = [0, 0, 1, 1]  # the last two are hard ones
    wrong[:2, 0], asked[2:, 0] = [1, 0], 0
    measured = ByDocument(tuple("abcd"), (32, 64), {"t": wrong}, {"t": asked})
    assert measured.curves()["t"].errors == (0.5, 0.5)
    assert levelled(measured)["t"].errors == (1.0, 0.5)


def test_slices_hold_one_question_a_tier_and_not_by_place() -> None:
    asked = [(f"d{d}/{q}", f"d{d}", "high" if q < 6 else "low") for d in range(40) for q in range(9)]
    place = slices(asked)
    for document in {document for _, document, _ in asked}:
        for tier, number in (("high", 6), ("low", 3)):
            assert sorted(place[s] for s, d, t in asked if (d, t) == (document, tier)) == list(range(number))
    first = [int(sample.partition("/")[2]) for sample, at in place.items() if at == 0 and "/" in sample]
    assert len(set(first)) == 9


def test_a_model_is_raced_and_the_rest_can_be_asked_later(tmp_path: Path) -> None:
    asked = ask(write_samples(tmp_path, pages=24, per_page=2), tmp_path, KeywordRule())
    model, log = Oracle(), tmp_path / "log.jsonl"
    cap = 5 * 96 // 2
    raced = calibrate(
        model, asked, COSTS, 304, KeywordRule(), log=log, grid=COARSE, race=0.95, passes=cap, estimator="raw"
    )
    assert raced.raced is not None
    assert len(read_outcomes(log)) == raced.raced.passes == raced.run.answered <= cap
    assert raced.policy.budgets == raced.raced.budgets
    assert "race" in raced.why_not_held_out
    again = calibrate(
        model, asked, COSTS, 304, KeywordRule(), log=log, grid=COARSE, race=0.95, passes=cap, estimator="raw"
    )
    assert again.run.answered == 0
    assert again.policy.model_dump() == raced.policy.model_dump()
    full = calibrate(model, asked, COSTS, 304, KeywordRule(), log=log, grid=COARSE, estimator="raw")
    assert full.run.answered == 480 - raced.raced.passes
    assert raced.native_tokens == full.native_tokens  # pages of one size; a race asks some of the questions only
    costs = {tier: plan.cost for tier, plan in full.policy.tiers.items()}
    counts = {"high": 48, "low": 48}
    gap = cwe_at(full.curves, raced.policy.budgets, costs, counts) - cwe_at(
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
    found, same = (race(table, on, asker(table), estimator="raw") for table in (measured, cut))
    assert found.record() | {"of": 0} == same.record() | {"of": 0}
    assert found.fitted == same.fitted
    capped = race(measured, on, asker(measured), passes=500)
    assert capped.budgets["high"] in held


def test_one_tier_may_have_a_floor_of_its_own() -> None:
    # the dear tier's curve then begins at 304, the other's at 32
    truth = coarse({"high": [0.0, 0.0, 0.9, 0.9, 0.1], "low": [0.1, 0.9, 0.9, 0.9, 0.9]})
    measured = simulate(truth, {"high": 60, "low": 60}, np.random.default_rng(0))
    on = replace(terms(measured), floors={"high": 304})
    found = race(measured, on, asker(measured), estimator="raw", passes=400)
    assert found.budgets == {"high": 576, "low": 32}
    assert not found.measured.asked["high"][:, :2].any()


def test_a_model_is_raced_above_a_floor(tmp_path: Path) -> None:
    asked = ask(write_samples(tmp_path, pages=8, per_page=2), tmp_path, KeywordRule())
    raced = calibrate(
        Oracle(), asked, COSTS, 304, KeywordRule(), log=tmp_path / "log.jsonl", race=0.95, floor=96, passes=300
    )
    assert raced.raced is not None
    assert raced.policy.floor == 96
    assert min(raced.policy.budgets.values()) >= 96
    assert min(outcome.budget for outcome in read_outcomes(tmp_path / "log.jsonl")) >= 96
    assert raced.policy.budgets == raced.raced.budgets


def test_what_cannot_be_raced_is_said(tmp_path: Path) -> None:
    measured = simulate(coarse(), {"high": 20, "low": 20}, np.random.default_rng(0))
    with pytest.raises(BadInput, match="at least 30 passes"):
        race(measured, terms(measured), asker(measured), passes=5)
    with pytest.raises(BadInput, match="confidence"):
        race(measured, terms(measured), asker(measured), confidence=1.0)
    with pytest.raises(InfeasibleBudget, match="no choice"):
        race(measured, Terms(COSTS, measured.counts, 100), asker(measured))
    asked = ask(write_samples(tmp_path, pages=4), tmp_path, KeywordRule())
    with pytest.raises(BadInput, match="choose one"):
        calibrate(Oracle(), asked, COSTS, 304, KeywordRule(), log=tmp_path / "l", race=0.95, confidence=0.9)
