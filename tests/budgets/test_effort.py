"""Costs from the effort of a mistake, and the confidence that a threshold requires."""

import math

import pytest

from stakes import BadInput
from stakes.budgets.plan import costs_from_effort, required_confidence


@pytest.mark.parametrize(
    ("efforts", "costs"),
    [
        ({"high": "20 minutes", "low": "1 minute"}, {"high": 20, "low": 1}),
        ({"high": "1h", "low": "90 s"}, {"high": 40, "low": 1}),
        ({"high": "1 day", "low": "2 hours"}, {"high": 4, "low": 1}),
        ({"high": "$35", "low": "$5"}, {"high": 7, "low": 1}),
        ({"high": "35 EUR", "low": "10 EUR"}, {"high": 3.5, "low": 1}),
        ({"high": "5", "medium": "3", "low": "1"}, {"high": 5, "medium": 3, "low": 1}),
        ({"high": "3 HRS", "low": "0.125 hr"}, {"high": 24, "low": 1}),
        ({"high": "35 usd", "low": "5 USD"}, {"high": 7, "low": 1}),
    ],
)
def test_efforts_become_costs_relative_to_the_cheapest(efforts: dict[str, str], costs: dict[str, float]) -> None:
    assert costs_from_effort(efforts) == pytest.approx(costs)


@pytest.mark.parametrize(
    ("efforts", "message"),
    [
        ({"high": "20 minutes", "low": "$1"}, "share a unit"),
        ({"high": "$20", "low": "1 EUR"}, "share a unit"),
        ({"high": "ages"}, "cannot read 'ages'"),
        ({"high": "3 parsecs"}, "unknown unit 'parsecs'"),
        ({"high": "0 min"}, "costs nothing"),
        ({"high": "1.000 EUR", "low": "10 EUR"}, "'1.000' may be thousands or a fraction; write 1000"),
        ({"high": "1,000 EUR", "low": "10 EUR"}, "'1,000' may be thousands or a fraction; write 1000"),
        ({"high": "1,5 h"}, "cannot read '1,5' as a number"),
        ({"high": "5 ms", "low": "1 s"}, "unknown unit 'ms'"),
        ({}, "say what a mistake takes"),
    ],
)
def test_unreadable_efforts_are_refused_with_an_example(efforts: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        costs_from_effort(efforts)


def test_required_confidence_is_where_the_expected_cost_reaches_the_threshold() -> None:
    p = required_confidence(20, 3.72)
    assert p * 20 + (1 - p) == pytest.approx(3.72)
    assert required_confidence(20, 0.74) == 0
    assert required_confidence(3, 3.72) == math.inf
    assert required_confidence(3.72, 3.72) == 1
