"""Hundreds of tiers of every family that the benchmark times: proven or with their gap, and quickly."""

import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.budgets.instances import Instance

from stakes.budgets.allocate import allocate


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
