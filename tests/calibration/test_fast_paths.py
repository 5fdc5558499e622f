"""Estimators and certificates computed the fast way equal the plain computation."""

from itertools import product
from random import Random

import numpy as np
import pytest

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify import certificate
from stakes.calibration.certify.certificate import Certification, certify
from stakes.calibration.certify.power import simulate
from stakes.calibration.estimators import LENGTHS, OWN, ROUGH, SHARED, WIDE, Terms, choose, noise_of, pairing, pooled
from stakes.errors import InfeasibleBudget

GRID = (32, 96, 224, 304, 448, 576)


def falling(tiers: int, grid: tuple[int, ...] = GRID) -> dict[str, Curve]:
    return {
        f"t{i}": Curve(grid, [float(e) for e in 0.05 + 0.9 * np.exp(-np.array(grid) / (100 + 40 * i))], 300)
        for i in range(tiers)
    }


def pooled_in_one_matrix(curves: dict[str, Curve], measured: ByDocument) -> list[float]:
    """The same posterior from one covariance over all tiers and budgets, at a cost of the cube of the tiers."""
    owner = np.repeat(np.arange(len(curves)), [len(curve.budgets) for curve in curves.values()])
    x = np.concatenate([np.log(curve.budgets) for curve in curves.values()])
    n = np.concatenate([np.array(curve.counts, dtype=float) for curve in curves.values()])
    rate = np.concatenate([np.array(curve.errors) for curve in curves.values()])
    place, same = (x - x.mean()) / x.std(), np.equal.outer(owner, owner).astype(float)
    slope, gaps, off = np.outer(place, place), np.subtract.outer(place, place) ** 2, rate - rate.mean()
    share, fitted = pairing(measured), rate
    for rough in ((0.0,), ROUGH):
        level = np.clip(fitted, 1 / (n + 2), 1 - 1 / (n + 2))
        noise = noise_of(level, n, share) * same
        logs, means = [], []
        for length, shared, own, r in product(LENGTHS, SHARED, OWN, rough):
            smooth = np.exp(-gaps / (2 * length**2))
            prior = WIDE**2 * (1 + slope + same) + shared**2 * smooth + own**2 * same * (smooth + slope)
            prior = prior + r**2 * np.eye(len(x))
            solved = np.linalg.solve(prior + noise, off)
            logs.append(-0.5 * (solved @ off + np.linalg.slogdet(prior + noise)[1]))
            means.append(prior @ solved)
        weight = np.exp(np.array(logs) - max(logs))
        fitted = rate.mean() + weight @ np.array(means) / weight.sum()
    return list(fitted.clip(0, 1))


def test_many_tiers_are_pooled_as_in_one_matrix() -> None:
    for seed, tiers in ((0, 2), (1, 6)):
        measured = simulate(falling(tiers), dict.fromkeys(falling(tiers), 40), np.random.default_rng(seed))
        curves = measured.curves()
        curves["t1"] = Curve(GRID[1:], curves["t1"].errors[1:], 40)  # a grid of its own
        fitted = pooled(curves, measured)
        errors = [error for curve in fitted.values() for error in curve.errors]
        assert errors == pytest.approx(pooled_in_one_matrix(curves, measured), abs=1e-8)


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
        _, found = certificate._choices(measured, terms, "raw", kept)
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
    certify(
        measured,
        {f"t{i}": 4.0 - i for i in range(4)},
        304,
        Certification(ceilings=dict.fromkeys(truth, 0.97)),
        estimator="raw",
    )
    assert asked < len(GRID) ** 4 / 4
