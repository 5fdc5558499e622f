"""Which budgets does an estimator choose? One call for all of them, whether they draw curves or resample documents.

``bootstrap``: documents are drawn again with replacement, each draw chooses on its own curves, and the choice made most
often wins (of two made as often, the one with the smaller measured CWE). The mean CWE of a fixed choice over draws is
its measured CWE, so averaging anything but the choices themselves would give back ``raw``.

``auto``: the estimator whose choices do best on documents that they were not made on, by five-fold cross-validation
over documents; at equal CWE the first of ``TRIED``.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve, cwe_at
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import check_name, named
from stakes.errors import BadInput, StakesError

DRAWS = 200
FOLDS = 5
TRIED = ("pooled", "smooth", "isotonic", "raw")


@dataclass(frozen=True)
class Terms:
    """What a choice must keep to: costs and samples by tier, the total, and the smallest budgets permitted."""

    costs: Mapping[str, float]
    counts: Mapping[str, int]
    total: int
    floor: int | None = None
    floors: Mapping[str, int] | None = None
    """Of single tiers, on top of ``floor``."""

    def allocate(self, curves: Mapping[str, Curve]) -> Allocation:
        """The optimum of these curves on these terms."""
        floors = self.floors or {}
        held = {tier: _from(curve, floors[tier]) if tier in floors else curve for tier, curve in curves.items()}
        return allocate(held, self.costs, self.counts, self.total, self.floor)


@dataclass(frozen=True)
class Choice:
    """The budgets, the curves they were chosen on, and whose they are."""

    budgets: Mapping[str, int]
    curves: Mapping[str, Curve]
    estimator: str
    """As asked for; of ``auto``, with the estimator it settled on: "auto: pooled"."""
    votes: float | None = None
    """Of ``bootstrap``: the share of draws that made this choice."""


def choose(measured: ByDocument, terms: Terms, estimator: str, unseen: Collection[str] = ()) -> Choice:
    """The budgets that ``estimator`` chooses from what was measured; a prior leaves out the documents ``unseen``."""
    if check_name(estimator) == "auto":
        winner = cross_validate(measured, terms)
        found = choose(measured, terms, winner)
        return Choice(found.budgets, found.curves, f"auto: {winner}", found.votes)
    curves = measured.curves()
    if estimator == "bootstrap":
        return _bootstrap(measured, terms, curves)
    fit = named(estimator, unseen)
    assert fit is not None
    fitted = fit(curves, measured)
    return Choice(dict(terms.allocate(fitted).budgets), fitted, estimator)


def cross_validate(measured: ByDocument, terms: Terms) -> str:
    """The estimator whose choices have the smallest mean CWE on the documents left out."""
    scores = cross_validated(measured, terms)
    return min(TRIED, key=lambda name: (round(scores[name], 12), TRIED.index(name)))


def cross_validated(measured: ByDocument, terms: Terms) -> dict[str, float]:
    """Mean CWE on the documents left out, by estimator."""
    parts = measured.parts(FOLDS)
    scores = dict.fromkeys(TRIED, 0.0)
    for k, rows in enumerate(parts):
        rest = measured.take(np.concatenate([part for j, part in enumerate(parts) if j != k]))
        try:
            left_out = measured.take(rows).curves()
            chosen = {name: choose(rest, terms, name).budgets for name in TRIED}
            for name, budgets in chosen.items():
                scores[name] += cwe_at(left_out, budgets, terms.costs, terms.counts) / FOLDS
        except StakesError as error:
            raise BadInput(
                f"{len(measured.documents)} documents are too few to choose an estimator by cross-validation in "
                f"{FOLDS} parts; give more, or name an estimator such as pooled (a part of {len(rows)}: {error})"
            ) from None
    return scores


def _bootstrap(measured: ByDocument, terms: Terms, curves: dict[str, Curve]) -> Choice:
    rng = np.random.default_rng(0)
    tiers, number = list(curves), len(measured)
    votes: Counter[tuple[int, ...]] = Counter()
    columns = {tier: [measured.column(budget) for budget in curves[tier].budgets] for tier in tiers}
    weights = rng.multinomial(number, np.full(number, 1 / number), size=DRAWS)
    wrong = {tier: weights @ measured.wrong[tier][:, columns[tier]] for tier in tiers}
    asked = {tier: weights @ measured.asked[tier][:, columns[tier]] for tier in tiers}
    for draw in range(DRAWS):
        if any((asked[tier][draw] == 0).any() for tier in tiers):
            continue  # a draw without a tier cannot choose for it
        drawn = {
            tier: Curve(curves[tier].budgets, list(wrong[tier][draw] / asked[tier][draw]), curves[tier].counts)
            for tier in tiers
        }
        votes[tuple(terms.allocate(drawn).budgets[tier] for tier in tiers)] += 1
    if not votes:
        raise BadInput(f"{number} documents are too few to resample; label more, or choose another estimator")

    def merit(choice: tuple[int, ...]) -> tuple[int, float]:
        return votes[choice], -cwe_at(curves, dict(zip(tiers, choice, strict=True)), terms.costs, terms.counts)

    best = max(votes, key=merit)
    return Choice(dict(zip(tiers, best, strict=True)), curves, "bootstrap", votes[best] / votes.total())


def _from(curve: Curve, floor: int) -> Curve:
    """The part of a curve at or above ``floor``."""
    start = sum(budget < floor for budget in curve.budgets)
    return Curve(curve.budgets[start:], curve.errors[start:], curve.counts[start:])
