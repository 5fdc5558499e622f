"""Divide documents into the units that adaptive sampling asks in turn, and read curves from unequal numbers of answers.

A row is a slice of a document: at most one question of each tier, so that another page is asked before the same page
again. ``UnitPlan`` orders the rows; ``leveled_curves`` makes curves comparable where some budgets were asked less.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.errors import BadInput

Counts = NDArray[np.int64]
Columns = dict[str, list[int]]
"""By tier, columns of the budgets to ask."""
AskRows = Callable[[Sequence[int], Columns], Mapping[str, Counts]]
"""Rows and columns to ask -> wrong answers by tier, rows × columns asked."""


@dataclass(frozen=True)
class DocumentSlices:
    """Which document each row is a slice of. ``owner``: by row, the number of its document."""

    owner: Counts
    size: Mapping[str, Counts]
    """By tier, questions of each row."""
    whole: Mapping[str, Counts]
    """By tier, questions of the document that each row is a slice of."""

    @classmethod
    def of(cls, sizes: ByDocument, owners: Sequence[str] | None, tiers: Iterable[str]) -> "DocumentSlices":
        """From questions by row and tier, and the rows' documents; without ``owners`` each row is a document."""
        names = sizes.documents if owners is None else owners
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        owner = np.array([number[name] for name in names], dtype=np.int64)
        size = {tier: sizes.asked[tier].max(axis=1, initial=0) for tier in tiers}
        return cls(owner, size, {tier: _sum_by_document(rows, owner)[owner] for tier, rows in size.items()})

    def weights(self, tier: str, asked: Counts) -> NDArray[np.float64]:
        """How many questions of its document each answer represents: 1 once all are asked. Rows × columns."""
        return np.asarray(self.whole[tier][:, None] / np.maximum(1, _sum_by_document(asked, self.owner)[self.owner]))

    def relative_weights(self, tier: str, rows: Sequence[int]) -> NDArray[np.float64]:
        """By row, the weight of an answer of one of these ``rows`` relative to the others: 1 where all are alike."""
        weights = np.zeros(len(self.owner))
        size, whole = self.size[tier][rows], self.whole[tier][rows]
        weights[rows] = whole / np.maximum(1, size) * size.sum() / whole.sum()
        return weights


def slice_numbers(samples: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """The slice of its document that each sample is in, from (sample, document, tier); the order is by digest."""
    held: dict[tuple[str, str], list[str]] = {}
    for sample, document, tier in sorted(set(samples), key=lambda key: hashlib.sha256(key[0].encode()).digest()):
        held.setdefault((document, tier), []).append(sample)
    return {sample: number for group in held.values() for number, sample in enumerate(group)}


def leveled_curves(measured: ByDocument, slices: DocumentSlices | None = None) -> dict[str, Curve]:
    """Curves from unequal numbers of answers, as if every budget had been asked as much as its nearest full neighbor.

    A budget that was dropped early saw the first questions only, which may have been easy ones. What it shows is how
    much it differs *on them* from one that went on: ``e(b) = e(a) + mean of (wrong at b - wrong at a) where both``.
    Every mean is over questions: a document counts by how many it has, not by how many of them were asked, and
    ``counts`` is the effective number of independent questions, ``sum(n)² / sum(n² / asked)``.
    """
    slices = slices or DocumentSlices.of(measured, None, measured.asked)
    curves = {}
    for tier, curve in measured.curves().items():
        wrong, asked = measured.wrong[tier], measured.asked[tier]
        weight = slices.weights(tier, asked)
        most = max(curve.counts)
        anchors = [measured.column(b) for b, n in zip(curve.budgets, curve.counts, strict=True) if n == most]
        errors, counts = [], []
        for budget in curve.budgets:
            j = measured.column(budget)
            a = min(anchors, key=lambda anchor, j=j: (abs(anchor - j), anchor))  # type: ignore[misc]
            both = (asked[:, j] > 0) & (asked[:, a] > 0)
            base = a if both.any() else j
            error = float((weight * wrong)[:, base].sum() / (weight * asked)[:, base].sum())
            if base != j:
                on = slices.weights(tier, np.where(both, asked[:, j], 0)[:, None])[both, 0]
                shift = (on * (wrong[both, j] - wrong[both, a])).sum() / (on * asked[both, j]).sum()
                error = min(1.0, max(0.0, error + float(shift)))
            errors.append(error)
            represented = weight[:, j] * asked[:, j]
            counts.append(max(1, round(float(represented.sum() ** 2 / (weight[:, j] * represented).sum()))))
        curves[tier] = Curve(curve.budgets, errors, counts)
    return curves


def form_units(documents: Sequence[str], slices: DocumentSlices) -> tuple[list[list[int]], int]:
    """Rows in units that are alike in what they ask, first slices before second ones; and how many units are new.

    Ranked by how many questions of each tier their documents have, rows fall into blocks of as many as there are units;
    each unit gets one row of every block, at random: by a digest of its name, so that neither answers nor the order of
    a log matter.
    """
    if not all(number.any() for number in slices.size.values()):
        raise BadInput("every tier needs a question in at least one document; label some")
    seen: dict[int, int] = {}
    turns: dict[int, list[int]] = {}
    for row, owner in enumerate(slices.owner.tolist()):
        turns.setdefault(seen.get(owner, 0), []).append(row)
        seen[owner] = seen.get(owner, 0) + 1
    for tier, number in slices.size.items():
        if late := [row for row in turns[0] if slices.whole[tier][row] and not number[row]]:
            raise BadInput(f"{documents[late[0]]!r} is a first slice without the questions of tier {tier!r} to come")
    profile = np.column_stack(list(slices.whole.values())).tolist()
    units: list[list[int]] = []
    new = 0
    for turn, rows in sorted(turns.items()):
        held = [int((number[rows] > 0).sum()) for number in slices.size.values()]
        many = min(number for number in held if number)
        ranked = sorted(rows, key=lambda row: (profile[row], _random_order("rank", documents[row])))
        formed: list[list[int]] = [[] for _ in range(many)]
        for start in range(0, len(ranked), many):
            block = sorted(ranked[start : start + many], key=lambda row: _random_order("unit", documents[row]))
            # The last block may be short: the units that get none of it are random as well.
            order = sorted(range(many), key=lambda unit, start=start: _random_order(f"{start}", f"{unit}"))  # type: ignore[misc]
            for unit, row in zip(order, block, strict=False):
                formed[unit].append(row)
        units += formed
        new = new if turn else len(units)
    return units, new


def _sum_by_document(rows: Counts, owner: Counts) -> Counts:
    sums = np.zeros((int(owner.max(initial=-1)) + 1, *rows.shape[1:]), dtype=np.int64)
    np.add.at(sums, owner, rows)
    return sums


def _random_order(purpose: str, name: str) -> bytes:
    return hashlib.sha256(f"{purpose}\0{name}".encode()).digest()
