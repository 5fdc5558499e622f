"""What does a race read its answers from, in which order, and what does it make of unequal numbers of them?

table, owners = sliced(read_outcomes("outcomes.jsonl"))
race(table, terms, asker(table), owners=owners)
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument, by_document
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome

Cells = dict[str, list[int]]
"""By tier, columns of the budgets to ask."""
Ask = Callable[[Sequence[int], Cells], Mapping[str, NDArray[np.int64]]]
"""Rows of documents and cells to wrong answers: by tier, documents × columns asked."""


@dataclass(frozen=True)
class Pages:
    """Whose slice each row is. ``owner``: by row, the number of its document."""

    owner: NDArray[np.int64]
    size: Mapping[str, NDArray[np.int64]]
    """By tier, questions of each row."""
    whole: Mapping[str, NDArray[np.int64]]
    """By tier, questions of the document that each row is a slice of."""

    @classmethod
    def of(cls, sizes: ByDocument, owners: Sequence[str] | None, tiers: Iterable[str]) -> "Pages":
        """From questions by row and tier, and the rows' documents; without ``owners`` each row is one."""
        names = sizes.documents if owners is None else owners
        number = {name: i for i, name in enumerate(dict.fromkeys(names))}
        owner = np.array([number[name] for name in names], dtype=np.int64)
        size = {tier: sizes.asked[tier].max(axis=1, initial=0) for tier in tiers}
        return cls(owner, size, {tier: _summed(rows, owner)[owner] for tier, rows in size.items()})

    def weights(self, tier: str, asked: NDArray[np.int64]) -> NDArray[np.float64]:
        """Questions of its document that each answer stands for: 1 once all are asked. Rows × columns, as ``asked``."""
        return np.asarray(self.whole[tier][:, None] / np.maximum(1, _summed(asked, self.owner)[self.owner]))

    def stand_for(self, tier: str, new: Sequence[int]) -> NDArray[np.float64]:
        """By row, what an answer of one of the ``new`` counts for beside the others: 1 where all are alike."""
        found = np.zeros(len(self.owner))
        size, whole = self.size[tier][new], self.whole[tier][new]
        found[new] = whole / np.maximum(1, size) * size.sum() / whole.sum()
        return found


def levelled(measured: ByDocument, pages: Pages | None = None) -> dict[str, Curve]:
    """Curves from unequal numbers of answers, as if all had been asked what the nearest well-asked budget was.

    A budget that was dropped early saw the first questions only, which may have been easy ones; what it tells is how
    much it differs *on them* from one that went on: ``e(b) = e(a) + mean of (wrong at b - wrong at a) where both``.
    Every mean is over questions: a document counts by how many it has, not by how many of them were asked, and
    ``counts`` is the number of questions, one a document, that would tell as much: ``sum(n)² / sum(n² / asked)``.
    """
    pages = pages or Pages.of(measured, None, measured.asked)
    plain, found = measured.curves(), {}
    for tier, curve in plain.items():
        wrong, asked = measured.wrong[tier], measured.asked[tier]
        weight = pages.weights(tier, asked)
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
                on = pages.weights(tier, np.where(both, asked[:, j], 0)[:, None])[both, 0]
                shift = (on * (wrong[both, j] - wrong[both, a])).sum() / (on * asked[both, j]).sum()
                error = min(1.0, max(0.0, error + float(shift)))
            errors.append(error)
            stands = weight[:, j] * asked[:, j]
            counts.append(max(1, round(float(stands.sum() ** 2 / (weight[:, j] * stands).sum()))))
        found[tier] = Curve(curve.budgets, errors, counts)
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


def deal(documents: Sequence[str], pages: Pages) -> tuple[list[list[int]], int]:
    """Rows in units alike in what they ask, new documents before second slices; and how many units are new.

    Ranked by how many questions of each tier their documents have, rows fall into blocks of as many as there are units;
    each unit gets one of every block, by lot: a digest of its name, so that no answer and no order of a log matters.
    """
    if not all(number.any() for number in pages.size.values()):
        raise BadInput("every tier needs a question in at least one document; label some")
    seen: dict[int, int] = {}
    turns: dict[int, list[int]] = {}
    for row, owner in enumerate(pages.owner.tolist()):
        turns.setdefault(seen.get(owner, 0), []).append(row)
        seen[owner] = seen.get(owner, 0) + 1
    for tier, number in pages.size.items():
        if late := [row for row in turns[0] if pages.whole[tier][row] and not number[row]]:
            raise BadInput(f"{documents[late[0]]!r} is a first slice without the questions of tier {tier!r} to come")
    profile = np.column_stack(list(pages.whole.values())).tolist()
    units: list[list[int]] = []
    new = 0
    for turn, rows in sorted(turns.items()):
        held = [int((number[rows] > 0).sum()) for number in pages.size.values()]
        many = min(number for number in held if number)
        ranked = sorted(rows, key=lambda row: (profile[row], _lot("rank", documents[row])))
        dealt: list[list[int]] = [[] for _ in range(many)]
        for start in range(0, len(ranked), many):
            block = sorted(ranked[start : start + many], key=lambda row: _lot("unit", documents[row]))
            # the last block may be a short one: who gets none of it is drawn as well
            takers = sorted(range(many), key=lambda unit, start=start: _lot(f"{start}", f"{unit}"))  # type: ignore[misc]
            for unit, row in zip(takers, block, strict=False):
                dealt[unit].append(row)
        units += dealt
        new = new if turn else len(units)
    return units, new


def asker(full: ByDocument) -> Ask:
    """Answers from a log that holds them all: what a race would have asked."""

    def ask(rows: Sequence[int], cells: Cells) -> dict[str, NDArray[np.int64]]:
        return {tier: full.wrong[tier][np.ix_(rows, columns)] for tier, columns in cells.items()}

    return ask


def _summed(rows: NDArray[np.int64], owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums over the rows of each document."""
    found = np.zeros((int(owner.max(initial=-1)) + 1, *rows.shape[1:]), dtype=np.int64)
    np.add.at(found, owner, rows)
    return found


def _lot(purpose: str, name: str) -> bytes:
    return hashlib.sha256(f"{purpose}\0{name}".encode()).digest()
