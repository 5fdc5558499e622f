"""All optima of one policy, for every mix of tiers and every mean, as one path of budget steps.

Where a tier may mix two budgets over its images, the optimum for any mix of tiers and any mean takes the steps of the
tiers' lower convex hulls (``hull``), largest fall of cost-weighted error per token first, until the mean is spent:
``c_t (e_t(a) - e_t(b)) / (b - a)`` for a step from a to b. That order does not depend on the mix. So it is computed
once, and the exact solution for the current mix is one walk along it, in microseconds: what ``allocate`` finds with
``mix=True``, apart from its rounding to whole samples.

A certificate covers the budgets that it shipped, and no others that the same curves would make optimal. So the steps of
a certified policy come in this order:

1. each tier with a ceiling, up to the smallest budget that satisfies it;
2. every tier, up to the budget that ships;
3. beyond that, with what is left over; not where uniform shipped, since tiers were not certified to help.

A tier with a harm limit (``harm``) has only the budgets that its limit permits. Under a certificate it has none below
the one that ships, or below uniform's where more ships. The smallest of these is at most uniform's budget, which the
mean pays for every image. So no shortage takes an image of that tier below it, and the hard total holds all the same:
what is saved comes from larger budgets and from tiers without a limit.

    >>> path = BudgetPath(("high", "low"), (32, 32), (Step(0, 32, 576), Step(1, 32, 576)), ((32, 576), (32, 576)))
    >>> path.solve([0.25, 0.75], 304)               # a quarter high: the low tier shares what the high tier leaves
    PathPoint(budgets=[576, 32], mixed=1, upper=576, part=0.3333333333333333)
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from stakes.budgets.curve import Curve, above_floor
from stakes.budgets.digests import edited_parts
from stakes.budgets.harm import uniform_of, within_limits
from stakes.budgets.hull import Menu, lower_hull
from stakes.budgets.options.grant import mean_tokens, option_curve
from stakes.budgets.policy import Policy, TierPlan
from stakes.errors import BadInput, InfeasibleBudget


class CertifiedBudgets(NamedTuple):
    """Of one tier: the budget of its ceiling (1: it has none), the one that ships, and whether more may be given."""

    ceiling: int
    ships: int
    more: bool

    def stages(self, curve: Curve) -> list[Curve]:
        """The curve in its stages, each from where the one before ends."""
        ends = (self.ceiling, self.ships, curve.budgets[-1] if self.more else self.ships)
        starts = (curve.budgets[0], self.ceiling, self.ships)
        return [_between(curve, low, high) for low, high in zip(starts, ends, strict=True)]


def certified_budgets(policy: Policy) -> dict[str, CertifiedBudgets] | None:
    """By tier, what the policy's certificate requires; None without one, or where what it rests on was edited."""
    certificate = policy.certificate
    if certificate is None or edited_parts(policy):
        return None
    ceilings = certificate.get("ceilings") or {}
    least = {tier: (ceilings.get(tier) or {}).get("budget") or 1 for tier in policy.tiers}
    more = certificate.get("shipped") == "tiered"
    return {tier: CertifiedBudgets(min(least[tier], budget), budget, more) for tier, budget in policy.budgets.items()}


def _uncalibrated(policy: Policy, plan: TierPlan) -> tuple[int, ...]:
    """The budgets of a tier that was not measured: the floor and its own, or the entries of the menu up to its own.

    Of one with a second attempt or a predictor also what its images take on average.
    """
    more = filter(None, (mean_tokens(plan),))
    if policy.menu is None:
        return (*sorted({policy.floor, plan.budget}), *more)
    return (*([entry for entry in policy.menu if policy.floor <= entry <= plan.budget] or [plan.budget]), *more)


def _stages(certified: CertifiedBudgets, curve: Curve, plan: TierPlan) -> list[Curve]:
    """The stages of a certified tier; one with a second attempt or a predictor ships that, and nothing beyond it."""
    if mean_tokens(plan):
        certified = CertifiedBudgets(certified.ceiling, curve.budgets[-1], more=False)
    return certified.stages(curve)


def _permitted(
    policy: Policy, curves: dict[str, Curve], certified: dict[str, CertifiedBudgets] | None
) -> dict[str, Curve]:
    """The curves at the budgets that the policy's harm limits permit."""
    limits = policy.max_harm or {}
    if not limits or not certified:
        return within_limits(curves, limits, policy.mean_budget)
    uniform = uniform_of(curves, policy.mean_budget)
    parts = within_limits(curves, limits, policy.mean_budget, policy.budgets)
    return {
        tier: above_floor({tier: curve}, min(certified[tier].ships, uniform) if tier in limits else None)[tier]
        for tier, curve in parts.items()
    }


def _between(curve: Curve, low: int, high: int) -> Curve:
    """The measured budgets from the last at or under ``low`` to ``high``, at least one."""
    first, last = (max(0, bisect_right(curve.budgets, end) - 1) for end in (low, high))
    part = slice(first, max(first, last) + 1)
    return Curve(curve.budgets[part], curve.errors[part], curve.counts[part])


class Step(NamedTuple):
    """Raise a tier (by its index) from one budget to a larger one."""

    tier: int
    lower: int
    upper: int


class PathPoint(NamedTuple):
    """Budgets by tier; of tier ``mixed`` (-1: none), the ``part`` of its images that get ``upper`` instead."""

    budgets: list[int]
    mixed: int = -1
    upper: int = 0
    part: float = 0.0

    def mean(self, tier: int) -> float:
        """The mean budget of this tier's images."""
        return self.budgets[tier] + (self.part * (self.upper - self.budgets[tier]) if tier == self.mixed else 0.0)

    def at(self, tier: int, place: float) -> int:
        """The budget of one image of a tier, by its place from 0 to 1."""
        return self.upper if tier == self.mixed and place < self.part else self.budgets[tier]


@dataclass(frozen=True)
class BudgetPath:
    """The smallest budgets of the tiers, the steps up from there, best first, and each tier's measured budgets."""

    tiers: tuple[str, ...]
    smallest: tuple[int, ...]
    steps: tuple[Step, ...]
    grids: tuple[tuple[int, ...], ...]
    limited: frozenset[str] = frozenset()
    """Tiers that get no budget beside their grid's: those with a harm limit, and all where a menu has the budgets."""
    escalations: tuple[tuple[int, int] | None, ...] = ()
    """By tier, the budgets of both attempts, and its last step leads to their mean tokens; None: one attempt."""
    predicted: tuple[int | None, ...] = ()
    """By tier with a predictor, its fixed budget, and its last step leads to what predicted ones take on average."""

    @classmethod
    def of(cls, policy: Policy) -> "BudgetPath":
        """The path of a policy; of a certified one, by way of the budgets that ship.

        A policy that lacks a curve does not say what tokens bring. Then each tier knows two budgets, the floor and its
        own (or a menu's entries), and the most expensive tier is raised first.
        """
        costs = [plan.chosen_at for plan in policy.tiers.values()]
        curves = {tier: curve for tier, plan in policy.tiers.items() if (curve := plan.chosen_on)}
        ranked: list[tuple[int, float, Step]] = []  # stage, minus the fall of CWE per token, step
        if len(curves) == len(policy.tiers):
            curves = above_floor(curves, policy.floor)
            certified = certified_budgets(policy)
            curves = _permitted(policy, curves, certified)
            curves = {name: option_curve(curve, policy.tiers[name]) for name, curve in curves.items()}
            for tier, (name, curve) in enumerate(curves.items()):
                stages = _stages(certified[name], curve, policy.tiers[name]) if certified else [curve]
                for stage, part in enumerate(stages):
                    to_end = stage < len(stages) - 1  # a certified budget is reached even where errors do not fall
                    ranked += [(stage, -costs[tier] * fall, step) for fall, step in _hull_steps(tier, part, to_end)]
            grids = tuple(curve.budgets for curve in curves.values())
        else:
            if policy.max_harm:
                raise BadInput("harm limits are kept by the tiers' curves, and this policy lacks some; calibrate again")
            grids = tuple(_uncalibrated(policy, plan) for plan in policy.tiers.values())
            ranked = [(0, -costs[tier], Step(tier, *two)) for tier, grid in enumerate(grids) for two in pairwise(grid)]
        for name, grid in zip(policy.tiers, grids, strict=True):
            if grid[0] > policy.mean_budget:
                raise InfeasibleBudget(
                    f"the smallest budget that tier {name!r} may get is {grid[0]} tokens (floor {policy.floor}), above "
                    f"the mean budget of {policy.mean_budget}; give a mean budget of at least {grid[0]}"
                )
        ranked.sort(key=lambda one: one[:2])  # stable: a tier's own steps keep their order
        steps = tuple(step for *_, step in ranked)
        limited = frozenset(policy.tiers if policy.menu else policy.max_harm or {})
        attempts = tuple((o.budget, o.escalate.to) if o.escalate else None for o in policy.options.values())
        predicted = tuple(None if o.predictor is None else o.budget for o in policy.options.values())
        return cls(tuple(policy.tiers), tuple(grid[0] for grid in grids), steps, grids, limited, attempts, predicted)

    def solve(self, mix: Sequence[float], mean: float) -> PathPoint:
        """The optimum for shares ``mix`` of the tiers (they sum to 1) that spends ``mean`` tokens per image."""
        budgets = list(self.smallest)
        left = mean
        for share, budget in zip(mix, budgets, strict=True):
            left -= share * budget
        for tier, lower, upper in self.steps:
            tokens = mix[tier] * (upper - lower)
            if tokens > left:
                return PathPoint(budgets, tier, upper, max(0.0, left) / tokens)
            budgets[tier] = upper
            left -= tokens
        return PathPoint(budgets)

    def permitted(self, tier: int, budget: int) -> int:
        """Of a tier that gets no others, the largest budget of its grid up to this one; else the budget itself."""
        grid = self.grids[tier]
        return grid[max(0, bisect_right(grid, budget) - 1)] if self.tiers[tier] in self.limited else budget

    @property
    def largest(self) -> tuple[int, ...]:
        """The largest budgets of the tiers."""
        return tuple(grid[-1] for grid in self.grids)


def _hull_steps(tier: int, curve: Curve, to_end: bool) -> list[tuple[float, Step]]:
    """Steps along a tier's lower convex hull, each with its fall of error per token; ``to_end``: to the last budget."""
    budgets, errors = curve.budgets, curve.errors
    corners = lower_hull(Menu.of(budgets, errors, 1, 1.0))
    if to_end and corners[-1] != len(budgets) - 1:
        corners.append(len(budgets) - 1)
    return [
        ((errors[a] - errors[b]) / (budgets[b] - budgets[a]), Step(tier, budgets[a], budgets[b]))
        for a, b in pairwise(corners)
    ]
