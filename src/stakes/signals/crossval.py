"""How well does a learned signal do on questions that it has not seen? Repeated, nested cross-validation.

Paper, "Automatic Consequence Signal Prediction", Table "Automatic consequence prediction": accuracy, F1 and kappa over
five folds. Here the folds are shuffled and stratified, repeated, everything is chosen inside the fitting part, and the
same is done with whole documents held out: questions on one page share their wording, so plain folds flatter.

    report = cross_validate(questions, tiers, documents, dearest="high")
    print(report)                      # accuracy, F1, kappa, Brier, calibration error; plain and grouped
    report.beyond[:3]                  # the weightiest n-grams that hold none of the rule's keywords
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from stakes.errors import BadInput
from stakes.signals.agreement import Confusion
from stakes.signals.keywords import KeywordRule
from stakes.signals.linear import softmax
from stakes.signals.training import encode, split, train


@dataclass(frozen=True)
class Fold:
    """One held-out fold: how the model trained on the others did, and what it had chosen."""

    repeat: int
    fold: int
    n: int
    accuracy: float
    f1: float | None  # of the dearest tier, as in the paper's table; None: it neither stands in the fold nor was said
    kappa: float | None  # None: label and answer are one and the same tier throughout, so chance explains all
    strength: float
    idf: bool


@dataclass(frozen=True)
class Scores:
    """All folds of one way of splitting.

    Accuracy is a mean over folds. F1 and kappa are those of all held-out answers of one repeat together, every question
    once, and then means over repeats: a fold may hold one tier only, when whole documents are kept together, and has no
    kappa of its own. Brier and calibration error are over all held-out answers.
    """

    grouped: bool
    folds: tuple[Fold, ...]
    accuracy: float
    accuracy_sd: float  # over folds
    f1: float
    kappa: float
    brier: float
    brier_raw: float  # the same answers before calibration
    ece: float  # expected calibration error of the best tier's probability, ten bins of equal count
    ece_raw: float

    def __str__(self) -> str:
        """One line for people."""
        way = "documents held out" if self.grouped else "questions held out"
        return (
            f"{way}: accuracy {self.accuracy:.3f} (sd {self.accuracy_sd:.3f}), F1 {self.f1:.3f}, "
            f"kappa {self.kappa:.3f}, Brier {self.brier:.4f} (before calibration {self.brier_raw:.4f}), "
            f"calibration error {self.ece:.4f} (before {self.ece_raw:.4f})"
        )


@dataclass(frozen=True)
class Report:
    """What cross-validation found, and what the model trained on everything hangs its decisions on."""

    n: int
    tiers: dict[str, int]
    repeats: int
    plain: Scores
    grouped: Scores | None  # None: no groups were given
    masked: Scores  # one repeat with every keyword of the rule blanked out: what the other words alone can tell
    keyword_terms: tuple[tuple[str, float], ...]  # kept n-grams that hold a keyword, log-odds for the dearest tier
    beyond: tuple[tuple[str, float], ...]  # kept n-grams that hold none

    def __str__(self) -> str:
        """A few lines for people."""
        sizes = ", ".join(f"{count} {name}" for name, count in self.tiers.items())
        top = ", ".join(f'"{term}" {weight:+.1f}' for term, weight in self.beyond[:12]) or "nothing"
        lines = [f"{self.n} questions ({sizes}), {self.repeats} x {len(self.plain.folds) // self.repeats} folds"]
        lines += [str(scores) for scores in (self.plain, self.grouped) if scores]
        lines += [f"keywords blanked out, {self.masked}"]
        lines += [f"{len(self.keyword_terms)} kept n-grams hold a keyword; beyond them, {len(self.beyond)}: {top}"]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values; what is not defined is null."""
        return asdict(self)


def cross_validate(
    questions: Sequence[str],
    tiers: Sequence[str],
    groups: Sequence[str] | None = None,
    *,
    dearest: str,
    repeats: int = 10,
    folds: int = 5,
    seed: int = 0,
    rule: KeywordRule | None = None,
) -> Report:
    """Cross-validate a learned signal; ``rule`` says which n-grams count as keywords (default: the paper's 24)."""
    names, _ = encode(questions, tiers, groups)
    if dearest not in names:
        raise BadInput(f"no training question is of the dearest tier {dearest!r}, so its F1 is not defined")
    if repeats < 1:
        raise BadInput(f"cross-validation needs at least one repeat, not {repeats!r}")
    rule = rule or KeywordRule()
    blanked = _blank(questions, rule)
    grouped = None
    if groups is not None:
        grouped = score_folds(questions, tiers, groups, dearest=dearest, repeats=repeats, folds=folds, seed=seed)
    kept, beyond = _weights(questions, tiers, groups, dearest, rule, folds, seed)
    return Report(
        n=len(questions),
        tiers=dict(sorted(Counter(tiers).items())),
        repeats=repeats,
        plain=score_folds(questions, tiers, None, dearest=dearest, repeats=repeats, folds=folds, seed=seed),
        grouped=grouped,
        masked=score_folds(blanked, tiers, None, dearest=dearest, repeats=1, folds=folds, seed=seed),
        keyword_terms=kept,
        beyond=beyond,
    )


def score_folds(
    questions: Sequence[str],
    tiers: Sequence[str],
    groups: Sequence[str] | None,
    *,
    dearest: str,
    repeats: int = 10,
    folds: int = 5,
    seed: int = 0,
) -> Scores:
    """Score one way of splitting: by question, or with whole groups held out (their inner folds are grouped too)."""
    names, labels = encode(questions, tiers, groups)
    done: list[Fold] = []
    chances, raw, truth = [], [], []
    pooled: list[tuple[float, float]] = []  # F1 and kappa by repeat
    for repeat in range(repeats):
        all_right: list[str] = []
        all_said: list[str] = []
        for fold, (fitting, testing) in enumerate(split(labels, groups, folds, seed + repeat)):
            inner = None if groups is None else [groups[i] for i in fitting]
            trained = train(
                [questions[i] for i in fitting], [tiers[i] for i in fitting], inner, folds=folds, seed=seed + repeat
            )
            held = [trained.model.probabilities(questions[i]) for i in testing]
            chances += held
            raw += [softmax(trained.model.scores(questions[i])) for i in testing]
            truth += labels[testing].tolist()
            said = [names[int(np.argmax(row))] for row in held]
            right = [tiers[i] for i in testing]
            table = Confusion.of(right, said, tiers=names)
            kappa = None if math.isnan(table.kappa) else table.kappa
            f1 = _f1(right, said, dearest) if dearest in {*right, *said} else None
            done.append(Fold(repeat, fold, len(said), table.agreement, f1, kappa, trained.strength, trained.idf))
            all_right += right
            all_said += said
        # Labels of two tiers at least, so this kappa is always there (``encode``); and the dearest is one of them.
        pooled.append((_f1(all_right, all_said, dearest), Confusion.of(all_right, all_said, tiers=names).kappa))
    accuracy = [fold.accuracy for fold in done]
    return Scores(
        grouped=groups is not None,
        folds=tuple(done),
        accuracy=float(np.mean(accuracy)),
        accuracy_sd=float(np.std(accuracy)),
        f1=float(np.mean([f1 for f1, _ in pooled])),
        kappa=float(np.mean([kappa for _, kappa in pooled])),
        brier=brier(chances, truth),
        brier_raw=brier(raw, truth),
        ece=calibration_error(chances, truth),
        ece_raw=calibration_error(raw, truth),
    )


def _f1(right: Sequence[str], said: Sequence[str], tier: str) -> float:
    return float(f1_score(right, said, labels=[tier], average="macro", zero_division=0.0))


def brier(chances: Sequence[Sequence[float]], truth: Sequence[int]) -> float:
    """Mean squared distance of the probabilities from what was true, halved, so two tiers give the usual score."""
    table = np.asarray(chances)
    return float(np.mean(np.sum((table - np.eye(table.shape[1])[list(truth)]) ** 2, axis=1)) / 2)


def calibration_error(chances: Sequence[Sequence[float]], truth: Sequence[int], bins: int = 10) -> float:
    """Mean gap between the best tier's probability and how often it is right, over bins of equal count."""
    table = np.asarray(chances)
    sure, right = table.max(axis=1), table.argmax(axis=1) == np.asarray(truth)
    parts = np.array_split(np.argsort(sure, kind="stable"), min(bins, len(sure)))
    return float(sum(len(part) * abs(sure[part].mean() - right[part].mean()) for part in parts) / len(sure))


def _blank(questions: Sequence[str], rule: KeywordRule) -> list[str]:
    """Put a word of its own for every keyword found: one common blank would itself be the best keyword of all."""
    stand_in = (f" blank{number} " for number in count())
    return [rule.pattern.sub(lambda _: next(stand_in), question) for question in questions]


def _weights(
    questions: Sequence[str],
    tiers: Sequence[str],
    groups: Sequence[str] | None,
    dearest: str,
    rule: KeywordRule,
    folds: int,
    seed: int,
) -> tuple[tuple[tuple[str, float], ...], tuple[tuple[str, float], ...]]:
    """Weights of every kept n-gram for the dearest tier over the mean of the others: with a keyword, and without."""
    model = train(questions, tiers, groups, folds=folds, seed=seed).model
    mine = model.tiers.index(dearest)
    table = np.array(model.coefficients) * np.array(model.idf) * model.slope
    gain = table[mine] - np.delete(table, mine, axis=0).mean(axis=0)
    order = [(model.vocabulary[i], float(gain[i])) for i in np.argsort(-np.abs(gain), kind="stable")]
    holds = {term: rule.find(term) is not None for term, _ in order}
    return tuple(pair for pair in order if holds[pair[0]]), tuple(pair for pair in order if not holds[pair[0]])
