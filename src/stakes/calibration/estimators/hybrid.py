"""What are a VLM's curves, if few answers are had and another reader's curves are known? A prior, mapped and shrunk to.

    stakes calibrate samples.jsonl --model ocr -o legibility.json       # no GPU: all that is labelled
    stakes calibrate few.jsonl --model MY-VLM --estimator hybrid:legibility.outcomes.jsonl

With p_t(b) the prior's error of tier t at b tokens (as ``pooled`` draws it; straight between its budgets in log b and
log-odds, level beyond them), the model is guessed at

    logit m_t(b) = a + d_t + s logit p_t(b)          s >= 0

a, d_t and s held to 0, 0 and 1 by normal priors (``SPREADS``). Around m the model's curves may run as ``pooled`` lets
them around straight lines: a smooth deviation that all tiers share, one of each tier's own, and a rough one, each as
large as the likelihood asks for. ``pooled`` itself, which knows of no prior, stands beside it, as likely beforehand,
and the two are averaged by how well they foretell the answers: a prior that misleads is soon not heard, and where it
says nothing new the answers are drawn as without it. A prior need not be legibility: a smaller model's log will do.

The prior only proposes. What tests a choice must not have shaped it, so a prior's documents that are about to be tested
on are left out of it (``unseen``); that needs its log, which names them. Certificates rest on outcomes alone.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.budgets.curve_files import curves_from_outcomes, read_curves
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators.pooled import (
    ROUGH,
    average,
    by_setting,
    deviations,
    noise_of,
    pairing,
    pooled,
    posteriors,
)
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome, read_outcomes

Array = NDArray[np.float64]

SPREADS = {"a": 2.0, "s": 0.5, "d": 0.5}
SHARED = (0.0, 0.03, 0.1)  # standard deviations around the mapped prior, in units of error rate: common to all tiers
OWN = (0.0, 0.02, 0.05)  # and a tier's own
STEPS = 50


def hybrid(
    curves: Mapping[str, Curve], prior: Mapping[str, Curve], measured: ByDocument | None = None
) -> dict[str, Curve]:
    """The curves drawn to the prior's, mapped; the same grid, the same counts. For a handful of tiers."""
    tiers = list(curves)
    missing = [tier for tier in tiers if tier not in prior]
    if missing:
        raise BadInput(f"the prior has no curve of tier {missing[0]!r}, only of {', '.join(prior)}; measure it too")
    known = pooled({tier: prior[tier] for tier in tiers})  # a prior is measured too, and its luck is not to be copied
    owner = np.repeat(np.arange(len(tiers)), [len(curves[tier].budgets) for tier in tiers])
    x = np.concatenate([np.log(curves[tier].budgets) for tier in tiers])
    n = np.concatenate([np.array(curves[tier].counts, dtype=float) for tier in tiers])
    rate = np.concatenate([np.array(curves[tier].errors) for tier in tiers])
    odds = np.concatenate([_log_odds(known[tier], curves[tier].budgets) for tier in tiers])
    behind = np.concatenate([np.full(len(curves[tier].budgets), sum(known[tier].counts)) for tier in tiers])
    fitted, mean, spread = _link(odds, behind, owner, len(tiers), n * rate, n)
    share = 0.0 if measured is None else pairing(measured)
    for rough in ((0.0,), ROUGH):
        noise = noise_of(np.clip(fitted, 1 / (n + 2), 1 - 1 / (n + 2)), n, owner, share)
        logs, near = posteriors(spread + deviations(x, owner, SHARED, OWN, rough), rate - mean, noise)
        plain = by_setting(tuple(map(float, x)), tuple(map(int, owner)), rough)
        alone, smooth = posteriors(plain, rate - rate.mean(), noise)
        fitted = average([(logs, near + mean), (alone, smooth + rate.mean())])
    fitted = fitted.clip(0, 1).round(9)
    return {
        tier: Curve(curves[tier].budgets, [float(e) for e in fitted[owner == t]], curves[tier].counts)
        for t, tier in enumerate(tiers)
    }


def read_prior(path: str | Path, unseen: Collection[str] = ()) -> dict[str, Curve]:
    """The curves of a log, a policy or a file of curves; of a log, without the documents named in ``unseen``."""
    path = Path(path)
    if not unseen:
        return read_curves(path)
    if path.suffix != ".jsonl":
        raise BadInput(
            f"the prior {path} does not say which documents it was measured on, so that nothing chosen with it can be "
            "tested; give its log of outcomes (.jsonl)"
        )
    held = set(unseen)
    left = [outcome for outcome in _outcomes(path, path.stat().st_mtime_ns) if outcome.document not in held]
    if not left:
        raise BadInput(f"the prior {path} rests on the very documents to be tested on; measure it on others too")
    return curves_from_outcomes(left)


@lru_cache(maxsize=2)
def _outcomes(path: Path, _changed: int) -> tuple[Outcome, ...]:
    return tuple(read_outcomes(path))


def _log_odds(curve: Curve, budgets: tuple[int, ...]) -> Array:
    """logit p at these budgets; half an answer is added to either side, so that 0 and 1 are not certain."""
    n = np.array(curve.counts, dtype=float)
    p = (np.array(curve.errors) * n + 0.5) / (n + 1)
    return np.asarray(np.interp(np.log(budgets), np.log(curve.budgets), np.log(p / (1 - p))))


def _link(
    odds: Array, behind: Array, owner: NDArray[np.int64], tiers: int, wrong: Array, n: Array
) -> tuple[Array, Array, Array]:
    """m at every point as the answers would have it, and what is expected beforehand: mean and covariance.

    Newton's steps on the penalised likelihood, which is concave in (a, s, d). The expectation is that of the link's
    priors where it is linear about this m; a prior of N answers in all has log-odds with a variance of 1 / N p (1 - p).
    """
    x = np.column_stack([np.ones_like(odds), odds, np.equal.outer(owner, np.arange(tiers))]).astype(float)
    middle = np.array([0.0, 1.0] + [0.0] * tiers)
    spread = np.array([SPREADS["a"], SPREADS["s"], *[SPREADS["d"]] * tiers]) ** 2
    weights = middle.copy()
    for _ in range(STEPS):
        m = _rate(x @ weights)
        slope = x.T @ (wrong - n * m) - (weights - middle) / spread
        step = np.linalg.solve(x.T @ (x * (n * m * (1 - m))[:, None]) + np.diag(1 / spread), slope)
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    if weights[1] < 0:  # a prior that points the wrong way says nothing: levels alone
        return _link(np.zeros_like(odds), behind, owner, tiers, wrong, n)
    m, p = _rate(x @ weights), _rate(odds)
    bent = x * (m * (1 - m))[:, None]
    own = (weights[1] * m * (1 - m)) ** 2 / (behind * p * (1 - p))
    return m, m + bent @ (middle - weights), (bent * spread) @ bent.T + np.diag(own)


def _rate(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))
