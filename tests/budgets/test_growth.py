"""What was made to grow no faster than it must gives what the plain way gives."""

from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.curve import Curve
from stakes.budgets.frontier import change_ratios, frontier
from stakes.calibration.certify import certificate
from stakes.calibration.certify.certificate import certify
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators.choose import Terms, choose
from stakes.calibration.estimators.pooled import pooled
from stakes.errors import InfeasibleBudget
from stakes.evaluation.slopes import slope_test
from stakes.evaluation.statistics import cwe_gain

GRID = (32, 96, 224, 304, 448, 576)


def falling(tiers: int, grid: tuple[int, ...] = GRID) -> dict[str, Curve]:
    return {
        f"t{i}": Curve(grid, [float(e) for e in 0.05 + 0.9 * np.exp(-np.array(grid) / (100 + 40 * i))], 300)
        for i in range(tiers)
    }


@pytest.mark.parametrize("units", [2, 7, 300])
def test_the_interval_of_a_gain_is_scipys(units: int) -> None:
    from scipy.stats import bootstrap

    rng = np.random.default_rng(units)
    before, after = np.arange(units) % 2 == 0, rng.random(units) < 0.7
    costs = np.where(rng.random(units) < 0.5, 5.0, 1.0)
    after[0] = not before[0]  # so that something changes
    saved = costs * (after.astype(float) - before)
    theirs = bootstrap(
        (saved, costs), lambda part, whole, axis: part.sum(axis=axis) / whole.sum(axis=axis), paired=True,
        vectorized=True, n_resamples=2000, method="BCa", rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    ours = cwe_gain(before, after, costs, resamples=2000)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


curves = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 20)), min_size=1, max_size=8, unique_by=lambda point: point[0]
).map(lambda points: Curve([b for b, _ in sorted(points)], [e / 20 for _, e in sorted(points)], 20))


@settings(max_examples=60)
@given(curves, curves, st.integers(2, 200), st.integers(1, 4), st.integers(1, 4))
def test_changes_of_the_optimum_are_the_envelope_of_all_pairs(
    high: Curve, low: Curve, total: int, n_high: int, n_low: int
) -> None:
    fits = [
        (n_low * low.error(b), n_high * high.error(a))
        for a, b in product(high.budgets, low.budgets)
        if n_high * a + n_low * b <= total
    ]
    if not fits:
        with pytest.raises(InfeasibleBudget):
            change_ratios(high, low, total, counts={"high": n_high, "low": n_low})
        return
    changes = change_ratios(high, low, total, counts={"high": n_high, "low": n_low})
    ratios = [1.0, *(change.ratio for change in changes)]
    assert ratios == sorted(ratios)
    for i, change in enumerate(changes):
        end = ratios[i + 2] if i + 2 < len(ratios) else change.ratio + 1
        between = (change.ratio + end) / 2
        best = min(cheap + between * dear for cheap, dear in fits)
        mine = n_low * change.after.error_low + between * n_high * change.after.error_high
        assert mine == pytest.approx(best, abs=1e-9)
        assert n_high * change.after.high + n_low * change.after.low <= total
    pairs = [(a, b) for a, b in product(high.budgets, low.budgets) if a + b == total]
    assert [(pair.high, pair.low) for pair in frontier(high, low, total)] == pairs


def test_many_tiers_are_pooled_as_in_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module = sys.modules[pooled.__module__]
    for seed, tiers in ((0, 2), (1, 6)):
        measured = simulate(falling(tiers), dict.fromkeys(falling(tiers), 40), np.random.default_rng(seed))
        measured_curves = measured.curves()
        measured_curves["t1"] = Curve(GRID[1:], measured_curves["t1"].errors[1:], 40)  # a grid of its own
        found = []
        for few in (0, 99):
            monkeypatch.setattr(module, "FEW", few)
            fitted = pooled(measured_curves, measured)
            found.append([error for tier in fitted for error in fitted[tier].errors])
        assert found[0] == pytest.approx(found[1], abs=2e-9)


def test_a_certificate_counts_every_choice_that_ceilings_could_lead_to() -> None:
    dice = Random(3)
    for seed in range(6):
        tiers = 2 + seed % 2
        truth = falling(tiers)
        measured = simulate(truth, dict.fromkeys(truth, 60), np.random.default_rng(seed))
        costs = {tier: float(dice.choice([1, 3, 5])) for tier in truth}
        kept = dict.fromkeys(list(truth)[: 1 + seed % 2], GRID[1])
        terms = Terms(costs, measured.counts, 304 * sum(measured.counts.values()))
        free = choose(measured, terms, "raw")
        every = set()
        for floors in product(GRID, repeat=len(kept)):
            bound = Terms(costs, terms.counts, terms.total, floors=dict(zip(kept, floors, strict=True)))
            try:
                every.add(tuple(bound.allocate(free.curves).budgets.values()))
            except InfeasibleBudget:
                continue
        _, found = certificate._choices(measured, terms, "raw", kept, ())
        assert {tuple(choice.budgets.values()) for choice in found} == every


def test_four_ceilings_are_certified_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    allocate = Terms.allocate

    def counted(self: Terms, curves: dict[str, Curve]) -> object:
        nonlocal asked
        asked += 1
        return allocate(self, curves)

    monkeypatch.setattr(Terms, "allocate", counted)
    truth = falling(4)
    measured = simulate(truth, dict.fromkeys(truth, 60), np.random.default_rng(0))
    certify(measured, {f"t{i}": 4.0 - i for i in range(4)}, 304, estimator="raw", ceilings=dict.fromkeys(truth, 0.97))
    assert asked < len(GRID) ** 4 / 4


def test_documents_with_both_tiers_are_counted() -> None:
    rng = np.random.default_rng(0)
    right = {tier: rng.random((6, 3)) < 0.5 for tier in ("high", "low")}
    pages = {"high": ["a", "a", "b", "c", "d", "d"], "low": ["a", "b", "b", "e", "f", "f"]}
    found = slope_test(right, pages, [32, 64, 128], resamples=10)
    assert (found.documents, found.shared) == (6, 2)
