"""How do curves and the frontier look? Vega-Lite with named rows, the same for the live page and for an SVG.

``rows`` may be empty: the page fills a figure by name (``view.data("chosen", …)``) whenever a control moves. Plain
Vega-Lite is written out here; a wrapper library would add packages and draw the same.
"""

from typing import Any

# Which colour, dash and marker does each thing have? One table for the page and for drawings.
#
# In the page a colour is a CSS variable, so that dark, light and print need no redrawing; in a drawing it is itself.
# Nothing is told by colour alone: every tier, arm and cost ratio has its dash and its marker too.


LIGHT = {
    "ink": "#1c2430", "soft": "#5b6675", "line": "#d8dde4", "paper": "#ffffff", "accent": "#0b62c4",
    "c0": "#0b62c4", "c1": "#b4541a", "c2": "#1c7a4d", "c3": "#8a3ea8", "c4": "#8c6a00",
    "c5": "#b0234f", "c6": "#2b7a8c", "c7": "#5c5f66", "c8": "#6a4b2a", "c9": "#3a4bc0",
}  # fmt: skip
DARK = {
    "ink": "#e8ecf2", "soft": "#a3adba", "line": "#39424f", "paper": "#161b22", "accent": "#6db1ff",
    "c0": "#6db1ff", "c1": "#f2a26b", "c2": "#6fd3a0", "c3": "#d6a3ee", "c4": "#e2c35c",
    "c5": "#ff8fb0", "c6": "#7fd0e0", "c7": "#c0c5cd", "c8": "#d3b08c", "c9": "#a8b3ff",
}  # fmt: skip
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 1], [1, 3], [12, 3, 3, 3], [5, 5], [3, 1, 1, 1]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]

Palette = dict[str, str]
PAGE: Palette = {name: f"var(--{name})" for name in LIGHT}


def series(names: list[str], palette: Palette) -> dict[str, Any]:
    """Encodings of colour, dash and marker for named series, each name with its own of all three."""

    def scale(of: list[Any]) -> dict[str, Any]:
        return {"domain": names, "range": [of[i % len(of)] for i in range(len(names))]}

    return {
        "color": scale([palette[f"c{i}"] for i in range(10)]),
        "dash": scale(DASHES),
        "shape": scale(SHAPES),
    }


def config(palette: Palette) -> dict[str, Any]:
    """How every figure looks."""
    text = {"labelColor": palette["ink"], "titleColor": palette["ink"], "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif",
        "axis": {
            **text, "titleFontWeight": 500, "gridColor": palette["line"], "domainColor": palette["soft"],
            "tickColor": palette["soft"], "labelOverlap": True,
        },
        "legend": {**text, "orient": "top", "symbolStrokeColor": palette["ink"], "symbolSize": 90, "columns": 5},
        "view": {"stroke": None},
        "title": {"color": palette["ink"], "fontSize": 13, "anchor": "start"},
        "text": {"color": palette["ink"], "fontSize": 12},
    }  # fmt: skip


# What do all figures share? Their frame, their axis of budgets, and rows that the page can replace by name.


Rows = list[dict[str, Any]]
Spec = dict[str, Any]
PERCENT = {"format": ".0%"}


def budgets(title: str) -> Spec:
    """The axis of visual tokens."""
    scale = {"nice": False, "zero": False}
    return {"field": "budget", "type": "quantitative", "title": title, "scale": scale, "axis": {"tickCount": 8}}


def named(name: str, rows: dict[str, Rows]) -> Spec:
    """Rows that the page finds by this name; empty until it fills them."""
    return {"name": name, "values": rows.get(name, [])}


def haloed(data: Spec, mark: Spec, encoding: Spec, palette: Palette) -> list[Spec]:
    """Text that stays legible where it crosses a line: the paper's colour around it, then the text itself."""
    halo = {"stroke": palette["paper"], "strokeWidth": 4, "strokeJoin": "round", "opacity": 0.85}
    text = {"type": "text", "fontWeight": 600, **mark}
    return [{"data": data, "mark": {**text, **extra}, "encoding": encoding} for extra in (halo, {})]


def figure(palette: Palette, layers: list[Spec], height: Any = 320, right: int = 8) -> Spec:
    """Layers in the common frame, as wide as the page gives; ``right``: room for names beside the lines."""
    return {
        "width": "container",
        "height": height,
        "padding": {"left": 5, "top": 5, "bottom": 5, "right": right},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": config(palette),
        "layer": layers,
    }


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
