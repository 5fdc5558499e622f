"""How do curves and the frontier look? Vega-Lite with named rows, the same for the live page and for an SVG.

``rows`` may be empty: the page fills a figure by name (``view.data("chosen", …)``) whenever a control moves. Plain
Vega-Lite is written out here; a wrapper library would add packages and draw the same.
"""

from stakes.report.colours import Palette, series
from stakes.report.marks import PERCENT, Rows, Spec, budgets, figure, haloed, named

CROWD = 4  # tiers beyond which bands would hide each other and labels overlap
# Labels stand inside the figure: beside their point at the edges, below it at the top.
ASIDE = {"expr": "datum.align === 'right' ? -14 : datum.align === 'left' ? 14 : 0"}


def curves_figure(tiers: list[str], palette: Palette, **rows: Rows) -> Spec:
    """Error against tokens: points with 95 % bands, an overlaid estimate, and the chosen budgets.

    ``measured``: tier, budget, error, low, high. ``overlay``: tier, budget, error. ``chosen``: the same and ``label``.
    """
    look = series(tiers, palette)
    x = budgets("visual tokens per image")
    y = {"field": "error", "type": "quantitative", "title": "error", "axis": PERCENT}
    colour = {"field": "tier", "scale": look["color"], "title": "tier", "sort": tiers, "legend": {"symbolOpacity": 1}}
    dash = {"field": "tier", "scale": look["dash"], "title": "tier", "sort": tiers}
    shape = {"field": "tier", "scale": look["shape"], "title": "tier", "sort": tiers}
    tip = [
        {"field": "tier"},
        {"field": "budget", "title": "tokens"},
        {"field": "error", "format": ".1%"},
        {"field": "low", "format": ".1%"},
        {"field": "high", "format": ".1%"},
    ]
    measured = named("measured", rows)
    return figure(
        palette,
        [
            {
                "data": measured,
                "mark": {"type": "area", "opacity": 0.13 if len(tiers) <= CROWD else 0.04},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low", "scale": {"domain": [0, 1]}},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "data": measured,
                "mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash},
            },
            {
                "data": measured,
                "mark": {"type": "point", "filled": True, "size": 46},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tip},
            },
            {
                "data": named("overlay", rows),
                "mark": {"type": "line", "strokeWidth": 4, "opacity": 0.45, "interpolate": "linear"},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": named("chosen", rows),
                "mark": {"type": "rule", "strokeWidth": 1},
                "encoding": {"x": x, "color": colour, "strokeDash": dash},
            },
            {
                "data": named("chosen", rows),
                "mark": {"type": "point", "size": 260, "strokeWidth": 2.5, "filled": False},
                "encoding": {"x": x, "y": y, "color": colour, "shape": shape},
            },
            *haloed(
                named("chosen", rows),
                {"dx": ASIDE, "dy": {"expr": "datum.error > 0.9 ? 17 : -15"}, "align": {"expr": "datum.align"}},
                {"x": x, "y": y, "text": {"field": "label"}},
                palette,
            ),
        ],
    )


def frontier_figure(ratios: list[str], palette: Palette, dearest: str, **rows: Rows) -> Spec:
    """CWE against the dearest tier's budget, a line for each cost ratio, its optimum marked.

    ``lines``: ratio, budget, cwe, others. ``ends``: the last row of each, with ``told`` and ``place``. ``best``: its
    optimum. ``now``: the line of the ratio in force. ``mark``: its optimum, with ``label`` and ``align``.
    """
    look = series(ratios, palette)
    x = budgets(f"visual tokens per image of tier {dearest}")
    y = {"field": "cwe", "type": "quantitative", "title": "cost-weighted error", "scale": {"zero": False}}
    # No legend: each line says its own cost ratio where it ends (``ends``).
    colour = {"field": "ratio", "scale": look["color"], "legend": None}
    dash = {"field": "ratio", "scale": look["dash"], "legend": None}
    tip = [
        {"field": "ratio", "title": "cost ratio"},
        {"field": "budget", "title": f"tokens, {dearest}"},
        {"field": "others", "title": "others"},
        {"field": "cwe", "title": "CWE", "format": ".4f"},
    ]
    return figure(
        palette,
        [
            {
                "data": named("lines", rows),
                "mark": {"type": "line", "strokeWidth": 1.6},
                "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash},
            },
            {
                "data": named("lines", rows),
                "mark": {"type": "point", "size": 22, "filled": True, "opacity": 0.8},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip},
            },
            {
                "data": named("ends", rows),
                "mark": {"type": "text", "align": "left", "dx": 13, "fontSize": 11},
                "encoding": {"x": x, "y": {**y, "field": "place"}, "text": {"field": "told"}, "color": colour},
            },
            {
                "data": named("now", rows),
                "mark": {"type": "line", "strokeWidth": 4, "stroke": palette["ink"], "opacity": 0.9},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": named("best", rows),
                "mark": {
                    "type": "point",
                    "shape": "diamond",
                    "size": 170,
                    "filled": True,
                    "stroke": palette["paper"],
                    "strokeWidth": 1.5,
                },
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tip},
            },
            {
                "data": named("mark", rows),
                "mark": {
                    "type": "point",
                    "shape": "diamond",
                    "size": 330,
                    "strokeWidth": 2.5,
                    "stroke": palette["ink"],
                    "fill": palette["paper"],
                },
                "encoding": {"x": x, "y": y, "tooltip": tip},
            },
            *haloed(
                named("mark", rows),
                {"dx": ASIDE, "dy": -20, "align": {"expr": "datum.align"}},
                {"x": x, "y": y, "text": {"field": "label"}},
                palette,
            ),
        ],
        right=52,  # the lines' own names stand there
    )
