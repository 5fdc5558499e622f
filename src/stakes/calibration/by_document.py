"""Counts of wrong answers and of all answers by document, for each tier at each budget.

Questions on one page share its print, so documents are the independent units of every statistical statement:
resampling and certificates work on these two tables and never on single questions.

    measured = by_document(read_outcomes("outcomes.jsonl"))
    first, second = measured.halves()
    first.curves()["high"].error(304)
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome

Table = NDArray[np.int64]


@dataclass(frozen=True)
class ByDocument:
    """``wrong[tier]`` and ``asked[tier]``: documents × budgets, counts of wrong answers and of all answers."""

    documents: tuple[str, ...]
    budgets: tuple[int, ...]
    wrong: Mapping[str, Table]
    asked: Mapping[str, Table]

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
        )

    def parts(self, number: int) -> list[NDArray[np.int64]]:
        """Rows of the documents, divided into ``number`` parts that are alike in what they ask.

        Documents with the same questions by tier go to the parts in turn, in the order of a digest of their names. The
        parts depend on the set of documents alone, neither on answers nor on the order of the log.
        """
        asked = np.column_stack([table.max(axis=1, initial=0) for table in self.asked.values()]).tolist()
        order = sorted(range(len(self)), key=lambda i: (asked[i], hashlib.sha256(self.documents[i].encode()).digest()))
        return [np.array(sorted(order[k::number]), dtype=np.int64) for k in range(number)]

    def halves(self) -> tuple["ByDocument", "ByDocument"]:
        """One part to choose on, one to certify on; both must hold every tier."""
        first, second = (self.subset(rows) for rows in self.parts(2))
        for half, what in ((first, "choose on"), (second, "certify on")):
            for tier, count in half.counts.items():
                if not count:
                    raise BadInput(
                        f"{len(self)} documents are too few: the half to {what} has no question of tier {tier!r}; "
                        "label more"
                    )
        return first, second

    def __len__(self) -> int:
        return len(self.documents)


def by_document(outcomes: Iterable[Outcome], tiers: Iterable[str] | None = None) -> ByDocument:
    """The tables of a log of outcomes; ``tiers`` fixes their order, otherwise it is that of the log."""
    cells: dict[tuple[str, str, int], list[int]] = {}
    for outcome in outcomes:
        cell = cells.setdefault((outcome.tier, outcome.document, outcome.budget), [0, 0])
        cell[0] += not outcome.correct
        cell[1] += 1
    if not cells:
        raise BadInput("the log holds no outcomes yet; run the calibration first")
    names = list(dict.fromkeys(tier for tier, _, _ in cells)) if tiers is None else list(tiers)
    documents = tuple(sorted({document for _, document, _ in cells}))
    budgets = tuple(sorted({budget for _, _, budget in cells}))
    row, column = ({key: i for i, key in enumerate(keys)} for keys in (documents, budgets))
    tables = {tier: np.zeros((2, len(documents), len(budgets)), dtype=np.int64) for tier in names}
    for (tier, document, budget), counts in cells.items():
        if tier not in tables:
            raise BadInput(f"the log holds tier {tier!r}, which is not one of {', '.join(names)}")
        tables[tier][:, row[document], column[budget]] = counts
    return ByDocument(
        documents, budgets, {tier: t[0] for tier, t in tables.items()}, {tier: t[1] for tier, t in tables.items()}
    )


def check_halves(questions: Iterable[tuple[str, str]], tiers: Iterable[str]) -> None:
    """Whether questions, as (document, tier), can be halved by document so that both halves hold every tier."""
    asked = list(questions)
    documents = tuple(sorted({document for document, _ in asked}))
    row, tables = {d: i for i, d in enumerate(documents)}, {t: np.zeros((len(documents), 1), np.int64) for t in tiers}
    for document, tier in asked:
        tables[tier][row[document]] += 1
    ByDocument(documents, (1,), tables, tables).halves()
