"""The optimum equals brute force with its ties, its price is the hulls' slope, and bad input is one sentence."""

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.budgets.instances import Instance, brute_force, instances, seeded

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve
from stakes.errors import BadInput, InfeasibleBudget

GRID = [32, 304, 576]
HIGH = Curve(GRID, [0.903, 0.300, 0.100], counts=300)
LOW = Curve(GRID, [0.910, 0.373, 0.093], counts=300)


def pair(total: int = 608, high: float = 5, **options: Any) -> Allocation:
    return allocate({"high": HIGH, "low": LOW}, {"high": high, "low": 1}, {"high": 1, "low": 1}, total, **options)


def spread(instance: Instance, best: Allocation) -> int:
    return sum(instance.counts[t] * b * b for t, b in best.budgets.items())


def check(instance: Instance) -> None:
    best, truth = allocate(*instance), brute_force(instance)
    assert abs(Fraction(best.cwe) - truth.cwe) <= Fraction(2, 10**12)
    assert (best.spent, spread(instance, best)) == (truth.spent, truth.spread)
    assert best.budgets in truth.budgets
    assert best.gap == 0


@settings(max_examples=300)
@given(instances())
def test_equals_brute_force_with_its_ties(instance: Instance) -> None:
    check(instance)


@pytest.mark.parametrize("seed", range(3))
def test_equals_brute_force_on_a_thousand_more(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1000):
        check(seeded(rng))


@settings(max_examples=100)
@given(instances(), st.integers(1, 700))
def test_a_floor_is_a_shorter_grid(instance: Instance, floor: int) -> None:
    curves, costs, counts, _ = instance
    if any(c.budgets[-1] < floor for c in curves.values()):
        with pytest.raises(BadInput, match="floor"):
            allocate(*instance, floor=floor)
        return
    cut = {}
    for tier, curve in curves.items():
        above = [i for i, b in enumerate(curve.budgets) if b >= floor]
        cut[tier] = Curve([curve.budgets[i] for i in above], [curve.errors[i] for i in above], counts=6)
    shorter = Instance(cut, costs, counts, 0)
    total = (shorter.at(0) + shorter.at(-1)) // 2
    assert allocate(curves, costs, counts, total, floor).budgets == allocate(cut, costs, counts, total).budgets


@settings(max_examples=100)
@given(instances())
def test_more_tokens_never_hurt_and_the_price_is_the_hulls_slope(instance: Instance) -> None:
    best = allocate(*instance)
    assert allocate(*instance._replace(total=instance.total + 1)).cwe <= best.cwe + 1e-12
    # many copies of each tier come arbitrarily near the hulls, where the price is a derivative
    copies = 10**6
    counts = {t: n * copies for t, n in instance.counts.items()}
    mixed = [
        allocate(instance.curves, instance.costs, counts, instance.total * copies + more, mix=True).cwe
        for more in (0, copies // 100)
    ]
    assert (mixed[0] - mixed[1]) * 100 == pytest.approx(best.price, abs=0.02 + 0.1 * best.price)


def test_price_is_zero_when_the_hulls_have_no_use_for_more() -> None:
    assert pair(total=2 * 576).price == 0
    assert pair(total=2 * 576 - 1).price > 0


def test_price_at_the_end_of_a_segment_is_what_a_further_token_brings() -> None:
    curve = Curve([10, 20, 30], [0.9, 0.5, 0.3], counts=10)
    assert allocate({"a": curve}, {"a": 1}, {"a": 1}, 19).price == pytest.approx(0.04)
    assert allocate({"a": curve}, {"a": 1}, {"a": 1}, 20).price == pytest.approx(0.02)
    assert allocate({"a": curve}, {"a": 1}, {"a": 2}, 40).price == pytest.approx(0.01)  # shared by two samples


def test_ties_go_to_fewer_tokens() -> None:
    curve = Curve([10, 20, 30], [0.5, 0.2, 0.2], counts=10)
    best = allocate({"a": curve}, {"a": 1}, {"a": 3}, 1000)
    assert (best.budgets, best.spent) == ({"a": 20}, 60)


def test_ties_go_to_the_more_even_split_then_to_the_first_named_tier() -> None:
    straight = Curve([10, 20, 30], [0.6, 0.4, 0.2], counts=10)
    both = {"a": straight, "b": straight}
    assert allocate(both, {"a": 1, "b": 1}, {"a": 1, "b": 1}, 40).budgets == {"a": 20, "b": 20}
    assert allocate(both, {"a": 1, "b": 1}, {"a": 1, "b": 1}, 50).budgets == {"a": 30, "b": 20}


def test_differences_below_the_tolerance_are_ties_and_above_are_not() -> None:
    def best(gain: float) -> int:
        curve = Curve([10, 20], [0.5, 0.5 - gain], counts=10)
        return allocate({"a": curve}, {"a": 1}, {"a": 1}, 20).spent

    assert best(0.9e-12) == 10
    assert best(1.1e-12) == 20


def test_ties_are_judged_against_the_optimum_and_never_in_a_chain() -> None:
    # each step is within 1e-12 of the next, the whole chain is not
    curve = Curve([10, 20, 30], [0.5, 0.5 - 0.8e-12, 0.5 - 1.6e-12], counts=10)
    assert allocate({"a": curve}, {"a": 1}, {"a": 1}, 30).budgets == {"a": 20}


def test_infeasible_totals_name_the_smallest_feasible_one() -> None:
    with pytest.raises(InfeasibleBudget, match="at least 64"):
        pair(total=63)
    assert pair(total=64).budgets == {"high": 32, "low": 32}
    with pytest.raises(InfeasibleBudget, match="at least 608"):
        pair(total=607, floor=100)


def test_edges_of_the_grid_are_marked_where_more_range_might_help() -> None:
    assert pair().on_edge == {"high": "largest", "low": "smallest"}
    assert pair(high=1).on_edge == {}
    assert pair(floor=32).on_edge == {"high": "largest"}  # the floor forbids going lower
    assert pair(floor=31).on_edge == {"high": "largest", "low": "smallest"}
    perfect = Curve([32, 64], [0.5, 0.0], counts=10)
    assert allocate({"a": perfect}, {"a": 1}, {"a": 1}, 99).on_edge == {}  # nothing is left to avoid
    point = Curve([32], [0.5], counts=10)
    assert allocate({"a": point}, {"a": 1}, {"a": 1}, 99).on_edge == {"a": "both"}


@settings(max_examples=100)
@given(instances())
def test_mixing_fits_and_never_loses_to_whole_tiers(instance: Instance) -> None:
    best, mixed = allocate(*instance), allocate(*instance, mix=True)
    assert mixed.spent <= instance.total
    assert mixed.cwe <= best.cwe + 1e-12
    assert len(mixed.mixed) <= 1
    for tier, split in mixed.mixed.items():
        curve = instance.curves[tier]
        assert sum(split.values()) == instance.counts[tier]
        assert min(split.values()) > 0
        mean = sum(k * curve.error(b) for b, k in split.items()) / instance.counts[tier]
        assert mixed.errors[tier] == pytest.approx(mean)
    spent = [instance.counts[t] * b for t, b in mixed.budgets.items() if t not in mixed.mixed]
    spent += [b * k for split in mixed.mixed.values() for b, k in split.items()]
    assert sum(spent) == mixed.spent


def test_mixing_spends_the_total_and_beats_whole_tiers() -> None:
    curves, costs = {"high": HIGH, "low": LOW}, {"high": 3, "low": 1}
    counts, total = {"high": 300, "low": 300}, 130_000
    best, mixed = allocate(curves, costs, counts, total), allocate(curves, costs, counts, total, mix=True)
    assert (best.budgets, best.spent) == ({"high": 304, "low": 32}, 100_800)
    assert mixed.mixed == {"high": {304: 193, 576: 107}}  # 29,200 tokens left, 272 for each sample that moves
    assert mixed.spent == 100_800 + 107 * 272
    assert mixed.cwe < best.cwe
    assert mixed.gap < mixed.price * 272


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"curves": {}}, "no tier"),
        ({"costs": {"high": 5}}, "tier 'low' has a curve but no cost"),
        ({"counts": {"low": 5}}, "tier 'high' has a curve but no count"),
        ({"costs": {"high": 5, "low": 1, "medium": 3}}, "'medium', which has no curve"),
        ({"costs": {"high": -5, "low": 1}}, "cost of tier 'high' is -5"),
        ({"costs": {"high": 5, "low": 0}}, "cost of tier 'low' is 0"),
        ({"costs": {"high": math.nan, "low": 1}}, "cost of tier 'high' is nan"),
        ({"costs": {"high": math.inf, "low": 1}}, "cost of tier 'high' is inf"),
        ({"costs": {"high": "5", "low": 1}}, "cost of tier 'high' is '5'"),
        ({"costs": {"high": True, "low": 1}}, "cost of tier 'high' is True"),
        ({"counts": {"high": 0, "low": 1}}, "count of tier 'high' is 0"),
        ({"counts": {"high": 1.5, "low": 1}}, "count of tier 'high' is a whole number, not 1.5"),
        ({"counts": {"high": 10**18, "low": 1}, "total": 10**20}, "divide all counts"),
        ({"total": 608.0}, "total is a whole number, not 608.0"),
        ({"total": True}, "total is a whole number, not True"),
        ({"floor": 32.5}, "floor is a whole number, not 32.5"),
        ({"floor": 577}, "floor 577 lies above every measured budget of tier 'high'"),
        ({"curves": {"high": HIGH, "low": [0.5]}}, "curve of tier 'low' is a list"),
    ],
)
def test_bad_input_is_one_sentence_with_tier_and_value(change: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {
        "curves": {"high": HIGH, "low": LOW},
        "costs": {"high": 5, "low": 1},
        "counts": {"high": 1, "low": 1},
        "total": 608,
    }
    with pytest.raises(BadInput) as raised:
        allocate(**{**good, **change})
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_numpy_numbers_and_any_scale_of_costs_and_totals_are_welcome() -> None:
    plain = pair()
    counts = {"high": np.int64(1), "low": np.int32(1)}
    for scale in (1e-300, 1.0, 1e307):
        costs = {"high": np.float64(5 * scale), "low": 1 * scale}
        best = allocate({"high": HIGH, "low": LOW}, costs, counts, np.int64(608))  # type: ignore[arg-type]
        assert best.budgets == plain.budgets
        assert best.cwe == pytest.approx(plain.cwe)
        assert all(type(b) is int for b in best.budgets.values())
    assert pair(total=10**40).budgets == {"high": 576, "low": 576}
