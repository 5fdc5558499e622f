"""Every arm spends exactly the same total, within every image's native tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes import BadInput, InfeasibleBudget
from stakes.calibration import arms

TIERS = ["high"] * 300 + ["low"] * 300
BUDGETS, COSTS = {"high": 512, "low": 96}, {"high": 5.0, "low": 1.0}


def test_the_papers_arms_spend_182400() -> None:
    cost = arms.by_tier(TIERS, BUDGETS)
    native = [972] * 600
    others = [
        arms.uniform(600, sum(cost)),
        arms.anti(TIERS, BUDGETS, COSTS, native=native),
        arms.content([0.5] * 600, sum(cost), native=native, floor=32),
    ]
    assert [sum(arm) for arm in (cost, *others)] == [182_400] * 4
    assert set(others[0]) == {304}
    assert others[1] == arms.by_tier(TIERS, {"high": 96, "low": 512})


@given(st.integers(1, 50), st.integers(0, 5000))
def test_uniform_is_floor_plus_remainder_to_the_first(samples: int, extra: int) -> None:
    total = samples + extra
    got = arms.uniform(samples, total)
    assert sum(got) == total
    assert got == tuple(sorted(got, reverse=True))
    assert max(got) - min(got) <= 1


@given(st.data())
def test_anti_spends_the_cost_arms_total_for_any_tier_sizes(data: st.DataObject) -> None:
    sizes = {tier: data.draw(st.integers(1, 40), tier) for tier in ("high", "medium", "low")}
    tiers = [tier for tier, n in sizes.items() for _ in range(n)]
    budgets = {"high": 512, "medium": 256, "low": 96}
    costs = {"high": 5.0, "medium": 3.0, "low": 1.0}
    total = sum(arms.by_tier(tiers, budgets))
    got = arms.anti(tiers, budgets, costs, native=[1296] * len(tiers), floor=32)
    assert sum(got) == total
    assert all(32 <= b <= 1296 for b in got)
    mean = {t: sum(b for b, tier in zip(got, tiers, strict=True) if tier == t) / sizes[t] for t in sizes}
    assert mean["high"] <= mean["medium"] <= mean["low"]


def test_content_survives_densities_of_next_to_nothing() -> None:
    native = [640] * 4
    assert arms.content([1.0, 1.0, 5.7e-273, 5e-324], 1400, native=native, floor=32) == (640, 640, 60, 60)
    assert arms.content([0.0] * 4, 1400, native=native, floor=32) == (350,) * 4
    assert arms.content([5e-324] * 4, 1400, native=native, floor=32) == (350,) * 4


@given(st.data())
def test_content_is_exact_clamped_and_ordered_by_density(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    density = data.draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    native = data.draw(st.lists(st.integers(640, 1400), min_size=n, max_size=n))
    total = data.draw(st.integers(32 * n, sum(native)))
    got = arms.content(density, total, native=native, floor=32)
    assert sum(got) == total
    assert all(32 <= b <= top for b, top in zip(got, native, strict=True))
    for i in range(n):
        for j in range(n):
            if density[i] > density[j] and got[i] < native[i]:
                assert got[i] >= got[j] - 1


def test_content_shares_in_proportion_where_nothing_binds() -> None:
    assert arms.content([0.2, 0.4, 0.4], 1000, native=[900] * 3, floor=10) == (200, 400, 400)


def test_content_squeezes_solid_colours_to_the_floor() -> None:
    got = arms.content([0.0] * 60 + [0.5] * 60, 36_480, native=[1296] * 120, floor=32)
    assert set(got[:60]) == {32}
    assert set(got[60:]) == {576}


def test_proportional_keeps_the_mean_share() -> None:
    native = [1000, 1200, 144, 144]
    got = arms.proportional(["high", "high", "low", "low"], native, "high", 0.55)
    assert sum(got) == sum(native) // 2
    assert got[:2] == (550, 660)
    with pytest.raises(InfeasibleBudget, match="leaves the others a share of -0.38"):
        arms.proportional(["high", "high", "low", "low"], native, "high", 0.615)


def test_what_cannot_be_shared_is_an_error() -> None:
    with pytest.raises(InfeasibleBudget, match="5 tokens cannot give each of 9 samples one; 9 is the least"):
        arms.uniform(9, 5)
    with pytest.raises(InfeasibleBudget, match="native tokens are 20"):
        arms.content([0.5, 0.5], 21, native=[10, 10])
    with pytest.raises(BadInput, match="tier 'gold' has no budget"):
        arms.by_tier(["gold"], BUDGETS)
    with pytest.raises(BadInput, match="one density per sample"):
        arms.content([0.5], 10, native=[10, 10])
    with pytest.raises(BadInput, match="finite number of at least 0"):
        arms.content([0.5, float("nan")], 10, native=[10, 10])


def test_content_keeps_an_image_whole_that_is_smaller_than_the_floor() -> None:
    got = arms.content([0.5, 0.5, 0.5], 320, native=[374, 27, 253], floor=32)
    assert sum(got) == 320
    assert got[1] == 27
