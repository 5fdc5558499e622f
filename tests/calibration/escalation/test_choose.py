"""Options are points of tokens and loss; the best of them within the total is found, and it is what serving gives."""

from itertools import product

import numpy as np
import pytest
from tests.calibration.escalation.worlds import COSTS, GRID, outcome, outcomes

from stakes.budgets.options.tier_plan import Escalation, TierOption
from stakes.calibration.by_document import by_document
from stakes.calibration.escalation.answers import answer_table, why_no_confidence
from stakes.calibration.escalation.choose import OptionRules, choose_options, option_points, thresholds
from stakes.calibration.estimators import Terms

DRAWN = outcomes(60)
TABLE, CURVES = answer_table(DRAWN, COSTS), by_document(DRAWN, COSTS).curves()
COUNTS = {"high": 120, "low": 120}


def test_an_option_is_served_question_by_question() -> None:
    option = TierOption(160, Escalation(to=448, below=0.6), review_below=0.5)
    served = TABLE.tiers["high"].serve(option)
    asked = {o.sample: o for o in DRAWN if o.budget == 160 and o.tier == "high"}
    again = {o.sample: o for o in DRAWN if o.budget == 448}
    for at, (sample, first) in enumerate(asked.items()):
        second = option.next_budget(first.confidence)
        final = first if second is None else again[sample]
        assert served.tokens[at] == 160 + (second or 0)
        assert (served.wrong[at], served.escalated[at]) == (not final.correct, second is not None)
        assert served.flagged[at] == option.flags(final.confidence)


def test_points_are_what_serving_gives_on_the_measured_curve() -> None:
    own = TABLE.tiers["high"]
    points = list(option_points(own, CURVES["high"], OptionRules(True, 2.0), cost=5.0))
    assert [point.option for point in points if point.option.fixed] == [TierOption(budget) for budget in GRID]
    for point in points[:: max(1, len(points) // 200)]:
        served = own.serve(point.option)
        assert point.tokens == pytest.approx(served.tokens.mean())
        loss = served.passed_wrong.mean() + 2.0 / 5.0 * served.flagged.mean()
        assert point.loss == pytest.approx(loss, abs=1e-9)


def test_the_choice_is_the_best_pair_of_options_within_the_total() -> None:
    total, rules = 250 * 240, OptionRules(True)
    best = choose_options(TABLE, CURVES, Terms(COSTS, COUNTS, total), rules)
    points = [list(option_points(TABLE.tiers[tier], CURVES[tier], rules, COSTS[tier])) for tier in COSTS]
    losses = [
        5 * high.loss + low.loss
        for high, low in product(*points)
        if 120 * (np.ceil(high.tokens) + np.ceil(low.tokens)) <= total
    ]
    assert best.allocation.cwe * 6 == pytest.approx(min(losses))
    assert best.allocation.spent <= total
    fixed = choose_options(TABLE, CURVES, Terms(COSTS, COUNTS, total), OptionRules(escalate=False))
    assert all(option.fixed for option in fixed.options.values())
    assert best.allocation.cwe < fixed.allocation.cwe


def test_a_review_that_costs_more_than_a_mistake_is_never_chosen() -> None:
    points = option_points(TABLE.tiers["low"], CURVES["low"], OptionRules(True, 1.5), cost=1.0)
    assert all(point.option.review_below is None for point in points)


def test_no_first_budget_is_below_the_floor() -> None:
    best = choose_options(TABLE, CURVES, Terms(COSTS, COUNTS, 250 * 240, floor=160), OptionRules(True))
    assert all(option.budget >= 160 for option in best.options.values())


def test_thresholds_stand_between_measured_confidences() -> None:
    assert thresholds(np.array([0.2, 0.4, 0.8, 1.0]), (0.25, 0.5, 1.0)) == [0.3, 0.6]
    assert thresholds(np.array([0.5, 0.5, 0.5, 0.5]), (0.5,)) == []


def test_answers_without_a_confidence_are_refused_with_the_reason() -> None:
    bare = [outcome("a/0", "a", 0, budget, True, None) for budget in GRID]
    assert "no answer has a confidence; the model gives none" in why_no_confidence(bare)
    assert "1 of 6 answers have no confidence" in why_no_confidence([bare[0], *DRAWN[:5]])
