"""What do the curves look like in a terminal? Characters on a grid, one letter a series, no colour needed.

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
from stakes.report.facts import frontier_rows
from stakes.tiers import extremes

Points = Sequence[tuple[float, float]]
NARROWEST = 60
LEFT = 9  # columns of the scale
SEVERAL = "+"


def room() -> int:
    """Columns that a figure may take: 0 where the output is no terminal, or one too narrow to draw in."""
    if not sys.stdout.isatty():
        return 0
    width = os.get_terminal_size(sys.stdout.fileno()).columns
    return min(width, 100) if width >= NARROWEST else 0


def plot(
    series: Mapping[str, Points], *, marks: Mapping[str, float] | None = None, width: int = 72, height: int = 14
) -> str:
    """A plot of ``width`` columns; where points of several series fall together stands a sign for that."""
    letters = _letters(list(series))
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    low, high = min(ys), max(ys)
    columns, span = width - LEFT - 2, (max(xs) - min(xs)) or 1
    grid = [[" "] * (columns + 2) for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        row = round((high - y) / ((high - low) or 1) * (height - 1))
        return row, round((x - min(xs)) / span * (columns - 3))

    for name, points in series.items():
        for x, y in points:
            row, column = place(x, y)
            grid[row][column] = letters[name] if grid[row][column] in (" ", letters[name]) else SEVERAL
    for name, points in series.items():
        for x, y in points:
            if marks is not None and marks.get(name) == x:
                row, column = place(x, y)
                grid[row][column : column + 3] = ["◉", " ", letters[name]]
    lines = []
    for i, cells in enumerate(grid):
        scale = f"{high:>4.0%} ┤" if i == 0 else f"{low:>4.0%} ┤" if i == height - 1 else "│"
        lines.append((scale.rjust(LEFT - 3) + "".join(cells)).rstrip())
    axis = " " * (LEFT - 4) + "└" + "─" * (columns - 2)
    left, right = f"{min(xs):g}", f"{max(xs):g}"
    ends = " " * (LEFT - 3) + left + right.rjust(columns - 2 - len(left))
    key = ", ".join(f"{letters[name]} = {name}" for name in series)
    together = f", {SEVERAL} = several" if any(SEVERAL in cells for cells in grid) else ""
    told = f"{key}{together}" + ("; ◉ the chosen budget" if marks else "")
    return "\n".join([*lines, axis, ends, told])


def _letters(names: list[str]) -> dict[str, str]:
    """A letter for each name: its own first one where that is free."""
    taken: dict[str, str] = {}
    for name in names:
        wanted = [c.upper() for c in name if c.isalnum() and c.isascii()]
        free = [c for c in [*wanted, *string.ascii_uppercase, *string.digits] if c not in taken.values()]
        taken[name] = free[0] if free else "*"  # beyond 36 names
    return taken


def curves_text(curves: Mapping[str, Curve], budgets: Mapping[str, int], width: int) -> str:
    """Error against tokens for every tier."""
    series = {tier: list(zip(curve.budgets, curve.errors, strict=True)) for tier, curve in curves.items()}
    return "error against visual tokens an image\n" + plot(series, marks=budgets, width=width)


def frontier_text(
    curves: Mapping[str, Curve],
    costs: Mapping[str, float],
    counts: Mapping[str, int],
    total: int,
    width: int,
    chosen: int,
) -> str:
    """CWE against the dearest tier's budget at the costs given and at equal costs; nothing for one tier."""
    if len(curves) < 2:
        return ""
    dearest, cheapest = extremes(costs)
    own = costs[dearest] / costs[cheapest]
    series, marks = dict[str, Points](), dict[str, float]()
    for ratio in dict.fromkeys([own, 1.0]):
        name = f"{ratio:g} to 1"
        rows = frontier_rows(curves, costs, counts, total, ratio)
        series[name] = [(row["budget"], row["cwe"]) for row in rows]
        if ratio == own:
            marks[name] = chosen
    return f"cost-weighted error against the tokens of tier {dearest}, by cost ratio\n" + plot(
        series, marks=marks, width=width
    )


def bars(rows: Mapping[str, float], width: int) -> str:
    """Named rates as bars from 0 to the largest."""
    longest, most = max(map(len, rows)), max(rows.values()) or 1.0
    space = width - longest - 9
    return "\n".join(
        f"{name:<{longest}} {value:.3f} {'█' * round(value / most * space)}" for name, value in rows.items()
    )
