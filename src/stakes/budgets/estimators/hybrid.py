"""What are a VLM's curves, if few answers are had and another reader's curves are known? A prior, mapped and shrunk to.

    stakes calibrate samples.jsonl --model ocr -o legibility.json       # no GPU: all that is labelled
    stakes calibrate few.jsonl --model MY-VLM --estimator hybrid:legibility.outcomes.jsonl

With p_t(b) the prior's error of tier t at b tokens (as ``pooled`` draws it; straight between its budgets in log b and
log-odds, level beyond them), the model is guessed at

    logit m_t(b) = a + d_t + s logit p_t(b)          s >= 0

a, d_t and s by maximum likelihood on the few answers, held to 0, 0 and 1 by normal priors (``SPREADS``): no answers, no
change. What the link cannot say is left to the answers: w wrong of n at one budget make

    e = (w + k m) / (n + k)

averaged over strengths k by their beta-binomial likelihood, so that a link that fits badly is trusted little, and many
answers overrule any prior; nor is k ever above the prior's own number of answers. A prior need not be legibility: a
smaller model's log serves as well.

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
from stakes.budgets.estimators.pooled import pooled
from stakes.errors import BadInput
from stakes.evaluation.outcomes import Outcome, read_outcomes

Array = NDArray[np.float64]

SPREADS = {"a": 2.0, "d": 0.5, "s": 0.5}
STRENGTHS = (4.0, 16.0, 64.0, 256.0, 1024.0)
STEPS = 50


def hybrid(curves: Mapping[str, Curve], prior: Mapping[str, Curve]) -> dict[str, Curve]:
    """The curves drawn to the prior's, mapped; the same grid, the same counts."""
    tiers = list(curves)
    missing = [tier for tier in tiers if tier not in prior]
    if missing:
        raise BadInput(f"the prior has no curve of tier {missing[0]!r}, only of {', '.join(prior)}; measure it too")
    known = pooled({tier: prior[tier] for tier in tiers})  # a prior is measured too, and its luck is not to be copied
    owner = np.repeat(np.arange(len(tiers)), [len(curves[tier].budgets) for tier in tiers])
    n = np.concatenate([np.array(curves[tier].counts, dtype=float) for tier in tiers])
    wrong = n * np.concatenate([np.array(curves[tier].errors) for tier in tiers])
    odds = np.concatenate([_log_odds(known[tier], curves[tier].budgets) for tier in tiers])
    behind = np.concatenate([_counts(known[tier], curves[tier].budgets) for tier in tiers])
    fitted = _shrink(_link(odds, owner, len(tiers), wrong, n), wrong, n, behind).clip(0, 1).round(9)
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


def _counts(curve: Curve, budgets: tuple[int, ...]) -> Array:
    """The answers that a prior rests on, about these budgets."""
    return np.asarray(np.interp(np.log(budgets), np.log(curve.budgets), curve.counts))


def _link(odds: Array, owner: NDArray[np.int64], tiers: int, wrong: Array, n: Array) -> Array:
    """m at every point: Newton's steps on the penalised likelihood, which is concave in (a, s, d)."""
    x = np.column_stack([np.ones_like(odds), odds, np.equal.outer(owner, np.arange(tiers))]).astype(float)
    middle = np.array([0.0, 1.0] + [0.0] * tiers)
    strict = 1 / np.array([SPREADS["a"], SPREADS["s"], *[SPREADS["d"]] * tiers]) ** 2
    weights = middle.copy()
    for _ in range(STEPS):
        m = _rate(x @ weights)
        slope = x.T @ (wrong - n * m) - strict * (weights - middle)
        step = np.linalg.solve(x.T @ (x * (n * m * (1 - m))[:, None]) + np.diag(strict), slope)
        weights = weights + step * min(1.0, 2.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    if weights[1] < 0:  # a prior that points the wrong way says nothing: fit levels alone
        return _link(np.zeros_like(odds), owner, tiers, wrong, n)
    return _rate(x @ weights)


def _shrink(m: Array, wrong: Array, n: Array, behind: Array) -> Array:
    """(w + k m) / (n + k), averaged over k by likelihood; k N / (k + N) for k where the prior rests on N answers."""
    from scipy.special import betaln

    k = 1 / (1 / np.array(STRENGTHS)[:, None] + 1 / behind)
    logs = (betaln(wrong + k * m, n - wrong + k * (1 - m)) - betaln(k * m, k * (1 - m))).sum(axis=1)
    weight = np.exp(logs - logs.max())
    return np.asarray(weight @ ((wrong + k * m) / (n + k)) / weight.sum())


def _rate(odds: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))))
