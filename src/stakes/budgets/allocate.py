"""How many tokens does each tier get? The exact optimum of the paper's section "Problem".

    minimise  sum_t n_t c_t e_t(b_t)   subject to   sum_t n_t b_t <= total,   b_t >= floor,   b_t measured

for any number of tiers, each with its own non-convex curve and grid. Choices whose CWE is within 1e-12 of the smallest
are ties: fewest tokens, then the most even split (least variance of budgets over samples), then the smallest CWE,
then more for the first-named tier.

    >>> from stakes.budgets.curve import Curve
    >>> high = Curve([32, 304, 576], [0.903, 0.300, 0.100], counts=300)
    >>> low = Curve([32, 304, 576], [0.910, 0.373, 0.093], counts=300)
    >>> best = allocate({"high": high, "low": low}, {"high": 5, "low": 1}, {"high": 300, "low": 300}, total=182_400)
    >>> best.budgets, best.spent, round(best.cwe, 3), best.on_edge
    ({'high': 576, 'low': 32}, 182400, 0.235, {'high': 'largest', 'low': 'smallest'})
"""

import math
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, NamedTuple

import numpy as np

from stakes.budgets.curve import Curve
from stakes.budgets.solver import ONE, TIE, TIE_LOSS, Menu, best_mixture, relax, segments, solve, undominated
from stakes.errors import BadInput, InfeasibleBudget, StakesError

# Would moving budget from one tier to another help? The paper's discrete first-order condition.
#
# Derivatives mean nothing on a grid with non-convex curves; what holds at an optimum is that no exchange pays: lower
# one tier a step (or none, when tokens are left), raise another as far as the freed tokens allow, and CWE does not
# fall. Paper, section "Allocation Principle". ``allocate`` checks this on every answer.


class Exchange(NamedTuple):
    """Raise tier ``raised`` to ``entry``, paid for by one step down of tier ``lowered`` (-1: by tokens left over)."""

    lowered: int
    raised: int
    entry: int
    gain: int  # fall of the loss, in fixed point

    def apply(self, choice: Sequence[int]) -> list[int]:
        """The choice after the exchange."""
        moved = list(choice)
        moved[self.raised] = self.entry
        if self.lowered >= 0:
            moved[self.lowered] -= 1
        return moved


def best_exchange(menus: Sequence[Menu], choice: Sequence[int], total: int) -> Exchange | None:
    """The exchange with the largest gain, or None when none gains anything."""
    left = total - sum([menu.tokens[i] for menu, i in zip(menus, choice, strict=True)])
    lowered, freed, lost = [-1], [left], [0]
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        if i:
            lowered.append(tier)
            freed.append(left + menu.tokens[i] - menu.tokens[i - 1])
            lost.append(menu.losses[i - 1] - menu.losses[i])
    tokens, losses = np.array(freed), np.array(lost)
    best: Exchange | None = None
    for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
        above = menu.tokens[i:]
        if len(above) == 1:
            continue
        reach = np.searchsorted(above, tokens + above[0], side="right") - 1
        falling = np.minimum.accumulate(menu.losses[i:])
        gains = menu.losses[i] - falling[reach] - losses
        for row in np.argsort(-gains)[:2]:  # the best may lower this very tier; then the second best counts
            if lowered[row] != tier and gains[row] > (best.gain if best else 0):
                entry = i + int(np.argmax(falling == falling[reach[row]]))
                best = Exchange(lowered[row], tier, entry, int(gains[row]))
    return best


__all__ = ["TIE", "Allocation", "Edge", "allocate"]

Edge = Literal["largest", "smallest", "both"]


@dataclass(frozen=True)
class Allocation:
    """Budgets for the tiers, and what they cost and bring."""

    budgets: Mapping[str, int]
    """The budget of each tier; of a mixed tier, the smaller of its two."""
    errors: Mapping[str, float]
    """Each tier's measured error at its budget; of a mixed tier, the mean over its samples."""
    total: int
    spent: int
    """``sum(n b)``, at most ``total``."""
    cwe: float
    """``sum(n c e) / sum(n c)``."""
    price: float
    """Fall of CWE per further token of ``total``, on the lower convex hulls; 0 when they have no use for more."""
    on_edge: Mapping[str, Edge]
    """Tiers whose budget is the largest or smallest on their measured grid, where more range might do better.

    ``largest``: the largest measured, and errors are left to avoid. ``smallest``: the smallest measured, so that a
    smaller one might free tokens; not marked when ``floor`` forbids going lower. ``both``: a grid of one point, or a
    tier that mixes its two ends.
    """
    gap: float = 0.0
    """0.0 when proven optimal; otherwise no allocation can have a CWE below ``cwe - gap``."""
    mixed: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """With ``mix``: the tier that uses two budgets, and how many of its samples take each."""


def allocate(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    floor: int | None = None,
    *,
    mix: bool = False,
) -> Allocation:
    """The measured budgets with the smallest cost-weighted error whose tokens fit in ``total``.

    Parameters
    ----------
    curves, costs, counts
        By tier name: the measured curve, the cost of one wrong answer (> 0), the number of samples (>= 1).
    total
        A hard limit on ``sum(n b)``.
    floor
        The smallest budget permitted to any tier; None permits the whole grid.
    mix
        Let one tier use two budgets, so as to spend what whole tiers leave over; ``gap`` then bounds how much any
        mixing in any number of tiers could still gain.

    Raises
    ------
    BadInput
        When a mapping is empty, lacks a tier or names an unknown one, or a value is out of range.
    InfeasibleBudget
        When even the smallest permitted budgets exceed ``total``; the message names the smallest feasible total.
    """
    counts = _checked(curves, costs, counts)
    total, floor = _whole("total", total), None if floor is None else _whole("floor", floor)
    dearest = max(costs.values())  # only ratios of costs matter, and these cannot overflow
    weights = [counts[tier] * (costs[tier] / dearest) for tier in curves]
    whole = math.fsum(weights)
    menus = []
    for (tier, curve), weight in zip(curves.items(), weights, strict=True):
        first = 0 if floor is None else bisect_left(curve.budgets, floor)
        if first == len(curve.budgets):
            raise BadInput(
                f"the floor {floor} lies above every measured budget of tier {tier!r} (at most {curve.budgets[-1]}); "
                f"lower the floor or measure more"
            )
        menus.append(Menu.of(curve.budgets[first:], curve.errors[first:], counts[tier], weight / whole))
    smallest = sum([menu.tokens[0] for menu in menus])
    if smallest > total:
        raise InfeasibleBudget(
            f"a total of {total} tokens is too small: the smallest permitted budgets already take {smallest}; "
            f"give at least {smallest}"
        )
    if sum([menu.spreads[-1] for menu in menus]) >> 50:
        raise BadInput("counts and budgets are too large for exact arithmetic; divide all counts and the total")
    kept = [undominated(menu) for menu in menus]
    slim = [menu.take(indices) for menu, indices in zip(menus, kept, strict=True)]
    steepest = segments(slim)
    relaxed = relax(slim, steepest, total)
    usable = min(total, sum([menu.tokens[-1] for menu in menus]))
    found, gap = solve(slim, steepest, usable)
    choice = [indices[i] for indices, i in zip(kept, found, strict=True)]
    while (exchange := best_exchange(menus, choice, usable)) and exchange.gain > TIE_LOSS:
        if not gap:
            raise StakesError(f"the allocation {choice} is not optimal, a defect in stakes; please report the curves")
        choice, gap = exchange.apply(choice), max(0.0, gap - exchange.gain / ONE)
    splits = [{menu.budgets[i]: menu.samples} for menu, i in zip(menus, choice, strict=True)]
    if mix:
        base = [indices[i] for indices, i in zip(kept, relaxed.choice, strict=True)]
        mixture = best_mixture(menus, [choice, base], usable)
        bound = sum([menu.losses[i] for menu, i in zip(menus, base, strict=True)]) - relaxed.price * relaxed.slack
        splits, gap = mixture.splits(menus), max(0.0, (mixture.loss - bound) / ONE)
    return _allocation(curves, weights, splits, total, floor, relaxed.price / ONE, gap if gap > TIE else 0.0)


def _allocation(
    curves: Mapping[str, Curve],
    weights: Sequence[float],
    splits: Sequence[Mapping[int, int]],
    total: int,
    floor: int | None,
    price: float,
    gap: float,
) -> Allocation:
    """Everything a reader wants to know, from samples per tier and budget."""
    by_tier = dict(zip(curves, splits, strict=True))
    errors = {
        tier: math.fsum([k * curves[tier].error(b) for b, k in split.items()]) / sum(split.values())
        if len(split) > 1
        else curves[tier].error(next(iter(split)))
        for tier, split in by_tier.items()
    }
    lost = math.fsum([weight * error for weight, error in zip(weights, errors.values(), strict=True)])
    edges = {tier: _edge(curves[tier], split, floor) for tier, split in by_tier.items()}
    return Allocation(
        budgets={tier: min(split) for tier, split in by_tier.items()},
        errors=errors,
        total=total,
        spent=sum([b * k for split in splits for b, k in split.items()]),
        cwe=lost / math.fsum(weights),
        price=price,
        on_edge={tier: edge for tier, edge in edges.items() if edge},
        gap=gap,
        mixed={tier: dict(split) for tier, split in by_tier.items() if len(split) > 1},
    )


def _edge(curve: Curve, split: Mapping[int, int], floor: int | None) -> Edge | None:
    first, last = curve.budgets[0], curve.budgets[-1]
    largest = max(split) == last and curve.errors[-1] > 0
    smallest = min(split) == first and (floor is None or floor < first)
    if largest and smallest:
        return "both"
    return "largest" if largest else "smallest" if smallest else None


def _checked(curves: Mapping[str, Curve], costs: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, int]:
    """The counts as plain integers, once everything about the tiers is in order."""
    if not curves:
        raise BadInput("there is no tier to allocate to, because curves is empty; give at least one tier's curve")
    for what, given in (("cost", costs), ("count", counts)):
        for tier in curves:
            if tier not in given:
                raise BadInput(f"tier {tier!r} has a curve but no {what}; give a {what} for every tier")
        for tier in given:
            if tier not in curves:
                known = ", ".join(map(repr, curves))
                raise BadInput(f"a {what} is given for tier {tier!r}, which has no curve; known tiers: {known}")
    whole: dict[str, int] = {}
    for tier, curve in curves.items():
        cost, whole[tier] = costs[tier], _whole(f"count of tier {tier!r}", counts[tier])
        if not isinstance(curve, Curve):
            raise BadInput(f"the curve of tier {tier!r} is a {type(curve).__name__}; give a stakes Curve")
        if isinstance(cost, bool) or not isinstance(cost, Real) or not 0 < cost < math.inf:  # NaN fails too
            raise BadInput(f"the cost of tier {tier!r} is {cost!r}; give a finite number above 0")
        if whole[tier] < 1:
            raise BadInput(f"the count of tier {tier!r} is {whole[tier]}; give at least 1, or leave the tier out")
    return whole


def _whole(what: str, value: int) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise BadInput(f"the {what} is {value!r}; give a whole number")
