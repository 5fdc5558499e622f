"""The report's JavaScript allocator equals ``allocate``, on many instances with ties and edges; it runs in Node."""

import json
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import stakes.report
from stakes.budgets.allocate import allocate
from stakes.budgets.curve import Curve
from stakes.budgets.harm import allocate_within
from stakes.budgets.solver import LISTED
from stakes.errors import InfeasibleBudget

ASSETS = Path(stakes.report.__file__).parent / "assets"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def in_node(code: str, given: object, *files: str) -> Any:
    """The value of ``code`` for ``given``, after the report's own files."""
    text = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in files)
    text += f"\nconst given = JSON.parse(require('fs').readFileSync(0, 'utf8'));\nconsole.log(JSON.stringify({code}));"
    assert NODE is not None
    done = subprocess.run([NODE, "-e", text], input=json.dumps(given), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def instance(dice: random.Random) -> dict[str, Any]:
    """Curves of any shape; coarse error rates and equal tiers make ties, unequal counts make odd totals."""
    number = dice.choice([1, 2, 2, 2, 3, 4, 6, 10])
    coarse = dice.random() < 0.5
    counts = [dice.choice([1, 7, 20, 300]) for _ in range(number)] if dice.random() < 0.6 else [50] * number
    tiers: list[dict[str, Any]] = []
    for t in range(number):
        size = dice.randint(1, 13)
        budgets = sorted(dice.sample(range(8, 700, dice.choice([1, 8])), size))
        wrong = [dice.randint(0, 4 if coarse else counts[t] * 3) for _ in budgets]
        worst = 4 if coarse else counts[t] * 3
        if dice.random() < 0.5:
            wrong.sort(reverse=True)
        cost = dice.choice([1, 1, 2, 5, 0.3, 1 / 3, dice.uniform(0.1, 20)])
        errors = [w / worst for w in wrong]
        tiers.append({"name": f"t{t}", "cost": cost, "n": counts[t], "budgets": budgets, "errors": errors})
    if dice.random() < 0.2:  # straight lines: moving tokens between equal tiers changes nothing but evenness
        grid = list(range(50, 50 * dice.randint(3, 14), 50))
        line = {"budgets": grid, "errors": [1 - b / 700 for b in grid], "cost": 1.0, "n": 50}
        tiers = [{**tier, **line} for tier in tiers[:4]]
    elif number > 2 and dice.random() < 0.4:  # the same curve in several tiers: every permutation ties
        tiers = [{**tiers[0], "name": tier["name"]} for tier in tiers]
    low, high = (sum(tier["n"] * tier["budgets"][i] for tier in tiers) for i in (0, -1))
    total = dice.randint(int(low * 0.98), int(high * 1.05))
    floor = dice.choice([None, None, 1, min(tier["budgets"][-1] for tier in tiers) // 2])
    return {"tiers": tiers, "total": total, "floor": floor}


def limited(dice: random.Random) -> dict[str, Any]:
    """Two to five tiers on one grid, so that there is a uniform budget, with harm limits of all or some of them."""
    grid = sorted(dice.sample(range(8, 700, 8), dice.randint(2, 9)))
    tiers: list[dict[str, Any]] = []
    for t in range(dice.randint(2, 5)):
        n, cost = dice.choice([20, 50, 300]), dice.choice([1.0, 1.0, 2.5, 5.0, 20.0])
        wrong = [dice.randint(0, n) for _ in grid]
        wrong.sort(reverse=dice.random() < 0.9)
        errors = [w / n for w in wrong]
        tiers.append({"name": f"t{t}", "cost": cost, "n": n, "budgets": grid, "errors": errors})
    limit = dice.choice([0.0, 0.05, 0.15, 0.25])
    some = [tier["name"] for tier in tiers if dice.random() < 0.7] or [tiers[0]["name"]]
    samples = sum(tier["n"] for tier in tiers)
    total = dice.randint(int(grid[0] * samples * 0.98), int(grid[-1] * samples * 1.02))
    floor = dice.choice([None, None, None, dice.choice(grid)])
    limits = {name: dice.choice([limit, limit, dice.random()]) for name in some}
    return {"tiers": tiers, "total": total, "floor": floor, "limits": limits}


@needs_node
def test_the_reports_allocator_equals_allocate() -> None:
    dice = random.Random(7)
    given = [instance(dice) for _ in range(600)]
    results = in_node("given.map((g) => allocate(g.tiers, g.total, g.floor))", given, "allocate.js")
    feasible, exact, smallest = 0, 0, []
    for case, mine in zip(given, results, strict=True):
        tiers = case["tiers"]
        curves = {t["name"]: Curve(t["budgets"], t["errors"], 10) for t in tiers}
        costs, counts = ({t["name"]: t[key] for t in tiers} for key in ("cost", "n"))
        try:
            best = allocate(curves, costs, counts, case["total"], case["floor"])
        except InfeasibleBudget as refused:
            smallest.append((mine["smallest"], str(refused)))
            continue
        feasible += 1
        if math.prod(len(t["budgets"]) for t in tiers) > LISTED:  # allocate promises no order of ties there
            assert mine["spent"] <= case["total"]
            assert abs(mine["cwe"] - best.cwe) <= best.gap + 2e-12
            continue
        assert mine["budgets"] == best.budgets, case
        assert (mine["spent"], mine["cwe"], mine["edges"]) == (best.spent, best.cwe, dict(best.on_edge))
        exact += 1
    assert feasible > 500
    assert exact > 400
    assert smallest
    assert all(f"give at least {least}" in message for least, message in smallest)


@needs_node
def test_with_harm_limits_it_equals_allocate_within() -> None:
    dice = random.Random(11)
    given = [limited(dice) for _ in range(1000)]
    results = in_node("given.map((g) => allocateWithin(g.tiers, g.total, g.floor, g.limits))", given, "allocate.js")
    exact, moved, refused = 0, 0, 0
    for case, mine in zip(given, results, strict=True):
        tiers, total, floor = case["tiers"], case["total"], case["floor"]
        curves = {t["name"]: Curve(t["budgets"], t["errors"], 10) for t in tiers}
        costs, counts = ({t["name"]: t[key] for t in tiers} for key in ("cost", "n"))
        try:
            best = allocate_within(curves, costs, counts, total, floor, case["limits"])
        except InfeasibleBudget:
            assert "smallest" in mine
            refused += 1
            continue
        if math.prod(len(t["budgets"]) for t in tiers) > LISTED:
            continue
        assert mine["budgets"] == best.budgets, case
        assert (mine["spent"], mine["cwe"], mine["edges"]) == (best.spent, best.cwe, dict(best.on_edge)), case
        exact += 1
        moved += best.budgets != allocate(curves, costs, counts, total, floor).budgets
    assert exact > 700
    assert moved > 60
    assert refused


@needs_node
def test_the_reports_sums_equal_fsum() -> None:
    dice = random.Random(1)
    given = [
        [dice.uniform(-1, 1) * 10 ** dice.randint(-12, 12) for _ in range(dice.randint(0, 12))] for _ in range(300)
    ]
    assert in_node("given.map(fsum)", given, "allocate.js") == [math.fsum(values) for values in given]
