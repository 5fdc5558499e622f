"""The disagreement list sorts into the paper's kinds."""

import pytest

from stakes.errors import BadInput
from stakes.signals.agreement import disagreements, kind_of


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


def test_only_differences_are_listed_each_with_its_kind() -> None:
    differing = disagreements(
        ["What is the page number?", "What is the zip?", "Who?"], ["high", "low", "low"], ["low", "high", "low"]
    )
    assert differing == [
        ("What is the page number?", "navigational number"),
        ("What is the zip?", "missed transactional cue"),
    ]


def test_other_tiers_than_the_papers_and_uneven_lists_are_refused() -> None:
    with pytest.raises(BadInput, match="tier 'gold' is not in high, medium, low"):
        disagreements(["Who?"], ["gold"], ["low"])
    with pytest.raises(BadInput, match="same questions"):
        disagreements(["Who?"], ["high"], [])
