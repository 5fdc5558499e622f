"""Counts of wrong answers and of all answers by document, for each tier at each budget.

Questions on one page share its print, so documents are the independent units of every statistical statement:
resampling and certificates work on these two tables and never on single questions. A "document" here is the unit: the
group, where the samples name one.

    measured = by_document(read_outcomes("outcomes.jsonl"))
    choosing, certifying = measured.split()
    choosing.curves()["high"].error(304)
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.formats import counted
from stakes.tiers import expected_costs

Table = NDArray[np.int64]
PARTS = 4
"""One part of so many is chosen on. Halves ship fewer true gains, and smaller parts no more (docs/dev/decisions.md)."""


@dataclass(frozen=True)
class ByDocument:
    """``wrong[tier]`` and ``asked[tier]``: documents × budgets, counts of wrong answers and of all answers.

    A tier decides the budget. Where it was read by a signal and the true tiers are known, ``labelled[label]`` holds the
    same tables of the questions with that label: a mistake costs what its label says.
    """

    documents: tuple[str, ...]
    budgets: tuple[int, ...]
    wrong: Mapping[str, Table]
    asked: Mapping[str, Table]
    labelled: Mapping[str, "ByDocument"] | None = None

    def __post_init__(self) -> None:
        shape = len(self.documents), len(self.budgets)
        for tier, table in [*self.wrong.items(), *self.asked.items()]:
            if table.shape != shape:
                raise BadInput(f"the table of tier {tier!r} is {table.shape}, not documents × budgets {shape}")

    @cached_property
    def counts(self) -> dict[str, int]:
        """Questions by tier, at the budget where most were asked."""
        return {tier: int(table.sum(axis=0).max(initial=0)) for tier, table in self.asked.items()}

    def column(self, budget: int) -> int:
        """The column of ``budget``."""
        if budget not in self.budgets:
            raise BadInput(f"budget {budget} was not measured; choose one of {', '.join(map(str, self.budgets))}")
        return self.budgets.index(budget)

    def curves(self) -> dict[str, Curve]:
        """Each tier's curve as measured; a budget at which a tier was never asked is left out of its curve."""
        curves = {}
        for tier in self.wrong:
            wrong, asked = self.wrong[tier].sum(axis=0), self.asked[tier].sum(axis=0)
            seen = np.flatnonzero(asked)
            if not seen.size:
                raise BadInput(f"none of the {len(self.documents)} documents has a question of tier {tier!r}")
            rates = (wrong[seen] / asked[seen]).tolist()
            curves[tier] = Curve([self.budgets[j] for j in seen], rates, asked[seen].tolist())
        return curves

    def subset(self, rows: Sequence[int] | NDArray[np.int64]) -> "ByDocument":
        """Some of the documents, in the order given."""
        rows = np.asarray(rows, dtype=np.int64)
        return ByDocument(
            documents=tuple(self.documents[i] for i in rows),
            budgets=self.budgets,
            wrong={tier: table[rows] for tier, table in self.wrong.items()},
            asked={tier: table[rows] for tier, table in self.asked.items()},
            labelled=None if self.labelled is None else {k: part.subset(rows) for k, part in self.labelled.items()},
        )

    def expected_costs(self, costs: Mapping[str, float]) -> dict[str, float]:
        """By tier, the mean cost of a mistake: its own cost, or where labels are known the mean over them."""
        return dict(costs) if self.labelled is None else expected_costs(self.questions, costs)

    @cached_property
    def questions(self) -> dict[str, dict[str, int]]:
        """Questions by tier as read and by label; without labels, all under the tier's own name."""
        if self.labelled is None:
            return {tier: {tier: count} for tier, count in self.counts.items()}
        return {tier: {label: part.counts[tier] for label, part in self.labelled.items()} for tier in self.wrong}

    def parts(self, number: int) -> list[NDArray[np.int64]]:
        """Rows of the documents, divided into ``number`` parts that are alike in what they ask.

        Documents with the same questions by tier go to the parts in turn, in the order of a digest of their names. The
        parts depend on the set of documents alone, neither on answers nor on the order of the log.
        """
        asked = np.column_stack([table.max(axis=1, initial=0) for table in self.asked.values()]).tolist()
        order = sorted(range(len(self)), key=lambda i: (asked[i], hashlib.sha256(self.documents[i].encode()).digest()))
        return [np.array(sorted(order[k::number]), dtype=np.int64) for k in range(number)]

    def split(self) -> tuple["ByDocument", "ByDocument"]:
        """A quarter of the documents to choose on, and the others to certify on; both must hold every tier."""
        first, *others = self.parts(PARTS)
        parts = self.subset(first), self.subset(np.sort(np.concatenate(others)))
        for part, what in zip(parts, ("choose on", "certify on"), strict=True):
            for tier, count in part.counts.items():
                if not count:
                    raise BadInput(
                        f"{counted(len(self), 'document')} cannot be divided: the part to {what} has no question of "
                        f"tier {tier!r}; label more documents, or leave out --certify"
                    )
        return parts

    def divide(self, names: Collection[str]) -> tuple["ByDocument", "ByDocument"]:
        """The documents with these names, and the others."""
        named = np.isin(self.documents, list(names))
        return self.subset(np.flatnonzero(named)), self.subset(np.flatnonzero(~named))

    def __len__(self) -> int:
        return len(self.documents)


def by_document(
    outcomes: Iterable[Outcome], tiers: Iterable[str] | None = None, labels: Mapping[str, str] | None = None
) -> ByDocument:
    """The tables of a log of outcomes; ``tiers`` fixes their order, otherwise it is that of the log.

    ``labels``: the true tier of each sample, where the outcomes' tiers are a signal's readings.
    """
    outcomes = list(outcomes)
    cells = _cells(outcomes)
    if not cells:
        raise BadInput("the log holds no outcomes yet; run the calibration first")
    names = list(dict.fromkeys(tier for tier, _, _ in cells)) if tiers is None else list(tiers)
    documents = tuple(sorted({document for _, document, _ in cells}))
    budgets = tuple(sorted({budget for _, _, budget in cells}))
    row, column = ({key: i for i, key in enumerate(keys)} for keys in (documents, budgets))

    def tables(counts: Mapping[tuple[str, str, int], list[int]]) -> ByDocument:
        filled = {tier: np.zeros((2, len(documents), len(budgets)), dtype=np.int64) for tier in names}
        for (tier, document, budget), pair in counts.items():
            if tier not in filled:
                raise BadInput(f"the log holds tier {tier!r}, which is not one of {', '.join(names)}")
            filled[tier][:, row[document], column[budget]] = pair
        wrong, asked = ({tier: table[i] for tier, table in filled.items()} for i in (0, 1))
        return ByDocument(documents, budgets, wrong, asked)

    if labels is None:
        return tables(cells)
    by_label = {label: [o for o in outcomes if labels[o.sample] == label] for label in dict.fromkeys(labels.values())}
    return replace(tables(cells), labelled={label: tables(_cells(part)) for label, part in by_label.items()})


def _cells(outcomes: Iterable[Outcome]) -> dict[tuple[str, str, int], list[int]]:
    """Wrong answers and all answers by tier, document and budget."""
    cells: dict[tuple[str, str, int], list[int]] = {}
    for outcome in outcomes:
        cell = cells.setdefault((outcome.tier, outcome.document, outcome.budget), [0, 0])
        cell[0] += not outcome.correct
        cell[1] += 1
    return cells


def limit_questions(questions: Iterable[tuple[str, str]], limit: int) -> set[str]:
    """The samples that count where at most ``limit`` of a document do, from (sample, document): by digest of the id."""
    by_document: dict[str, list[str]] = {}
    for sample, document in questions:
        by_document.setdefault(document, []).append(sample)
    in_order = (
        sorted(own, key=lambda sample: hashlib.sha256(sample.encode()).digest()) for own in by_document.values()
    )
    return {sample for own in in_order for sample in own[:limit]}


def check_split(questions: Iterable[tuple[str, str]], tiers: Iterable[str]) -> ByDocument:
    """The sizes of questions, given as (document, tier); a split whose parts do not both hold every tier is refused."""
    asked = list(questions)
    documents = tuple(sorted({document for document, _ in asked}))
    row, tables = {d: i for i, d in enumerate(documents)}, {t: np.zeros((len(documents), 1), np.int64) for t in tiers}
    for document, tier in asked:
        tables[tier][row[document]] += 1
    sizes = ByDocument(documents, (1,), tables, tables)
    sizes.split()
    return sizes
