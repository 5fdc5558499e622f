"""Training of a learned signal: TF-IDF n-grams, L1 logistic regression, calibration on out-of-fold scores.

Paper, "Automatic Consequence Signal Prediction". L1, because a tier depends on a few words: of the 2,587 n-grams in 600
DocVQA questions it keeps 38. Log-loss over inner folds chooses its strength C and whether words are weighted by idf or
only by presence (presence wins in most: under L1 an idf makes rare words cheaper to keep). The scores of the same
folds, none from a model that saw the question, then fit the calibration. Needs scikit-learn and scipy.

>>> trained = train(["What is the date?", "Who signed?"] * 5, ["high", "low"] * 5)
>>> trained.model.probabilities("Which date?")[0] > 0.5
True
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from stakes.errors import BadInput
from stakes.signals.linear import LinearModel, ngrams, words

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""The values of C that are tried, the largest the weakest penalty."""

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Trained:
    """A model and what the inner folds chose for it."""

    model: LinearModel
    strength: float  # C
    idf: bool


def train(
    questions: Sequence[str],
    tiers: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    folds: int = 5,
    seed: int = 0,
) -> Trained:
    """Fit on labelled questions; with ``groups`` (documents) no inner fold splits a group."""
    names, labels = encode(questions, tiers, groups)
    losses: dict[tuple[bool, float], list[float]] = {}
    held: dict[tuple[bool, float], Array] = {}
    for fitting, testing in split(labels, groups, folds, seed):
        features = _Features([questions[i] for i in fitting])
        counts = features.count([questions[i] for i in testing])
        for idf in (False, True):
            seen, unseen = features.weigh(features.counts, idf), features.weigh(counts, idf)
            for strength in STRENGTHS:
                coefficients, intercepts = _fit(seen, labels[fitting], len(names), strength)
                scores = unseen @ coefficients.T + intercepts
                losses.setdefault((idf, strength), []).append(_log_loss(scores, labels[testing]))
                held.setdefault((idf, strength), np.zeros((len(labels), len(names))))[testing] = scores
    best = min(losses, key=lambda choice: float(np.mean(losses[choice])))  # ties: no idf, then the stronger penalty
    idf, strength = best
    features = _Features(questions)
    coefficients, intercepts = _fit(features.weigh(features.counts, idf), labels, len(names), strength)
    slope, offsets = calibrate(held[best], labels)
    weighted = np.flatnonzero(np.any(coefficients != 0, axis=0))
    model = LinearModel(
        tiers=names,
        vocabulary=tuple(features.terms[i] for i in weighted),
        idf=tuple(features.idf[weighted].tolist()) if idf else (1.0,) * len(weighted),
        coefficients=tuple(tuple(row) for row in coefficients[:, weighted].tolist()),
        intercepts=tuple(intercepts.tolist()),
        slope=slope,
        offsets=offsets,
        known=tuple(sorted({word for question in questions for word in words(question)})),
    )
    return Trained(model, strength, idf)


def encode(
    questions: Sequence[str], tiers: Sequence[str], groups: Sequence[str] | None = None
) -> tuple[tuple[str, ...], Indices]:
    """Check the training data; the tier names, sorted, and each question's index into them."""
    if len(questions) != len(tiers) or (groups is not None and len(groups) != len(tiers)):
        sizes = f"{len(questions)} questions, {len(tiers)} tiers and {len(groups or ())} groups"
        raise BadInput(f"every question needs one tier (and one group where groups are given), not {sizes}")
    for i, (question, tier) in enumerate(zip(questions, tiers, strict=True)):
        if not isinstance(question, str) or not question.strip() or not isinstance(tier, str) or not tier.strip():
            raise BadInput(f"training question {i} is unusable: {question!r:.60} with tier {tier!r:.40}")
    names, labels = np.unique(list(tiers), return_inverse=True)
    if len(names) < 2:
        raise BadInput(f"a learned signal needs questions of at least two tiers, these are all {names.tolist()!r}")
    return tuple(names.tolist()), labels


def split(labels: Indices, groups: Sequence[str] | None, folds: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Shuffled stratified folds as (fitting, testing) indices; grouped where groups are given."""
    blank = np.zeros(len(labels))
    if groups is None:
        folds = min(folds, int(np.bincount(labels).min()))
        if folds < 2:
            raise BadInput("every tier needs at least two questions to learn from")
        yield from StratifiedKFold(folds, shuffle=True, random_state=seed).split(blank, labels)
        return
    folds = min(folds, len(set(groups)))
    if folds < 2:
        raise BadInput("grouped folds need questions from at least two groups")
    for fitting, testing in StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(blank, labels, groups):
        if len(set(labels[fitting])) < len(set(labels)):
            raise BadInput(
                "all questions of one tier are in one group, so a grouped fold cannot learn it; leave groups out"
            )
        yield fitting, testing


def calibrate(scores: Array, labels: Indices) -> tuple[float, tuple[float, ...]]:
    """Fit slope and offsets of ``softmax(slope * z + offset)`` by log-loss on out-of-fold scores (N x T).

    Targets are smoothed as Platt (1999) does, (n + 1) / (n + T): without it separable scores drive the slope to
    infinity, and every later question would be certain.
    """
    n, t = scores.shape
    sizes = np.bincount(labels, minlength=t)
    target = np.repeat((1 / (sizes[labels] + t))[:, None], t, axis=1)
    target[np.arange(n), labels] = (sizes[labels] + 1) / (sizes[labels] + t)

    def loss(parameters: Array) -> tuple[float, Array]:
        slope, offsets = np.exp(parameters[0]), np.append(0.0, parameters[1:])
        logits = slope * scores + offsets
        logp = logits - logsumexp(logits, axis=1, keepdims=True)
        slack = np.exp(logp) - target
        gradient = np.append(slope * np.sum(slack * scores), slack.sum(axis=0)[1:])
        return -float(np.sum(target * logp)) / n, gradient / n

    fitted = minimize(loss, np.zeros(t), jac=True, method="L-BFGS-B", bounds=[(-5, 5)] + [(-20, 20)] * (t - 1))
    return float(np.exp(fitted.x[0])), (0.0, *map(float, fitted.x[1:]))


class _Features:
    """One training set's n-grams and their idf; the matrices are N x V, sparse, presence with or without idf."""

    def __init__(self, questions: Sequence[str]) -> None:
        self._count = CountVectorizer(analyzer=ngrams, binary=True)
        self.counts = self._count.fit_transform(questions).astype(np.float64)
        self._idf = TfidfTransformer(norm=None).fit(self.counts)
        self.terms: list[str] = self._count.get_feature_names_out().tolist()
        self.idf: Array = self._idf.idf_

    def count(self, questions: Sequence[str]) -> Any:
        return self._count.transform(questions).astype(np.float64)

    def weigh(self, counts: Any, idf: bool) -> Any:
        return self._idf.transform(counts) if idf else counts


def _fit(matrix: Any, labels: Indices, tiers: int, strength: float) -> tuple[Array, Array]:
    """Coefficients (T x V) and intercepts (T): one model for two tiers, one against the rest for more."""
    coefficients, intercepts = np.zeros((tiers, matrix.shape[1])), np.zeros(tiers)
    for tier in range(1 if tiers == 2 else 0, tiers):
        fitted = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", random_state=0, max_iter=2000)
        with warnings.catch_warnings():
            # a weak penalty on separable words may not converge; held-out log-loss judges such a fit like any other
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.fit(matrix, labels == tier)
        coefficients[tier], intercepts[tier] = fitted.coef_[0], fitted.intercept_[0]
    return coefficients, intercepts


def _log_loss(scores: Array, labels: Indices) -> float:
    logp = scores - logsumexp(scores, axis=1, keepdims=True)
    return -float(np.mean(logp[np.arange(len(labels)), labels]))
