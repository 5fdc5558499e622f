"""Repeated, nested cross-validation of a learned signal: how well it does on questions that it has not seen.

Paper, "Automatic Consequence Signal Prediction", Table "Automatic consequence prediction": accuracy, F1 and kappa over
five folds. Here the folds are shuffled, stratified and repeated, and everything is chosen inside the fitting part. The
same is done with whole documents held out: questions on one page share their wording, so plain folds are optimistic.

    scores = score_folds(questions, tiers, documents, most_expensive="high")
    scores.accuracy, scores.kappa, scores.brier
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import f1_score

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion
from stakes.signals.linear import softmax
from stakes.signals.training import encode, split, train


@dataclass(frozen=True)
class Scores:
    """All folds of one way of splitting.

    Accuracy is a mean over folds. F1 (of the most expensive tier, as in the paper's table) and kappa are computed over
    all held-out predictions of one repeat, every question once, and averaged over repeats: with whole documents held
    out a fold may contain one tier only, and then has no kappa of its own. Brier score and calibration error are over
    all held-out predictions.
    """

    accuracy: float
    f1: float
    kappa: float
    brier: float
    brier_raw: float  # the same predictions before calibration
    ece: float  # expected calibration error of the best tier's probability, ten bins of equal count


def score_folds(
    questions: Sequence[str],
    tiers: Sequence[str],
    groups: Sequence[str] | None,
    *,
    most_expensive: str,
    repeats: int = 10,
    folds: int = 5,
    seed: int = 0,
) -> Scores:
    """Score one way of splitting: by question, or with whole groups held out (their inner folds are grouped too)."""
    names, labels = encode(questions, tiers, groups)
    if most_expensive not in names:
        raise BadInput(f"no training question is labelled {most_expensive!r}, the most expensive tier; label some")
    if repeats < 1:
        raise BadInput(f"cross-validation needs at least one repeat, not {repeats!r}")
    probabilities, raw, truth = [], [], []
    accuracies: list[float] = []  # by fold
    f1s, kappas = [], []  # by repeat
    for repeat in range(repeats):
        expected: list[str] = []
        predicted: list[str] = []
        for fitting, testing in split(labels, groups, folds, seed + repeat):
            inner = None if groups is None else [groups[i] for i in fitting]
            trained = train(
                [questions[i] for i in fitting], [tiers[i] for i in fitting], inner, folds=folds, seed=seed + repeat
            )
            held_out = [trained.model.probabilities(questions[i]) for i in testing]
            probabilities += held_out
            raw += [softmax(trained.model.scores(questions[i])) for i in testing]
            truth += labels[testing].tolist()
            best = np.argmax(held_out, axis=1)
            accuracies.append(float(np.mean(best == labels[testing])))
            expected += [tiers[i] for i in testing]
            predicted += [names[i] for i in best]
        f1s.append(f1_score(expected, predicted, labels=[most_expensive], average="macro", zero_division=0.0))
        kappas.append(Confusion.of(expected, predicted, names).kappa)  # ``encode`` requires two tiers: it is defined
    return Scores(
        accuracy=float(np.mean(accuracies)),
        f1=float(np.mean(f1s)),
        kappa=float(np.mean(kappas)),
        brier=brier(probabilities, truth),
        brier_raw=brier(raw, truth),
        ece=calibration_error(probabilities, truth),
    )


def brier(probabilities: Sequence[Sequence[float]], truth: Sequence[int]) -> float:
    """Mean squared distance of the probabilities from the truth, halved, so that two tiers give the usual score."""
    table = np.asarray(probabilities)
    return float(np.mean(np.sum((table - np.eye(table.shape[1])[list(truth)]) ** 2, axis=1)) / 2)


def calibration_error(probabilities: Sequence[Sequence[float]], truth: Sequence[int], bins: int = 10) -> float:
    """Mean gap between the best tier's probability and how often it is right, over bins of equal count."""
    table = np.asarray(probabilities)
    best, right = table.max(axis=1), table.argmax(axis=1) == np.asarray(truth)
    parts = np.array_split(np.argsort(best, kind="stable"), min(bins, len(best)))
    return float(sum(len(part) * abs(best[part].mean() - right[part].mean()) for part in parts) / len(best))
