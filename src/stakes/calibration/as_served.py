"""What do budgets chosen by labels give where tiers are read by a signal? Budget by the reading, cost by the label:

    CWE as served = sum_i c(label_i) [wrong at b(reading_i)] / sum_i c(label_i)

A question that is dear and read as cheap is answered with few tokens and still costs what it costs. A choice, a check
or a certificate made on labelled tiers is of requests whose tier is named; this is of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stakes.errors import BadInput
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import cwe


@dataclass(frozen=True)
class AsServed:
    """Over the questions of a calibration: no held-out figure, since the budgets were chosen on the same answers."""

    agreement: float
    """Share of questions whose reading is their label."""
    cwe: float
    by_label: float
    uniform: float
    uniform_budget: int
    tokens: float
    label_tokens: float
    """Realised tokens an image, by readings and by labels."""


def as_served(
    outcomes: Sequence[Outcome],
    budgets: Mapping[str, int],
    readings: Mapping[str, str],
    costs: Mapping[str, float],
    mean_budget: int,
) -> AsServed:
    """``outcomes``: every sample at every budget, its tier the label; ``readings``: a sample's tier by the signal."""
    found = {(outcome.sample, outcome.budget): outcome for outcome in outcomes}
    labels = {outcome.sample: outcome.tier for outcome in outcomes}
    even = max((outcome.budget for outcome in outcomes if outcome.budget <= mean_budget), default=None)
    if even is None:
        raise BadInput(f"no budget within the mean of {mean_budget} was measured")
    prices = [costs[tier] for tier in labels.values()]
    try:
        read = [found[sample, budgets[readings[sample]]] for sample in labels]
        named = [found[sample, budgets[tier]] for sample, tier in labels.items()]
        plain = [found[sample, even] for sample in labels]
    except KeyError as missing:
        raise BadInput(f"not every sample was answered at every budget that is served ({missing} is missing)") from None

    def error(answers: list[Outcome]) -> float:
        return cwe([answer.correct for answer in answers], prices)

    def spent(answers: list[Outcome]) -> float:
        return sum(answer.spent for answer in answers) / len(answers)

    agreed = sum(readings[sample] == tier for sample, tier in labels.items())
    return AsServed(agreed / len(labels), error(read), error(named), error(plain), even, spent(read), spent(named))
