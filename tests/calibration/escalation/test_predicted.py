"""A predicted budget is an option like any other: fitted on some documents, judged on others, taken where it wins."""

import numpy as np
import pytest
from tests.calibration.escalation.worlds import COSTS, GRID, outcome

from stakes.budgets.options.tier_plan import TierOption
from stakes.calibration.by_document import by_document
from stakes.calibration.escalation.answers import Statistics, answer_table
from stakes.calibration.escalation.choose import OptionRules, choose_options, option_points, predicted_options
from stakes.calibration.escalation.judge import consider
from stakes.calibration.estimators import Terms
from stakes.evaluation.outcome_log import Outcome
from stakes.vision.image.statistics import STATISTICS

ONLY = OptionRules(escalate=False)


def world(documents: int, seed: int, informs: float) -> tuple[list[Outcome], Statistics]:
    """Pages that need many tokens or few; ``informs``: how well the first statistic says which."""
    dice, found, statistics = np.random.default_rng(seed), list[Outcome](), dict[str, tuple[float, ...]]()
    for document in range(documents):
        hard = dice.random() < 0.4
        values = (informs * hard + 0.3 * dice.normal(), *dice.normal(size=len(STATISTICS) - 1))
        for number in range(4):
            tokens = np.exp((6.1 if hard else 4.4) + 0.3 * dice.normal())
            name = f"{document}/{number}"
            statistics[name] = tuple(float(value) for value in values)
            for budget in GRID:
                found.append(outcome(name, f"d{document:04d}", number, budget, bool(budget >= tokens), None))
    return found, statistics


def considered(informs: float) -> tuple[bool, dict[str, TierOption]]:
    outcomes, statistics = world(240, 1, informs)
    measured, table = by_document(outcomes, COSTS), answer_table(outcomes, COSTS, None, statistics)
    verdict = consider(measured, table, Terms(COSTS, measured.counts, 250 * 960), ONLY, estimator="raw")
    return verdict.taken, dict(verdict.options)


def test_it_is_taken_where_the_image_says_how_many_tokens_it_needs() -> None:
    taken, options = considered(2.0)
    assert taken
    assert any(option.predictor is not None for option in options.values())


def test_it_is_not_taken_where_the_image_says_nothing() -> None:
    assert not considered(0.0)[0]


def test_its_errors_are_those_on_documents_it_was_not_fitted_on() -> None:
    """On noise, fits look better on their own documents than on others; the points must not."""
    drawn, statistics = world(40, 2, 0.0)
    fresh, others = world(600, 3, 0.0)
    own = answer_table(drawn, COSTS, None, statistics).tiers["high"]
    test = answer_table(fresh, COSTS, None, others).tiers["high"]
    curve = by_document(drawn, COSTS).curves()["high"]
    points = [point for point in option_points(own, curve, ONLY, 5.0) if point.option.predictor is not None]
    said = np.mean([point.loss for point in points])
    seen, true = (np.mean([part.serve(point.option).wrong.mean() for point in points]) for part in (own, test))
    assert seen < said - 0.02
    assert said == pytest.approx(true, abs=0.06)


def test_no_predicted_budget_is_below_the_floor() -> None:
    outcomes, statistics = world(80, 1, 2.0)
    table, measured = answer_table(outcomes, COSTS, None, statistics), by_document(outcomes, COSTS)
    best = choose_options(table, measured.curves(), Terms(COSTS, measured.counts, 300 * 320, floor=160), ONLY)
    assert all(min(option.predictor.budgets) >= 160 for option in best.options.values() if option.predictor)
    assert any(option.predictor for option in best.options.values())


def test_pages_of_one_size_are_not_unlike_themselves() -> None:
    """A statistic that does not vary has no deviation, and the predictor's center is rounded."""
    outcomes, statistics = world(80, 1, 2.0)
    size = float(np.log(1654 * 2339))  # A4 at 200 dpi
    scans = {name: (*values[:-1], size) for name, values in statistics.items()}
    own = answer_table(outcomes, COSTS, None, scans).tiers["high"]
    for option, columns in predicted_options(own):
        assert option.predictor is not None
        served = option.predictor.predict(own.statistics, own.budgets[-1])
        assert served.min() < own.budgets[-1]  # that of an image unlike those of the calibration
        assert len(set(columns.tolist())) > 1
