"""Arms with second attempts are compared with fixed budgets at equal tokens, on pages that nothing was chosen on."""

import numpy as np
import pytest
from tests.calibration.escalation.worlds import COSTS, outcomes

from stakes.evaluation.statistics import holm
from stakes.experiments.escalation import ARMS, adjusted_p, compare_at

CALIBRATION, TEST = outcomes(120, seed=1), outcomes(200, seed=2)


def test_every_arm_spends_the_same_and_escalation_wins_where_confidence_is_good() -> None:
    found = [compare_at(CALIBRATION, TEST, COSTS, mean) for mean in (160, 304)]
    for one in found:
        tokens = [one.mean_tokens(arm) for arm in ("uniform", "cost", "cost and options")]
        assert max(tokens) / min(tokens) < 1.01
        assert len(one.documents) == 800
        assert all(len(one.wrong[arm]) == 800 for arm in ARMS)
    last = found[-1]
    assert last.taken
    assert last.cwe("cost and options") < last.cwe("cost") < last.cwe("uniform")
    assert last.gain().value == pytest.approx(last.cwe("cost") - last.cwe("cost and options"))
    assert adjusted_p(found)[-1] < 0.01


def test_two_halves_are_joined_question_by_question() -> None:
    one, other = (compare_at(*pair, COSTS, 304) for pair in ((CALIBRATION, TEST), (TEST, CALIBRATION)))
    both = one.joined(other)
    lost = [np.sum(part.cost * part.wrong["cost"]) for part in (one, other)]
    assert both.cwe("cost") == pytest.approx(sum(lost) / both.cost.sum())
    assert len(both.documents) == 1280


def test_holm_multiplies_the_smallest_most_and_never_lowers_a_later_one() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
