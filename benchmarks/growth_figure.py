"""How do the ladders look? Log-log panels, one for each quantity that is varied, as SVG.

Every series has its colour, dash and marker; the grey lines are of slope 1, so that a series that runs along them grows
in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stakes.report.charts import LIGHT, config, series
from stakes.report.svg import converter

WIDTH, HEIGHT, COLUMNS = 330, 250, 2


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """The panels of all rows."""
    quantities = list(dict.fromkeys(row["against"] for row in rows))
    groups: list[tuple[str, list[dict[str, Any]]]] = []
    for name in quantities:
        mine = [row for row in rows if row["against"] == name]
        selectors = [row for row in mine if row["what"].startswith("selector")]
        others = [row for row in mine if row not in selectors]
        groups += [(name, part) for part in (others, selectors) if part]
    spec: dict[str, Any] = {
        "concat": [panel(name, part) for name, part in groups],
        "columns": COLUMNS,
        "spacing": {"row": 28, "column": 24},
        "resolve": {"scale": {"color": "independent", "strokeDash": "independent", "shape": "independent"}},
        "padding": 12,
        "config": {
            **config(LIGHT),
            "background": LIGHT["paper"],
            "font": "Arial, Helvetica, sans-serif",  # one that the converter can measure
        },
    }
    text: str = converter().vegalite_to_svg(spec)
    return text if text.endswith("\n") else text + "\n"


def panel(against: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Time against one quantity, both on logarithmic axes."""
    names = [row["what"] for row in rows]
    look = series(names, LIGHT)
    points = [{"what": row["what"], "size": size, "ms": ms} for row in rows for size, ms in row["points"]]
    plain = {"grid": False, "tickCount": 5, "format": "~g"}
    x, y = (
        {"field": field, "type": "quantitative", "title": title, "scale": {"type": "log", "nice": nice}, "axis": plain}
        for field, title, nice in (("size", against, False), ("ms", "ms", True))
    )
    legend = {"orient": "bottom", "columns": 2, "labelLimit": 170, "title": None, "labelFontSize": 10, "symbolSize": 50}
    what = {"field": "what", "type": "nominal", "sort": names}
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "layer": [
            {
                "data": {"values": proportion(points)},
                "mark": {"type": "line", "color": LIGHT["line"], "strokeWidth": 1.5, "clip": True},
                "encoding": {"x": x, "y": y, "detail": {"field": "line"}},
            },
            {
                "data": {"values": points},
                "mark": {"type": "line", "strokeWidth": 1.6},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {**what, "scale": look["color"], "legend": legend},
                    "strokeDash": {**what, "scale": look["dash"], "legend": legend},
                },
            },
            {
                "data": {"values": points},
                "mark": {"type": "point", "filled": True, "size": 30},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {**what, "scale": look["color"], "legend": legend},
                    "shape": {**what, "scale": look["shape"], "legend": legend},
                },
            },
        ],
    }


def proportion(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of slope 1 a factor of ten apart, within the panel."""
    sizes, times = ([float(point[key]) for point in points] for key in ("size", "ms"))
    left, right, least, most = min(sizes), max(sizes), min(times), max(times)
    first, last = math.floor(math.log10(least * left / right)), math.ceil(math.log10(most))
    lines = []
    for k in range(first, last + 1):
        # from the left edge, or from where the line rises into the panel, to the right edge, or to where it leaves
        start = max(left, left * least / 10.0**k)
        end = min(right, left * most / 10.0**k)
        if start < end:
            lines += [{"line": k, "size": size, "ms": 10.0**k * size / left} for size in (start, end)]
    return lines
