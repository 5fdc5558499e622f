"""What would the curves be if tiers could learn from each other? Partial pooling, as much as the data ask for.

With x = log tokens, the error of tier t is

    e_t(x) = a + s x + g(x)  +  a_t + s_t x + h_t(x)  +  w_t(x)

what all tiers share, what is the tier's own, and what is peculiar to one tier at one budget: straight lines, smooth
deviations (Gaussian processes) and a rough one. How large each part is, is not assumed: every combination of a small
grid is fitted in closed form and weighted by its marginal likelihood (empirical Bayes, averaged rather than maximised).
Tiers whose slopes are the same come to share one curve up to an offset; tiers that differ keep their own; a dip that
the data insist on stays. Nothing forces a curve to fall.

The noise is that of the measurement: errors at different budgets come from the same questions and rise and fall
together; by how much is read off the documents (``pairing``). It is worked out at the rates of a first fit without the
rough part, that is, as if the curve were smooth: a dip that such noise cannot explain is then taken for real.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument

Array = NDArray[np.float64]
Rough = tuple[float, ...]

# Standard deviations, in units of error rate.
SHARED = (0.1, 0.3)  # g
OWN = (0.0, 0.02, 0.05, 0.12, 0.3)  # s_t (per unit of standardised x) and h_t
ROUGH = (0.01, 0.03, 0.06)  # w_t
LENGTHS = (0.4, 0.8)  # over which g and h_t change, in units of standardised x
WIDE = 3.0  # a, s and a_t: any level, any common slope
FEW = 4  # tiers up to which one matrix for all is quickest; beyond, its cubic cost is not paid (``_by_tier``)


def pooled(curves: Mapping[str, Curve], measured: ByDocument | None = None) -> dict[str, Curve]:
    """The tiers' curves, each drawn towards the others' shape as far as the data allow."""
    tiers = list(curves)
    owner = np.repeat(np.arange(len(tiers)), [len(curves[tier].budgets) for tier in tiers])
    x = np.concatenate([np.log(curves[tier].budgets) for tier in tiers])
    n = np.concatenate([np.array(curves[tier].counts, dtype=float) for tier in tiers])
    rate = np.concatenate([np.array(curves[tier].errors) for tier in tiers])
    share = 0.0 if measured is None else pairing(measured)
    fitted = rate
    for rough in ((0.0,), ROUGH):
        level = np.clip(fitted, 1 / (n + 2), 1 - 1 / (n + 2))  # a measured 0 is not without noise
        if len(tiers) <= FEW:
            priors = by_setting(tuple(map(float, x)), tuple(map(int, owner)), rough)
            fitted = rate.mean() + average([posteriors(priors, rate - rate.mean(), noise_of(level, n, owner, share))])
        else:
            rows = [np.flatnonzero(owner == t) for t in range(len(tiers))]
            noises = [noise_of(level[row], n[row], owner[row], share) for row in rows]
            fitted = rate.mean() + _by_tier(x, rows, rate - rate.mean(), noises, rough)
    # Rounded, so that what is flat stays flat, and budgets that make no difference tie.
    fitted = fitted.clip(0, 1).round(9)
    return {
        tier: Curve(curves[tier].budgets, [float(e) for e in fitted[owner == t]], curves[tier].counts)
        for t, tier in enumerate(tiers)
    }


@lru_cache(maxsize=16)
def by_setting(x: tuple[float, ...], owner: tuple[int, ...], roughness: Rough) -> Array:
    """Prior covariances of the errors, settings × points × points: about straight lines."""
    place = _standard(np.array(x))
    lines = WIDE**2 * (1 + np.outer(place, place) + np.equal.outer(owner, owner))
    return np.asarray(lines + deviations(np.array(x), np.array(owner), SHARED, OWN, roughness))


def deviations(x: Array, owner: NDArray[np.int64], shared: Rough, own: Rough, roughness: Rough) -> Array:
    """Covariances of what all tiers share, of a tier's own and of the rough part, settings × points × points."""
    place = _standard(x)
    same, slope = np.equal.outer(owner, owner).astype(float), np.outer(place, place)
    gaps = np.subtract.outer(place, place) ** 2
    found = []
    for length, all_, mine, rough in product(LENGTHS, shared, own, roughness):
        smooth = np.exp(-gaps / (2 * length**2))
        found.append(all_**2 * smooth + mine**2 * same * (smooth + slope) + rough**2 * np.eye(len(place)))
    return np.array(found)


def _standard(x: Array) -> Array:
    return np.asarray((x - x.mean()) / (x.std() or 1.0))


def posteriors(priors: Array, rate: Array, noise: Array) -> tuple[Array, Array]:
    """By setting: log marginal likelihood, and the posterior mean at the measured budgets. ``rate``: less its mean."""
    total = priors + noise
    solved = np.linalg.solve(total, np.broadcast_to(rate[:, None], (*total.shape[:2], 1)))[..., 0]
    logs = -0.5 * (solved @ rate + np.linalg.slogdet(total)[1])
    return logs, (priors @ solved[..., None])[..., 0]


def average(groups: Sequence[tuple[Array, Array]]) -> Array:
    """The means of all settings, weighted by likelihood; every group of settings is as likely beforehand."""
    logs = np.concatenate([log - np.log(len(log)) for log, _ in groups])
    weight = np.exp(logs - logs.max())
    return np.asarray(weight @ np.concatenate([means for _, means in groups]) / weight.sum())


def _by_tier(x: Array, rows: Sequence[NDArray[np.int64]], rate: Array, noises: Sequence[Array], rough: Rough) -> Array:
    """``average`` for many tiers, whose cost grows with their number and not with its cube.

    What tiers share is a prior S over the budgets, what is a tier's own a block D_t of its own points, so that by the
    matrix inversion lemma, with P the prior part of D, E_t the tier's choice of budgets and M = sum_t E_t' D_t^-1 E_t,

        shared part = y = (I + S M)^-1 S sum_t E_t' D_t^-1 r_t,      mean_t = E_t y + P_t D_t^-1 (r_t - E_t y)
        log det = log det(I + S M) + sum_t log det D_t
    """
    budgets, column = np.unique(x, return_inverse=True)
    place = (budgets - x.mean()) / (x.std() or 1.0)
    slope, gaps, eye = np.outer(place, place), np.subtract.outer(place, place) ** 2, np.eye(len(place))
    shares, owns = [], []
    for length, shared, own, r in product(LENGTHS, SHARED, OWN, rough):
        smooth = np.exp(-gaps / (2 * length**2))
        shares.append(WIDE**2 * (1 + slope) + shared**2 * smooth)
        owns.append(WIDE**2 + own**2 * (smooth + slope) + r**2 * eye)
    prior, block = np.array(shares), np.array(owns)
    inner, pull, logs = np.zeros_like(prior), np.zeros(prior.shape[:2]), np.zeros(len(prior))
    solved = []
    for row, noise in zip(rows, noises, strict=True):
        total = block[:, column[row][:, None], column[row]] + noise
        right = np.column_stack([eye[column[row]], rate[row]])
        solved.append(np.linalg.solve(total, np.broadcast_to(right, (len(total), *right.shape))))
        logs -= 0.5 * np.linalg.slogdet(total)[1]
        inner[:, column[row]] += solved[-1][..., :-1]
        pull[:, column[row]] += solved[-1][..., -1]
    both = eye + prior @ inner
    y = np.linalg.solve(both, prior @ pull[..., None])
    logs -= 0.5 * np.linalg.slogdet(both)[1]
    means = np.empty((len(prior), len(x)))
    for row, found in zip(rows, solved, strict=True):
        left = found[..., -1:] - found[..., :-1] @ y
        logs -= 0.5 * (left[..., 0] @ rate[row])
        mine = block[:, column[row][:, None], column[row]]
        means[:, row] = (y[:, column[row]] + mine @ left)[..., 0]
    weight = np.exp(logs - logs.max())
    return np.asarray(weight @ means / weight.sum())


def noise_of(rate: Array, n: Array, owner: NDArray[np.int64], share: float) -> Array:
    """Covariance of the measured errors: binomial on the diagonal, ``share`` of a perfect pairing beside it.

    Where every question has one needed budget, the wrong at the larger error include those at the smaller, so that
    ``cov = min(e, e') (1 - max(e, e'))``. A race asks less at some budgets, of the same questions in the same order, so
    that ``min(n, n')`` are common to both and the means' covariance is ``cov / max(n, n')``.
    """
    cover = share * np.minimum.outer(rate, rate) * (1 - np.maximum.outer(rate, rate)) * np.equal.outer(owner, owner)
    np.fill_diagonal(cover, rate * (1 - rate))
    return np.asarray(cover / np.maximum.outer(n, n))


def pairing(measured: ByDocument) -> float:
    """How far the same questions fail at different budgets: 0 as if by chance, 1 as if each had one needed budget."""
    seen, most = 0.0, 0.0
    for tier, wrong in measured.wrong.items():
        asked = measured.asked[tier]
        rate = wrong.sum(axis=0) / np.maximum(1, asked.sum(axis=0))
        off = wrong - asked * rate
        found = off.T @ off
        common = np.array([np.minimum(asked, column[:, None]).sum(axis=0) for column in asked.T])
        perfect = np.minimum.outer(rate, rate) * (1 - np.maximum.outer(rate, rate)) * common
        pairs = ~np.eye(len(rate), dtype=bool)
        seen, most = seen + float(found[pairs].sum()), most + float(perfect[pairs].sum())
    return float(np.clip(seen / most, 0.0, 0.98)) if most > 0 else 0.0
