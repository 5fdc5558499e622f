"""What log of answers is growth measured on? An imagined one, of any number of records, tiers and budgets.

Errors fall with tokens, in every tier at another place; samples take tiers in turn, three stand on a page, and every
one is answered at every budget.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from stakes.budgets.curve import Curve
from stakes.budgets.policy import Policy, TierPlan
from stakes.calibration.by_document import ByDocument, by_document
from stakes.calibration.estimators import Terms
from stakes.evaluation.outcome_log import Outcome
from stakes.signals import TaskIdentity, to_dict

PER_PAGE = 3
GRID = 13


def grid(budgets: int) -> list[int]:
    """Budgets in even steps: any number of them, and pairs that add up to the same total."""
    return [16 * (i + 1) for i in range(budgets)]


def rates(tier: int, budgets: int) -> Any:
    """The tier's true error at each budget; tiers fall at different places."""
    place = np.arange(1, budgets + 1) / budgets
    return 0.05 + 0.9 * np.exp(-place * (3 + 2 * (tier % 5) / 5))


@lru_cache(maxsize=2)
def answers(records: int, tiers: int = 2, budgets: int = GRID) -> tuple[Outcome, ...]:
    """The log."""
    rng, found, per_tier = np.random.default_rng(0), [], [rates(tier, budgets) for tier in range(tiers)]
    for i in range(records // budgets):
        tier = i % tiers
        right = rng.random(budgets) >= per_tier[tier]
        names = (f"q{i}", f"page {i // PER_PAGE}", f"t{tier}", "resolution", None)
        found += [
            Outcome(*names, budget, 972, budget, "an answer", False, float(ok), bool(ok), "relaxed", 10.0, "r")
            for budget, ok in zip(grid(budgets), right, strict=True)
        ]
    return tuple(found)


@lru_cache(maxsize=2)
def tables(records: int, tiers: int = 2, budgets: int = GRID) -> ByDocument:
    """The same by document."""
    return by_document(answers(records, tiers, budgets))


def costs(tiers: int) -> dict[str, float]:
    """1 to 5 by turns, the first the most expensive."""
    return {f"t{tier}": 5.0 - tier % 5 for tier in range(tiers)}


def terms(measured: ByDocument) -> Terms:
    """Half of what the largest budgets would take."""
    counts = measured.counts
    return Terms(costs(len(counts)), counts, measured.budgets[-1] // 2 * sum(counts.values()))


def curves(tiers: int, budgets: int = GRID) -> dict[str, Curve]:
    """Each tier's curve as 300 answers would measure it."""
    rng = np.random.default_rng(0)
    wrong = {f"t{tier}": rng.binomial(300, rates(tier, budgets)) / 300 for tier in range(tiers)}
    return {tier: Curve(grid(budgets), [float(e) for e in errors], 300) for tier, errors in wrong.items()}


def policy(tiers: int) -> Policy:
    """A policy of so many tiers with its curves."""
    plans = {
        tier: TierPlan(cost=cost, budget=grid(GRID)[6], curve=curve)
        for (tier, curve), cost in zip(curves(tiers).items(), costs(tiers).values(), strict=True)
    }
    signal = to_dict(TaskIdentity({tier: tier for tier in plans}, most_expensive="t0"))
    return Policy(mean_budget=grid(GRID)[6], floor=16, tiers=plans, signal=signal)
