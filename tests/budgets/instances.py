"""Allocation instances, and their optimum by brute force in exact fractions."""

import itertools
import math
import random
from fractions import Fraction
from typing import NamedTuple

from hypothesis import strategies as st

from stakes.budgets.curve import Curve


class Instance(NamedTuple):
    curves: dict[str, Curve]
    costs: dict[str, float]
    counts: dict[str, int]
    total: int

    def at(self, end: int) -> int:
        return sum(self.counts[t] * c.budgets[end] for t, c in self.curves.items())


@st.composite
def instances(draw: st.DrawFn, tiers: int = 5, points: int = 4) -> Instance:
    """Small non-convex instances, many with exact ties: rates k / n, whole costs, flat, straight and equal curves."""
    kind = draw(st.sampled_from(["rates", "floats", "straight", "flat", "duplicated"]))
    names = [f"tier {i}" for i in range(draw(st.integers(1, tiers)))]
    budget = st.integers(1, 12) if draw(st.booleans()) else st.integers(1, 700)
    curves: dict[str, Curve] = {}
    for name in names:
        budgets = sorted(draw(st.lists(budget, min_size=1, max_size=points, unique=True)))
        if kind == "floats":
            errors = draw(st.lists(st.floats(0, 1), min_size=len(budgets), max_size=len(budgets)))
        elif kind == "straight":
            errors = [1 - b / 1000 for b in budgets]
        elif kind == "flat":
            errors = [0.5] * len(budgets)
        else:
            errors = [draw(st.integers(0, 6)) / 6 for _ in budgets]
        curves[name] = Curve(budgets, errors, counts=6)
    if kind == "duplicated":
        curves = dict.fromkeys(names, curves[names[0]])
    costs: dict[str, float] = {name: draw(st.sampled_from([1, 2, 3, 5, 0.1, 20.0])) for name in names}
    counts = {name: draw(st.integers(1, 4)) for name in names}
    if kind in ("straight", "duplicated") and draw(st.booleans()):
        costs, counts = dict.fromkeys(names, 3.0), dict.fromkeys(names, 2)
    made = Instance(curves, costs, counts, 0)
    return made._replace(total=draw(st.integers(made.at(0), made.at(-1) + 3)))


class Best(NamedTuple):
    cwe: Fraction
    spent: int
    spread: int
    budgets: list[dict[str, int]]  # all that are equal so far


def brute_force(instance: Instance) -> Best:
    """The tie rule of ``allocate`` in exact arithmetic: every choice, no pruning, no rounding."""
    curves, costs, counts, total = instance
    weights = {t: Fraction(counts[t]) * Fraction(costs[t]) for t in curves}
    lost = [[weights[t] * Fraction(e) for e in c.errors] for t, c in curves.items()]
    unit = math.lcm(*[fraction.denominator for column in lost for fraction in column])  # integers add up faster
    tables = [
        [(int(x * unit), counts[t] * b, counts[t] * b * b, b) for x, b in zip(column, c.budgets, strict=True)]
        for column, (t, c) in zip(lost, curves.items(), strict=True)
    ]
    fits = []
    for choice in itertools.product(*tables):
        loss, spent, spread, budgets = (list(column) for column in zip(*choice, strict=True))
        if sum(spent) <= total:
            fits.append((sum(loss), sum(spent), sum(spread), budgets))
    least, whole = min(fit[0] for fit in fits), sum(weights.values()) * unit
    ties = [fit for fit in fits if fit[0] <= least + whole / 10**12]
    best = min(fit[1:3] for fit in ties)
    equal = [dict(zip(curves, fit[3], strict=True)) for fit in ties if fit[1:3] == best]
    return Best(least / whole, *best, equal)


def seeded(rng: random.Random) -> Instance:
    """As ``instances``, but thousands of them in seconds."""
    kind = rng.choice(["rates", "floats", "straight", "duplicated"])
    names = [f"tier {i}" for i in range(rng.randint(1, 5))]
    curves: dict[str, Curve] = {}
    for name in names:
        budgets = sorted(rng.sample(range(1, 14), rng.randint(1, 4)))
        errors = {
            "floats": [rng.random() for _ in budgets],
            "straight": [1 - b / 1000 for b in budgets],
        }.get(kind, [rng.randint(0, 6) / 6 for _ in budgets])
        curves[name] = Curve(budgets, errors, counts=6)
    if kind == "duplicated":
        curves = dict.fromkeys(names, curves[names[0]])
    costs: dict[str, float] = {name: rng.choice([1, 2, 3, 0.1]) for name in names}
    made = Instance(curves, costs, {name: rng.randint(1, 3) for name in names}, 0)
    return made._replace(total=rng.randint(made.at(0), made.at(-1) + 3))
