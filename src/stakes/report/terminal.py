"""Curves, frontiers and bars as text for a terminal: one letter a series, no color needed.

>>> print(plot({"high": [(32, 0.9), (304, 0.3), (576, 0.1)]}, marks={"high": 576}, width=30, height=5))
 90% ┤H
     │
     │
     │        H
 10% ┤                ◉ H
     └─────────────────
      32            576
H = high; ◉ the chosen budget
"""

import os
import string
import sys
from collections.abc import Mapping, Sequence

from stakes.budgets.curve import Curve
from stakes.budgets.plan import Plan
from stakes.calibration.estimators import Terms
from stakes.report.data import frontier_rows
from stakes.tiers import own_ratio

Points = Sequence[tuple[float, float]]
NARROWEST = 60
LEFT = 9  # columns of the scale
SEVERAL = "+"


def plot_width() -> int:
    """Columns that a plot may take: 0 if the output is not a terminal or too narrow."""
    if not sys.stdout.isatty():
        return 0
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    return min(width, 100) if width >= NARROWEST else 0


def plot(
    series: Mapping[str, Points], *, marks: Mapping[str, float] | None = None, width: int = 72, height: int = 14
) -> str:
    """A plot of ``width`` columns. Points of several series in one cell show as ``+``. ``marks``: x by series."""
    letters = _letters(list(series))
    points = [(name, x, y) for name, pairs in series.items() for x, y in pairs]
    xs, ys = [x for _, x, _ in points], [y for _, _, y in points]
    low, high = min(ys), max(ys)
    columns, span = width - LEFT - 2, (max(xs) - min(xs)) or 1
    grid = [[" "] * (columns + 2) for _ in range(height)]
    marked = []
    for name, x, y in points:
        row = round((high - y) / ((high - low) or 1) * (height - 1))
        column = round((x - min(xs)) / span * (columns - 3))
        grid[row][column] = letters[name] if grid[row][column] in (" ", letters[name]) else SEVERAL
        if marks is not None and marks.get(name) == x:
            marked.append((row, column, letters[name]))
    for row, column, letter in marked:
        grid[row][column : column + 3] = ["◉", " ", letter]
    lines = []
    for i, cells in enumerate(grid):
        scale = f"{high:>4.0%} ┤" if i == 0 else f"{low:>4.0%} ┤" if i == height - 1 else "│"
        lines.append((scale.rjust(LEFT - 3) + "".join(cells)).rstrip())
    axis = " " * (LEFT - 4) + "└" + "─" * (columns - 2)
    left, right = f"{min(xs):g}", f"{max(xs):g}"
    ends = " " * (LEFT - 3) + left + right.rjust(columns - 2 - len(left))
    key = ", ".join(f"{letters[name]} = {name}" for name in series)
    together = f", {SEVERAL} = several" if any(SEVERAL in cells for cells in grid) else ""
    return "\n".join([*lines, axis, ends, f"{key}{together}" + ("; ◉ the chosen budget" if marks else "")])


def _letters(names: list[str]) -> dict[str, str]:
    """A letter for each name: one of its own where that is free."""
    taken: dict[str, str] = {}
    for name in names:
        own = [c.upper() for c in name if c.isalnum() and c.isascii()]
        free = (c for c in [*own, *string.ascii_uppercase, *string.digits] if c not in taken.values())
        taken[name] = next(free, "*")  # beyond 36 names
    return taken


def curves_text(curves: Mapping[str, Curve], budgets: Mapping[str, int], width: int) -> str:
    """Error against tokens for every tier."""
    series = {tier: list(zip(curve.budgets, curve.errors, strict=True)) for tier, curve in curves.items()}
    return "error against visual tokens per image\n" + plot(series, marks=budgets, width=width)


def frontier_text(curves: Mapping[str, Curve], plan: Plan, width: int) -> str:
    """CWE against the most expensive tier's budget, at the given costs and at equal costs; "" for a single tier."""
    if len(curves) < 2:
        return ""
    own, top = own_ratio(plan.costs), plan.most_expensive
    series = {}
    for ratio in dict.fromkeys([own, 1.0]):
        terms = Terms(plan.prices(ratio), plan.counts, plan.allocation.total, max_harm=plan.max_harm)
        series[f"{ratio:g} to 1"] = [(row["budget"], row["cwe"]) for row in frontier_rows(curves, terms, top)]
    marks = {f"{own:g} to 1": plan.allocation.budgets[top]}
    title = f"cost-weighted error against the tokens of tier {top}, by cost ratio"
    return f"{title}\n{plot(series, marks=marks, width=width)}"


def bars(rows: Mapping[str, float], width: int) -> str:
    """Named rates as bars from 0 to the largest."""
    longest, most = max(map(len, rows)), max(rows.values()) or 1.0
    space = width - longest - 9
    return "\n".join(
        f"{name:<{longest}} {value:.3f} {'█' * round(value / most * space)}" for name, value in rows.items()
    )
