"""Does what can be read foretell what is answered? Legibility and a model's own answers, on the same synthetic pages.

    stakes reproduce legibility-agreement -o docs/results/legibility-agreement.json

The embedded reader answers every question at the paper's 13 budgets, by resizing and by deletion; the OCR engine reads
the same pages, resized. Both logs are kept and a later call goes on there; ``benchmarks/hybrid.py`` starts from them.
Questions whose answer the engine does not find at native size are left out of both and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stakes.budgets.curve import PAPER_GRID
from stakes.errors import BadInput
from stakes.evaluation.answerable import answerable
from stakes.evaluation.fingerprint import Setting, take
from stakes.evaluation.items import Asked, ask_pages
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.progress import Progress
from stakes.evaluation.runner import Key
from stakes.experiments.study import Study
from stakes.experiments.table import Cell, Table
from stakes.legibility.model import BASIS, Legibility
from stakes.models.base import VLM
from stakes.models.identity import identity

# Do two readers of the same questions fail alike? Rank correlations, and the shift in tokens between their curves.
#
# Two tables of right answers, questions × budgets, of the same questions at the same budgets:
#
# * ``rank_of_curves``: Spearman's correlation of the two error rates over budgets. Two curves that fall have one near
# 1,
#   whatever else they do;
# * ``rank_of_questions``: Spearman's correlation, over questions, of the number of budgets at which each was right: do
#   the same questions need many tokens?
# * ``shift``: the d for which ``first(b) = second(b / 2^d)`` fits best, in doublings of tokens. Above 0 the first
# needs
#   more: 2^d times the tokens for the same error. Least squares over the budgets at which both sides are measured, the
#   second curve straight between its budgets on a log axis; the interval resamples whole documents;
# * ``half``: the tokens at which each curve passes an error of one half, None where it does not;
# * ``only_first`` at a budget: questions that the first has right and the second has not.
#
#     found = align(reader_right, legible, documents, [32, 64, ..., 576])
#     found.shift, found.low, found.high


Array = NDArray[np.float64]
FARTHEST, STEP = 2.0, 0.01  # doublings
OVERLAP = 5  # budgets that must be measured on both sides of a shift
RESAMPLES = 1000


@dataclass(frozen=True)
class Alignment:
    """Two readers of the same questions; all lists go by budget."""

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
    """Root mean square difference of the error rates that the shift leaves."""
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
    """Compare two tables of right answers, questions × budgets."""
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.ndim != 2 or a.shape != b.shape or a.shape != (len(documents), len(budgets)):
        raise BadInput(
            f"two tables of {len(documents)} questions × {len(budgets)} budgets are compared, not of {a.shape} and "
            f"{b.shape}"
        )
    if len(budgets) < OVERLAP or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise BadInput(f"a shift needs at least {OVERLAP} rising budgets of one token or more, not {list(budgets)}")
    unit = np.unique([str(name) for name in documents], return_inverse=True)[1]
    number = int(unit.max()) + 1
    doublings = np.log2(np.asarray(budgets, dtype=float))
    errors = 1 - a.mean(0), 1 - b.mean(0)
    shift, left_over = best_shift(*errors, doublings)
    rng = np.random.default_rng(seed)
    sums = [np.zeros((number, len(budgets))) for _ in range(2)]
    for table, total in zip((a, b), sums, strict=True):
        np.add.at(total, unit, ~table)
    size = np.bincount(unit, minlength=number)
    drawn = []
    for weight in rng.multinomial(number, np.full(number, 1 / number), size=resamples):
        rates = [weight @ total / (weight @ size) for total in sums]
        drawn.append(best_shift(rates[0], rates[1], doublings)[0])
    low, high = np.quantile(drawn, [0.025, 0.975]) if drawn else (shift, shift)
    return Alignment(
        questions=len(a),
        documents=number,
        budgets=tuple(int(budget) for budget in budgets),
        first=tuple(map(float, errors[0])),
        second=tuple(map(float, errors[1])),
        rank_of_curves=rank_correlation(*errors),
        rank_of_questions=rank_correlation(a.sum(1), b.sum(1)),
        shift=shift,
        low=float(low),
        high=float(high),
        left_over=left_over,
        half=(half_way(errors[0], doublings), half_way(errors[1], doublings)),
        both=_counts(a & b),
        only_first=_counts(a & ~b),
        only_second=_counts(~a & b),
        neither=_counts(~a & ~b),
    )


def best_shift(first: Array, second: Array, doublings: Array) -> tuple[float, float]:
    """(d, root mean square difference): of shifts that fit equally well, the smallest."""
    shifts = np.arange(-FARTHEST, FARTHEST + STEP / 2, STEP).round(6)
    places = doublings[None, :] - shifts[:, None]  # [shifts, budgets]: where the second curve is read
    inside = (places >= doublings[0] - 1e-9) & (places <= doublings[-1] + 1e-9)
    gaps = np.where(inside, np.interp(places, doublings, second) - first, 0.0) ** 2
    count = inside.sum(1)
    mean = np.where(count >= OVERLAP, gaps.sum(1) / np.maximum(count, 1), np.inf)
    tied = np.flatnonzero(mean <= mean.min() + 1e-12)
    best = tied[np.argmin(np.abs(shifts[tied]))]
    return float(shifts[best]), float(np.sqrt(mean[best]))


def half_way(errors: Array, doublings: Array, level: float = 0.5) -> float | None:
    """The tokens at which a curve first falls to ``level``, straight between budgets on a log axis."""
    for i in range(1, len(errors)):
        if errors[i - 1] > level >= errors[i]:
            part = (errors[i - 1] - level) / (errors[i - 1] - errors[i])
            return float(2 ** (doublings[i - 1] + part * (doublings[i] - doublings[i - 1])))
    return None


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's correlation of ranks, ties sharing theirs; 0 where one of the two never varies."""
    from scipy.stats import rankdata

    x, y = rankdata(first), rankdata(second)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def _counts(table: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(count) for count in table.sum(0))


FAMILY, SPLIT = "forms", "calibration"
SETTINGS = {"resolution": Setting("resolution"), "deletion": Setting("deletion")}
ALL = "all"


@dataclass(frozen=True)
class Agreements:
    """Alignments of a model's answers (first) with legibility (second), by mechanism and tier; ``all``: both tiers."""

    data: str
    """The fingerprint of the questions and pages."""
    model: Mapping[str, str]
    engine: Mapping[str, str]
    questions: Mapping[str, int]
    apart: Mapping[str, int]
    found: Mapping[str, Mapping[str, Alignment]]

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {
            "basis": BASIS,
            "pages": f"{FAMILY}/{SPLIT}",
            "data": self.data,
            "model": dict(self.model),
            "engine": dict(self.engine),
            "questions": dict(self.questions),
            "apart": dict(self.apart),
            "alignments": {how: {tier: asdict(one) for tier, one in row.items()} for how, row in self.found.items()},
        }


def run_agreement(
    model: VLM,
    name: str,
    out: Path,
    *,
    per_tier: int = 300,
    engine: Legibility | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> Agreements:
    """Ask and read everything that the logs in ``out`` lack, and compare."""
    asked = ask_pages(FAMILY, SPLIT, per_tier)
    engine = engine or Legibility()
    study = Study(model, name, out, mechanism="resolution", progress=None)
    answers = {}
    for how, setting in SETTINGS.items():
        told = replace(study, progress=None if progress is None else progress(f"{name} by {how}"))
        answers[how] = told.answers(FAMILY, asked, _lanes(asked), setting)
    kept, apart = answerable(engine, asked)
    reading = Study(engine, BASIS, out, mechanism="resolution", progress=progress(BASIS) if progress else None)
    legible = reading.answers(FAMILY, kept, _lanes(kept))
    tiers = list(dict.fromkeys(one.tier for one in kept))
    return Agreements(
        data=take(asked, model, SETTINGS["resolution"]).data,
        model=identity(model),
        engine=engine.identity(),
        questions={tier: sum(one.tier == tier for one in kept) for tier in tiers},
        apart=apart.by_tier,
        found={
            how: {
                tier: _align(answered, legible, [one for one in kept if tier in (one.tier, ALL)])
                for tier in (*tiers, ALL)
            }
            for how, answered in answers.items()
        },
    )


def agreement_tables(found: Agreements) -> list[Table]:
    """Curves side by side for each mechanism, and what aligning them says."""
    return [_table(how, found) for how in found.found]


def _table(how: str, agreements: Agreements) -> Table:
    found = agreements.found[how]
    tiers = [tier for tier in found if tier != ALL]
    columns = ["budget"]
    for tier in tiers:
        columns += [f"{tier}: model", f"{tier}: legibility"]
    columns += ["right", "of these not legible"]
    together = found[ALL]
    rows: list[tuple[Cell, ...]] = []
    for i, budget in enumerate(together.budgets):
        row: list[Cell] = [budget]
        for tier in tiers:
            row += [found[tier].first[i], found[tier].second[i]]
        rows.append((*row, together.both[i] + together.only_first[i], together.only_first[i]))
    findings = [
        f"{sum(agreements.questions.values())} questions on {together.documents} pages; "
        f"{sum(agreements.apart.values())} more are set apart: their answer is not found at native size"
    ]
    for tier, one in found.items():
        findings.append(
            f"{tier}: rank correlation {one.rank_of_curves:.3f} of the curves, {one.rank_of_questions:.3f} of the "
            f"questions; the model needs 2^{one.shift:+.2f} = {2**one.shift:.2f} times the tokens "
            f"[{2**one.low:.2f}, {2**one.high:.2f}], which leaves {one.left_over:.3f}; half are lost at "
            f"{_tokens(one.half[0])} tokens (model) and {_tokens(one.half[1])} (legibility)"
        )
    title = f"Synthetic forms: errors of the model by {how} beside legibility"
    return Table(f"agreement-{how}", title, tuple(columns), tuple(rows), tuple(findings), {"basis": BASIS})


def _align(answered: Mapping[Key, Outcome], legible: Mapping[Key, Outcome], asked: Sequence[Asked]) -> Alignment:
    tables = [
        [[found[one.id, budget].correct for budget in PAPER_GRID] for one in asked] for found in (answered, legible)
    ]
    return align(tables[0], tables[1], [one.document for one in asked], PAPER_GRID)


def _lanes(asked: Sequence[Asked]) -> list[list[int]]:
    return [[budget] * len(asked) for budget in PAPER_GRID]


def _tokens(value: float | None) -> str:
    return "none of these" if value is None else f"{value:.0f}"
