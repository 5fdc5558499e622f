"""A tier is a class of questions with one error cost.

Only ratios of costs matter to an allocation, so the unit is free: money, minutes of repair, or plain weights. The
paper (Section "Problem") uses 5 for high and 1 for low, and 5, 3, 1 for its mixed workload.

>>> parse_costs(["high=5", "low=1"])
{'high': Tier(name='high', cost=5.0), 'low': Tier(name='low', cost=1.0)}
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
