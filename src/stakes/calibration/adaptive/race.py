"""Which (question, budget) pairs need not be asked? Race the allocations, and drop what has lost.

Documents are asked in turn, dealt into units that are alike in what they ask; of a document with many questions first
one of each tier (``race_rows``), since another page tells more than the same page again. A candidate is one budget for
each tier within the total. Each new unit is a bet that candidate A is not the best, settled by how much worse A does on
it than the leader *before* it, in cost-weighted error, documents counted by their questions (``race_bets``).

If A is the best candidate, no leader is better, so every bet loses on average and the capital exceeds 1/delta with a
chance of at most delta, ever (Ville): looking after every unit is allowed, and since only the best must not be dropped,
no correction for the number of candidates is needed. Budgets that only dropped candidates have are not asked again, and
a tier in which all that are left agree is not asked at all.

Under a cap on passes, a third of them asks all budgets and the rest the better half of them, by the fitted curves.
That order is where smoothness and monotony come in, and it is no evidence: what is set aside so is reported as not
ruled out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.adaptive.evidence import Bets, Bools, Candidates
from stakes.calibration.adaptive.rows import Ask, Cells, Pages, deal, levelled
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import CURVES, DEFAULT
from stakes.calibration.estimators.choose import Terms
from stakes.errors import BadInput

FIRST = 3  # under a cap: one in so many passes asks all budgets, the others the better half of them
LOOKS = 24  # batches that all units make, where nothing caps the passes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Raced:
    """What was decided, on how many answers."""

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
    set_aside: int
    """Candidates that were not asked to the end for want of passes, though nothing ruled them out."""
    left: tuple[tuple[int, ...], ...]
    """Budgets, in the order of the tiers, of every candidate that is not ruled out."""
    estimator: str

    def record(self) -> dict[str, object]:
        """Everything but the answers, as JSON."""
        names = ("budgets", "passes", "of", "confidence", "candidates", "ruled_out", "set_aside", "estimator")
        return {**{name: getattr(self, name) for name in names}, "left": [list(budgets) for budgets in self.left]}


def race(
    sizes: ByDocument,
    terms: Terms,
    ask: Ask,
    *,
    estimator: str = DEFAULT,
    confidence: float = 0.95,
    passes: int | None = None,
    owners: Sequence[str] | None = None,
) -> Raced:
    """Choose budgets with few answers.

    ``sizes.asked``: questions by row and tier; its ``wrong`` is not read. A row is a document, or a slice of the one
    that ``owners`` names, the first of which has every tier that the document has.
    """
    if not 0.5 <= confidence < 1:
        raise BadInput(f"a confidence lies between 0.5 and 1, not at {confidence}; 0.95 is usual")
    name = estimator if estimator in CURVES else DEFAULT
    run = _Race(sizes, terms, ask, name, -math.log(1 - confidence), owners)
    least = run.cost(run.opening(), run.cells(run.alive))
    if passes is not None and passes < FIRST * least:
        raise BadInput(f"a race of this grid needs at least {FIRST * least} passes, not {passes}")
    for finalists in run.laps(passes):
        run.finalists = finalists
    best = run.choices.best(run.finalists if run.finalists.any() else run.alive, run.merits())
    return Raced(
        budgets=run.choices.budgets(best),
        measured=run.measured(),
        fitted=run.fitted(),
        passes=run.passes,
        of=len(sizes.budgets) * sum(int(size.sum()) for size in run.size.values()),
        confidence=confidence,
        candidates=len(run.alive),
        ruled_out=int((~run.alive).sum()),
        set_aside=int((run.alive & ~run.finalists).sum()),
        left=tuple(tuple(run.choices.budgets(int(i)).values()) for i in np.flatnonzero(run.alive)),
        estimator=name,
    )


class _Race:
    def __init__(
        self, sizes: ByDocument, terms: Terms, ask: Ask, estimator: str, bar: float, owners: Sequence[str] | None = None
    ) -> None:
        self.sizes, self.ask, self.estimator, self.bar = sizes, ask, estimator, bar
        self.tiers, self.grid = list(terms.costs), sizes.budgets
        self.choices = Candidates.of(terms, self.grid)
        self.pages = Pages.of(sizes, owners, self.tiers)
        self.size = self.pages.size
        self.alive = np.ones(len(self.choices), dtype=bool)
        self.finalists = self.alive
        self.bets = Bets(self.choices, self.pages)
        shape = len(sizes), len(self.grid)
        self.wrong = {tier: np.zeros(shape, dtype=np.int64) for tier in self.tiers}
        self.asked = {tier: np.zeros(shape, dtype=np.int64) for tier in self.tiers}
        self.units, self.new = deal(sizes.documents, self.pages)
        new = [row for unit in self.units[: self.new] for row in unit]
        self.stands = {tier: self.pages.stand_for(tier, new) for tier in self.tiers}
        self.next = self.passes = 0
        self.leader = self.choices.most_even()

    def opening(self) -> list[int]:
        """Rows of the first units, as many as it takes to hear of every tier."""
        rows: list[int] = []
        for unit in self.units:
            rows += unit
            if all(size[rows].any() for size in self.size.values()):
                break
        return rows

    def cells(self, among: Bools) -> Cells:
        """Budgets by tier in which these candidates differ; one more pass of the rest could change nothing."""
        found = self.choices.columns(among)
        return {tier: columns for tier, columns in found.items() if len(columns) > 1 or not self.asked[tier].any()}

    def cost(self, rows: Sequence[int], cells: Cells) -> int:
        """Passes that a unit takes."""
        return sum(len(columns) * int(self.size[tier][list(rows)].sum()) for tier, columns in cells.items())

    def laps(self, passes: int | None) -> Iterator[Bools]:
        """Ask until the units, the passes or the candidates run out; the candidates asked last."""
        rounds = 1 if passes is None else 2
        among = self.alive
        for lap in range(rounds):
            if lap:
                among = self.choices.narrow(among & self.alive, self.merits(), max(2, len(self.grid) // 2))
            until = None if passes is None else passes if lap else passes // FIRST
            while self.next < len(self.units):
                among = among & self.alive
                cells = self.cells(among)
                if not cells:
                    break
                batch = self.batch(cells, until)
                if not batch:
                    break
                self.look(batch, cells, among)
            yield among & self.alive

    def batch(self, cells: Cells, until: int | None) -> list[list[int]]:
        """The next units to ask at once: a share of all, as far as the passes go."""
        units = self.units[self.next : self.next + max(1, len(self.units) // LOOKS)]
        if until is not None:
            costs = np.cumsum([self.cost(rows, cells) for rows in units])
            units = units[: int((costs <= until - self.passes).sum())]
        self.next += len(units)
        return units

    def look(self, batch: Sequence[list[int]], cells: Cells, among: Bools) -> None:
        """Ask some units and bet against every candidate whose answers are known, unit by unit."""
        rows = [row for unit in batch for row in unit]
        answers = self.ask(rows, cells)
        for tier, columns in cells.items():
            place = np.ix_(rows, columns)
            self.wrong[tier][place] = answers[tier]
            self.asked[tier][place] = self.size[tier][rows, None]
        self.passes += self.cost(rows, cells)
        rest = np.ones(len(self.sizes), dtype=bool)
        rest[rows] = False
        wrong, asked = self.heard(self.wrong, rest), self.heard(self.asked, rest)
        for number, unit in enumerate(batch, start=self.next - len(batch)):
            self.leader = self.lead(wrong, asked, among)
            if number >= self.new:  # a page that was seen before is no new evidence
                break
            self.bets.unit(unit, self.wrong, cells, self.leader)
            for found, tables in ((wrong, self.wrong), (asked, self.asked)):
                for tier, more in self.heard(tables, unit).items():
                    found[tier] = found[tier] + more
        left = self.alive & ~self.bets.lost(self.bar)
        if left.any():
            self.alive = left

    def heard(self, tables: Mapping[str, NDArray[np.int64]], rows: Bools | Sequence[int]) -> dict[str, Floats]:
        """Answers of some rows by tier and column, each counted as the questions of its document that it stands for."""
        return {tier: self.stands[tier][rows] @ table[rows] for tier, table in tables.items()}

    def lead(self, wrong: Mapping[str, Floats], asked: Mapping[str, Floats], among: Bools) -> int:
        """The best candidate so far, by plain rates; before the first answer the most even one."""
        if not any(table.any() for table in asked.values()):
            return self.leader
        rates = {tier: (wrong[tier] + 0.5) / (asked[tier] + 1) for tier in self.tiers}
        return int(np.where(among & self.alive, self.choices.cwe(rates), np.inf).argmin())

    def measured(self) -> ByDocument:
        """What was asked so far."""
        return ByDocument(self.sizes.documents, self.grid, self.wrong, self.asked)

    def fitted(self) -> dict[str, Curve]:
        """What the estimator makes of it."""
        seen = self.measured()
        return CURVES[self.estimator](levelled(seen, self.pages), seen)

    def merits(self) -> Floats:
        """CWE of every candidate on the fitted curves; infinite where one of its budgets was never asked."""
        rates = {}
        for tier, curve in self.fitted().items():
            rates[tier] = np.full(len(self.grid), np.inf)
            rates[tier][[self.sizes.column(budget) for budget in curve.budgets]] = curve.errors
        return self.choices.cwe(rates)
