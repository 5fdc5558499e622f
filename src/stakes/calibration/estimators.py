"""Estimate the true error curves from the measured ones, and choose the budgets that are optimal on them.

The plain argmin of measured curves (``raw``, the paper's choice) takes chance for merit. ``pooled`` lets tiers learn
from each other as far as the data support it. Neither is evidence: a certificate rests on other documents and on no
estimator. benchmarks/estimators.py compares them; docs/dev/decisions.md has the measurements, also of those removed.

    chosen = choose(by_document(outcomes), Terms(costs, counts, total), "pooled")
    chosen.budgets, chosen.curves
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stakes.aliases import ESTIMATORS as REPLACED
from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve, above_floor
from stakes.budgets.harm import Limits, allocate_within, within_limits
from stakes.calibration.by_document import ByDocument
from stakes.errors import BadInput, InfeasibleBudget

Array = NDArray[np.float64]
Estimator = Callable[[Mapping[str, Curve], ByDocument | None], dict[str, Curve]]

DEFAULT = "pooled"

# Standard deviations of the parts of ``pooled``, in units of error rate.
SHARED = (0.1, 0.3)  # g
OWN = (0.0, 0.02, 0.05, 0.12, 0.3)  # s_t (per unit of standardized x) and h_t
ROUGH = (0.01, 0.03, 0.06)  # w_t
LENGTHS = (0.4, 0.8)  # over which g and h_t change, in units of standardized x
WIDE = 3.0  # a, s and a_t: any level, any common slope


@dataclass(frozen=True)
class Terms:
    """What budgets are chosen for: costs and samples by tier, the total, and which budgets are permitted."""

    costs: Mapping[str, float]
    counts: Mapping[str, int]
    total: int
    floor: int | None = None
    floors: Mapping[str, int] | None = None
    """Of single tiers, on top of ``floor``."""
    max_harm: Limits | None = None
    """By tier, how much its error may rise over uniform (``budgets.harm``)."""

    def allocate(self, curves: Mapping[str, Curve]) -> Allocation:
        """The optimum of these curves on these terms."""
        if not self.floors:
            return allocate_within(curves, self.costs, self.counts, self.total, self.floor, self.max_harm)
        permitted = within_limits(curves, self.max_harm or {}, self.total // sum(self.counts.values()))
        for tier, least in self.floors.items():
            if permitted[tier].budgets[-1] < least <= curves[tier].budgets[-1]:
                raise InfeasibleBudget(f"no budget of tier {tier!r} from {least} up is within its harm limit")
            permitted |= above_floor({tier: permitted[tier]}, least)
        return allocate(permitted, self.costs, self.counts, self.total, self.floor)


@dataclass(frozen=True)
class ChosenBudgets:
    """The budgets by tier, and the estimated curves that they were chosen on."""

    budgets: Mapping[str, int]
    curves: Mapping[str, Curve]


def choose(measured: ByDocument, terms: Terms, estimator: str) -> ChosenBudgets:
    """Fit the curves by ``estimator`` and take the optimum on them."""
    fitted = fit(estimator, measured.curves(), measured)
    return ChosenBudgets(dict(terms.allocate(fitted).budgets), fitted)


def fit(name: str, curves: Mapping[str, Curve], measured: ByDocument | None = None) -> dict[str, Curve]:
    """The curves that estimator ``name`` makes of the measured ones; ``measured``: how errors correlate."""
    return ESTIMATORS[check_estimator(name)](curves, measured)


def check_estimator(name: str) -> str:
    """The name, if it is one of an estimator; a removed one is an error that names its replacement."""
    if name in ESTIMATORS:
        return name
    if (kind := name.partition(":")[0]) in REPLACED:
        raise BadInput(
            f"the estimator {kind!r} was removed because {REPLACED[kind]!r} chose at least as well in every benchmark; "
            f"use {REPLACED[kind]}"
        )
    raise BadInput(f"there is no estimator {name!r}; choose one of {', '.join(ESTIMATORS)}")


def raw(curves: Mapping[str, Curve], _: ByDocument | None = None) -> dict[str, Curve]:
    """The curves as measured."""
    return dict(curves)


def pooled(curves: Mapping[str, Curve], measured: ByDocument | None = None) -> dict[str, Curve]:
    """Partial pooling: each tier's curve is drawn towards the others' shape as far as the data support it.

    With x = log tokens, the error of tier t is

        e_t(x) = a + s x + g(x)  +  a_t + s_t x + h_t(x)  +  w_t(x)

    what all tiers share, what is the tier's own, and what is peculiar to one tier at one budget: straight lines, smooth
    deviations (Gaussian processes) and a rough one. The size of each part is not assumed: every combination of a small
    grid is fitted in closed form and weighted by its marginal likelihood (empirical Bayes, averaged rather than
    maximized). Tiers of equal slope come to share one curve up to an offset; tiers that differ keep their own; a dip
    that the data support stays. Nothing forces a curve to fall.

    The noise is that of the measurement: errors at different budgets come from the same questions and rise and fall
    together; ``pairing`` reads how much from the documents. It is computed at the rates of a first fit without the
    rough part, as if the curve were smooth: a dip that such noise cannot explain is then taken for real.
    """
    posterior = pooled_posterior(curves, measured)
    # Rounded, so that what is flat stays flat, and budgets that make no difference tie.
    fitted = posterior.mean.clip(0, 1).round(9)
    return {
        tier: Curve(curve.budgets, fitted[row].tolist(), curve.counts)
        for (tier, curve), row in zip(curves.items(), posterior.rows, strict=True)
    }


ESTIMATORS: dict[str, Estimator] = {"raw": raw, "pooled": pooled}


@dataclass(frozen=True)
class PooledPosterior:
    """What ``pooled`` knows of the true errors: a mixture of normal distributions, one for each setting of its parts.

    ``rows``: by tier, its points. ``weights``: by setting. ``means``: settings × points.
    """

    rows: Sequence[NDArray[np.int64]]
    weights: Array
    means: Array
    priors: tuple[Array, Array]
    """Covariances of what tiers share and of a tier's own, settings × budgets × budgets."""
    column: NDArray[np.int64]
    """By point, its budget among those of the priors."""
    noises: Sequence[Array]
    """By tier, the covariance of its measured errors."""

    @property
    def mean(self) -> Array:
        """By point."""
        return np.asarray(self.weights @ self.means)

    def draws(self, normals: Array) -> Array:
        """Draws of the true errors from standard ``normals``, both draws × points.

        With prior P and noise N the covariance of a setting is P - P (P + N)^-1 P = N - N (P + N)^-1 N; the second form
        loses no digits where the prior is wide.
        """
        which = np.searchsorted(np.cumsum(self.weights), (np.arange(len(normals)) + 0.5) / len(normals))
        settings, which = np.unique(which.clip(max=len(self.weights) - 1), return_inverse=True)
        shared, own = (part[settings][:, self.column[:, None], self.column] for part in self.priors)
        same_tier, noise = np.zeros((2, len(self.column), len(self.column)))
        for row, its_noise in zip(self.rows, self.noises, strict=True):
            same_tier[np.ix_(row, row)] = 1
            noise[np.ix_(row, row)] = its_noise
        covariance = noise - noise @ np.linalg.solve(
            shared + same_tier * own + noise, np.broadcast_to(noise, own.shape)
        )
        value, vector = np.linalg.eigh((covariance + covariance.swapaxes(1, 2)) / 2)
        root = vector * np.sqrt(value.clip(0))[:, None]
        return np.asarray(self.means[settings][which] + (root[which] @ normals[..., None])[..., 0])


def pooled_posterior(curves: Mapping[str, Curve], measured: ByDocument | None = None) -> PooledPosterior:
    """The posterior of ``pooled``; ``measured``: how errors correlate."""
    x = np.concatenate([np.log(curve.budgets) for curve in curves.values()])
    n = np.concatenate([np.array(curve.counts, dtype=float) for curve in curves.values()])
    rate = np.concatenate([np.array(curve.errors) for curve in curves.values()])
    ends = np.cumsum([len(curve.budgets) for curve in curves.values()])
    rows = np.split(np.arange(len(x)), ends[:-1])
    share = 0.0 if measured is None else pairing(measured)
    budgets, column = np.unique(x, return_inverse=True)
    place, center = tuple(((budgets - x.mean()) / (x.std() or 1.0)).tolist()), rate.mean()
    fitted = rate
    for rough in ((0.0,), ROUGH):
        level = np.clip(fitted, 1 / (n + 2), 1 - 1 / (n + 2))  # a measured 0 is not without noise
        noises = [noise_of(level[row], n[row], share) for row in rows]
        priors = _priors(place, rough)
        weights, means = _settings(priors, column, rows, rate - center, noises)
        posterior = PooledPosterior(rows, weights, center + means, priors, column, noises)
        fitted = posterior.mean
    return posterior


@lru_cache(maxsize=16)
def _priors(place: tuple[float, ...], rough: tuple[float, ...]) -> tuple[Array, Array]:
    """Prior covariances over the budgets, settings × budgets × budgets: of what tiers share, and of a tier's own."""
    at = np.array(place)
    slope, gaps, eye = np.outer(at, at), np.subtract.outer(at, at) ** 2, np.eye(len(at))
    shared_part, own_part = [], []
    for length, shared, own, r in product(LENGTHS, SHARED, OWN, rough):
        smooth = np.exp(-gaps / (2 * length**2))
        shared_part.append(WIDE**2 * (1 + slope) + shared**2 * smooth)
        own_part.append(WIDE**2 + own**2 * (smooth + slope) + r**2 * eye)
    return np.array(shared_part), np.array(own_part)


def _settings(
    priors: tuple[Array, Array],
    column: NDArray[np.int64],
    rows: Sequence[NDArray[np.int64]],
    rate: Array,
    noises: Sequence[Array],
) -> tuple[Array, Array]:
    """Weights of the settings by marginal likelihood, and the posterior mean at the measured points by each.

    The cost grows with the number of tiers, not with its cube. What tiers share is a prior S over the budgets, what is
    a tier's own a block D_t of its own points. By the matrix inversion lemma, with P the prior part of D, E_t the
    tier's choice of budgets and M = sum_t E_t' D_t^-1 E_t,

        shared part = y = (I + S M)^-1 S sum_t E_t' D_t^-1 r_t,      mean_t = E_t y + P_t D_t^-1 (r_t - E_t y)
        log det = log det(I + S M) + sum_t log det D_t
    """
    prior, block = priors
    eye = np.eye(prior.shape[1])
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
    means = np.empty((len(prior), len(rate)))
    for row, solution in zip(rows, solved, strict=True):
        left = solution[..., -1:] - solution[..., :-1] @ y
        logs -= 0.5 * (left[..., 0] @ rate[row])
        means[:, row] = (y[:, column[row]] + block[:, column[row][:, None], column[row]] @ left)[..., 0]
    weight = np.exp(logs - logs.max())
    return weight / weight.sum(), means


def noise_of(rate: Array, n: Array, share: float) -> Array:
    """Covariance of a tier's measured errors: binomial on the diagonal, ``share`` of a perfect pairing off it.

    Where every question has one needed budget, the wrong at the larger error include those at the smaller, so that
    ``cov = min(e, e') (1 - max(e, e'))``. Adaptive sampling asks less at some budgets, nearly always the first of the
    same questions, so that ``min(n, n')`` are common to both and the means' covariance is ``cov / max(n, n')``.
    """
    covariance = share * np.minimum.outer(rate, rate) * (1 - np.maximum.outer(rate, rate))
    np.fill_diagonal(covariance, rate * (1 - rate))
    return np.asarray(covariance / np.maximum.outer(n, n))


def pairing(measured: ByDocument) -> float:
    """How far the same questions fail at different budgets: 0 as if by chance, 1 as if each had one needed budget."""
    observed, most = 0.0, 0.0
    for tier, wrong in measured.wrong.items():
        asked = measured.asked[tier]
        rate = wrong.sum(axis=0) / np.maximum(1, asked.sum(axis=0))
        off = wrong - asked * rate
        common = np.array([np.minimum(asked, column[:, None]).sum(axis=0) for column in asked.T])
        perfect = np.minimum.outer(rate, rate) * (1 - np.maximum.outer(rate, rate)) * common
        pairs = ~np.eye(len(rate), dtype=bool)
        observed, most = observed + float((off.T @ off)[pairs].sum()), most + float(perfect[pairs].sum())
    return float(np.clip(observed / most, 0.0, 0.98)) if most > 0 else 0.0
