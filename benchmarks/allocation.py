"""The speed of ``allocate`` against plain HiGHS and OR-tools' CP-SAT on the same instances, as ratios.

    make bench                       # or: .venv/bin/python benchmarks/allocation.py --seconds 20

HiGHS gets the whole 0/1 program, unscaled, with a zero gap; ``allocate`` calls it only for what its bounds leave over
(``stakes.budgets.solver``). CP-SAT gets the losses as integers (2^40 to the unit of CWE) and is skipped where OR-tools
is not installed. A peer that reaches its time limit is shown with ``>``. Every optimum is compared with ours; a
difference beyond the peer's own tolerance stops the benchmark.
"""

import argparse
import json
import math
import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve

FAMILIES = ("random", "decaying", "rates", "duplicated", "equal slopes", "correlated", "subset sum", "parity trap")
SIZES = ((2, 13), (4, 13), (16, 32), (300, 64))
SCALE = 1 << 40  # CP-SAT's integers per unit of CWE


class Instance(NamedTuple):
    """The arguments of ``allocate``."""

    curves: dict[str, Curve]
    costs: dict[str, float]
    counts: dict[str, int]
    total: int


class Answer(NamedTuple):
    """A solver's CWE, a proven lower bound on the optimum, and its seconds."""

    cwe: float
    bound: float
    seconds: float


def family(kind: str, tiers: int, points: int, seed: int = 0, fill: float = 0.37) -> Instance:
    """One instance of a named family.

    Ordinary: ``random`` errors, noisy ``decaying`` curves, the same as ``rates`` k/300 on one grid. Degenerate, all on
    straight lines: ``duplicated`` tiers, ``equal slopes`` on one grid, ``correlated`` (a bonus for leaving the smallest
    budget), ``subset sum`` (only an exact sum is optimal) and ``parity trap`` (an odd rest that only one tier can fill,
    at a loss: the bound cannot be met, and nothing short of listing all sums proves it).
    """
    rng = random.Random(f"{kind} {tiers} {points} {seed}")
    curves: dict[str, Curve] = {}
    costs: dict[str, float] = {}
    counts: dict[str, int] = {}
    even_grid = [8 * (j + 1) for j in range(points)]
    for i in range(tiers):
        n, cost, scale = rng.randint(1, 500), rng.choice([1, 2, 3, 5, 10]), rng.uniform(50, 400)
        grid = sorted(rng.sample(range(16, 1200), points))
        if kind == "random":
            errors = [rng.random() for _ in grid]
        elif kind == "decaying":
            errors = [min(1.0, max(0.0, math.exp(-b / scale) + rng.gauss(0, 0.02))) for b in grid]
        elif kind in ("rates", "duplicated"):
            if kind == "duplicated":
                n, cost, scale, rng = 1, 1, 200.0, random.Random(seed)
            grid = even_grid
            errors = [min(300, max(0, round(300 * math.exp(-b / scale) + rng.gauss(0, 6)))) / 300 for b in grid]
        else:
            cost = 1
            if kind == "equal slopes":
                n, grid = 1, even_grid
            elif kind in ("subset sum", "parity trap"):
                n = 2 * n
            bonus = 100 if kind == "correlated" else 0
            errors = [1 - (b + bonus * (j > 0)) / 1400 for j, b in enumerate(grid)]
            if kind == "parity trap" and i == 0:
                n, grid, errors = 499, [16, 17], [0.5, 0.5 - 1e-9]
        curves[f"t{i}"], costs[f"t{i}"], counts[f"t{i}"] = Curve(grid, errors, counts=300), cost, n
    low = sum(counts[t] * c.budgets[0] for t, c in curves.items())
    high = sum(counts[t] * c.budgets[-1] for t, c in curves.items())
    return Instance(curves, costs, counts, low + int((high - low) * fill) // 2 * 2 + 1)


def ours(instance: Instance, seconds: float) -> Answer:
    """``allocate``, the fastest of several runs; it has its own time limit in place of ``seconds``."""
    allocate(*instance)  # the first import of scipy is not timed
    times: list[float] = []
    while not times or (sum(times) < min(0.5, seconds) and len(times) < 50):
        began = time.perf_counter()
        best = allocate(*instance)
        times.append(time.perf_counter() - began)
    return Answer(best.cwe, best.cwe - best.gap, min(times))


def highs(instance: Instance, seconds: float) -> Answer:
    """scipy's HiGHS on the 0/1 program."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    tokens, losses, owner = _table(instance)
    began = time.perf_counter()
    pick = csr_array((np.ones(owner.size), (owner, np.arange(owner.size))))
    result = milp(
        losses,
        integrality=np.ones(owner.size),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(pick, 1, 1), LinearConstraint(tokens[None, :], -np.inf, instance.total)],
        options={"mip_rel_gap": 0, "time_limit": seconds},
    )
    elapsed = time.perf_counter() - began
    if result.x is None:
        return Answer(math.inf, 0.0, elapsed)
    taken = np.flatnonzero(result.x > 0.5)
    return Answer(float(losses[taken].sum()), float(result.mip_dual_bound), elapsed)


def cp_sat(instance: Instance, seconds: float) -> Answer:
    """OR-tools' CP-SAT on one worker, like the others."""
    from ortools.sat.python import cp_model

    tokens, losses, owner = _table(instance)
    began = time.perf_counter()
    model: Any = cp_model.CpModel()
    chosen = [model.new_bool_var("") for _ in owner]
    for tier in range(len(instance.curves)):
        model.add_exactly_one([chosen[j] for j in np.flatnonzero(owner == tier)])
    model.add(sum(int(w) * x for w, x in zip(tokens, chosen, strict=True)) <= instance.total)
    model.minimize(sum(round(v * SCALE) * x for v, x in zip(losses, chosen, strict=True)))
    solver: Any = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    elapsed = time.perf_counter() - began
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(math.inf, 0.0, elapsed)
    taken = [j for j, x in enumerate(chosen) if solver.value(x)]
    return Answer(float(losses[taken].sum()), solver.best_objective_bound / SCALE, elapsed)


def _table(instance: Instance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per tier and budget: tokens ``n b``, loss ``n c e / sum(n c)``, and the number of the tier."""
    curves, costs, counts, _ = instance
    whole = sum(counts[t] * costs[t] for t in curves)
    tokens = [counts[t] * b for t, c in curves.items() for b in c.budgets]
    losses = [counts[t] * costs[t] * e / whole for t, c in curves.items() for e in c.errors]
    owner = [i for i, c in enumerate(curves.values()) for _ in c.budgets]
    return np.array(tokens, dtype=np.float64), np.array(losses), np.array(owner)


def compare(instance: Instance, seconds: float) -> dict[str, Any]:
    """One line of the table; stops when a peer beats our proven bound or claims an optimum above ours."""
    mine = ours(instance, seconds)
    row: dict[str, Any] = {"ours_ms": 1e3 * mine.seconds, "gap": mine.cwe - mine.bound}
    peers: list[Callable[[Instance, float], Answer]] = [highs, cp_sat] if find_spec("ortools") else [highs]
    for peer in peers:
        other = peer(instance, seconds)
        limited = other.seconds >= 0.98 * seconds
        # HiGHS accepts 1e-6 of infeasibility, CP-SAT rounds each loss to 2^-41
        slip = 1e-6 if peer is highs else len(instance.curves) / SCALE
        if other.cwe < mine.bound - slip:
            raise SystemExit(f"{peer.__name__} found {other.cwe}, below our proven bound {mine.bound}")
        if not limited and other.cwe > mine.cwe + slip:
            raise SystemExit(f"{peer.__name__} claims {other.cwe} as optimal, ours is {mine.cwe}")
        row |= {f"{peer.__name__}_ratio": other.seconds / mine.seconds, f"{peer.__name__}_limited": limited}
    return row


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    cells = [f"{row['ours_ms']:9.2f} ms", f"{row['gap']:7.0e}" if row["gap"] > 0 else "proven "]
    peers = [peer for peer in ("highs", "cp_sat") if f"{peer}_ratio" in row]
    cells += [f"{'>' if row[f'{peer}_limited'] else ' '}{row[f'{peer}_ratio']:8.1f}x" for peer in peers]
    return "  ".join(cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="time limit of a peer per instance")
    parser.add_argument("--out", type=Path, help="where the results go, as JSON")
    arguments, rows = parser.parse_args(), []
    print(f"{'family':14} {'size':>7}  {'ours (1x)':>12}  {'gap':7}  {'HiGHS':>10}  {'CP-SAT':>10}")
    for kind in FAMILIES:
        for tiers, points in SIZES if kind in ("decaying", "rates") else SIZES[-1:]:
            row = compare(family(kind, tiers, points), arguments.seconds)
            rows.append({"family": kind, "tiers": tiers, "budgets": points, **row})
            print(f"{kind:14} {tiers:>3}x{points:<3}  {line(row)}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps({"seconds": arguments.seconds, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
