"""Task identity: a map from task to tier, and the most expensive tier for any other task."""

import pytest

from stakes.errors import BadInput
from stakes.signals import Reading, Signal, TaskIdentity

mixed = TaskIdentity({"docvqa": "high", "textvqa": "medium", "vqav2": "low"})


def test_a_known_task_gives_its_tier_whatever_is_asked() -> None:
    assert mixed("", "textvqa") == Reading("medium", 1.0, 'task "textvqa"')
    assert mixed("What is the total?", "vqav2").tier == "low"


@pytest.mark.parametrize(
    ("task", "reason"), [("chartqa", 'task "chartqa" is not on the map'), (None, "no task"), ("", "no task")]
)
def test_an_unknown_task_is_undecided_and_most_expensive(task: str | None, reason: str) -> None:
    reading = mixed("Who?", task)
    assert (reading.tier, reading.decided) == ("high", False)
    assert reading.probability == pytest.approx(1 / 3)
    assert reason in reading.why


def test_the_most_expensive_of_custom_tiers_must_be_given() -> None:
    with pytest.raises(BadInput, match="most_expensive"):
        TaskIdentity({"a": "gold", "b": "silver"})
    assert TaskIdentity({"a": "gold", "b": "silver"}, most_expensive="gold")("", "c").tier == "gold"
    off_the_map: Signal = TaskIdentity({"a": "low"}, most_expensive="high")
    assert off_the_map("", "b").tier == "high"
    assert off_the_map.tiers == ("low", "high")


@pytest.mark.parametrize("tasks", [{}, {"": "high"}, {"a": " "}])
def test_an_unusable_map_is_refused(tasks: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        TaskIdentity(tasks)
