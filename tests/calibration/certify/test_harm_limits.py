"""A certificate keeps harm limits: what ships stays within them on documents that were not used to choose."""

import json

import numpy as np
import pytest
from benchmarks.certificate_limits import falsely_within, grouped, paged, ships
from benchmarks.scenarios import published, unequal, with_dips

from stakes.budgets.curve import Curve, proportion_interval
from stakes.calibration.by_document import ByDocument
from stakes.calibration.certify.ceiling import p_mean_at_most_zero, typical
from stakes.calibration.certify.certificate import Certification, certify
from stakes.calibration.certify.no_harm import choosing_limits, harm_bounds, more_wrong
from stakes.calibration.certify.power import Search, samples_needed, simulate
from stakes.calibration.estimators import ChosenBudgets, fit
from stakes.errors import BadInput, InfeasibleBudget

COSTS = {"high": 5.0, "low": 1.0}


def _measured(truth: dict[str, Curve] | None = None, n: int = 300, seed: int = 0, **how: float) -> ByDocument:
    return simulate(truth or unequal(), {"high": n, "low": n}, np.random.default_rng(seed), **how)


@pytest.mark.parametrize("seed", range(6))
def test_what_ships_is_within_the_limits_on_the_other_documents(seed: int) -> None:
    measured = _measured(n=400, seed=seed, per_document=2, likeness=0.3)
    found = certify(measured, COSTS, 304, Certification(max_harm=0.15))
    free = certify(measured, COSTS, 304)
    assert free.shipped == "tiered"
    assert set(found.harm) == {"high", "low"}
    assert found.passed == (found.shipped == "tiered")
    low, rising = found.harm["low"], unequal()["low"]
    assert free.budgets["low"] < low.budget  # without a limit the low tier is given up
    assert rising.error(free.budgets["low"]) - rising.error(304) > 0.25
    if found.shipped == "tiered":
        assert low.rise < low.upper <= low.limit == 0.15
        assert low.budget == found.budgets["low"]
        assert f"low errors rise by at most {low.upper:.3f}" in found.why
    else:
        assert found.budgets == {"high": 304, "low": 304}


def test_budgets_ship_exactly_when_every_test_passes_at_the_full_level() -> None:
    shipped = 0
    for seed in range(20):
        measured = _measured(n=150, seed=seed)
        found = certify(measured, COSTS, 304, Certification(max_harm={"low": 0.15}))
        if found.no_harm is None:
            continue
        more, asked = more_wrong(measured.split()[1], "low", found.no_harm.budgets["low"], 304)
        p = p_mean_at_most_zero(0.15 * asked - more, -0.85 * typical(asked))
        assert (found.shipped == "tiered") == (found.no_harm.lower > 0 and p < 0.05)
        assert found.harm["low"].kept == (p < 0.05)
        both = certify(measured, COSTS, 304, Certification(max_harm=0.15))
        if both.no_harm is not None:  # the benchmark's short way comes to the same
            assert ships(measured.split()[1], COSTS, both.no_harm.budgets, 0.15) == (both.shipped == "tiered")
        shipped += found.shipped == "tiered"
    assert 0 < shipped < 20


def test_a_limit_that_is_not_certified_is_named_with_its_bound_and_uniform_ships() -> None:
    measured = _measured(published(), n=600)  # the true rise at 224 tokens is 0.147
    first = measured.split()[0]
    chosen = ChosenBudgets({"high": 384, "low": 224}, fit("pooled", first.curves(), first))
    goal = Certification(max_harm={"low": 0.15})
    found = certify(measured, {"high": 20.0, "low": 1.0}, 304, goal, chosen=chosen, chosen_on=first.documents)
    bound = found.harm["low"]
    assert found.no_harm is not None
    assert found.no_harm.lower > 0
    assert (found.shipped, found.budgets) == ("uniform", {"high": 304, "low": 304})
    assert bound.upper > 0.15
    assert "not certified to stay within the harm limits, low errors rise by" in found.why
    assert f"at most {bound.upper:.3f}, above the harm limit of 0.15" in found.why


def test_budgets_are_chosen_within_a_limit_that_can_be_certified() -> None:
    measured = _measured(with_dips(), n=300)
    first, second = measured.split()
    limits = choosing_limits({"low": 0.15}, second.counts, 0.95)
    assert limits["low"] == proportion_interval(0.15, second.counts["low"], 0.9)[0] < 0.15
    found = certify(measured, COSTS, 304, Certification(max_harm={"low": 0.15}))
    curve = fit("pooled", first.curves(), first)["low"]
    assert curve.error(found.harm["low"].budget) <= curve.error(304) + limits["low"] + 1e-9
    assert choosing_limits({"low": 0.15}, {"low": 10**7}, 0.95)["low"] == pytest.approx(0.15, abs=1e-3)
    assert choosing_limits({"low": 0.0}, {"low": 300}, 0.95) == {"low": 0.0}


def test_a_tier_that_keeps_its_budget_cannot_rise() -> None:
    measured = _measured(n=40)
    bounds = harm_bounds(measured, {"high": 0.0, "low": 0.0}, {"high": 304, "low": 304}, 304, 0.95)
    assert all((bound.rise, bound.upper, bound.kept) == (0.0, 0.0, True) for bound in bounds.values())


@pytest.mark.parametrize(
    "world", [paged(0.52, 0.373, 150, 1, 0.0), paged(0.52, 0.373, 150, 2, 0.3), grouped(40, 4)], ids=lambda w: w.name
)
def test_a_limit_just_below_the_true_rise_is_seldom_passed(world: object) -> None:
    """A small piece of benchmarks/certificates.py --only limits: 150 tests at a nominal 5 %, two sigma more at most."""
    line = falsely_within(world, 150)  # type: ignore[arg-type]
    assert "*" not in line, line


def test_without_a_limit_the_certificate_has_no_word_of_it() -> None:
    found = certify(_measured(published(), n=100), COSTS, 304)
    record = found.record()
    assert "harm" not in record
    assert "harm" not in json.dumps({key: value for key, value in record.items() if key != "no_harm"})
    limited = certify(_measured(published(), n=100), COSTS, 304, Certification(max_harm=1.0)).record()
    assert {key: value for key, value in limited.items() if key not in ("harm", "why")} == {
        key: value for key, value in record.items() if key != "why"
    }  # a limit that forbids nothing changes nothing else


def test_ceilings_that_limits_cannot_pay_for_say_so() -> None:
    measured = _measured(published(), n=300)
    with pytest.raises(InfeasibleBudget, match="within the harm limits no budgets leave that much"):
        certify(measured, COSTS, 304, Certification(ceilings={"high": 0.2}, max_harm={"low": 0.1}))
    with pytest.raises(BadInput, match="15 points are 0.15"):
        certify(measured, COSTS, 304, Certification(max_harm=15))


def test_the_number_of_questions_for_a_limit_can_be_estimated() -> None:
    search = Search(sizes=[75, 600], repeats=10)
    free = samples_needed(unequal(), COSTS, 304, Certification(), search=search)
    limited = samples_needed(unequal(), COSTS, 304, Certification(max_harm={"low": 0.15}), search=search)
    assert limited.rows[0].ships < free.rows[0].ships
    assert limited.rows[-1].ships > limited.rows[0].ships
