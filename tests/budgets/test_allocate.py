import importlib.util
import itertools
import math
import random
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stakes.budgets.allocate import Allocation, allocate
from stakes.budgets.curve import Curve
from stakes.errors import BadInput, InfeasibleBudget

GRID = [32, 304, 576]
HIGH = Curve(GRID, [0.903, 0.300, 0.100], counts=300)
LOW = Curve(GRID, [0.910, 0.373, 0.093], counts=300)


def pair(total: int = 608, high: float = 5, **options: Any) -> Allocation:
    return allocate({"high": HIGH, "low": LOW}, {"high": high, "low": 1}, {"high": 1, "low": 1}, total, **options)


class Instance(NamedTuple):
    curves: dict[str, Curve]
    costs: dict[str, float]
    counts: dict[str, int]
    total: int

    def at(self, end: int) -> int:
        return sum(self.counts[t] * c.budgets[end] for t, c in self.curves.items())


@st.composite
def instances(draw: st.DrawFn, tiers: int = 5, points: int = 4) -> Instance:
    """Small non-convex instances, many with exact ties: rates k / n, whole costs, flat, straight and equal curves."""
    kind = draw(st.sampled_from(["rates", "floats", "straight", "flat", "duplicated"]))
    names = [f"tier {i}" for i in range(draw(st.integers(1, tiers)))]
    budget = st.integers(1, 12) if draw(st.booleans()) else st.integers(1, 700)
    curves: dict[str, Curve] = {}
    for name in names:
        budgets = sorted(draw(st.lists(budget, min_size=1, max_size=points, unique=True)))
        if kind == "floats":
            errors = draw(st.lists(st.floats(0, 1), min_size=len(budgets), max_size=len(budgets)))
        elif kind == "straight":
            errors = [1 - b / 1000 for b in budgets]
        elif kind == "flat":
            errors = [0.5] * len(budgets)
        else:
            errors = [draw(st.integers(0, 6)) / 6 for _ in budgets]
        curves[name] = Curve(budgets, errors, counts=6)
    if kind == "duplicated":
        curves = dict.fromkeys(names, curves[names[0]])
    costs: dict[str, float] = {name: draw(st.sampled_from([1, 2, 3, 5, 0.1, 20.0])) for name in names}
    counts = {name: draw(st.integers(1, 4)) for name in names}
    if kind in ("straight", "duplicated") and draw(st.booleans()):
        costs, counts = dict.fromkeys(names, 3.0), dict.fromkeys(names, 2)
    made = Instance(curves, costs, counts, 0)
    return made._replace(total=draw(st.integers(made.at(0), made.at(-1) + 3)))


class Best(NamedTuple):
    cwe: Fraction
    spent: int
    spread: int
    budgets: list[dict[str, int]]  # all that are equal so far


def brute_force(instance: Instance) -> Best:
    """The tie rule of ``allocate`` in exact arithmetic: every choice, no pruning, no rounding."""
    curves, costs, counts, total = instance
    weights = {t: Fraction(counts[t]) * Fraction(costs[t]) for t in curves}
    lost = [[weights[t] * Fraction(e) for e in c.errors] for t, c in curves.items()]
    unit = math.lcm(*[fraction.denominator for column in lost for fraction in column])  # integers add up faster
    tables = [
        [(int(x * unit), counts[t] * b, counts[t] * b * b, b) for x, b in zip(column, c.budgets, strict=True)]
        for column, (t, c) in zip(lost, curves.items(), strict=True)
    ]
    fits = []
    for choice in itertools.product(*tables):
        loss, spent, spread, budgets = (list(column) for column in zip(*choice, strict=True))
        if sum(spent) <= total:
            fits.append((sum(loss), sum(spent), sum(spread), budgets))
    least, whole = min(fit[0] for fit in fits), sum(weights.values()) * unit
    ties = [fit for fit in fits if fit[0] <= least + whole / 10**12]
    best = min(fit[1:3] for fit in ties)
    equal = [dict(zip(curves, fit[3], strict=True)) for fit in ties if fit[1:3] == best]
    return Best(least / whole, *best, equal)


def seeded(rng: random.Random) -> Instance:
    """As ``instances``, but thousands of them in seconds."""
    kind = rng.choice(["rates", "floats", "straight", "duplicated"])
    names = [f"tier {i}" for i in range(rng.randint(1, 5))]
    curves: dict[str, Curve] = {}
    for name in names:
        budgets = sorted(rng.sample(range(1, 14), rng.randint(1, 4)))
        errors = {
            "floats": [rng.random() for _ in budgets],
            "straight": [1 - b / 1000 for b in budgets],
        }.get(kind, [rng.randint(0, 6) / 6 for _ in budgets])
        curves[name] = Curve(budgets, errors, counts=6)
    if kind == "duplicated":
        curves = dict.fromkeys(names, curves[names[0]])
    costs: dict[str, float] = {name: rng.choice([1, 2, 3, 0.1]) for name in names}
    made = Instance(curves, costs, {name: rng.randint(1, 3) for name in names}, 0)
    return made._replace(total=rng.randint(made.at(0), made.at(-1) + 3))


def benchmark() -> Any:
    """The benchmark's families of instances: what is timed there is checked here."""
    path = Path(__file__).parents[2] / "benchmarks" / "allocation.py"
    spec = importlib.util.spec_from_file_location("stakes_benchmark_allocation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCHMARK = benchmark()


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
        kept = [i for i, b in enumerate(curve.budgets) if b >= floor]
        cut[tier] = Curve([curve.budgets[i] for i in kept], [curve.errors[i] for i in kept], counts=6)
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
        ({"counts": {"high": 1.5, "low": 1}}, "count of tier 'high' is 1.5"),
        ({"counts": {"high": 10**18, "low": 1}, "total": 10**20}, "divide all counts"),
        ({"total": 608.0}, "total is 608.0"),
        ({"total": True}, "total is True"),
        ({"floor": 32.5}, "floor is 32.5"),
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


@pytest.mark.parametrize("kind", BENCHMARK.FAMILIES)
def test_three_hundred_tiers_of_every_family_are_proven_or_say_their_gap(kind: str) -> None:
    instance = BENCHMARK.family(kind, 300, 64)
    began = time.perf_counter()
    best = allocate(*instance)
    took = time.perf_counter() - began
    assert best.spent <= instance.total
    weights = {t: instance.counts[t] * instance.costs[t] for t in instance.curves}
    lost = sum(weights[t] * instance.curves[t].error(b) for t, b in best.budgets.items())
    assert best.cwe == pytest.approx(lost / sum(weights.values()), abs=1e-12)
    if kind == "parity trap":
        assert best.spent == instance.total - 1
        assert best.gap == pytest.approx(best.price)  # one token's worth
    else:
        assert best.gap == 0
    assert took < 10  # ten times what was measured alone, for machines that are busy


def test_an_instance_of_the_ordinary_kind_takes_hundredths_and_a_small_one_under_a_millisecond() -> None:
    def quickest(instance: Instance, repeats: int) -> float:
        times = []
        for _ in range(repeats):
            began = time.perf_counter()
            allocate(*instance)
            times.append(time.perf_counter() - began)
        return min(times)

    assert quickest(BENCHMARK.family("decaying", 300, 64), 3) < 1
    assert quickest(BENCHMARK.family("decaying", 4, 13), 50) < 1e-3
