"""Options are taken where they win on documents they were not chosen on, and their evidence comes from yet others."""

import numpy as np
import pytest
from tests.calibration.escalation.worlds import COSTS, outcomes

from stakes.budgets.options.tier_plan import TierOption
from stakes.calibration.by_document import by_document
from stakes.calibration.certify.ceiling import upper_error
from stakes.calibration.certify.certificate import Certification
from stakes.calibration.certify.options import review_ceiling
from stakes.calibration.escalation.answers import answer_table
from stakes.calibration.escalation.choose import OptionRules
from stakes.calibration.escalation.judge import OptionVerdict, consider
from stakes.calibration.escalation.step import OptionRequest, options_step
from stakes.calibration.estimators import Terms
from stakes.errors import BadInput


def verdict(documents: int = 240, mean: int = 304, rules: OptionRules | None = None, **world: float) -> OptionVerdict:
    drawn = outcomes(documents, **world)  # type: ignore[arg-type]
    measured, table = by_document(drawn, COSTS), answer_table(drawn, COSTS)
    terms = Terms(COSTS, measured.counts, mean * sum(measured.counts.values()))
    return consider(measured, table, terms, rules or OptionRules(), estimator="pooled")


def test_a_confidence_that_knows_right_from_wrong_is_used() -> None:
    found = verdict()
    assert found.taken
    assert any(option.escalate for option in found.options.values())
    assert found.gain is not None
    assert found.gain.low > 0
    assert (found.chosen_on, found.judged_on) == (120, 120)
    tokens = sum(one.tokens for one in found.evidence.values()) / 2
    assert tokens == pytest.approx(304, rel=0.1)


def test_a_confidence_that_knows_nothing_is_not() -> None:
    found = verdict(feels=0.0)
    assert not found.taken
    assert found.evidence == {}
    assert "may be chance" in found.why or "fixed budgets are the best" in found.why


def test_evidence_is_of_the_judging_documents_alone() -> None:
    drawn = outcomes(240)
    measured, table = by_document(drawn, COSTS), answer_table(drawn, COSTS)
    terms = Terms(COSTS, measured.counts, 304 * 960)
    found = consider(measured, table, terms, OptionRules(True, 2.0), estimator="raw")
    judging = table.divide(found.chosen_names)[1].tiers["high"]
    served = judging.serve(found.options["high"])
    evidence = found.evidence["high"]
    assert evidence.flagged == pytest.approx(served.flagged.mean())
    assert evidence.flagged > 0
    assert evidence.error == pytest.approx(served.wrong[~served.flagged].mean())
    names, unit = np.unique(judging.documents, return_inverse=True)
    wrong, passed = (np.bincount(unit, column, len(names)) for column in (served.passed_wrong, ~served.flagged))
    assert evidence.upper == pytest.approx(upper_error(wrong, passed, 0.975))


def test_a_ceiling_of_unflagged_answers_is_kept_by_flagging() -> None:
    drawn = outcomes(500)
    table, measured = answer_table(drawn, COSTS), by_document(drawn, COSTS)
    own, other = table.divide([measured.documents[i] for i in measured.parts(4)[0]])
    loose, strict = (
        review_ceiling("high", own.tiers["high"], other.tiers["high"], TierOption(448), rate, 0.95)
        for rate in (0.05, 0.02)
    )
    assert loose.below is not None
    assert strict.below is not None
    assert loose.below < strict.below
    served = other.tiers["high"].serve(TierOption(448, review_below=strict.below))
    assert served.wrong[~served.flagged].mean() < 0.02 < served.wrong.mean()
    never = review_ceiling("high", own.tiers["high"], other.tiers["high"], TierOption(64), 0.0005, 0.95)
    assert never.below is None
    assert "cannot be certified" in str(never)


def test_a_certificate_of_options_covers_their_thresholds() -> None:
    drawn = outcomes(400)
    measured = by_document(drawn, COSTS)
    terms = Terms(COSTS, measured.counts, 304 * 1600)
    goal = Certification(ceilings={"high": 0.05})
    request = OptionRequest(review_cost=1.5)
    step = options_step(drawn, terms, COSTS, None, request, estimator="raw", certification=goal)
    assert step.certificate is not None
    assert step.certificate.shipped == "tiered"
    assert step.certificate.no_harm is not None
    assert step.certificate.no_harm.lower > 0
    assert step.evidence["high"].upper == 0.05
    assert step.options["high"].review_below is not None
    assert step.certificate.record()["options"] == {tier: str(option) for tier, option in step.options.items()}
    assert len(step.verdict.chosen_names) == 100  # type: ignore[union-attr]


def test_what_cannot_be_considered_is_an_error_only_where_it_was_asked_for() -> None:
    drawn = outcomes(20)
    measured = by_document(drawn, COSTS)
    terms = Terms(COSTS, measured.counts, 304 * 80)
    step = options_step(drawn, terms, COSTS, None, OptionRequest(), estimator="raw", certification=None)
    assert step.options == {}
    assert "20 documents are too few" in step.why_not
    with pytest.raises(BadInput, match="20 documents are too few"):
        options_step(drawn, terms, COSTS, None, OptionRequest(True), estimator="raw", certification=None)
    with pytest.raises(BadInput, match="a review costs a number above 0"):
        OptionRequest(review_cost=-1)
