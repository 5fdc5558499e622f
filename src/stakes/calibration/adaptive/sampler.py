"""Choose budgets on about a third of the answers: ask in batches, and skip what will hardly change the choice.

After each batch, curves are drawn from the posterior of the ``pooled`` estimator. Each draw has an optimum. The draws
together give the probability that a budget is part of the optimum, and the expected regret of the choice so far:

    regret = mean over draws of  CWE(choice) - min over candidates CWE(candidate)

The next batch asks the budgets of a tier with a probability of at least 1 %, and no tier with a single one. Sampling
ends when the expected regret is below 0.0015, when no question is left, or at the limit of passes.

With harm limits, a draw's optimum is the best choice that keeps them on the draw's curves, and what the choice so far
gains by breaking a limit there counts like regret. So sampling goes on while it matters which budgets are permitted.

This decides what to ask and guarantees nothing: the probabilities are those of the estimator's model. The guarantee is
a certificate, on documents that the budgets were not chosen on. benchmarks/adaptive_sampling.py measures the regret.

    result = sample_adaptively({"high": [("page 1", "q 1"), …], "low": […]}, grid, terms, ask)
    result.budgets, result.passes / result.of
"""

import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.curve import Curve
from stakes.calibration.adaptive.candidates import Candidates
from stakes.calibration.by_document import ByDocument
from stakes.calibration.estimators import Terms, fit, pooled_posterior
from stakes.errors import BadInput

FIRST = 40  # questions of each tier in the first batch, at every budget
GROWTH = 1.2  # of the questions asked, from batch to batch
DRAWS = 400
KEEP = 0.01
REGRET = 0.0015
GOLDEN = (math.sqrt(5) - 1) / 2

Questions = Mapping[str, Sequence[tuple[str, str]]]
"""By tier, the document and the name of every question."""
Numbers = Mapping[str, Sequence[int]]
"""By tier, numbers of questions, or columns of the grid."""
Ask = Callable[[Numbers, Numbers], Mapping[str, NDArray[np.int64]]]
"""Questions and columns to ask -> by tier, 1 for a wrong answer and 0 for a right one, questions × columns."""


@dataclass(frozen=True)
class AdaptiveSampling:
    """Skip answers that will hardly change the choice.

    ``max_passes``: ask for at most so many to choose on. ``chosen_on``: the documents to choose on, where these are not
    all; the others are asked at the chosen budgets and at ``uniform``, for a certificate.
    """

    max_passes: int | None = None
    chosen_on: Collection[str] = ()
    uniform: int = 0


@dataclass(frozen=True)
class AdaptiveResult:
    """The choice, and how many answers it took."""

    budgets: Mapping[str, int]
    fitted: Mapping[str, Curve]
    passes: int
    of: int
    """Passes that every question at every budget would take. A pass is one question answered at one budget."""
    expected_regret: float
    """By the estimator's model, how much CWE the choice loses against the optimum."""
    likely: Mapping[str, Sequence[int]]
    """By tier, the budgets that are in the optimum with a probability of at least 1 %, and the chosen one."""

    def record(self) -> dict[str, object]:
        """Everything but the curves, as JSON."""
        record = asdict(self)
        del record["fitted"]
        return record


def sample_adaptively(
    questions: Questions, grid: Sequence[int], terms: Terms, ask: Ask, sampling: AdaptiveSampling | None = None
) -> AdaptiveResult:
    """Ask until the choice is good enough; what is asked depends on the questions' names and answers alone."""
    limit = (sampling or AdaptiveSampling()).max_passes
    sampler = _Sampler(questions, tuple(grid), terms)
    least = sum(map(len, sampler.columns.values()))
    if limit is not None and limit < least:
        raise BadInput(f"adaptive sampling of this grid needs at least {least} passes, not {limit}; raise --passes")
    size = FIRST
    while batch := sampler.next_batch(size, limit):
        sampler.add(batch, ask(batch, sampler.columns))
        if sampler.decide() < REGRET:
            break
        size = math.ceil(size * GROWTH)
    return sampler.result()


class _Sampler:
    """The answers so far, the columns to ask next, and the choice."""

    def __init__(self, questions: Questions, grid: tuple[int, ...], terms: Terms) -> None:
        self.candidates = Candidates.of(terms, grid)
        self.columns = self.candidates.columns(np.ones(len(self.candidates)), 1)
        self.order = {tier: spread(questions[tier]) for tier in terms.costs}
        # One row per question, tier after tier.
        self.rows = dict(zip(self.order, np.cumsum([0, *map(len, self.order.values())]).tolist(), strict=False))
        names = tuple(f"{tier} {number}" for tier, numbers in self.order.items() for number in range(len(numbers)))
        wrong, asked = ({tier: np.zeros((len(names), len(grid)), np.int64) for tier in self.order} for _ in range(2))
        self.answers = ByDocument(names, grid, wrong, asked)
        self.done = self.passes = self.best = 0
        self.regret = math.inf

    def next_batch(self, size: int, limit: int | None) -> dict[str, list[int]]:
        """By tier, its questions up to number ``size`` that were not asked yet, as far as the limit allows."""
        while True:
            batch = {
                tier: numbers[self.done : size]
                for tier, numbers in self.order.items()
                if len(numbers) > self.done and (len(self.columns[tier]) > 1 or not self.done)
            }
            if limit is None or self.passes + self.cost(batch) <= limit:
                return {tier: numbers for tier, numbers in batch.items() if numbers}
            size -= 1

    def cost(self, batch: Numbers) -> int:
        """Passes that a batch takes."""
        return sum(len(numbers) * len(self.columns[tier]) for tier, numbers in batch.items())

    def add(self, batch: Numbers, wrong: Mapping[str, NDArray[np.int64]]) -> None:
        """Enter the answers of a batch."""
        for tier, numbers in batch.items():
            cells = np.ix_([self.rows[tier] + number for number in numbers], self.columns[tier])
            self.answers.wrong[tier][cells] = wrong[tier]
            self.answers.asked[tier][cells] = 1
        self.passes += self.cost(batch)
        self.done += max(map(len, batch.values()))

    def decide(self) -> float:
        """Choose on the answers so far, find the budgets to ask next, and return the expected regret."""
        curves = self.answers.curves()
        posterior = pooled_posterior(curves, self.answers)
        normals = np.random.default_rng(0).standard_normal((DRAWS, len(posterior.mean)))
        points = np.vstack([posterior.mean, posterior.draws(normals)]).clip(0, 1)
        rates = {tier: np.full((len(points), len(self.answers.budgets)), np.nan) for tier in curves}
        for (tier, curve), row in zip(curves.items(), posterior.rows, strict=True):
            rates[tier][:, [self.answers.column(budget) for budget in curve.budgets]] = points[:, row]
        rates = {tier: rate.round(9) for tier, rate in rates.items()} if self.candidates.limits else rates
        cwe = self.candidates.cwe(rates)
        permitted = np.where(self.candidates.beyond_limits(rates), np.inf, cwe)
        self.best = int(permitted[0].round(9).argmin())
        drawn = permitted[1:]
        self.regret = float(np.abs(cwe[1:, self.best] - drawn.min(axis=1)).mean())
        probability = np.bincount(drawn.argmin(axis=1), minlength=len(self.candidates)) / DRAWS
        probability[self.best] = 1
        self.columns = self.candidates.columns(probability, KEEP)
        for tier in self.candidates.limits:  # what a limit compares with
            if len(self.columns[tier]) > 1:
                self.columns[tier] = sorted({*self.columns[tier], self.candidates.uniform})
        return self.regret

    def result(self) -> AdaptiveResult:
        """The choice on all answers so far."""
        grid, budgets = self.answers.budgets, self.candidates.budgets(self.best)
        return AdaptiveResult(
            budgets=budgets,
            fitted=fit("pooled", self.answers.curves(), self.answers),
            passes=self.passes,
            of=len(grid) * len(self.answers),
            expected_regret=self.regret,
            likely={tier: [grid[column] for column in columns] for tier, columns in self.columns.items()},
        )


def spread(questions: Sequence[tuple[str, str]]) -> list[int]:
    """Numbers of the questions in an order whose every beginning covers the documents in proportion to their size.

    The questions are sorted by document, in the order of digests, so that neither answers nor the order of a file
    matter. The k-th to be asked is the one at the fraction (k * golden ratio) mod 1 of that list: every beginning of
    this sequence is spread evenly.
    """
    digests = [tuple(hashlib.sha256(name.encode()).digest() for name in question) for question in questions]
    by_document = sorted(range(len(questions)), key=digests.__getitem__)
    places = np.argsort(np.argsort(np.arange(len(questions)) * GOLDEN % 1))
    return [by_document[place] for place in places]
