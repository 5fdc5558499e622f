"""Training of a learned signal: TF-IDF n-grams, logistic regression, calibration on out-of-fold scores.

Two recipes. The paper's ("Automatic Consequence Signal Prediction") has words and pairs of words and an L1 penalty: of
the 2,587 n-grams in 600 DocVQA questions it keeps 38. Log-loss over inner folds chooses its strength C and whether
words are weighted by idf or only by presence. The other, ``characters=True``, adds character n-grams and has an L2
penalty and idf, because the evidence of a word is spread over many n-grams. On DocVQA's questions (quantitative answer
or not, 2,000 labels, other texts tested) it misses fewer high-cost questions and bears typos; see docs/dev/decisions.

The scores of the inner folds, none from a model that saw the question, then fit the calibration, and the share of known
words in the same held-out questions sets what counts as unfamiliar text. Needs scikit-learn and scipy.

>>> trained = train(["What is the date?", "Who signed?"] * 5, ["high", "low"] * 5)
>>> trained.model.probabilities("Which date?")[0] > 0.5
True
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.preprocessing import normalize

from stakes.errors import BadInput
from stakes.signals.linear import MARK, LinearModel, features, known_share, ngrams, words

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""The values of C that are tried, the largest the weakest penalty."""
CHARACTER_STRENGTHS = (1.0, 3.0, 10.0)
"""The same with character n-grams, whose penalty is L2."""
MOST_NGRAMS = 24_000
"""The n-grams that a model with characters has at most, those of the most questions first; words come before all."""
UNFAMILIAR = 0.01
"""The share of held-out training questions that may count as unfamiliar text."""
MOST_FAMILIAR = 0.5
"""No text is unfamiliar with at least this share of known words, however alike the training questions are."""

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
    characters: bool = False,
) -> Trained:
    """Fit on labelled questions; with ``groups`` (documents) no inner fold splits a group.

    ``characters``: with character n-grams, and undecided on unfamiliar text. Without, the paper's recipe.
    """
    names, labels = encode(questions, tiers, groups)
    choices = (
        [(True, c) for c in CHARACTER_STRENGTHS] if characters else [(i, c) for i in (False, True) for c in STRENGTHS]
    )
    losses: dict[tuple[bool, float], list[float]] = {choice: [] for choice in choices}
    held = {choice: np.zeros((len(labels), len(names))) for choice in choices}
    shares = np.zeros(len(labels))
    for fitting, testing in _inner_folds(questions, labels, groups, folds, seed, characters):
        seen = [questions[i] for i in fitting]
        vectors = _CharacterFeatures(seen) if characters else _Features(seen)
        counts = vectors.count([questions[i] for i in testing])
        known = {word for question in seen for word in words(question)}
        shares[testing] = [known_share(questions[i], known) for i in testing]
        for idf, strength in choices:
            matrix = vectors.weigh(vectors.counts, idf)
            coefficients, intercepts = _fit(matrix, labels[fitting], len(names), strength, l1=not characters)
            scores = vectors.weigh(counts, idf) @ coefficients.T + intercepts
            losses[idf, strength].append(_log_loss(scores, labels[testing]))
            held[idf, strength][testing] = scores
    best = min(losses, key=lambda choice: float(np.mean(losses[choice])))  # ties: no idf, then the stronger penalty
    idf, strength = best
    vectors = _CharacterFeatures(questions) if characters else _Features(questions)
    matrix = vectors.weigh(vectors.counts, idf)
    coefficients, intercepts = _fit(matrix, labels, len(names), strength, l1=not characters)
    slope, offsets = calibrate(held[best], labels)
    model = LinearModel(
        tiers=names,
        intercepts=tuple(intercepts.tolist()),
        slope=slope,
        offsets=offsets,
        known=tuple(sorted({word for question in questions for word in words(question)})),
        characters=characters,
        familiar=min(MOST_FAMILIAR, round(float(np.quantile(shares, UNFAMILIAR)), 4)) if characters else 0.0,
        **vectors.weights(coefficients, idf),
    )
    return Trained(model, strength, idf)


def _inner_folds(
    questions: Sequence[str], labels: Indices, groups: Sequence[str] | None, folds: int, seed: int, by_text: bool
) -> list[tuple[Indices, Indices]]:
    """Inner folds, by distinct text too where there are enough: repeats would make the signal too sure of itself."""
    if by_text:
        with suppress(BadInput):
            return list(split(labels, groups, folds, seed, list(map(text_key, questions))))
    return list(split(labels, groups, folds, seed))


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


def split(
    labels: Indices, groups: Sequence[str] | None, folds: int, seed: int, texts: Sequence[str] | None = None
) -> Iterator[tuple[Indices, Indices]]:
    """Shuffled stratified folds as (fitting, testing) indices; grouped where groups are given.

    With ``texts`` (``text_key``) no question is fitted on whose text is tested, on whatever document it stands.
    """
    blank = np.zeros(len(labels))
    if groups is None and texts is None:
        folds = min(folds, int(np.bincount(labels).min()))
        if folds < 2:
            raise BadInput("every tier needs at least two questions to learn from")
        yield from StratifiedKFold(folds, shuffle=True, random_state=seed).split(blank, labels)
        return
    owners = groups if groups is not None else texts or ()
    sizes = np.bincount(labels)
    folds = min(folds, len(set(owners)), int(sizes.max() if texts is None else sizes.min()))
    if folds < 2:
        raise BadInput("grouped folds need questions from at least two groups")
    for outside, testing in StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(blank, labels, owners):
        fitting = outside
        if texts is not None:
            tested = {texts[i] for i in testing}
            fitting = np.array([i for i in outside if texts[i] not in tested], dtype=np.intp)
            if 2 * len(fitting) < len(outside):
                raise BadInput(
                    f"there are too few distinct questions to hold any out: the {len(labels)} questions have "
                    f"{len(set(texts))} texts, and most recur on other documents"
                )
        if len(set(labels[fitting])) < len(set(labels)):
            raise BadInput(
                "all questions of one tier are in one group, so a grouped fold cannot learn it; leave groups out"
            )
        yield fitting, testing


def text_key(question: str) -> str:
    """A question's words: equal for texts that differ in case, spacing and punctuation only."""
    return " ".join(words(question)) or question.strip()


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
    """One training set's word n-grams and their idf; the matrices are N x V, sparse, presence with or without idf."""

    def __init__(self, questions: Sequence[str]) -> None:
        self._count = CountVectorizer(analyzer=ngrams, binary=True)
        self.counts = self._count.fit_transform(questions).astype(np.float64)
        self._idf = TfidfTransformer(norm=None).fit(self.counts)

    def count(self, questions: Sequence[str]) -> Any:
        return self._count.transform(questions).astype(np.float64)

    def weigh(self, counts: Any, idf: bool) -> Any:
        return self._idf.transform(counts) if idf else counts

    def weights(self, coefficients: Array, idf: bool) -> dict[str, Any]:
        """The n-grams with a weight, as fields of a model."""
        weighted = np.flatnonzero(np.any(coefficients != 0, axis=0))
        terms = self._count.get_feature_names_out()
        return {
            "vocabulary": tuple(terms[weighted].tolist()),
            "idf": tuple(self._idf.idf_[weighted].tolist()) if idf else (1.0,) * len(weighted),
            "coefficients": tuple(tuple(row) for row in coefficients[:, weighted].tolist()),
        }


class _CharacterFeatures:
    """The same with character n-grams. Words and characters have unit length each, as ``LinearModel`` scales them.

    Pairs of words and character n-grams of one question only are left out, and beyond ``MOST_NGRAMS`` the rarest.
    Numbers are rounded as they are stored, so that a saved signal is small and what was fitted is what predicts.
    """

    def __init__(self, questions: Sequence[str]) -> None:
        split = [_split(question) for question in questions]
        frequency = Counter(term for blocks in split for block in blocks for term in block)
        single = {word for question in questions for word in words(question)}
        ranked = sorted(
            (term for term, n in frequency.items() if n > 1 or not term.startswith(MARK)),
            key=lambda term: (term not in single, -frequency[term], term),
        )
        terms = sorted(ranked[:MOST_NGRAMS])
        self.terms = [
            [term for term in terms if not term.startswith(MARK)],
            [term for term in terms if term.startswith(MARK)],
        ]
        self._counts = [CountVectorizer(analyzer=list, vocabulary=block) for block in self.terms if block]
        n = len(questions)
        self.idf = [
            np.array([round(1 + math.log((1 + n) / (1 + frequency[term])), 3) for term in block])
            for block in self.terms
        ]
        self.counts = self.count(questions)

    def count(self, questions: Sequence[str]) -> Any:
        split = [_split(question) for question in questions]
        blocks = []
        for i, counter in enumerate(self._counts):
            counted = counter.transform([parts[i] for parts in split]).astype(np.float64)
            blocks.append(normalize(counted @ sparse.diags(self.idf[i])))
        return sparse.hstack(blocks).tocsr()

    def weigh(self, counts: Any, idf: bool) -> Any:  # noqa: ARG002 (they have it already)
        return counts

    def weights(self, coefficients: Array, idf: bool) -> dict[str, Any]:  # noqa: ARG002
        """Every n-gram, as fields of a model: those without a weight of their own count towards the length."""
        return {
            "vocabulary": (*self.terms[0], *self.terms[1]),
            "idf": tuple(np.concatenate(self.idf).tolist()),
            "coefficients": tuple(tuple(row) for row in np.round(coefficients, 4).tolist()),
        }


@lru_cache(maxsize=16_384)
def _split(question: str) -> tuple[list[str], list[str]]:
    """The n-grams of a question, kept: cross-validation reads the same questions many times."""
    named = features(question)
    return list(named[0]), list(named[1])


def _fit(matrix: Any, labels: Indices, tiers: int, strength: float, *, l1: bool = True) -> tuple[Array, Array]:
    """Coefficients (T x V) and intercepts (T): one model for two tiers, one against the rest for more."""
    coefficients, intercepts = np.zeros((tiers, matrix.shape[1])), np.zeros(tiers)
    for tier in range(1 if tiers == 2 else 0, tiers):
        fitted = LogisticRegression(C=strength, l1_ratio=int(l1), solver="liblinear", random_state=0, max_iter=2000)
        with warnings.catch_warnings():
            # a weak penalty on separable words may not converge; held-out log-loss judges such a fit like any other
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted.fit(matrix, labels == tier)
        coefficients[tier], intercepts[tier] = fitted.coef_[0], fitted.intercept_[0]
    return coefficients, intercepts


def _log_loss(scores: Array, labels: Indices) -> float:
    logp = scores - logsumexp(scores, axis=1, keepdims=True)
    return -float(np.mean(logp[np.arange(len(labels)), labels]))
