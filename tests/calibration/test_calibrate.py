"""Curves are what was answered, and the policy follows from them alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import budgets_to_measure, default_grid
from stakes.budgets.curve_files import read_curves
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.holdout import held_out
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import cwe
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 96, 208, 304, 400, 512, 576)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("calibrate")


@pytest.fixture(scope="module")
def samples(folder: Path) -> list[Sample]:
    return prepare_samples(write_samples(folder, pages=20), folder, KeywordRule())


@pytest.fixture(scope="module")
def found(samples: list[Sample], folder: Path) -> Calibration:
    return calibrate(
        samples,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=folder / "log.jsonl",
        options=CalibrationOptions(grid=GRID),
    )


def test_the_curves_are_the_rates_of_wrong_answers(found: Calibration, folder: Path) -> None:
    outcomes = read_outcomes(folder / "log.jsonl")
    for tier, curve in found.curves.items():
        assert curve.budgets == GRID
        for budget, error, count in zip(curve.budgets, curve.errors, curve.counts, strict=True):
            rows = [outcome for outcome in outcomes if (outcome.tier, outcome.budget) == (tier, budget)]
            assert (
                (len(rows), sum(not row.correct for row in rows)) == (count, round(error * count)) == (40, error * 40)
            )
    assert found.curves["high"].errors[0] > 0.9 > 0.2 > found.curves["high"].errors[-1]
    assert read_curves(folder / "log.jsonl") == found.curves


def test_the_policy_holds_the_optimum_under_the_mean_and_all_that_it_rests_on(found: Calibration) -> None:
    counts = {"high": 40, "low": 40}
    best = allocate(found.curves, COSTS, counts, 304 * 80)
    policy = found.policy
    assert policy.budgets == best.budgets == {"high": 576, "low": 32}
    assert (policy.family, policy.mechanism, policy.mean_budget) == ("qwen2.5-vl", "resolution", 304)
    assert {tier: plan.curve for tier, plan in policy.tiers.items() if plan.curve} == found.curves
    assert policy.decide("What is the total?").budget == 576
    assert policy.fingerprint == str(found.run.fingerprint)
    assert found.plan.pair is not None
    assert 0 < found.plan.pair.break_even < 5
    assert found.native_tokens == 80 * 972
    assert found.measured_tokens == sum(outcome.realised for outcome in found.run.outcomes.values())
    assert json.loads(json.dumps(found.record()))["tokens"]["policy"] == best.spent


def test_the_held_out_check_chooses_on_odd_documents_and_tests_on_even_ones(found: Calibration) -> None:
    check = found.held_out
    assert check is not None
    assert (check.chosen_on, check.tested_on, check.gain.units, check.uniform_budget) == (10, 10, 10, 304)
    rows = list(found.run.outcomes.values())
    even = [row for row in rows if int(row.document.removeprefix("page")) % 2]
    by_arm = [
        cwe([row.correct for row in arm], [COSTS[row.tier] for row in arm])
        for arm in (
            [row for row in even if row.budget == 304],
            [row for row in even if row.budget == check.budgets[row.tier]],
        )
    ]
    assert check.gain.value == pytest.approx(by_arm[0] - by_arm[1])
    assert check.gain.low > 0.1
    odd = [row for row in rows if row not in even]
    fit = calibrate_curves(odd)
    assert check.budgets == allocate(fit, COSTS, {"high": 20, "low": 20}, 304 * 40).budgets


def calibrate_curves(rows: Any) -> Any:
    from stakes.budgets.curve_files import curves_from_outcomes

    return curves_from_outcomes(rows)


def test_a_check_that_cannot_be_made_has_a_reason(samples: list[Sample], folder: Path) -> None:
    found = calibrate(
        samples[:4],
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=folder / "one.jsonl",
        options=CalibrationOptions(grid=GRID),
    )
    assert found.held_out is None
    assert "the second half of the 1 documents has no question of tier 'high'" in found.why_not_held_out
    rows = [outcome for outcome in found.run.outcomes.values() if outcome.budget > 304]
    two = rows + [replace(row, document="other", sample=f"{row.sample}'") for row in rows]
    with pytest.raises(InfeasibleBudget, match="the smallest measured budget is 400, above the mean budget of 304"):
        held_out(two, COSTS, 304)


def test_the_check_is_at_equal_tokens_though_the_mean_is_between_two_budgets(
    samples: list[Sample], folder: Path
) -> None:
    """Of a mean of 290 uniform can spend 200: a choice that spent 290 would win by tokens and not by choosing."""
    found = calibrate(
        samples,
        Oracle(),
        costs={"high": 1.001, "low": 1.0},
        mean_budget=290,
        signal=KeywordRule(),
        log=folder / "off.jsonl",
        options=CalibrationOptions(grid=(100, 200, 300)),
    )
    assert found.held_out is not None
    assert found.held_out.uniform_budget == 200
    assert sum(found.held_out.budgets.values()) <= 2 * 200, found.held_out


def test_a_floor_and_another_mechanism_reach_the_policy(samples: list[Sample], folder: Path) -> None:
    found = calibrate(
        samples,
        Oracle(),
        costs=COSTS,
        mean_budget=304,
        signal=KeywordRule(),
        log=folder / "deletion.jsonl",
        options=CalibrationOptions(grid=GRID, setting=Setting("deletion"), floor=90),
    )
    assert (found.policy.mechanism, found.policy.floor) == ("deletion", 90)
    assert min(found.policy.budgets.values()) >= 96
    assert found.measured_tokens == sum(GRID) * 80


def test_tiers_without_a_cost_or_a_sample_are_refused_before_any_answer(samples: list[Sample], folder: Path) -> None:
    model = Oracle()

    def refused(costs: dict[str, float], says: str, **more: Any) -> None:
        with pytest.raises(BadInput, match=says):
            calibrate(
                samples,
                model,
                costs=costs,
                mean_budget=more.pop("mean", 304),
                signal=KeywordRule(),
                log=folder / "none.jsonl",
                options=CalibrationOptions(**more),
            )

    refused({"high": 5.0}, "tier 'low' .*has no cost; give one for it, such as --cost low=1")
    refused({**COSTS, "gold": 9.0}, "no sample is of tier 'gold'")
    refused({"high": -5.0, "low": 1.0}, "the cost of tier 'high' is -5.0")
    refused(COSTS, "the smallest budget of the grid is 32, above the mean budget of 20", grid=[32], mean=20)
    refused(COSTS, "a grid needs budgets of at least one token", grid=[0, 32])
    refused(COSTS, "the floor is at least one token, not -5", floor=-5)
    refused(COSTS, "the floor of 400 lies above every budget of the grid .at most 304.", grid=[32, 304], floor=400)
    refused(COSTS, "at or above the floor of 300 is 304, above the mean budget of 290", grid=GRID, floor=300, mean=290)
    refused({"high": 1e308, "low": 1e308}, "the cost of tier 'high' is 1e.308", grid=GRID)
    high = [one for one in samples if one.tier == "high"]
    with pytest.raises(BadInput, match="tier 'low' .one that the signal can name. has no cost"):
        calibrate(high, model, costs={"high": 5.0}, mean_budget=304, signal=KeywordRule(), log=folder / "none.jsonl")
    assert model.batches == []


def test_the_default_grid_is_the_papers_scaled_to_the_mean() -> None:
    assert default_grid(304) == (32, 64, 96, 128, 160, 224, 304, 384, 448, 480, 512, 544, 576)
    assert default_grid(152)[::6] == (16, 152, 288)
    assert 1000 in default_grid(1000)
    with pytest.raises(BadInput, match="the mean budget is 1 to 1,000,000,000 tokens per image, not 0"):
        budgets_to_measure(None, 0, None)
