"""What a mistake costs: tiers are checked when they are made."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stakes.errors import BadInput
from stakes.tiers import Tier, as_tiers, extremes, parse_costs


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
