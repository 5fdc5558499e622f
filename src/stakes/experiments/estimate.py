"""What tables will ask, before anything is loaded: answers, visual tokens and GPU hours.

    asked = set().union(*(experiment(name).asks(study) for name in names))
    answers(asked), tokens(asked), gpu_hours(asked)

An ``Ask`` is one group of questions at one budget. Tables that need the same answers have equal asks, which count once.
Hours are at the published speed of the paper's 7B model on an A100, one answer at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stakes.models.base import DEFAULT_SELECTOR
from stakes.published import figures

NATIVE = 959  # mean visual tokens of a DocVQA page at full size; paper, table "Full latency sweep"


@dataclass(frozen=True)
class Ask:
    """``count`` questions at one budget; ``budget`` is a number, or the name of an arm with budgets of its own."""

    questions: str
    """Data set and tier."""
    count: int
    by: str
    """Mechanism and selector."""
    budget: int | str
    tokens: int
    """Visual tokens of one answer, on average."""
    model: str = ""
    """The axis of another model than the study's own."""


def how(mechanism: str, selector: str | None = None) -> str:
    """Mechanism and selector as an ask has them."""
    return f"{mechanism} {selector or DEFAULT_SELECTOR}" if mechanism == "deletion" else mechanism


def grid_asks(groups: Mapping[str, int], by: str, budgets: Iterable[int]) -> set[Ask]:
    """Every group of questions (count by name) at every budget."""
    return {Ask(name, count, by, budget, budget) for name, count in groups.items() for budget in budgets}


def arm_asks(
    dataset: str, counts: Mapping[str, int], budgets: Mapping[str, int], arms: Sequence[str], by: str, model: str = ""
) -> set[Ask]:
    """The arms at the total of the tiers' ``budgets``, which fall with cost; ``counts``: questions by tier."""
    mean = round(sum(counts[tier] * budgets[tier] for tier in counts) / sum(counts.values()))
    mirrored = dict(zip(budgets, reversed(list(budgets.values())), strict=True))
    given = {"uniform": dict.fromkeys(budgets, mean), "cost": dict(budgets), "anti": mirrored}
    asks = set()
    for arm in arms:
        for tier, count in counts.items():
            tokens = given.get(arm, given["uniform"])[tier]
            # Sizes are fitted for each arm: what is asked by resizing is near the budget, and not shared.
            exact = by.startswith("deletion") and arm in given
            asks.add(Ask(f"{dataset} {tier}", count, by, tokens if exact else f"{arm} {tokens}", tokens, model))
    return asks


def answers(asked: Iterable[Ask]) -> int:
    """How many answers that is at most."""
    return sum(ask.count for ask in asked)


def tokens(asked: Iterable[Ask]) -> int:
    """Visual tokens that the language model reads."""
    return sum(ask.count * ask.tokens for ask in asked)


def gpu_hours(asked: Iterable[Ask]) -> float:
    """Hours at the published milliseconds of one answer."""
    return sum(ask.count * published_ms(ask.by, ask.tokens) for ask in asked) / 3.6e6


def published_ms(by: str, count: int) -> float:
    """Milliseconds of one answer with so many visual tokens, between the published ones.

    Deletion encodes the whole image first, so it takes the time at full size at most. Beyond full size time grows with
    the tokens.
    """
    printed = [row for row in figures()["latency_a100_resolution_ms"].values() if isinstance(row, dict)]
    points = sorted((row["tokens"], row["ms"]) for row in printed)
    most, full = points[-1]
    if not by.startswith("resolution"):
        return float(full)
    if count >= most:
        return float(full * count / most)
    below = max((point for point in points if point[0] <= count), default=points[0])
    above = min(point for point in points if point[0] >= count)
    share = (count - below[0]) / (above[0] - below[0]) if above[0] > below[0] > 0 and count > below[0] else 0.0
    return float(below[1] + share * (above[1] - below[1]))
