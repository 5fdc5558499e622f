"""A tier is a class of questions with one error cost.

Only ratios of costs matter to an allocation, so the unit is free: money, minutes of repair, or plain weights. The
paper (Section "Problem") uses 5 for high and 1 for low, and 5, 3, 1 for its mixed workload.

>>> parse_costs(["high=5", "low=1"])
{'high': Tier(name='high', cost=5.0), 'low': Tier(name='low', cost=1.0)}
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from stakes.errors import BadInput


@dataclass(frozen=True)
class Tier:
    """A class of questions, and what one wrong answer to any of them costs (finite, above zero)."""

    name: str
    cost: float

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise BadInput(f"a tier needs a name, such as 'high', not {self.name!r}")
        if isinstance(self.cost, bool) or not isinstance(self.cost, (int, float)):
            raise BadInput(f"the cost of tier {self.name!r} must be a number, not {self.cost!r}")
        # an integer too large for a float makes isfinite raise OverflowError
        try:
            usable = math.isfinite(self.cost) and self.cost > 0
        except OverflowError:
            usable = False
        if not usable:
            raise BadInput(f"the cost of tier {self.name!r} is {self.cost!r}; a cost must be finite and above zero")


PAPER_TIERS: tuple[Tier, ...] = (Tier("high", 5.0), Tier("medium", 3.0), Tier("low", 1.0))
"""The paper's tiers with its default costs, most expensive first."""


def parse_costs(words: Iterable[str]) -> dict[str, Tier]:
    """Read ``name=cost`` words, as typed on a command line, into tiers by name (order kept)."""
    tiers: dict[str, Tier] = {}
    for word in words:
        name, equals, cost = word.partition("=")
        name = name.strip()
        if not equals:
            raise BadInput(f"{word!r} is not a tier cost; write name=cost, for example high=5")
        try:
            value = float(cost)
        except ValueError:
            raise BadInput(f"the cost in {word!r} is not a number; write name=cost, for example high=5") from None
        if name in tiers:
            raise BadInput(f"tier {name!r} is given two costs; keep one of them")
        tiers[name] = Tier(name, value)
    if not tiers:
        raise BadInput("no tier was given; write at least one name=cost, for example high=5")
    return tiers


def check_tiers(option: str, named: Iterable[str], tiers: Iterable[str]) -> None:
    """Refuse names that are no tiers, with the nearest tier as advice."""
    tiers = list(tiers)
    for name in named:
        if name not in tiers:
            near = get_close_matches(name, tiers, n=1) or tiers
            raise BadInput(f"{option} names tier {name!r}, and the tiers are {', '.join(tiers)}; write {near[0]}=…")


def check_spelling(option: str, named: Iterable[str]) -> None:
    """Refuse a name that is one slip away from ``high`` or ``low``, if that is missing: ``hihg`` beside ``low``."""
    from rapidfuzz.distance import OSA

    named = list(named)
    for name in named:
        for usual in ("high", "low"):
            if usual not in named and OSA.distance(name, usual) == 1:
                raise BadInput(
                    f"{option} names tier {name!r}; did you mean {usual}? A tier of your own needs a name that is not "
                    "one letter away from it"
                )


def as_tiers(costs: Mapping[str, float]) -> dict[str, Tier]:
    """Validated tiers by name, from ``{name: cost}``."""
    if not costs:
        raise BadInput("no tier was given; give at least one, for example {'high': 5, 'low': 1}")
    return {name: Tier(name, cost) for name, cost in costs.items()}


def extremes(costs: Mapping[str, float]) -> tuple[str, str]:
    """Names of the most expensive and the cheapest tier; at equal costs the first and the last, so that they differ.

    >>> extremes({"urgent": 2, "usual": 2})
    ('urgent', 'usual')
    """
    return max(costs, key=costs.__getitem__), min(reversed(list(costs)), key=costs.__getitem__)


def own_ratio(costs: Mapping[str, float]) -> float:
    """The cost ratio r of these costs: that of the most expensive tier divided by that of the cheapest."""
    most_expensive, cheapest = extremes(costs)
    return costs[most_expensive] / costs[cheapest]


def at_ratio(costs: Mapping[str, float], ratio: float) -> dict[str, float]:
    """The costs at cost ratio r: the most expensive tier costs r times the cheapest.

    The tiers between keep their place on a log scale,

        c_t(r) = c_min r^(log(c_t / c_min) / log(c_max / c_min)),

    so that the ratio of the stated costs gives exactly these, 1 makes all tiers cost the same, and two tiers cost r
    and 1 as in the paper. Where all stated costs are equal, the first tier costs r times each of the others.

    >>> at_ratio({"total": 16, "date": 4, "other": 1}, 9)
    {'total': 9.0, 'date': 3.0, 'other': 1.0}
    """
    if not 0 < ratio < math.inf:
        raise BadInput(f"a cost ratio is a number above 0, not {ratio}")
    most_expensive, cheapest = extremes(costs)
    least, own = costs[cheapest], own_ratio(costs)
    if ratio == own:
        return {tier: float(cost) for tier, cost in costs.items()}
    if own == 1:
        return {tier: float(least * ratio if tier == most_expensive != cheapest else least) for tier in costs}
    return {tier: float(least * ratio ** (math.log(cost / least) / math.log(own))) for tier, cost in costs.items()}


def ratio_meaning(costs: Mapping[str, float]) -> str:
    """What the cost ratio r means for these tiers, as a sentence."""
    most_expensive, cheapest = extremes(costs)
    between = [tier for tier in costs if tier not in (most_expensive, cheapest)]
    sentence = f"r: a mistake in {most_expensive} costs r times one in {cheapest}"
    if not between:
        return f"{sentence}."
    if costs[most_expensive] == costs[cheapest]:
        return f"{sentence}, and in the other tiers as much as in {cheapest}."
    keep = "keeps its" if len(between) == 1 else "keep their"
    return f"{sentence}; {', '.join(between)} {keep} place between them on a log scale."


def describe_mean_costs(stated: Mapping[str, float], means: Mapping[str, float]) -> str:
    """What budgets are chosen at, where labels make that other than the stated costs; else empty."""
    if all(means[tier] == cost for tier, cost in stated.items()):
        return ""
    costs = ", ".join(f"{tier} {means[tier]:.3g} (stated {cost:g})" for tier, cost in stated.items())
    return (
        "Mistakes cost by the label. Budgets are chosen, and CWE is estimated, at the mean cost of what is read as "
        f"each tier: {costs}. The cost ratio r is that of the stated costs."
    )


def expected_costs(questions: Mapping[str, Mapping[str, int]], costs: Mapping[str, float]) -> dict[str, float]:
    """By tier as read, the mean cost of a mistake by label, from the number of questions by reading and label.

    >>> expected_costs({"high": {"high": 9, "low": 1}, "low": {"low": 10}}, {"high": 5, "low": 1})
    {'high': 4.6, 'low': 1.0}
    """
    found = {}
    for tier, own in costs.items():
        read = {label: count for label, count in questions[tier].items() if count}
        mean = sum(costs[label] * count for label, count in read.items()) / max(1, sum(read.values()))
        found[tier] = float(own) if set(read) <= {tier} else mean
    return found
