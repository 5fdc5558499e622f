"""Curves are what was answered, the policy follows from them alone, and a kill at any moment changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.evaluation.oracle import Oracle, write_samples
from tests.models.tiny import picture, tiny

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import budgets_to_measure, default_grid
from stakes.budgets.curve_files import read_curves
from stakes.budgets.policy import Policy
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.holdout import held_out
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.outcome_log import read_outcomes
from stakes.evaluation.samples import prepare_samples
from stakes.evaluation.statistics import cwe
from stakes.models.local.image_cache import EncodedCache
from stakes.signals import KeywordRule

ROOT = Path(__file__).parents[2]
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


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
from tests.evaluation.oracle import Oracle, write_samples
from stakes.calibration.calibrate import calibrate
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

folder, dice, kills = Path(sys.argv[1]), random.Random(4), 0
samples, log = write_samples(folder, pages=24), folder / "killed.jsonl"

def start(name, seconds):  # a process of its own; only the imports are shared
    child = os.fork()
    if child:
        return child
    prepared, model = prepare_samples(samples, folder, KeywordRule()), Oracle(seconds=seconds)
    costs = {"high": 5.0, "low": 1.0}
    found = calibrate(prepared, model, costs=costs, signal=KeywordRule(), log=folder / f"{name}.jsonl")
    found.policy.save(folder / f"{name}.json")
    os._exit(0)

def size():
    return log.stat().st_size if log.exists() else 0

for _ in range(10):
    wanted = size() + dice.randrange(2 * 32 * 300)  # up to two batches further, and some milliseconds on
    child = start("killed", 0.02)
    while size() <= wanted and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.001)
    time.sleep(0.03 * dice.random())
    os.kill(child, signal.SIGKILL)
    kills += os.waitpid(child, 0)[1] == signal.SIGKILL and not (folder / "killed.json").exists()
ends = [os.waitpid(start(name, 0.0), 0)[1] for name in ("killed", "calm")]
print(json.dumps([kills, ends]))
"""


def test_killed_at_ten_random_moments_it_ends_with_the_same_outcomes_and_the_same_policy_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLER, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [10, [0, 0]], "ten kills, each within the run"

    def facts(path: Path) -> list[str]:
        return sorted(repr(replace(outcome, ms=0.0)) for outcome in read_outcomes(path))

    assert len(facts(tmp_path / "killed.jsonl")) == 96 * 13
    assert facts(tmp_path / "killed.jsonl") == facts(tmp_path / "calm.jsonl")
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "calm.json").read_bytes()
    assert Policy.load(tmp_path / "killed.json").budgets


@pytest.mark.parametrize("mechanism", ["resolution", "deletion"])
def test_a_real_model_class_end_to_end_the_same_after_a_cut(mechanism: Any, tmp_path: Path) -> None:
    samples = []
    for number in range(3):
        picture(280 + 28 * number, 224, number).save(tmp_path / f"{number}.png")
        for question in ("What is the total?", "Who signed?"):
            sample = f"{number}{question}"
            samples.append(Sample(sample, question, ("a",), f"{number}.png", document=str(number)))
    model = replace(tiny("qwen2_5_vl"), cache=EncodedCache())
    samples, log, setting = (
        prepare_samples(samples, tmp_path, KeywordRule()),
        tmp_path / "log.jsonl",
        Setting(mechanism),
    )
    grid = (12, 24, 40)
    encoded: list[int] = []
    handle = model.model.model.visual.register_forward_hook(lambda *_: encoded.append(1))

    def go() -> Calibration:
        return calibrate(
            samples,
            model,
            costs=COSTS,
            mean_budget=30,
            signal=KeywordRule(),
            log=log,
            options=CalibrationOptions(grid=grid, setting=setting),
        )

    try:
        first = go()
    finally:
        handle.remove()
    assert len(encoded) == (9 if mechanism == "resolution" else 3), "once per size, or once for all budgets"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:7]) + lines[7][:20])
    model.cache = EncodedCache()
    again = go()
    assert (again.run.answered, again.run.changed) == (11, 0)
    assert {k: o.prediction for k, o in again.run.outcomes.items()} == {
        k: o.prediction for k, o in first.run.outcomes.items()
    }
    assert again.policy.model_dump() == first.policy.model_dump()
    assert len({outcome.prediction for outcome in first.run.outcomes.values()}) > 3
    with pytest.raises(BadInput, match="model.length was 8 and is 5"):
        calibrate(
            samples,
            replace(model, max_new_tokens=5),
            costs=COSTS,
            mean_budget=30,
            signal=KeywordRule(),
            log=log,
            options=CalibrationOptions(grid=grid, setting=setting),
        )
