"""Decide whether options beat fixed budgets, and state what they do on documents that they were not chosen on.

``consider`` divides the documents into a part to choose on and a part to judge on. Whether options are taken at all is
decided within the first: each half of it is served by what the other half chose, and options are taken if they save
cost with a one-sided confidence of 95 % over whole documents. Then they are chosen on the whole first part. The second
part sees the result and decides nothing, so the evidence that it gives is not selected.

Both choices have the same total. Fixed budgets may split a tier between two, as the gateway's controller does to spend
what whole tiers leave over; options may not, so that they must beat what is served without them. Where options take
more tokens on the other half than fixed budgets do, these are charged at the allocation's price of a token, and
credited where they take fewer.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.options.tier_plan import OptionEvidence, TierOption
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import UnevenDocuments, check_even, upper_error
from stakes.calibration.escalation.answers import AnswerTable, Floats, ServedAnswers, TierAnswers
from stakes.calibration.escalation.choose import ChosenOptions, OptionRules, choose_options
from stakes.calibration.estimators import Terms, fit
from stakes.errors import BadInput, InfeasibleBudget
from stakes.evaluation.statistics import Gain, cost_gain

LEVEL = 0.9  # of the two-sided interval of the gain, whose lower end decides


@dataclass(frozen=True)
class OptionVerdict:
    """Options by tier, whether they are taken in place of fixed budgets, and what they did on other documents."""

    rules: OptionRules
    taken: bool
    why: str
    options: Mapping[str, TierOption]
    gain: Gain | None
    """Cost saved over fixed budgets, over the cost at stake, each half of the choosing part by the other's choice."""
    evidence: Mapping[str, OptionEvidence]
    chosen_names: frozenset[str]
    """The documents to choose on."""
    judged_on: int
    """How many documents judge."""

    @property
    def chosen_on(self) -> int:
        """How many documents chose."""
        return len(self.chosen_names)

    def record(self) -> dict[str, object]:
        """As JSON."""
        return {
            "taken": self.taken,
            "why": self.why,
            "review_cost": self.rules.review_cost,
            "options": {tier: str(option) for tier, option in self.options.items()},
            "gain": None if self.gain is None else [self.gain.value, self.gain.low, self.gain.high],
            "evidence": {tier: one.model_dump() for tier, one in self.evidence.items()},
            "chosen_on": self.chosen_on,
            "judged_on": self.judged_on,
        }


def consider(
    measured: ByDocument,
    table: AnswerTable,
    terms: Terms,
    rules: OptionRules,
    *,
    estimator: str,
    confidence: float = 0.95,
    chosen_on: Collection[str] | None = None,
) -> OptionVerdict:
    """Choose on one part (``chosen_on``, else half of the documents), decide within it, and judge on the other."""
    names = chosen_on
    if names is None:
        names = [measured.documents[i] for i in measured.parts(2)[0]]
    first, second = measured.divide(names)
    own, other = table.divide(names)
    if own.lacks_a_tier() or other.lacks_a_tier():
        raise BadInput(f"{len(measured)} documents are too few to choose options on some and judge them on others")
    gain, why = decide(first, own, terms, rules, estimator)
    taken = gain is not None and gain.low > 0
    chosen = _choose(first, own, terms, rules, estimator)[1]
    if taken and all(option.fixed for option in chosen.options.values()):
        taken, why = False, "on all documents to choose on, fixed budgets are the best options"
    evidence = judge(other, second, chosen.options, confidence) if taken else {}
    return OptionVerdict(rules, taken, why, chosen.options, gain, evidence, frozenset(first.documents), len(second))


def _choose(
    measured: ByDocument, table: AnswerTable, terms: Terms, rules: OptionRules, estimator: str
) -> tuple[ChosenOptions, ChosenOptions]:
    """The fixed budgets, one tier split where that helps, and the options that these documents choose."""
    fitted = fit(estimator, measured.curves(), measured)
    fixed = choose_options(table, fitted, terms, OptionRules(escalate=False, predict=False), mix=True)
    return fixed, choose_options(table, fitted, terms, rules)


def decide(
    measured: ByDocument, table: AnswerTable, terms: Terms, rules: OptionRules, estimator: str
) -> tuple[Gain | None, str]:
    """The gain of options over fixed budgets, each half served by the other's choice, and the verdict in words."""
    saved, weight, documents = [], [], []
    names = [[measured.documents[i] for i in rows] for rows in measured.parts(2)]
    for here, there in (names, names[::-1]):
        own, other = table.divide(here)[0], table.divide(there)[0]
        if own.lacks_a_tier() or other.lacks_a_tier():
            return None, f"{len(measured)} documents to choose on are too few to compare options with fixed budgets"
        try:
            fixed, chosen = _choose(measured.divide(here)[0], own, terms, rules, estimator)
        except InfeasibleBudget as error:
            return None, str(error)
        price = chosen.allocation.price * sum(terms.counts[t] * terms.costs[t] for t in terms.costs)
        for tier, answers in other.tiers.items():
            after = answers.serve(chosen.options[tier])
            less = -cost_of(answers, after, rules) - price * after.tokens
            for option, share in fixed.splits[tier].items():
                before = answers.serve(option)
                less += share * (cost_of(answers, before, rules) + price * before.tokens)
            saved.append(less)
            weight.append(answers.cost)
            documents.append(answers.documents)
    units = np.concatenate(documents).tolist()
    gain = cost_gain(np.concatenate(saved), np.concatenate(weight), units, level=LEVEL)
    if gain.few:
        return replace(gain, low=min(gain.low, 0.0)), f"not taken: {gain.few}"
    if gain.low > 0:
        return gain, f"they save {gain} of the cost at stake over fixed budgets, on documents they were not chosen on"
    return gain, f"fixed budgets ship: options save {gain} of the cost at stake over them, which may be chance"


def cost_of(answers: TierAnswers, served: ServedAnswers, rules: OptionRules) -> Floats:
    """What each question costs: a mistake that passes, or a review."""
    return answers.cost * served.passed_wrong + (rules.review_cost or 0.0) * served.flagged


def judge(
    table: AnswerTable, measured: ByDocument, options: Mapping[str, TierOption], confidence: float
) -> dict[str, OptionEvidence]:
    """What options do on these documents; the bounds of all tiers hold together."""
    level = 1 - (1 - confidence) / len(options)
    try:
        check_even(measured)
        even = True
    except UnevenDocuments:
        even = False
    return {tier: _evidence(table.tiers[tier], option, level, even) for tier, option in options.items()}


def _evidence(answers: TierAnswers, option: TierOption, level: float, even: bool) -> OptionEvidence:
    served = answers.serve(option)
    wrong, passed, documents = by_document_counts(answers, served)
    bounded = even and passed.any()
    return OptionEvidence(
        questions=len(answers),
        documents=documents,
        tokens=float(served.tokens.mean()),
        escalated=float(served.escalated.mean()),
        flagged=float(served.flagged.mean()),
        error=float(wrong.sum() / passed.sum()) if passed.any() else None,
        upper=upper_error(wrong, passed, level) if bounded else None,
        level=level,
    )


def by_document_counts(
    answers: TierAnswers, served: ServedAnswers
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """By document: wrong answers that were not flagged, answers that were not flagged; and how many documents."""
    names, unit = np.unique(answers.documents, return_inverse=True)
    wrong = np.bincount(unit, served.passed_wrong, len(names))
    passed = np.bincount(unit, ~served.flagged, len(names))
    return wrong.astype(float), passed.astype(float), len(names)
