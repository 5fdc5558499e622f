"""The disagreement list sorts into the paper's kinds."""

import pytest

from stakes.errors import BadInput
from stakes.signals import count_kinds, disagreements
from stakes.signals.agreement import kind_of


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What is the page number?", "navigational number"),
        ("What is the Table No.?", "navigational number"),
        ("Which chapter number is it?", "navigational number"),
        ("What is the number at the bottom right?", "navigational number"),
        ("What is shown in figure 3?", "navigational number"),
        ("At what time is the coffee break?", "trivial time"),
        ("When is lunch?", "trivial time"),
        ("What is the state code?", "other"),
        ("When was he born?", "other"),
    ],
)
def test_a_rule_that_is_too_high(question: str, kind: str) -> None:
    assert kind_of(question, too_high=True) == kind


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What is the budget for travel?", "missed transactional cue"),
        ("What is the Tel no?", "missed transactional cue"),
        ("What is the zipcode?", "missed transactional cue"),
        ("What is the Invoice #?", "missed transactional cue"),
        ("What is the page no mentioned here?", "navigational number"),
        ("Who is the president?", "other"),
        ("What is the hotel?", "other"),
    ],
)
def test_a_rule_that_is_too_low(question: str, kind: str) -> None:
    assert kind_of(question, too_high=False) == kind


def test_only_differences_are_listed_with_both_tiers() -> None:
    found = disagreements(
        ["What is the page number?", "What is the zip?", "Who?"], ["high", "low", "low"], ["low", "high", "low"]
    )
    assert [(each.rule, each.check, each.kind) for each in found] == [
        ("high", "low", "navigational number"),
        ("low", "high", "missed transactional cue"),
    ]
    counts = {"navigational number": 1, "trivial time": 0, "missed transactional cue": 1, "other": 0}
    assert count_kinds(found) == counts


def test_tiers_out_of_the_order_and_uneven_lists_are_refused() -> None:
    with pytest.raises(BadInput, match="dearest first"):
        disagreements(["Who?"], ["gold"], ["low"])
    with pytest.raises(BadInput, match="same questions"):
        disagreements(["Who?"], ["high"], [])
