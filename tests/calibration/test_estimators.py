"""Estimators give curves on the same grid, do what they are named for, and choose better than the plain argmin."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.scenarios import GRID, published, with_dips
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.aliases import ESTIMATORS as REPLACED
from stakes.budgets.curve import Curve, cwe_at
from stakes.budgets.policy import Policy
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import DEFAULT, ESTIMATORS, Terms, choose, fit, pairing
from stakes.errors import BadInput

TWO = {"high": 1, "low": 1}


def _terms(ratio: float = 5) -> Terms:
    return Terms({"high": ratio, "low": 1.0}, TWO, 608)


def _measured(n: int = 150, seed: int = 0, **how: float) -> ByDocument:
    return simulate(published(), {"high": n, "low": n}, np.random.default_rng(seed), **how)


@st.composite
def curve_sets(draw: st.DrawFn) -> dict[str, Curve]:
    found = {}
    for tier in draw(st.sampled_from([("high",), ("high", "low"), ("a", "b", "c")])):
        budgets = sorted(draw(st.sets(st.integers(1, 2000), min_size=1, max_size=8)))
        counts = [draw(st.integers(1, 500)) for _ in budgets]
        found[tier] = Curve(budgets, [draw(st.integers(0, n)) / n for n in counts], counts)
    return found


@settings(max_examples=60)
@given(curve_sets(), st.sampled_from(sorted(ESTIMATORS)))
def test_every_estimator_gives_rates_on_the_same_grid_for_any_curves(curves: dict[str, Curve], name: str) -> None:
    found = fit(name, curves)
    assert list(found) == list(curves)
    for tier, curve in curves.items():
        assert (found[tier].budgets, found[tier].counts) == (curve.budgets, curve.counts)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
@pytest.mark.parametrize("rate", [0.0, 0.37, 1.0])
def test_what_is_flat_stays_flat_so_that_budgets_tie(name: str, rate: float) -> None:
    n = 100
    curves = {tier: Curve(GRID, [rate] * 13, n) for tier in TWO}
    fitted = fit(name, curves)
    assert all(len(set(curve.errors)) == 1 for curve in fitted.values())
    assert _terms().allocate(fitted).budgets == {"high": 32, "low": 32}
    assert fitted["high"].error(304) == pytest.approx(rate, abs=0.02)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_with_many_answers_the_truth_is_found(name: str) -> None:
    truth = published()
    fitted = fit(name, {tier: Curve(c.budgets, c.errors, 100_000) for tier, c in truth.items()})
    for tier in truth:
        assert fitted[tier].errors == pytest.approx(truth[tier].errors, abs=0.005)


def test_pooling_lets_a_tier_with_few_answers_borrow_the_others_shape() -> None:
    truth = published()
    shape = np.array(truth["high"].errors) - np.mean(truth["high"].errors)
    rng, off = np.random.default_rng(3), dict.fromkeys(("raw", "pooled"), 0.0)
    for _ in range(20):
        measured = simulate(truth, {"high": 40, "low": 1500}, rng)
        for name in off:
            errors = np.array(fit(name, measured.curves(), measured)["high"].errors)
            off[name] += float(np.abs(errors - errors.mean() - shape).mean())
    assert off["pooled"] < 0.6 * off["raw"]


def test_a_dip_that_the_answers_insist_on_is_not_smoothed_away() -> None:
    truth = with_dips()
    measured = simulate(truth, {"high": 1000, "low": 1000}, np.random.default_rng(0))
    assert choose(measured, _terms(5), "pooled").budgets == {"high": 448, "low": 160}


def test_a_single_sharp_point_is_kept_when_many_answers_stand_behind_it() -> None:
    """480 lies so near 448 and 512 that no smooth curve can dip there."""
    errors = [e - 0.08 * (b == 480) for b, e in zip(GRID, published()["high"].errors, strict=True)]
    many, few = (fit("pooled", {"high": Curve(GRID, errors, n), "low": published()["low"]})["high"] for n in (5000, 30))
    assert many.error(480) < many.error(576) - 0.02
    assert few.error(480) > few.error(576)


@pytest.mark.parametrize("dependence", [0.0, 0.3, 0.8])
def test_pairing_is_the_same_where_some_budgets_were_asked_less(dependence: float) -> None:
    """As after adaptive sampling: the first documents at every budget, the rest at the largest ones only."""
    full = _measured(2000, dependence=dependence)
    mask = np.ones((len(full), len(full.budgets)), dtype=np.int64)
    mask[800:, :7] = 0
    some = replace(
        full,
        wrong={tier: wrong * mask for tier, wrong in full.wrong.items()},
        asked={tier: asked * mask for tier, asked in full.asked.items()},
    )
    assert pairing(some) == pytest.approx(pairing(full), abs=0.08)


def test_pairing_reads_the_dependence_off_the_documents() -> None:
    shares = [pairing(_measured(2000, dependence=d)) for d in (0.0, 0.5, 0.8, 1.0)]
    assert shares == sorted(shares)
    assert shares[0] < 0.05
    assert shares[-1] == 0.98


def test_pooled_chooses_better_than_raw_on_the_published_curves() -> None:
    """A small piece of benchmarks/estimators.py: 60 calibrations of 75 + 75, mean regret over r = 2, 3, 5, 10."""
    truth, rng = published(), np.random.default_rng(1)
    regret = {"raw": 0.0, "pooled": 0.0}
    for _ in range(60):
        measured = simulate(truth, {"high": 75, "low": 75}, rng)
        for name in regret:
            fitted = fit(name, measured.curves(), measured)
            for ratio in (2, 3, 5, 10):
                terms = _terms(ratio)
                budgets = terms.allocate(fitted).budgets
                regret[name] += cwe_at(truth, budgets, terms.costs, TWO) - terms.allocate(truth).cwe
    assert regret["pooled"] < 0.75 * regret["raw"]


def test_floors_of_single_tiers_bind_only_them() -> None:
    terms = Terms({"high": 1.0, "low": 1.0}, TWO, 608, floors={"high": 448})
    assert choose(_measured(300), terms, "raw").budgets["high"] >= 448


def test_unknown_estimators_are_named_and_removed_ones_name_their_replacement() -> None:
    assert DEFAULT in ESTIMATORS
    with pytest.raises(BadInput, match="there is no estimator 'magic'; choose one of raw, pooled"):
        fit("magic", published())
    for name in (*REPLACED, "hybrid:prior.jsonl"):
        with pytest.raises(BadInput, match=f"'{name.partition(':')[0]}' was removed .* use pooled"):
            fit(name, published())


def test_a_policy_made_by_a_removed_estimator_still_loads() -> None:
    tiers = {"high": {"cost": 5, "budget": 512}, "low": {"cost": 1, "budget": 96}}
    for name in (*REPLACED, "auto: pooled", "hybrid:prior.jsonl"):
        record = {"schema": 1, "mean_budget": 304, "tiers": tiers, "estimator": name}
        assert Policy.from_record(record).estimator == name
