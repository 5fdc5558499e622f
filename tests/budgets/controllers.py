"""Policies for the controller, and one request's way through it."""

from typing import Any

from stakes import Curve, Policy, allocate
from stakes.budgets.controller import Controller
from stakes.budgets.policy import TierPlan
from stakes.experiments.published import curves as published_curves

MEAN, FLOOR, PAGE = 304, 32, 5000
DOCVQA = published_curves("docvqa")


def policy(costs: dict[str, float] | None = None, curves: dict[str, Curve] | None = None, **more: Any) -> Policy:
    costs, curves = costs or {"high": 5, "low": 1}, curves or DOCVQA
    best = allocate(curves, costs, dict.fromkeys(costs, 300), MEAN * 300 * len(costs))
    tiers = {t: TierPlan(cost=costs[t], budget=best.budgets[t], curve=c) for t, c in curves.items()}
    return Policy.model_validate({"mean_budget": MEAN, "floor": FLOOR, "tiers": tiers, **more})


def spend(controller: Controller, tier: str, native: int = PAGE) -> int:
    grant = controller.grant(tier, [native])
    controller.settle(grant, grant.budgets)
    return grant.budgets[0]
