"""What a mistake costs: tiers are checked when they are made."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.tiers import Tier, as_tiers, at_ratio, expected_costs, extremes, own_ratio, parse_costs, ratio_meaning


def test_costs_are_read_in_the_order_typed() -> None:
    assert parse_costs(["low=1", "high=5e0"]) == {"low": Tier("low", 1.0), "high": Tier("high", 5.0)}
    assert list(parse_costs(["low=1", "high=5"])) == ["low", "high"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("high", "name=cost"),
        ("high=", "not a number"),
        ("high=five", "not a number"),
        ("=5", "needs a name"),
        ("high=0", "finite and above zero"),
        ("high=-1", "-1.0"),
        ("high=nan", "nan"),
        ("high=inf", "inf"),
    ],
)
def test_a_bad_cost_is_one_clear_sentence(word: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_costs([word])


def test_two_costs_for_one_tier_and_no_tier_at_all_are_errors() -> None:
    with pytest.raises(BadInput, match="two costs"):
        parse_costs(["high=5", "high=6"])
    with pytest.raises(BadInput, match="no tier"):
        parse_costs([])
    with pytest.raises(BadInput, match="no tier"):
        as_tiers({})


@pytest.mark.parametrize("cost", [True, "5", None, 10**400, math.inf])
def test_a_cost_that_is_no_usable_number_is_refused(cost: object) -> None:
    with pytest.raises(BadInput, match="high"):
        Tier("high", cost)  # type: ignore[arg-type]


@given(st.dictionaries(st.text(min_size=1).filter(str.strip), st.floats(min_value=1e-6, max_value=1e6), min_size=1))
def test_the_most_expensive_costs_no_less_than_any(costs: dict[str, float]) -> None:
    assert {name: tier.cost for name, tier in as_tiers(costs).items()} == costs
    top, cheapest = extremes(costs)
    assert (costs[top], costs[cheapest]) == (max(costs.values()), min(costs.values()))
    assert top == next(name for name in costs if costs[name] == costs[top])


def test_of_equal_costs_the_most_expensive_and_the_cheapest_are_two_tiers() -> None:
    assert extremes({"high": 1, "low": 1}) == ("high", "low")
    assert extremes({"low": 1, "medium": 3, "high": 5}) == ("high", "low")
    assert extremes({"one": 2}) == ("one", "one")


TIER_COSTS = st.lists(st.floats(0.01, 100), min_size=1, max_size=6).map(
    lambda costs: {f"t{i}": cost for i, cost in enumerate(costs)}
)


@given(TIER_COSTS, st.floats(0.1, 100))
def test_at_a_ratio_the_most_expensive_tier_costs_that_many_times_the_cheapest(
    costs: dict[str, float], ratio: float
) -> None:
    top, cheapest = extremes(costs)
    found = at_ratio(costs, ratio)
    assert found[cheapest] == pytest.approx(costs[cheapest])
    assert top == cheapest or found[top] / found[cheapest] == pytest.approx(ratio)
    assert at_ratio(costs, own_ratio(costs)) == costs, "exactly the stated costs"
    rising = sorted(costs, key=lambda tier: (costs[tier], tier == top))
    if ratio >= 1:
        assert all(found[a] <= found[b] * (1 + 1e-9) for a, b in pairwise(rising))
    assert all(cost == pytest.approx(costs[cheapest]) for cost in at_ratio(costs, 1).values())


def test_two_tiers_cost_r_and_one_as_in_the_paper() -> None:
    for ratio in (1, 2, 3, 5, 10, 20):
        assert at_ratio({"high": 5, "low": 1}, ratio) == {"high": ratio, "low": 1}


def test_of_equal_costs_only_the_first_tier_moves() -> None:
    costs = {"urgent": 2.0, "usual": 2.0, "idle": 2.0}
    assert at_ratio(costs, 3) == {"urgent": 6.0, "usual": 2.0, "idle": 2.0}
    assert ratio_meaning(costs) == (
        "r: a mistake in urgent costs r times one in idle, and in the other tiers as much as in idle."
    )
    assert ratio_meaning({"high": 5, "low": 1}) == "r: a mistake in high costs r times one in low."
    with pytest.raises(BadInput, match="above 0, not 0"):
        at_ratio(costs, 0)


def test_the_mean_cost_of_what_is_read_as_a_tier_is_by_label() -> None:
    costs = {"high": 5.0, "low": 1.0}
    assert expected_costs({"high": {"high": 9, "low": 1}, "low": {"low": 10, "high": 0}}, costs) == {
        "high": 4.6,
        "low": 1.0,
    }
