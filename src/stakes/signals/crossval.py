"""Repeated, nested cross-validation of a learned signal: how well it does on questions that it has not seen.

Paper, "Automatic Consequence Signal Prediction", Table "Automatic consequence prediction": accuracy, F1 and kappa over
five folds. Here the folds are shuffled, stratified and repeated, and everything is chosen inside the fitting part. The
same is done with whole documents held out: questions on one page share their wording, so plain folds are optimistic.

    scores = score_folds(questions, tiers, documents, most_expensive="high")      # the paper's recipe
    scores.accuracy, scores.kappa, scores.brier

``cross_fit`` is for use: it trains a signal and reads every training question by a model that has seen neither its
document nor its text.

    fitted = cross_fit(questions, tiers, documents, costs={"high": 5, "low": 1})
    fitted.signal.save("signal.json")
    fitted.confusion.agreement, fitted.right_by_tier
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import f1_score

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion
from stakes.signals.base import Reading
from stakes.signals.learned import LearnedSignal
from stakes.signals.linear import LinearModel, softmax
from stakes.signals.prompt import Prompt, text_of
from stakes.signals.training import encode, split, text_key, train


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


class HeldOutSignal(LearnedSignal):
    """A trained signal that reads each of its training texts by a model fitted without that text.

    Any other text, and its file form, are those of the signal trained on everything. A text that stands on several
    documents is read by the model of the first; ``CrossFit.readings`` has one of its own for each.
    """

    held: Mapping[str, LinearModel]

    def model_for(self, text: str) -> LinearModel:
        """The model that has not seen the text."""
        return self.held.get(text_key(text), self.model)


@dataclass(frozen=True)
class CrossFit:
    """A signal trained on all questions, and how it reads them out of fold."""

    signal: HeldOutSignal
    readings: tuple[Reading, ...]  # of each question, by a model that has seen neither its document nor its text
    tiers: tuple[str, ...]  # the labels
    folds: int

    @property
    def confusion(self) -> Confusion:
        """Labels first, readings second; undecided is read as the most expensive tier."""
        return Confusion.of(self.tiers, [reading.tier for reading in self.readings])

    @property
    def right_by_tier(self) -> dict[str, float]:
        """The share of each label's questions that is read as that tier."""
        pairs = list(zip(self.tiers, self.readings, strict=True))
        counts = {tier: self.tiers.count(tier) for tier in sorted(set(self.tiers))}
        return {tier: sum(label == reading.tier == tier for label, reading in pairs) / n for tier, n in counts.items()}

    @property
    def undecided(self) -> float:
        """The share of undecided readings."""
        return sum(not reading.decided for reading in self.readings) / len(self.readings)


def cross_fit(
    questions: Sequence[str | Prompt],
    tiers: Sequence[str],
    documents: Sequence[str],
    *,
    costs: Mapping[str, float] | None = None,
    most_expensive: str | None = None,
    seed: int = 0,
) -> CrossFit:
    """Train a signal, and read every question out of fold: documents are held out whole, and so are their texts.

    Too few documents or distinct texts to hold any out are an error that says so.
    """
    signal = HeldOutSignal(most_expensive=most_expensive, costs=costs, seed=seed)
    texts = list(map(text_of, questions))
    _, labels = encode(texts, tiers, documents)
    keys = list(map(text_key, texts))
    parts = list(split(labels, documents, signal.folds, seed, keys))  # fails before training
    signal.fit(texts, tiers, documents)
    held: dict[str, LinearModel] = {}
    readings: dict[int, Reading] = {}
    for fitting, testing in parts:
        chosen = [[values[i] for i in fitting] for values in (texts, tiers, documents)]
        part = LearnedSignal(most_expensive=signal.most_expensive, costs=costs, seed=seed).fit(*chosen)
        for i in testing:
            held.setdefault(keys[i], part.model)
            readings[int(i)] = part(texts[i])
    signal.held = held
    return CrossFit(signal, tuple(readings[i] for i in range(len(texts))), tuple(tiers), len(parts))


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
