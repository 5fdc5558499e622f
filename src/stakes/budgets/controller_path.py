"""Which budgets does each tier get at each mean? Every optimum of one policy, in the order that tokens are given out.

Where a tier may mix two budgets over its images, the optimum for any mix of tiers and any mean takes the steps of the
tiers' lower convex hulls (``budgets.hull``), largest fall of cost-weighted error per token first, until the mean is
spent: ``c_t (e_t(a) - e_t(b)) / (b - a)`` for a step from a to b. That order knows nothing of the mix. So it is found
once, and the exact solution for the mix of the moment is one walk along it, of microseconds: what ``allocate`` finds
with ``mix=True``, but for its rounding to whole samples.

    >>> path = Path(("high", "low"), (32, 32), (Step(0, 32, 576), Step(1, 32, 576)), ((32, 576), (32, 576)))
    >>> path.solve([0.25, 0.75], 304)               # a quarter high: lows share what the highs leave
    Solution(budgets=[576, 32], mixed=1, upper=576, part=0.3333333333333333)
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from stakes.budgets.curve import Curve
from stakes.budgets.policy import Policy
from stakes.budgets.solver import Menu, lower_hull
from stakes.errors import BadInput, InfeasibleBudget

# What must the controller keep of a certified policy? Its budgets, wherever the total pays for them.
#
# A certificate speaks of the budgets that it shipped, and not of others that the same curves would make best. So a
# certified policy's steps (``controller_path``) come in this order:
#
# 1. each tier with a ceiling, up to the smallest budget that keeps it;
# 2. every tier up to the budget that ships;
# 3. beyond that, with what is left over; not where uniform shipped, since tiers were not certified to help.
#
#     stages = kept(policy)       # {"high": (448, 448, None), "low": (32, 160, None)}; None: no certificate to keep


class Kept(NamedTuple):
    """Of one tier: the budget of its ceiling (1: it has none), the one that ships, and whether more may be given."""

    ceiling: int
    ships: int
    more: bool

    def parts(self, curve: Curve) -> list[Curve]:
        """The curve in its stages, each from where the one before ends."""
        ends = (self.ceiling, self.ships, curve.budgets[-1] if self.more else self.ships)
        starts = (curve.budgets[0], self.ceiling, self.ships)
        return [_between(curve, low, high) for low, high in zip(starts, ends, strict=True)]


def kept(policy: Policy) -> dict[str, Kept] | None:
    """By tier, what the policy's certificate asks for; None without one, or where it is of other budgets."""
    certificate = policy.certificate
    if certificate is None or certificate.get("budgets") != policy.budgets:
        return None
    ceilings = certificate.get("ceilings") or {}
    asked = {tier: (ceilings.get(tier) or {}).get("budget") or 1 for tier in policy.tiers}
    more = certificate.get("shipped") == "tiered"
    return {tier: Kept(min(asked[tier], budget), budget, more) for tier, budget in policy.budgets.items()}


def _between(curve: Curve, low: int, high: int) -> Curve:
    """The measured budgets from the last at or under ``low`` to ``high``, at least one."""
    budgets = curve.budgets
    first = max((i for i, budget in enumerate(budgets) if budget <= low), default=0)
    last = max((i for i, budget in enumerate(budgets) if budget <= high), default=0)
    part = slice(first, max(first, last) + 1)
    return Curve(budgets[part], curve.errors[part], curve.counts[part])


class Step(NamedTuple):
    """Raise a tier (by its place) from one budget to a larger one."""

    tier: int
    lower: int
    upper: int


class Solution(NamedTuple):
    """Budgets by tier; of tier ``mixed`` (-1: none), the ``part`` of its images that get ``upper`` instead."""

    budgets: list[int]
    mixed: int = -1
    upper: int = 0
    part: float = 0.0

    def mean(self, tier: int) -> float:
        """What an image of this tier gets on average."""
        return self.budgets[tier] + (self.part * (self.upper - self.budgets[tier]) if tier == self.mixed else 0.0)


@dataclass(frozen=True)
class Path:
    """The smallest budgets of the tiers, the steps up from there, best first, and each tier's measured budgets."""

    tiers: tuple[str, ...]
    smallest: tuple[int, ...]
    steps: tuple[Step, ...]
    grids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, policy: Policy) -> "Path":
        """The path of a policy; of a certified one, by way of the budgets that ship (``controller_promise``).

        A policy that lacks a curve says nothing about what tokens bring. Then each tier knows two budgets, the floor
        and its own, and the dearest is raised first.
        """
        costs = [plan.cost for plan in policy.tiers.values()]
        curves = _curves(policy)
        if curves:
            promise = kept(policy) or {}
            valued = []
            for place, (name, curve) in enumerate(zip(policy.tiers, curves, strict=True)):
                stages = promise[name].parts(curve) if promise else [curve]
                for stage, part in enumerate(stages):
                    whole = stage < len(stages) - 1  # a promised budget is reached even where errors do not fall
                    valued += [(stage, -costs[place] * fall, step) for fall, step in _hull(place, part, whole)]
            grids = tuple(curve.budgets for curve in curves)
        else:
            pairs = [(policy.floor, plan.budget) for plan in policy.tiers.values()]
            valued = [
                (0, -cost, Step(tier, a, b))
                for tier, ((a, b), cost) in enumerate(zip(pairs, costs, strict=True))
                if a < b
            ]
            grids = tuple(tuple(sorted(set(pair))) for pair in pairs)
        for tier, grid in zip(policy.tiers, grids, strict=True):
            if grid[0] > policy.mean_budget:
                raise InfeasibleBudget(
                    f"the smallest budget that tier {tier!r} may get is {grid[0]} tokens (floor {policy.floor}), above "
                    f"the mean budget of {policy.mean_budget}; give a mean budget of at least {grid[0]}"
                )
        valued.sort(key=lambda one: one[:2])  # stable: a tier's own steps keep their order
        return cls(tuple(policy.tiers), tuple(grid[0] for grid in grids), tuple(step for *_, step in valued), grids)

    def solve(self, mix: Sequence[float], mean: float) -> Solution:
        """The optimum for shares ``mix`` of the tiers (they sum to 1) that spends ``mean`` tokens an image."""
        budgets = list(self.smallest)
        left = mean
        for share, budget in zip(mix, budgets, strict=True):
            left -= share * budget
        for tier, lower, upper in self.steps:
            tokens = mix[tier] * (upper - lower)
            if tokens > left:
                return Solution(budgets, tier, upper, max(0.0, left) / tokens)
            budgets[tier] = upper
            left -= tokens
        return Solution(budgets)

    def within(self, tier: int, limit: int) -> int:
        """The largest measured budget of a tier up to ``limit``, but at least its smallest."""
        grid = self.grids[tier]
        return grid[max(0, bisect_right(grid, limit) - 1)]


def _curves(policy: Policy) -> list[Curve]:
    """The curve that each tier's budget came from, from the floor up; none where one is missing."""
    found = []
    for name, plan in policy.tiers.items():
        curve = plan.fitted or plan.curve
        if curve is None:
            return []
        points = [p for p in zip(curve.budgets, curve.errors, curve.counts, strict=True) if p[0] >= policy.floor]
        if not points:
            raise BadInput(
                f"the floor {policy.floor} lies above every measured budget of tier {name!r} (at most "
                f"{curve.budgets[-1]}); lower the floor or measure more"
            )
        found.append(Curve(*zip(*points, strict=True)))
    return found


def _hull(tier: int, curve: Curve, whole: bool) -> list[tuple[float, Step]]:
    """A tier's steps along its lower convex hull, each with the fall of its error per token; ``whole``: to its end."""
    budgets, errors = curve.budgets, curve.errors
    corners = list(lower_hull(Menu.of(budgets, errors, 1, 1.0)))
    if whole and corners[-1] != len(budgets) - 1:
        corners.append(len(budgets) - 1)
    return [
        ((errors[a] - errors[b]) / (budgets[b] - budgets[a]), Step(tier, budgets[a], budgets[b]))
        for a, b in pairwise(corners)
    ]
