"""Compare legibility with a model's own answers to the same questions on synthetic forms.

    stakes reproduce legibility-agreement -o docs/results/legibility-agreement.json

The model answers every question at the paper's 13 budgets, by resizing and by deletion; the OCR engine reads the same
pages, resized. Both logs are kept, and a later call continues there. Questions whose answer the engine does not locate
at native size are excluded from both and counted.

``align`` compares two tables of correct answers, [questions, budgets]:

* ``rank_of_curves``: Spearman's correlation of the two error rates over budgets. It is near 1 for any two curves that
  fall;
* ``rank_of_questions``: Spearman's correlation, over questions, of the number of budgets at which each was correct:
  whether the same questions need many tokens;
* ``shift``: the d for which ``first(b) = second(b / 2^d)`` fits best, in doublings of tokens. Above 0 the first needs
  2^d times the tokens for the same error. Least squares over the budgets at which both sides are measured, with the
  second curve linear between its budgets on a log axis; the interval resamples whole documents;
* ``half``: the tokens at which each curve falls to an error of one half, None where it does not;
* ``only_first`` at a budget: questions that only the first has correct.

    alignment = align(model_correct, legible, documents, [32, 64, ..., 576])
    alignment.shift, alignment.low, alignment.high
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.budgets.curve import PAPER_GRID
from stakes.data.sample import Sample
from stakes.errors import BadInput
from stakes.evaluation.fingerprint import Setting, fingerprint_of
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Key
from stakes.evaluation.samples import answerable, draw_samples
from stakes.experiments.study import Study
from stakes.legibility.model import BASIS, Legibility
from stakes.models.base import VLM
from stakes.models.identity import identity

Array = NDArray[np.float64]
FARTHEST, STEP = 2.0, 0.01  # doublings
OVERLAP = 5  # budgets that must be measured on both sides of a shift
RESAMPLES = 1000

FAMILY, SPLIT = "forms", "calibration"
SETTINGS = {name: Setting(name, None, "relaxed") for name in ("resolution", "deletion")}
ALL = "all"


@dataclass(frozen=True)
class Alignment:
    """The comparison of two readers of the same questions; all sequences go by budget."""

    questions: int
    documents: int
    budgets: tuple[int, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    """Error rates."""
    rank_of_curves: float
    rank_of_questions: float
    shift: float
    low: float
    high: float
    left_over: float
    """Root mean square difference of the error rates after the shift."""
    half: tuple[float | None, float | None]
    both: tuple[int, ...]
    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    neither: tuple[int, ...]


def align(
    first: ArrayLike,
    second: ArrayLike,
    documents: Sequence[Hashable],
    budgets: Sequence[int],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Alignment:
    """Compare two tables of correct answers, [questions, budgets]."""
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.ndim != 2 or a.shape != b.shape or a.shape != (len(documents), len(budgets)):
        shape = f"{len(documents)} questions x {len(budgets)} budgets"
        raise BadInput(f"two tables of {shape} are needed, not of {a.shape} and {b.shape}")
    if len(budgets) < OVERLAP or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise BadInput(f"a shift needs at least {OVERLAP} rising budgets of one token or more, not {list(budgets)}")
    unit = np.unique([str(name) for name in documents], return_inverse=True)[1]
    size = np.bincount(unit)
    doublings = np.log2(np.asarray(budgets, dtype=float))
    errors = 1 - a.mean(0), 1 - b.mean(0)
    shift, left_over = best_shift(*errors, doublings)
    wrong = np.zeros((2, len(size), len(budgets)))  # [table, document, budget]
    np.add.at(wrong[0], unit, ~a)
    np.add.at(wrong[1], unit, ~b)
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(len(size), np.full(len(size), 1 / len(size)), size=resamples)
    rates = [weight @ wrong / (weight @ size) for weight in weights]  # [table, budget] of each resample
    shifts = [best_shift(rate, other, doublings)[0] for rate, other in rates]
    low, high = np.quantile(shifts or [shift], [0.025, 0.975])
    return Alignment(
        questions=len(a),
        documents=len(size),
        budgets=tuple(int(budget) for budget in budgets),
        first=tuple(map(float, errors[0])),
        second=tuple(map(float, errors[1])),
        rank_of_curves=rank_correlation(*errors),
        rank_of_questions=rank_correlation(a.sum(1), b.sum(1)),
        shift=shift,
        low=float(low),
        high=float(high),
        left_over=left_over,
        half=(half_error(errors[0], doublings), half_error(errors[1], doublings)),
        both=tuple((a & b).sum(0).tolist()),
        only_first=tuple((a & ~b).sum(0).tolist()),
        only_second=tuple((~a & b).sum(0).tolist()),
        neither=tuple((~a & ~b).sum(0).tolist()),
    )


def best_shift(first: Array, second: Array, doublings: Array) -> tuple[float, float]:
    """(d, root mean square difference): of shifts that fit equally well, the smallest."""
    shifts = np.arange(-FARTHEST, FARTHEST + STEP / 2, STEP).round(6)
    positions = doublings[None, :] - shifts[:, None]  # [shifts, budgets]: where the second curve is read
    inside = (positions >= doublings[0] - 1e-9) & (positions <= doublings[-1] + 1e-9)
    gaps = np.where(inside, np.interp(positions, doublings, second) - first, 0.0) ** 2
    count = inside.sum(1)
    mean = np.where(count >= OVERLAP, gaps.sum(1) / np.maximum(count, 1), np.inf)
    tied = np.flatnonzero(mean <= mean.min() + 1e-12)
    best = tied[np.argmin(np.abs(shifts[tied]))]
    return float(shifts[best]), float(np.sqrt(mean[best]))


def half_error(errors: Array, doublings: Array) -> float | None:
    """The tokens at which a curve first falls to one half, linear between budgets on a log axis."""
    for i in range(1, len(errors)):
        if errors[i - 1] > 0.5 >= errors[i]:
            part = (errors[i - 1] - 0.5) / (errors[i - 1] - errors[i])
            return float(2 ** (doublings[i - 1] + part * (doublings[i] - doublings[i - 1])))
    return None


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation; 0 where one of the two is constant."""
    from scipy.stats import spearmanr

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second).statistic)


@dataclass(frozen=True)
class Agreements:
    """Alignments of a model's answers (first) with legibility (second), by mechanism and tier; ``all``: both tiers."""

    data: str
    """The fingerprint of the questions and pages."""
    model: Mapping[str, str]
    engine: Mapping[str, str]
    questions: Mapping[str, int]
    excluded: Mapping[str, int]
    alignments: Mapping[str, Mapping[str, Alignment]]

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {"basis": BASIS, "pages": f"{FAMILY}/{SPLIT}", **asdict(self)}


def run_agreement(
    model: VLM,
    name: str,
    out: Path,
    *,
    per_tier: int = 300,
    engine: Legibility | None = None,
    progress: Callable[[str], Progress | None] = lambda _: None,
) -> Agreements:
    """Answer and read everything that the logs in ``out`` do not contain yet, and compare."""
    samples = draw_samples(FAMILY, SPLIT, per_tier)
    engine = engine or Legibility()
    answers = {}
    for mechanism, setting in SETTINGS.items():
        study = Study(model, name, out, mechanism="resolution", progress=progress(f"{name} by {mechanism}"))
        answers[mechanism] = study.answers(FAMILY, samples, _grid(samples), setting)
    located, excluded = answerable(engine, samples)
    study = Study(engine, BASIS, out, mechanism="resolution", progress=progress(BASIS))
    legible = study.answers(FAMILY, located, _grid(located))
    tiers = list(dict.fromkeys(sample.tier for sample in located))
    by_tier = {tier: [sample for sample in located if tier in (sample.tier, ALL)] for tier in (*tiers, ALL)}
    return Agreements(
        data=fingerprint_of(samples, model, SETTINGS["resolution"]).data,
        model=identity(model),
        engine=engine.identity(),
        questions={tier: len(by_tier[tier]) for tier in tiers},
        excluded=excluded.by_tier,
        alignments={
            mechanism: {tier: _align(answered, legible, rows) for tier, rows in by_tier.items()}
            for mechanism, answered in answers.items()
        },
    )


def _grid(samples: Sequence[Sample]) -> list[list[int]]:
    """Every sample at every budget of the paper."""
    return [[budget] * len(samples) for budget in PAPER_GRID]


def _align(answered: Mapping[Key, Outcome], legible: Mapping[Key, Outcome], samples: Sequence[Sample]) -> Alignment:
    first, second = (
        [[found[sample.id, budget].correct for budget in PAPER_GRID] for sample in samples]
        for found in (answered, legible)
    )
    return align(first, second, [sample.document for sample in samples], PAPER_GRID)
