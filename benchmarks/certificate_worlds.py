"""Worlds in which a certificate is tried: misread tiers, grouped documents, uneven documents.

Every world draws questions with a unit, a label, a reading and an error rate at each budget, and knows what a choice of
budgets truly gains over uniform. ``draw`` gives the questions of one calibration, and ``Questions.tables`` its tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from benchmarks.scenarios import GRID
from numpy.typing import NDArray
from scipy.special import ndtri

from stakes.budgets.curve import Curve
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.power import PAPER_DEPENDENCE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
TIERS = ("high", "low")
MEAN = 304
LEVEL = 0.05
EVEN = GRID.index(MEAN)
SCALE = 0.4  # of a curve's changes, in worlds where some documents gain what others lose


@dataclass(frozen=True)
class Questions:
    """One calibration's questions: unit, label and reading (0 high, 1 low) of each, and wrong answers by budget."""

    unit: Ints
    label: Ints
    read: Ints
    wrong: NDArray[np.bool_]

    def tables(
        self, *, by_label: bool = False, unit: Ints | None = None, kept: NDArray[np.bool_] | None = None
    ) -> ByDocument:
        """Tables by unit, tiers as read; ``by_label``: with the labels' own; ``kept``: the questions that count."""
        rows = np.unique(self.unit if unit is None else unit, return_inverse=True)[1]
        every = np.ones(len(rows), dtype=bool) if kept is None else kept
        if not by_label:
            return self._tables(rows, every)
        parts = {tier: self._tables(rows, every & (self.label == i)) for i, tier in enumerate(TIERS)}
        whole = self._tables(rows, every)
        return ByDocument(whole.documents, whole.budgets, whole.wrong, whole.asked, parts)

    def _tables(self, rows: Ints, kept: NDArray[np.bool_]) -> ByDocument:
        number, wrong, asked = int(rows.max()) + 1, {}, {}
        for i, tier in enumerate(TIERS):
            own = kept & (self.read == i)
            counts = np.zeros((number, len(GRID)), dtype=np.int64)
            np.add.at(counts, rows[own], self.wrong[own])
            wrong[tier] = counts
            asked[tier] = np.repeat(np.bincount(rows[own], minlength=number)[:, None], len(GRID), axis=1).astype(
                np.int64
            )
        return ByDocument(tuple(f"unit {i}" for i in range(number)), GRID, wrong, asked)


def lognormal_sizes(rng: np.random.Generator, number: int) -> Ints:
    """Questions of documents: 3 on average, 60 at most."""
    return np.clip(np.round(np.exp(rng.normal(0.7, 0.9, number))), 1, 60).astype(np.int64)


def mark(bad: int, of: int) -> str:
    """A star where a rate is above the level by more than two Monte Carlo standard errors."""
    return "*" if bad / of > LEVEL + 2 * np.sqrt(LEVEL * (1 - LEVEL) / of) else " "


def answer(errors: Floats, unit: Ints, likeness: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Wrong answers, questions × budgets, at these error rates; ``likeness``: the unit's share of the difficulty."""
    shared = rng.standard_normal(int(unit.max()) + 1)[unit]
    own = np.sqrt(likeness) * shared + np.sqrt(1 - likeness) * rng.standard_normal(len(unit))
    noise = rng.standard_normal(errors.shape)
    return np.asarray(np.sqrt(PAPER_DEPENDENCE) * own[:, None] + np.sqrt(1 - PAPER_DEPENDENCE) * noise < ndtri(errors))


@dataclass(frozen=True)
class Misread:
    """A share ``rate`` of each tier's questions is read as the other; one question a document."""

    truth: Mapping[str, Curve]
    ratio: float
    rate: float
    size: int = 300
    name: str = ""

    @property
    def costs(self) -> dict[str, float]:
        """By tier."""
        return {"high": self.ratio, "low": 1.0}

    def draw(self, rng: np.random.Generator) -> Questions:
        """One calibration."""
        label = np.repeat([0, 1], self.size)
        read = np.where(rng.random(len(label)) < self.rate, 1 - label, label)
        errors = np.array([self.truth[tier].errors for tier in TIERS])[label]
        unit = np.arange(len(label))
        return Questions(unit, label, read, answer(errors, unit, 0.0, rng))

    def gain(self, budgets: Mapping[str, int]) -> float:
        """True CWE of uniform minus that of the budgets as served: budget by reading, cost by label."""
        served = {
            tier: (1 - self.rate) * curve.error(budgets[tier]) + self.rate * curve.error(budgets[TIERS[1 - i]])
            for i, (tier, curve) in enumerate(self.truth.items())
        }
        even = {tier: curve.error(MEAN) for tier, curve in self.truth.items()}
        return sum(self.costs[tier] * (even[tier] - served[tier]) for tier in TIERS) / sum(self.costs.values())


@dataclass(frozen=True)
class Grouped:
    """Half of the groups gain from tokens what the others lose: no choice of budgets gains anything.

    ``groups`` of ``documents`` with two questions of each tier; the unit is the group.
    """

    truth: Mapping[str, Curve]
    groups: int
    documents: int
    ratio: float = 5.0

    @property
    def costs(self) -> dict[str, float]:
        """By tier."""
        return {"high": self.ratio, "low": 1.0}

    def draw(self, rng: np.random.Generator) -> Questions:
        """One calibration."""
        unit = np.repeat(np.arange(self.groups), 4 * self.documents)
        label = np.tile([0, 0, 1, 1], self.groups * self.documents)
        sign = rng.choice([-1.0, 1.0], self.groups)[unit]
        errors = np.array([_middle(self.truth[tier], sign_of) for tier in TIERS for sign_of in (1.0, -1.0)])
        rows = 2 * label + (sign < 0)
        page = np.arange(len(unit)) // 4
        return Questions(unit, label, label, answer(errors[rows], page, 0.3, rng))

    def pages(self, questions: Questions) -> Ints:
        """The document of each question, taken for the unit where groups are not named."""
        return np.arange(len(questions.unit)) // 4


@dataclass(frozen=True)
class Uneven:
    """Log-normal document sizes; large documents are harder, and lose from tokens what the others gain.

    With a ``limit`` per document the balance is of the questions that count: at that rate no choice gains anything.
    """

    truth: Mapping[str, Curve]
    documents: int = 150
    limit: int | None = None
    large: int = 5
    harder: float = 0.2
    ratio: float = 5.0
    _sizes: Ints = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sizes", lognormal_sizes(np.random.default_rng(0), 400_000))

    @property
    def costs(self) -> dict[str, float]:
        """By tier."""
        return {"high": self.ratio, "low": 1.0}

    @property
    def balance(self) -> float:
        """How much more a large document loses than a small one gains, so that they come to zero."""
        counted = self._sizes if self.limit is None else np.minimum(self._sizes, self.limit)
        large = self._sizes >= self.large
        return float(counted[~large].sum() / counted[large].sum())

    def draw(self, rng: np.random.Generator) -> Questions:
        """One calibration, every question of it."""
        sizes = lognormal_sizes(rng, self.documents)
        unit = np.repeat(np.arange(self.documents), sizes)
        label, large = rng.integers(0, 2, len(unit)), sizes[unit] >= self.large
        errors = np.array(
            [
                _middle(self.truth[tier], sign, more)
                for tier in TIERS
                for sign, more in ((1.0, 0.0), (-self.balance, self.harder))
            ]
        )
        return Questions(unit, label, label, answer(errors[2 * label + large], unit, 0.7, rng))

    def counted(self, questions: Questions, rng: np.random.Generator) -> NDArray[np.bool_] | None:
        """At most ``limit`` questions of each document."""
        if self.limit is None:
            return None
        order = rng.permutation(len(questions.unit))
        order = order[np.argsort(questions.unit[order], kind="stable")]
        first = np.searchsorted(questions.unit[order], questions.unit[order])
        kept = np.zeros(len(order), dtype=bool)
        kept[order] = np.arange(len(order)) - first < self.limit
        return kept


def _middle(curve: Curve, sign: float, more: float = 0.0) -> Floats:
    """The curve's changes from the mean budget on, scaled and signed, around its error there and ``more``."""
    errors = np.array(curve.errors)
    return np.asarray(np.clip(errors[EVEN] + more + sign * SCALE * (errors - errors[EVEN]), 0.001, 0.999))
