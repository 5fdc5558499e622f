"""``stakes.calibrate`` keeps harm limits in all that it chooses, and reports a tier that it gives up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.replay import KnownAnswers
from benchmarks.scenarios import published
from tests.evaluation.oracle import Oracle, write_samples

from stakes.budgets.digests import edited_parts
from stakes.budgets.policy import Policy
from stakes.calibration.adaptive.sampler import AdaptiveSampling, sample_adaptively
from stakes.calibration.calibrate import CalibrationOptions, calibrate
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.estimators import Terms
from stakes.calibration.holdout import held_out
from stakes.calibration.result import Calibration
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.samples import prepare_samples
from stakes.signals import KeywordRule

COSTS = {"high": 5.0, "low": 1.0}
GRID = (32, 208, 256, 304, 352, 400, 576)
Make = Callable[..., Calibration]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Calibrate on one log with these options."""
    folder = tmp_path_factory.mktemp("harm")
    samples: list[Sample] = prepare_samples(write_samples(folder, pages=60), folder, KeywordRule())

    def calibrated(log: str = "log.jsonl", **options: object) -> Calibration:
        chosen = replace(CalibrationOptions(grid=GRID), **options)  # type: ignore[arg-type]
        path = folder / log
        return calibrate(
            samples, Oracle(), costs=COSTS, mean_budget=304, signal=KeywordRule(), log=path, options=chosen
        )

    return calibrated


def rise(found: Calibration, tier: str = "low") -> float:
    curve = found.fitted[tier]
    return curve.error(found.policy.budgets[tier]) - curve.error(304)


def test_without_a_limit_the_low_tier_is_given_up_and_that_is_reported(make: Make) -> None:
    found = make()
    assert found.policy.budgets["low"] == 32
    assert found.policy.max_harm is None
    assert found.harm is not None
    assert set(found.harm.rises) == {"low"}
    assert found.harm.rises["low"].rise == pytest.approx(rise(found))
    assert rise(found) > 0.25
    assert found.harm.cwe == pytest.approx(found.plan.allocation.cwe)
    record = found.record()["harm"]
    assert isinstance(record, dict)
    assert record["note"] == str(found.harm)


@pytest.mark.parametrize("limits", [0.15, {"low": 0.15}, {"low": 0.02}])
def test_a_limit_is_kept_and_costs_what_the_report_said(make: Make, limits: float | dict[str, float]) -> None:
    free, found = make(), make(max_harm=limits)
    assert found.run.answered == 0  # the same answers
    limit = limits if isinstance(limits, float) else limits["low"]
    assert rise(found) <= limit + 1e-9
    assert found.policy.budgets["low"] > 32
    assert found.harm is None
    assert found.policy.max_harm == ({"high": limits, "low": limits} if isinstance(limits, float) else limits)
    assert free.plan.allocation.cwe < found.plan.allocation.cwe
    assert free.harm is not None
    if limits == 0.15:
        assert found.policy.budgets == free.harm.limited_budgets
        assert found.plan.allocation.cwe == pytest.approx(free.harm.limited_cwe)
    assert all(found.fitted["low"].error(row.budgets["low"]) <= found.fitted["low"].error(304) + limit + 1e-9
               for row in found.plan.ratios)  # fmt: skip


def test_the_held_out_check_chooses_within_the_limit(make: Make) -> None:
    free, found = make(), make(max_harm=0.15)
    assert free.held_out is not None
    assert found.held_out is not None
    assert found.held_out.budgets["low"] > free.held_out.budgets["low"] == 32
    outcomes = list(found.run.outcomes.values())
    strict = held_out(outcomes, COSTS, 304, None, "pooled", None, {"low": 0.0})
    assert strict.budgets["low"] >= 304


def test_a_limit_survives_the_file_and_an_edit_ends_the_certificate(make: Make, tmp_path: Path) -> None:
    found = make(max_harm=0.3, certification=Certification(0.8))
    assert found.certificate is not None
    found.policy.save(tmp_path / "policy.json")
    again = Policy.load(tmp_path / "policy.json")
    assert again.max_harm == {"high": 0.3, "low": 0.3}
    assert again.certificate is not None
    assert again.certificate["harm"]["low"]["limit"] == 0.3
    assert edited_parts(again) == []
    for limits in (None, {"high": 0.3, "low": 0.4}):
        assert "harm limit" in edited_parts(again.model_copy(update={"max_harm": limits}))
    bounds = {"low": {**again.certificate["harm"]["low"], "upper": 0.1}}
    forged = again.model_copy(update={"certificate": {**again.certificate, "harm": bounds}})
    assert "bounds" in edited_parts(forged)


def test_without_a_limit_the_file_is_the_same_as_with_one_that_forbids_nothing_but_for_the_limit(
    make: Make, tmp_path: Path
) -> None:
    for name, limits in (("off", None), ("empty", {}), ("loose", 1.0)):
        make(max_harm=limits).policy.save(tmp_path / name)
    off, empty, loose = (Policy.load(tmp_path / name) for name in ("off", "empty", "loose"))
    assert (tmp_path / "off").read_bytes() == (tmp_path / "empty").read_bytes()
    assert loose.model_copy(update={"max_harm": None}).model_dump() == off.model_dump() == empty.model_dump()


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(BadInput, match="a harm limit is about budgets by tier, and per-request costs have none"):
        CalibrationOptions(max_harm=0.15, per_request=True)
    with pytest.raises(BadInput, match="give max_harm in the options of the calibration"):
        CalibrationOptions(max_harm=0.15, certification=Certification(max_harm=0.2))


def test_a_bad_limit_is_refused_before_any_answer(make: Make) -> None:
    with pytest.raises(BadInput, match="15 points are 0.15"):
        make(log="other.jsonl", max_harm=15)
    with pytest.raises(BadInput, match="'medium'; the tiers are high, low"):
        make(log="other.jsonl", max_harm={"medium": 0.1})


@pytest.mark.parametrize("limit", [0.0, 0.15, 0.35])
def test_adaptive_sampling_chooses_the_best_within_the_limit_on_its_curves(limit: float) -> None:
    for seed in range(3):
        answers = KnownAnswers.simulated(published(), 150, np.random.default_rng(seed))
        on = Terms(COSTS, answers.counts, 304 * 300, max_harm={"low": limit})
        result = sample_adaptively(answers.questions, answers.budgets, on, answers.ask)
        low = result.fitted["low"]
        assert low.error(result.budgets["low"]) <= low.error(304) + limit + 1e-9
        assert on.allocate(result.fitted).budgets == result.budgets


def test_adaptive_sampling_and_a_certificate_keep_the_limit_together(make: Make) -> None:
    options = {"sampling": AdaptiveSampling(), "certification": Certification(0.8), "max_harm": {"low": 0.35}}
    found = make(log="adaptive.jsonl", **options)
    assert found.certificate is not None
    assert found.adaptive is not None
    bound = found.certificate.harm["low"]
    assert bound.limit == 0.35
    assert found.adaptive.fitted["low"].error(bound.budget) <= found.adaptive.fitted["low"].error(304) + 0.35
    assert (found.policy.budgets["low"] == 304) or bound.upper <= 0.35


def test_per_request_costs_report_the_mean_rise_by_label(make: Make) -> None:
    found = make(per_request=True)
    assert found.request_errors is not None
    assert found.harm is not None
    assert found.harm.rises["low"].after == pytest.approx(found.request_errors["low"])
    assert "on average over requests" in str(found.harm)


def test_pooled_and_raw_limits_are_each_on_their_own_curves(make: Make) -> None:
    for estimator in ("raw", "pooled"):
        found = make(estimator=estimator, max_harm=0.15)
        assert rise(found) <= 0.15 + 1e-9
        assert (found.fitted == found.curves) == (estimator == "raw")
