"""What must the controller keep of a certified policy? Its budgets, wherever the total pays for them.

A certificate speaks of the budgets that it shipped, and not of others that the same curves would make best. So a
certified policy's steps (``controller_path``) come in this order:

1. each tier with a ceiling, up to the smallest budget that keeps it;
2. every tier up to the budget that ships;
3. beyond that, with what is left over; not where uniform shipped, since tiers were not certified to help.

    stages = kept(policy)       # {"high": (448, 448, None), "low": (32, 160, None)}; None: no certificate to keep
"""

from typing import NamedTuple

from stakes.budgets.curve import Curve
from stakes.budgets.policy import Policy


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
