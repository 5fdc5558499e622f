"""Every answer of a calibration by tier, question and budget, and what an option makes of them.

    table = answer_table(outcomes, costs)
    served = table.tiers["high"].serve(TierOption(304, Escalation(to=576, below=0.9)))
    served.tokens.mean(), served.wrong.mean(), served.escalated.mean()

Tokens are nominal, as in the allocation: the budget of the first attempt, and that of the second where there is one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.options.tier_plan import TierOption
from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Statistics = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class ServedAnswers:
    """What an option does with the questions of a tier, one entry each.

    ``wrong``: the answer that is returned, flagged or not. ``tokens``, ``realised``: of both attempts.
    """

    tokens: Floats
    realised: Floats
    wrong: Flags
    flagged: Flags
    escalated: Flags

    @property
    def passed_wrong(self) -> Flags:
        """Wrong, and no person sees it."""
        return self.wrong & ~self.flagged


@dataclass(frozen=True)
class TierAnswers:
    """The answers to one tier's questions: ``wrong``, ``confidence`` and ``realised`` are questions × budgets.

    ``cost``: of a mistake in each question, by its label where that is known. ``statistics``: of each question's image,
    questions × statistics; without columns where they are not known.
    """

    budgets: tuple[int, ...]
    documents: NDArray[np.str_]
    wrong: Flags
    confidence: Floats
    realised: Floats
    cost: Floats
    statistics: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.documents)

    def subset(self, rows: Flags) -> "TierAnswers":
        """Some of the questions."""
        return replace(
            self,
            documents=self.documents[rows],
            wrong=self.wrong[rows],
            confidence=self.confidence[rows],
            realised=self.realised[rows],
            cost=self.cost[rows],
            statistics=self.statistics[rows] if self.statistics.size else self.statistics,
        )

    def serve(self, option: TierOption) -> ServedAnswers:
        """The answers, attempts and flags under an option."""
        rows, first = np.arange(len(self)), self.columns(option)
        wrong, again = self.wrong[rows, first], np.zeros(len(self), bool)
        tokens, realised = np.array(self.budgets, float)[first], self.realised[rows, first]
        if option.escalate is not None:
            again = self.confidence[rows, first] < option.escalate.below
            second = self.budgets.index(option.escalate.to)
            wrong = np.where(again, self.wrong[:, second], wrong)
            tokens = tokens + again * option.escalate.to
            realised = realised + again * self.realised[:, second]
        flagged = np.zeros(len(self), bool)
        if option.review_below is not None:
            flagged = self.returned_confidence(option) < option.review_below
        return ServedAnswers(tokens, realised, wrong, flagged, again)

    def columns(self, option: TierOption) -> NDArray[np.int64]:
        """The column of each question's first budget."""
        if option.predictor is None:
            return np.full(len(self), self.budgets.index(option.budget))
        return np.searchsorted(self.budgets, option.predictor.predict(self.statistics, option.budget))

    def returned_confidence(self, option: TierOption) -> Floats:
        """The confidence of the answer that is returned to each question."""
        confidence = self.confidence[np.arange(len(self)), self.columns(option)]
        if option.escalate is None:
            return confidence
        second = self.confidence[:, self.budgets.index(option.escalate.to)]
        return np.where(confidence < option.escalate.below, second, confidence)


@dataclass(frozen=True)
class AnswerTable:
    """The answers of all tiers at the same budgets."""

    tiers: Mapping[str, TierAnswers]

    @property
    def budgets(self) -> tuple[int, ...]:
        """Every measured budget, rising."""
        return next(iter(self.tiers.values())).budgets

    @property
    def documents(self) -> list[str]:
        """The names of all documents, sorted."""
        return sorted({str(name) for tier in self.tiers.values() for name in tier.documents})

    def divide(self, names: Collection[str]) -> tuple["AnswerTable", "AnswerTable"]:
        """The documents with these names, and the others."""
        inside = {tier: np.isin(own.documents, list(names)) for tier, own in self.tiers.items()}
        return (
            AnswerTable({tier: own.subset(inside[tier]) for tier, own in self.tiers.items()}),
            AnswerTable({tier: own.subset(~inside[tier]) for tier, own in self.tiers.items()}),
        )

    def lacks_a_tier(self) -> bool:
        """Whether some tier has no question."""
        return any(len(own) == 0 for own in self.tiers.values())


def answer_table(
    outcomes: Iterable[Outcome],
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None = None,
    statistics: Statistics | None = None,
) -> AnswerTable:
    """The table of a log in which every question was answered at every budget.

    ``labels``: the true tier of each sample, where the outcomes' tiers are a signal's readings. ``statistics``: of the
    image of each sample, where budgets are to be predicted. An answer without a confidence has NaN.
    """
    rows: dict[str, dict[int, Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault(outcome.sample, {})[outcome.budget] = outcome
    budgets = tuple(sorted({budget for row in rows.values() for budget in row}))
    if any(len(row) < len(budgets) for row in rows.values()):
        raise BadInput("escalation needs every question at every budget, and some answers are missing")
    by_tier: dict[str, list[list[Outcome]]] = {tier: [] for tier in costs}
    for row in rows.values():
        in_order = [row[budget] for budget in budgets]
        by_tier[in_order[0].tier].append(in_order)
    return AnswerTable({tier: _tier(budgets, found, costs, labels, statistics) for tier, found in by_tier.items()})


def _tier(
    budgets: tuple[int, ...],
    rows: Sequence[Sequence[Outcome]],
    costs: Mapping[str, float],
    labels: Mapping[str, str] | None,
    statistics: Statistics | None,
) -> TierAnswers:
    shape = len(rows), len(budgets)
    return TierAnswers(
        budgets,
        np.array([row[0].document for row in rows], dtype=np.str_),
        np.array([[not one.correct for one in row] for row in rows], bool).reshape(shape),
        np.array([[one.confidence for one in row] for row in rows], float).reshape(shape),  # None becomes NaN
        np.array([[one.spent for one in row] for row in rows], float).reshape(shape),
        np.array([costs[labels[row[0].sample] if labels else row[0].tier] for row in rows], float),
        np.array([statistics[row[0].sample] if statistics else () for row in rows], float).reshape(
            len(rows), -1 if rows else 0
        ),
    )


def why_no_confidence(outcomes: Sequence[Outcome]) -> str:
    """Why nothing can depend on the confidence of these answers; empty where it can."""
    without = sum(outcome.confidence is None for outcome in outcomes)
    if not without:
        return ""
    if without == len(outcomes):
        return (
            "no answer has a confidence; the model gives none, or the log is of an earlier version. A server gives "
            "log-probabilities with --escalate and a new --log"
        )
    return (
        f"{without} of {len(outcomes)} answers have no confidence: they were logged before, or the server left out "
        "their log-probabilities; answer again with a new --log"
    )
