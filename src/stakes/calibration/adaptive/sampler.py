"""Choose budgets on few answers: sample documents in turn and stop asking what can no longer be the best choice.

Documents are asked in units that are alike in what they ask; of a document with many questions first one of each tier
(``units``), since another page carries more information than the same page again. A candidate is one budget for each
tier within the total. Each new unit is a bet that candidate A is not the best, settled by how much worse A does on it
than the leader *before* it, in cost-weighted error, documents counted by their questions (``evidence``).

If A is the best candidate, no leader is better, so every bet loses on average and the wealth exceeds 1/delta with a
probability of at most delta, ever (Ville). So candidates may be tested after every unit, and since only the best must
not be dropped, no correction for the number of candidates is needed. Budgets that only dropped candidates have are not
asked again, and a tier in which all remaining candidates agree is not asked at all.

With a limit on passes (answers of the model), a third of them asks all budgets and the rest the better half of them, by
the fitted curves. That selection is no evidence: candidates dropped by it are reported as not ruled out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.adaptive.evidence import Bools, Candidates, Wealth
from stakes.calibration.adaptive.units import AskRows, Columns, DocumentSlices, form_units, leveled_curves
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import DEFAULT, Terms, fit
from stakes.errors import BadInput
from stakes.evaluation.statistics import check_confidence

FIRST = 3  # with a limit: one in so many passes asks all budgets, the others the better half of them
LOOKS = 24  # batches that all units make, where nothing limits the passes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AdaptiveSampling:
    """Leave out answers that can no longer change the choice: with this confidence, and at most so many passes."""

    confidence: float = 0.95
    max_passes: int | None = None
    estimator: str = DEFAULT
    """Ranks the candidates that remain."""

    def __post_init__(self) -> None:
        check_confidence(self.confidence)


@dataclass(frozen=True)
class AdaptiveResult:
    """The decision, and how many answers it took."""

    budgets: Mapping[str, int]
    measured: ByDocument
    fitted: Mapping[str, Curve]
    passes: int
    of: int
    """Passes that every question at every budget would have taken."""
    confidence: float
    candidates: int
    ruled_out: int
    """Candidates whose CWE is not the smallest, every question counted alike: with this confidence for all of them
    together."""
    dropped_early: int
    """Candidates that were dropped because of the pass limit, though no evidence rules them out."""
    remaining: tuple[tuple[int, ...], ...]
    """Budgets, in the order of the tiers, of every candidate that is not ruled out."""
    estimator: str

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        names = ("budgets", "passes", "of", "confidence", "candidates", "ruled_out", "estimator")
        return {
            **{name: getattr(self, name) for name in names},
            "set_aside": self.dropped_early,
            "left": [list(budgets) for budgets in self.remaining],
        }


def sample_adaptively(
    sizes: ByDocument,
    terms: Terms,
    ask: AskRows,
    sampling: AdaptiveSampling | None = None,
    owners: Sequence[str] | None = None,
) -> AdaptiveResult:
    """Choose budgets on few answers.

    ``sizes.asked``: the number of questions by row and tier; ``sizes.wrong`` is not read. A row is a document, or a
    slice of one. ``owners`` names the document of each row. A document's first slice holds all of its tiers.
    """
    sampling = sampling or AdaptiveSampling()
    sampler = _Sampler(sizes, terms, ask, sampling, owners)
    least = FIRST * sampler.passes_for(sampler.opening(), sampler.open_columns(sampler.alive))
    if sampling.max_passes is not None and sampling.max_passes < least:
        raise BadInput(f"adaptive sampling of this grid needs at least {least} passes, not {sampling.max_passes}")
    finalists = sampler.alive
    for last_asked in sampler.stages(sampling.max_passes):
        finalists = last_asked
    candidates = sampler.candidates
    best = candidates.best(finalists if finalists.any() else sampler.alive, sampler.merits())
    return AdaptiveResult(
        budgets=candidates.budgets(best),
        measured=sampler.measured(),
        fitted=sampler.fitted(),
        passes=sampler.passes,
        of=len(sizes.budgets) * sum(int(size.sum()) for size in sampler.size.values()),
        confidence=sampling.confidence,
        candidates=len(candidates),
        ruled_out=int((~sampler.alive).sum()),
        dropped_early=int((sampler.alive & ~finalists).sum()),
        remaining=tuple(tuple(candidates.budgets(int(i)).values()) for i in np.flatnonzero(sampler.alive)),
        estimator=sampling.estimator,
    )


class _Sampler:
    def __init__(
        self,
        sizes: ByDocument,
        terms: Terms,
        ask: AskRows,
        sampling: AdaptiveSampling,
        owners: Sequence[str] | None = None,
    ) -> None:
        self.sizes, self.ask, self.estimator = sizes, ask, sampling.estimator
        self.threshold = -math.log(1 - sampling.confidence)
        self.tiers, self.grid = list(terms.costs), sizes.budgets
        self.candidates = Candidates.of(terms, self.grid)
        self.slices = DocumentSlices.of(sizes, owners, self.tiers)
        self.size = self.slices.size
        self.alive = np.ones(len(self.candidates), dtype=bool)
        self.wealth = Wealth(self.candidates, self.slices)
        shape = len(sizes), len(self.grid)
        self.wrong = {tier: np.zeros(shape, dtype=np.int64) for tier in self.tiers}
        self.asked = {tier: np.zeros(shape, dtype=np.int64) for tier in self.tiers}
        self.units, self.new = form_units(sizes.documents, self.slices)
        new = [row for unit in self.units[: self.new] for row in unit]
        self.weights = {tier: self.slices.relative_weights(tier, new) for tier in self.tiers}
        self.next = self.passes = 0
        self.leader = self.candidates.most_even()

    def opening(self) -> list[int]:
        """Rows of the first units, as many as it takes to ask every tier."""
        rows: list[int] = []
        for unit in self.units:
            rows += unit
            if all(size[rows].any() for size in self.size.values()):
                break
        return rows

    def open_columns(self, among: Bools) -> Columns:
        """Budgets by tier in which these candidates differ; asking the others could change nothing."""
        columns = self.candidates.columns(among)
        return {tier: numbers for tier, numbers in columns.items() if len(numbers) > 1 or not self.asked[tier].any()}

    def passes_for(self, rows: Sequence[int], columns: Columns) -> int:
        """Passes that asking these rows takes."""
        return sum(len(numbers) * int(self.size[tier][list(rows)].sum()) for tier, numbers in columns.items())

    def stages(self, max_passes: int | None) -> Iterator[Bools]:
        """Ask until the units, the passes or the candidates run out; after each stage, the candidates asked last."""
        among = self.alive
        for limit in (None,) if max_passes is None else (max_passes // FIRST, max_passes):
            if limit is not None and limit == max_passes:
                among = self.candidates.narrow(among & self.alive, self.merits(), max(2, len(self.grid) // 2))
            while self.next < len(self.units):
                among = among & self.alive
                columns = self.open_columns(among)
                batch = self.next_units(columns, limit) if columns else []
                if not batch:
                    break
                self.ask_units(batch, columns, among)
            yield among & self.alive

    def next_units(self, columns: Columns, limit: int | None) -> list[list[int]]:
        """The next units to ask at once: a share of all, within the limit of passes."""
        units = self.units[self.next : self.next + max(1, len(self.units) // LOOKS)]
        if limit is not None:
            passes = np.cumsum([self.passes_for(rows, columns) for rows in units])
            units = units[: int((passes <= limit - self.passes).sum())]
        self.next += len(units)
        return units

    def ask_units(self, batch: Sequence[list[int]], columns: Columns, among: Bools) -> None:
        """Ask some units, update the wealth unit by unit, and drop the candidates that are ruled out."""
        rows = [row for unit in batch for row in unit]
        answers = self.ask(rows, columns)
        for tier, numbers in columns.items():
            cells = np.ix_(rows, numbers)
            self.wrong[tier][cells] = answers[tier]
            self.asked[tier][cells] = self.size[tier][rows, None]
        self.passes += self.passes_for(rows, columns)
        earlier = np.ones(len(self.sizes), dtype=bool)
        earlier[rows] = False
        wrong, asked = self.weighted(self.wrong, earlier), self.weighted(self.asked, earlier)
        for number, unit in enumerate(batch, start=self.next - len(batch)):
            self.leader = self.lead(wrong, asked, among)
            if number >= self.new:  # a page that was asked before is no new evidence
                break
            self.wealth.update(unit, self.wrong, columns, self.leader)
            for sums, tables in ((wrong, self.wrong), (asked, self.asked)):
                for tier, more in self.weighted(tables, unit).items():
                    sums[tier] = sums[tier] + more
        remaining = self.alive & ~self.wealth.ruled_out(self.threshold)
        if remaining.any():
            self.alive = remaining

    def weighted(self, tables: Mapping[str, NDArray[np.int64]], rows: Bools | Sequence[int]) -> dict[str, Floats]:
        """Sums of some rows by tier and column, each answer weighted by the questions that it represents."""
        return {tier: self.weights[tier][rows] @ table[rows] for tier, table in tables.items()}

    def lead(self, wrong: Mapping[str, Floats], asked: Mapping[str, Floats], among: Bools) -> int:
        """The best candidate so far, by plain rates; before the first answer the most even one."""
        if not any(table.any() for table in asked.values()):
            return self.leader
        rates = {tier: (wrong[tier] + 0.5) / (asked[tier] + 1) for tier in self.tiers}
        return int(np.where(among & self.alive, self.candidates.cwe(rates), np.inf).argmin())

    def measured(self) -> ByDocument:
        """The answers so far."""
        return ByDocument(self.sizes.documents, self.grid, self.wrong, self.asked)

    def fitted(self) -> dict[str, Curve]:
        """The estimator's curves of the answers so far."""
        measured = self.measured()
        return fit(self.estimator, leveled_curves(measured, self.slices), measured)

    def merits(self) -> Floats:
        """CWE of every candidate on the fitted curves; infinite where one of its budgets was never asked."""
        rates = {}
        for tier, curve in self.fitted().items():
            rates[tier] = np.full(len(self.grid), np.inf)
            rates[tier][[self.sizes.column(budget) for budget in curve.budgets]] = curve.errors
        return self.candidates.cwe(rates)
