"""Arms with and without options at equal tokens: chosen on some documents, compared on others.

    uniform              one budget for all, two where tokens lie between two measured ones
    cost                 the best fixed budgets by tier
    options              second attempts of unsure answers, predicted budgets or both, all mistakes costing the same
    cost and options     the same by cost

Options are chosen for a mean. What they take on the test documents, both attempts counted, is what the fixed arms get
to spend there, to the token. In every arm one tier may be split between two budgets or options, as the gateway serves
budgets in turn: without that, a coarse grid leaves tokens unspent, and options win by filling its gaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve
from stakes.budgets.options.tier_plan import TierOption
from stakes.calibration.by_document import by_document
from stakes.calibration.escalation.answers import (
    AnswerTable,
    Flags,
    Floats,
    ServedAnswers,
    Statistics,
    TierAnswers,
    answer_table,
)
from stakes.calibration.escalation.choose import OptionRules, choose_options
from stakes.calibration.escalation.judge import decide
from stakes.calibration.estimators import DEFAULT, Terms, fit
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import Gain, cost_gain, holm, sign_flip

Numbers = NDArray[np.int64]
ARMS = ("uniform", "cost", "options", "cost and options")


@dataclass(frozen=True)
class Compared:
    """One mean: by arm, whether each test question was answered wrong and its realised tokens; all in one order.

    ``taken``: whether the choosing documents prefer options to fixed budgets, so that a calibration would ship them.
    """

    mean: int
    wrong: Mapping[str, Flags]
    tokens: Mapping[str, Floats]
    cost: Floats
    documents: Sequence[str]
    options: Mapping[str, str]
    taken: bool

    def cwe(self, arm: str) -> float:
        """The cost-weighted error of an arm."""
        return float((self.cost * self.wrong[arm]).sum() / self.cost.sum())

    def mean_tokens(self, arm: str) -> float:
        """Realised tokens per question."""
        return float(self.tokens[arm].mean())

    def gain(self, arm: str = "cost and options", over: str = "cost") -> Gain:
        """How far CWE falls, with an interval over documents."""
        return cost_gain(self._saved(arm, over), self.cost, self.documents)

    def p(self, arm: str = "cost and options", over: str = "cost") -> float:
        """The sign-flip test of the cost saved by document."""
        unit = np.unique(list(self.documents), return_inverse=True)[1]
        return sign_flip([round(value) for value in np.bincount(unit, self._saved(arm, over)).tolist()])

    def _saved(self, arm: str, over: str) -> Floats:
        return np.asarray(self.cost * (self.wrong[over].astype(float) - self.wrong[arm].astype(float)))

    def joined(self, other: "Compared") -> "Compared":
        """This and another part of the documents, each by its own choice."""
        return replace(
            self,
            wrong={arm: np.concatenate([self.wrong[arm], other.wrong[arm]]) for arm in ARMS},
            tokens={arm: np.concatenate([self.tokens[arm], other.tokens[arm]]) for arm in ARMS},
            cost=np.concatenate([self.cost, other.cost]),
            documents=[*self.documents, *other.documents],
            options={tier: f"{words} / {other.options[tier]}" for tier, words in self.options.items()},
            taken=self.taken and other.taken,
        )


def compare_at(
    chosen_on: Sequence[Outcome],
    tested_on: Sequence[Outcome],
    costs: Mapping[str, float],
    mean: int,
    rules: OptionRules | None = None,
    statistics: Statistics | None = None,
) -> Compared:
    """All arms at one mean; ``statistics``: of the samples' images, by which budgets are predicted."""
    rules = rules or OptionRules()
    measured, table = by_document(chosen_on, costs), answer_table(chosen_on, costs, None, statistics)
    test = answer_table(tested_on, costs, None, statistics)
    fitted, counts = fit(DEFAULT, measured.curves(), measured), measured.counts
    terms = Terms(costs, counts, mean * sum(counts.values()))
    chosen = choose_options(table, fitted, terms, rules, mix=True).splits
    taken = (gain := decide(measured, table, terms, rules, DEFAULT)[0]) is not None and gain.low > 0
    alike = replace(terms, costs=dict.fromkeys(costs, 1.0))
    equal = choose_options(table, fitted, alike, rules, mix=True).splits
    wrong, tokens = {}, {}
    for arm, splits in {"options": equal, "cost and options": chosen}.items():
        served = [_split(test.tiers[tier], splits[tier]) for tier in costs]
        wrong[arm] = np.concatenate([part.wrong for part in served])
        tokens[arm] = np.concatenate([part.realised for part in served])
        total = int(sum(part.realised.sum() for part in served))  # the last is by cost
    sizes = {tier: len(test.tiers[tier]) for tier in costs}
    for arm, columns in {"cost": _cost(test, fitted, costs, total), "uniform": _uniform(test, total)}.items():
        rows = {tier: np.arange(sizes[tier]) for tier in costs}
        wrong[arm] = np.concatenate([test.tiers[tier].wrong[rows[tier], columns[tier]] for tier in costs])
        tokens[arm] = np.concatenate([test.tiers[tier].realised[rows[tier], columns[tier]] for tier in costs])
    return Compared(
        mean,
        wrong,
        tokens,
        np.concatenate([test.tiers[tier].cost for tier in costs]),
        np.concatenate([test.tiers[tier].documents for tier in costs]).tolist(),
        {tier: " or ".join(map(str, split)) for tier, split in chosen.items()},
        taken,
    )


def _split(answers: TierAnswers, split: Mapping[TierOption, float]) -> ServedAnswers:
    """A tier whose questions take one of two options, drawn by their shares."""
    first, *more = [answers.serve(option) for option in split]
    if not more:
        return first
    ends = round(next(iter(split.values())) * len(answers))
    own = _drawn([1] * ends + [0] * (len(answers) - ends)).astype(bool)
    names = [one.name for one in fields(ServedAnswers)]
    return ServedAnswers(*(np.where(own, getattr(first, name), getattr(more[0], name)) for name in names))


def _cost(test: AnswerTable, curves: Mapping[str, Curve], costs: Mapping[str, float], total: int) -> dict[str, Numbers]:
    """By tier, the column of each question's budget: the best fixed budgets within a total of realised tokens."""
    realised = {tier: np.rint(test.tiers[tier].realised.mean(axis=0)).astype(int).tolist() for tier in costs}
    points = {tier: Curve(realised[tier], [curves[tier].error(b) for b in test.budgets], 1) for tier in costs}
    best = allocate(points, costs, {tier: len(test.tiers[tier]) for tier in costs}, total, mix=True)
    splits = {tier: best.mixed.get(tier, {best.budgets[tier]: len(test.tiers[tier])}) for tier in costs}
    return {
        tier: _drawn([realised[tier].index(tokens) for tokens, n in split.items() for _ in range(n)])
        for tier, split in splits.items()
    }


def _uniform(test: AnswerTable, total: int) -> dict[str, Numbers]:
    """The column of the same budget for every question, or of the two around the mean of realised tokens."""
    sizes = {tier: len(own) for tier, own in test.tiers.items()}
    takes = sum(own.realised.sum(axis=0) for own in test.tiers.values())
    every, column = sum(sizes.values()), 0
    while column + 2 < len(test.budgets) and takes[column + 1] <= total:
        column += 1
    share = float(np.clip((total - takes[column]) / (takes[column + 1] - takes[column]), 0, 1))
    more = round(share * every)
    drawn = _drawn([column + 1] * more + [column] * (every - more))
    return dict(zip(sizes, np.split(drawn, np.cumsum(list(sizes.values()))[:-1]), strict=True))


def _drawn(columns: Sequence[int]) -> Numbers:
    return np.random.default_rng(0).permutation(np.array(columns, np.int64))


def adjusted_p(found: Sequence[Compared]) -> list[float]:
    """The p-values of options by cost over cost alone, corrected for all of these comparisons."""
    return holm([one.p() for one in found])
