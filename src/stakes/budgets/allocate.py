"""The budget of each tier: the exact optimum of the paper's section "Problem".

    minimize  sum_t n_t c_t e_t(b_t)   subject to   sum_t n_t b_t <= total,   b_t >= floor,   b_t measured

for any number of tiers, each with its own non-convex curve and grid. Choices whose CWE is within 1e-12 of the smallest
are ties: fewest tokens, then the most even split (least variance of budgets over samples), then the smallest CWE,
then more for the first-named tier. Ties are settled this way up to 65,536 combinations of budgets (``solver``).

    >>> from stakes.budgets.curve import Curve
    >>> high = Curve([32, 304, 576], [0.903, 0.300, 0.100], counts=300)
    >>> low = Curve([32, 304, 576], [0.910, 0.373, 0.093], counts=300)
    >>> best = allocate({"high": high, "low": low}, {"high": 5, "low": 1}, {"high": 300, "low": 300}, total=182_400)
    >>> best.budgets, best.spent, round(best.cwe, 3), best.on_edge
    ({'high': 576, 'low': 32}, 182400, 0.235, {'high': 'largest', 'low': 'smallest'})
"""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Literal, NamedTuple

from stakes.budgets.curve import Curve, above_floor, whole_number
from stakes.budgets.hull import ONE, TIE, Menu, Sums, relax, undominated
from stakes.budgets.solver import solve
from stakes.errors import BadInput, InfeasibleBudget
from stakes.notebooks import AllocationView

Edge = Literal["largest", "smallest", "both"]
Split = Mapping[int, int]
"""Of one tier, how many samples take which budget."""


@dataclass(frozen=True)
class Allocation(AllocationView):
    """Budgets for the tiers, what they cost and what they bring."""

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
    mixed: Mapping[str, Split] = field(default_factory=dict)
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
        Let one tier use two budgets, to spend what whole tiers leave over; ``gap`` then bounds how much any
        mixing in any number of tiers could still gain.

    Raises
    ------
    BadInput
        When a mapping is empty, lacks a tier or names an unknown one, or a value is out of range.
    InfeasibleBudget
        When even the smallest permitted budgets exceed ``total``; the message names the smallest feasible total.
    """
    menus, weights = checked_menus(curves, costs, counts, total, floor)
    usable = min(operator.index(total), sum([menu.tokens[-1] for menu in menus]))
    entries = [undominated(menu) for menu in menus]
    slim = [menu.select(of_tier) for menu, of_tier in zip(menus, entries, strict=True)]
    choice, gap = solve(slim, usable)
    relaxed = relax(slim, operator.index(total))
    splits: list[Split] = [{menu.budgets[i]: menu.samples} for menu, i in zip(slim, choice, strict=True)]
    if mix:
        mixture = best_mixture(slim, [choice, relaxed.choice], usable)
        splits, gap = mixture.splits(slim), (mixture.loss - relaxed.bound(slim)) / ONE
    by_tier = dict(zip(curves, splits, strict=True))
    errors = {tier: _mean_error(curves[tier], split) for tier, split in by_tier.items()}
    edges = {tier: _edge(curves[tier], split, floor) for tier, split in by_tier.items()}
    return Allocation(
        budgets={tier: min(split) for tier, split in by_tier.items()},
        errors=errors,
        total=operator.index(total),
        spent=sum([budget * samples for split in splits for budget, samples in split.items()]),
        cwe=math.fsum([weights[tier] * error for tier, error in errors.items()]) / math.fsum(weights.values()),
        price=relaxed.price / ONE,
        on_edge={tier: edge for tier, edge in edges.items() if edge},
        gap=gap if gap > TIE else 0.0,
        mixed={tier: split for tier, split in by_tier.items() if len(split) > 1},
    )


def checked_menus(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    floor: int | None,
) -> tuple[list[Menu], dict[str, float]]:
    """The tiers' menus from the floor up, and their weights ``n c`` by tier; raises where ``allocate`` would."""
    samples = _check_tiers(curves, costs, counts)
    total, floor = whole_number("the total", total), None if floor is None else whole_number("the floor", floor)
    permitted = above_floor(curves, floor)
    most_expensive = max(costs.values())  # only ratios of costs matter, and these cannot overflow
    weights = {tier: samples[tier] * (costs[tier] / most_expensive) for tier in curves}
    whole = math.fsum(weights.values())
    menus = [Menu.of(c.budgets, c.errors, samples[tier], weights[tier] / whole) for tier, c in permitted.items()]
    smallest = sum([menu.tokens[0] for menu in menus])
    if smallest > total:
        raise InfeasibleBudget(
            f"a total of {total} tokens is too small: the smallest permitted budgets already take {smallest}; "
            f"give at least {smallest}"
        )
    if sum([menu.spreads[-1] for menu in menus]) >> 50:
        raise BadInput("counts and budgets are too large for exact arithmetic; divide all counts and the total")
    return menus, weights


def _mean_error(curve: Curve, split: Split) -> float:
    if len(split) == 1:
        return curve.error(*split)
    return math.fsum([samples * curve.error(b) for b, samples in split.items()]) / sum(split.values())


def _edge(curve: Curve, split: Split, floor: int | None) -> Edge | None:
    first, last = curve.budgets[0], curve.budgets[-1]
    largest = max(split) == last and curve.errors[-1] > 0
    smallest = min(split) == first and (floor is None or floor < first)
    if largest and smallest:
        return "both"
    return "largest" if largest else "smallest" if smallest else None


def _check_tiers(curves: Mapping[str, Curve], costs: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, int]:
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
    samples: dict[str, int] = {}
    for tier, curve in curves.items():
        cost, samples[tier] = costs[tier], whole_number(f"the count of tier {tier!r}", counts[tier])
        if not isinstance(curve, Curve):
            raise BadInput(f"the curve of tier {tier!r} is a {type(curve).__name__}; give a stakes Curve")
        if isinstance(cost, bool) or not isinstance(cost, Real) or not 0 < cost < math.inf:  # NaN fails too
            raise BadInput(f"the cost of tier {tier!r} is {cost!r}; give a finite number above 0")
        if samples[tier] < 1:
            raise BadInput(f"the count of tier {tier!r} is {samples[tier]}; give at least 1, or leave the tier out")
    return samples


class Mixture(NamedTuple):
    """A choice in which ``moved`` samples of tier ``tier`` take the entry ``upper`` instead."""

    choice: Sequence[int]
    tier: int
    upper: int
    moved: int
    loss: float  # of all tiers, fixed point
    tokens: int

    def splits(self, menus: Sequence[Menu]) -> list[Split]:
        """Per tier, how many samples take which budget."""
        splits: list[Split] = [{menu.budgets[i]: menu.samples} for menu, i in zip(menus, self.choice, strict=True)]
        if self.moved:
            menu, lower = menus[self.tier], self.choice[self.tier]
            split = {menu.budgets[lower]: menu.samples - self.moved, menu.budgets[self.upper]: self.moved}
            splits[self.tier] = {budget: samples for budget, samples in split.items() if samples}
        return splits


def best_mixture(menus: Sequence[Menu], choices: Sequence[Sequence[int]], total: int) -> Mixture:
    """The least loss that two budgets in one tier reach from any of ``choices``; at a tie, the fewest tokens.

    The relaxed optimum (``hull``) mixes two budgets in at most one tier. Here the split is in whole samples: from a
    choice that fits, move ``k`` samples of one tier to a larger budget, ``k`` as large as the tokens left over allow.
    """
    mixtures = []
    for choice in choices:
        tokens, loss = Sums.of(menus, choice)
        mixtures.append(Mixture(choice, 0, choice[0], 0, loss, tokens))
        for tier, (menu, i) in enumerate(zip(menus, choice, strict=True)):
            for j in range(i + 1, len(menu.budgets)):
                step = menu.budgets[j] - menu.budgets[i]
                moved = min(menu.samples, (total - tokens) // step)
                if moved and menu.losses[j] < menu.losses[i]:
                    fall = (menu.losses[i] - menu.losses[j]) * moved / menu.samples
                    mixtures.append(Mixture(choice, tier, j, moved, loss - fall, tokens + moved * step))
    return min(mixtures, key=lambda mixture: (mixture.loss, mixture.tokens))
