"""Which colour, dash and marker does each thing have? One table for the page and for drawings.

In the page a colour is a CSS variable, so that dark, light and print need no redrawing; in a drawing it is itself.
Nothing is told by colour alone: every tier, arm and cost ratio has its dash and its marker too.
"""

from typing import Any

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
