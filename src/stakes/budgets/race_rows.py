"""What does a race read its answers from, in which order, and what does it make of unequal numbers of them?

table, owners = sliced(read_outcomes("outcomes.jsonl"))
race(table, terms, asker(table), owners=owners)
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.by_document import ByDocument, by_document
from stakes.budgets.curve import Curve
from stakes.errors import BadInput
from stakes.evaluation.outcomes import Outcome

Cells = dict[str, list[int]]
"""By tier, columns of the budgets to ask."""
Ask = Callable[[Sequence[int], Cells], Mapping[str, NDArray[np.int64]]]
"""Rows of documents and cells to wrong answers: by tier, documents × columns asked."""


def levelled(measured: ByDocument) -> dict[str, Curve]:
    """Curves from unequal numbers of answers, as if all had been asked what the nearest well-asked budget was.

    A budget that was dropped early saw the first questions only, which may have been easy ones; what it tells is how
    much it differs *on them* from one that went on: ``e(b) = e(a) + mean of (wrong at b - wrong at a) where both``.
    """
    plain, found = measured.curves(), {}
    for tier, curve in plain.items():
        wrong, asked = measured.wrong[tier], measured.asked[tier]
        most = max(curve.counts)
        anchors = [measured.column(b) for b, n in zip(curve.budgets, curve.counts, strict=True) if n == most]
        errors = []
        for budget, error in zip(curve.budgets, curve.errors, strict=True):
            j = measured.column(budget)
            a = min(anchors, key=lambda anchor, j=j: (abs(anchor - j), anchor))  # type: ignore[misc]
            both = (asked[:, j] > 0) & (asked[:, a] > 0)
            if a != j and both.any():
                shift = (wrong[both, j] - wrong[both, a]).sum() / asked[both, j].sum()
                error = min(1.0, max(0.0, float(wrong[:, a].sum() / most + shift)))
            errors.append(error)
        found[tier] = Curve(curve.budgets, errors, curve.counts)
    return found


def sliced(outcomes: Iterable[Outcome], tiers: Sequence[str] | None = None) -> tuple[ByDocument, list[str]]:
    """A log in slices of at most one question a tier, and the document that each is a slice of."""
    found = list(outcomes)
    place = slices((o.sample, o.document, o.tier) for o in found)
    table = by_document((replace(o, document=f"{o.document}#{place[o.sample]}") for o in found), tiers)
    return table, [name.rpartition("#")[0] for name in table.documents]


def slices(asked: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """Which slice of its document a sample is in, from (sample, document, tier): by digest, not by place on a page."""
    held: dict[tuple[str, str], list[str]] = {}
    for sample, document, tier in sorted(set(asked), key=lambda one: hashlib.sha256(one[0].encode()).digest()):
        held.setdefault((document, tier), []).append(sample)
    return {sample: place for samples in held.values() for place, sample in enumerate(samples)}


def deal(
    sizes: ByDocument, size: Mapping[str, NDArray[np.int64]], owners: Sequence[str]
) -> tuple[list[list[int]], int]:
    """Rows in units alike in what they ask, new documents before second slices; and how many units are new.

    ``size``: by tier, questions of each row.
    """
    if not all(number.any() for number in size.values()):
        raise BadInput("every tier needs a question in at least one document; label some")
    seen: dict[str, int] = {}
    turns: dict[int, list[int]] = {}
    for row, owner in enumerate(owners):
        turns.setdefault(seen.get(owner, 0), []).append(row)
        seen[owner] = seen.get(owner, 0) + 1
    units: list[list[int]] = []
    new = 0
    for turn, rows in sorted(turns.items()):
        held = [int((number[rows] > 0).sum()) for number in size.values()]
        parts = sizes.take(rows).parts(min(number for number in held if number))
        units += [[rows[i] for i in part] for part in parts]
        new = new if turn else len(units)
    return units, new


def asker(full: ByDocument) -> Ask:
    """Answers from a log that holds them all: what a race would have asked."""

    def ask(rows: Sequence[int], cells: Cells) -> dict[str, NDArray[np.int64]]:
        return {tier: full.wrong[tier][np.ix_(rows, columns)] for tier, columns in cells.items()}

    return ask
