"""Draws from the posterior of ``pooled`` have its mean and its spread."""

import numpy as np
import pytest
from benchmarks.replay import KnownAnswers
from benchmarks.scenarios import published

from stakes.calibration.estimators import pooled, pooled_posterior

NORMALS = np.random.default_rng(0).standard_normal((4000, 26))


def test_draws_average_to_the_fitted_curves() -> None:
    measured = KnownAnswers.simulated(published(), 300, np.random.default_rng(1)).by_document()
    posterior = pooled_posterior(measured.curves(), measured)
    fitted = np.concatenate([curve.errors for curve in pooled(measured.curves(), measured).values()])
    drawn = posterior.draws(NORMALS)
    assert posterior.weights.sum() == pytest.approx(1)
    assert drawn.mean(axis=0) == pytest.approx(fitted, abs=0.003)


def test_draws_of_a_single_setting_have_the_covariance_of_a_normal_posterior() -> None:
    measured = KnownAnswers.simulated(published(), 100, np.random.default_rng(2)).by_document()
    found = pooled_posterior(measured.curves(), measured)
    k = int(found.weights.argmax())
    found.weights[:] = np.arange(len(found.weights)) == k
    tier = np.repeat([0, 1], 13)
    prior = found.priors[0][k][np.ix_(found.column, found.column)]
    prior = prior + (tier[:, None] == tier) * found.priors[1][k][np.ix_(found.column, found.column)]
    noise = np.zeros((26, 26))
    noise[:13, :13], noise[13:, 13:] = found.noises
    expected = prior - prior @ np.linalg.solve(prior + noise, prior)
    assert np.cov(found.draws(NORMALS).T) == pytest.approx(expected, abs=0.1 * np.diag(expected).max())


def test_more_answers_leave_less_doubt() -> None:
    spread = []
    for size in (50, 200, 800):
        measured = KnownAnswers.simulated(published(), size, np.random.default_rng(3)).by_document()
        spread.append(pooled_posterior(measured.curves(), measured).draws(NORMALS).std(axis=0).mean())
    assert spread[0] > 1.3 * spread[1] > 1.3**2 * spread[2]
