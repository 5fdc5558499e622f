"""An exponent is that of the work, and what grows faster than it must is called so."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.growth import merged, table
from benchmarks.growth_ladder import Ladder, climb, exponent, geometric, judged


@given(st.floats(0.1, 3.5), st.floats(1e-3, 1e3), st.integers(4, 12))
def test_a_power_law_has_its_own_exponent(power: float, factor: float, rungs: int) -> None:
    found = exponent([(size, factor * size**power) for size in geometric(2, 2000, rungs)])
    assert (found.low, found.value, found.high) == pytest.approx((power, power, power), abs=1e-6)


def test_a_fixed_cost_does_not_hide_the_growth_of_the_upper_half() -> None:
    points = [(size, 50 + size**2 / 100) for size in geometric(10, 10_000, 13)]
    assert exponent(points).value == pytest.approx(2, abs=0.05)
    assert exponent(points, upper=13).value < 1.8


@pytest.mark.parametrize(("power", "faster"), [(0.9, False), (1.05, False), (1.3, True)])
def test_faster_than_it_must_is_said(power: float, faster: bool) -> None:
    assert judged("sorting", "records", [(n, n**power) for n in (1, 2, 4, 8, 16)], 1, "n log n")["faster"] is faster


def test_a_ladder_ends_before_a_rung_that_would_take_too_long() -> None:
    now = [0.0]

    def prepare(size: int) -> object:
        return lambda: now.__setitem__(0, now[0] + size**2)

    ladder = Ladder("squares", "size", geometric(1, 256, 9), prepare, 2, "all pairs")  # type: ignore[arg-type]
    found = climb(ladder, lambda: now[0], repeats=3, patience=300)
    assert [size for size, _ in found["points"]] == [1, 2, 4, 8, 16]
    assert found["exponent"] == pytest.approx(2)
    assert table([found])["rows"][0][1] == "1 to 16"


def test_a_second_run_replaces_its_own_rows_only() -> None:
    before = [{"what": "a", "against": "tokens", "exponent": 1}, {"what": "b", "against": "tokens", "exponent": 1}]
    now = [{"what": "b", "against": "tokens", "exponent": 2}, {"what": "c", "against": "tiers", "exponent": 3}]
    assert [(row["what"], row["exponent"]) for row in merged(before, now)] == [("a", 1), ("b", 2), ("c", 3)]
