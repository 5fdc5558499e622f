"""The report's figures as Vega-Lite specifications: curves, frontier, arms and latency.

The same figure serves the interactive report and an SVG. Its data sets are named and may be empty: the report's script
fills them by name (``view.data("chosen", …)``) whenever a control moves. The specifications are plain dicts, because a
wrapper library would add packages and draw the same.

In the report a color is a CSS variable, so that dark, light and print need no redrawing; in an SVG it is the color
itself. Nothing is shown by color alone: every tier, arm and cost ratio has its own dash and marker too.
"""

from typing import Any

LIGHT = {
    "ink": "#1c2430", "muted": "#5b6675", "line": "#d8dde4", "paper": "#ffffff", "accent": "#0b62c4",
    "c0": "#0b62c4", "c1": "#b4541a", "c2": "#1c7a4d", "c3": "#8a3ea8", "c4": "#8c6a00",
    "c5": "#b0234f", "c6": "#2b7a8c", "c7": "#5c5f66", "c8": "#6a4b2a", "c9": "#3a4bc0",
}  # fmt: skip
DARK = {
    "ink": "#e8ecf2", "muted": "#a3adba", "line": "#39424f", "paper": "#161b22", "accent": "#6db1ff",
    "c0": "#6db1ff", "c1": "#f2a26b", "c2": "#6fd3a0", "c3": "#d6a3ee", "c4": "#e2c35c",
    "c5": "#ff8fb0", "c6": "#7fd0e0", "c7": "#c0c5cd", "c8": "#d3b08c", "c9": "#a8b3ff",
}  # fmt: skip
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4], [4, 1], [1, 3], [12, 3, 3, 3], [5, 5], [3, 1, 1, 1]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]
PERCENT = {"format": ".0%"}
CROWD = 4  # tiers beyond which bands would hide each other and labels overlap
LABEL_ROW, LABEL_SHARE = 15, 0.24  # height of a row of labels in pixels; width of a label, of the figure's

Palette = dict[str, str]
Rows = list[dict[str, Any]]
Spec = dict[str, Any]
CSS: Palette = {name: f"var(--{name})" for name in LIGHT}
"""The palette of the report itself."""


def series(names: list[str], palette: Palette) -> dict[str, Any]:
    """Scales of color, dash and shape for named series; each name has its own of all three."""

    def scale(of: list[Any]) -> dict[str, Any]:
        return {"domain": names, "range": [of[i % len(of)] for i in range(len(names))]}

    return {"color": scale([palette[f"c{i}"] for i in range(10)]), "dash": scale(DASHES), "shape": scale(SHAPES)}


def config(palette: Palette) -> dict[str, Any]:
    """The look that all figures share."""
    text = {"labelColor": palette["ink"], "titleColor": palette["ink"], "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif",
        "axis": {
            **text, "titleFontWeight": 500, "gridColor": palette["line"], "domainColor": palette["muted"],
            "tickColor": palette["muted"], "labelOverlap": True,
        },
        "legend": {**text, "orient": "top", "symbolStrokeColor": palette["ink"], "symbolSize": 90, "columns": 5},
        "view": {"stroke": None},
        "title": {"color": palette["ink"], "fontSize": 13, "anchor": "start"},
        "text": {"color": palette["ink"], "fontSize": 12},
    }  # fmt: skip


def curves_figure(tiers: list[str], palette: Palette, **rows: Rows) -> Spec:
    """Error against tokens: points with 95 % bands, an overlaid estimate, and the chosen budgets.

    ``measured``: tier, budget, error, low, high. ``overlay``: tier, budget, error. ``chosen``: the same, ``label``,
    ``align`` and ``lift`` (``lift_labels``).
    """
    color, dash, shape = _by_name("tier", tiers, palette)
    rows_of_labels = len(tiers) if len(tiers) <= CROWD else 0
    color["legend"] = {"symbolOpacity": 1, "offset": 8 + LABEL_ROW * rows_of_labels}
    x = _tokens("visual tokens per image")
    y = quantity("error", "error", axis=PERCENT)
    tip = [{"field": "tier"}, {"field": "budget", "title": "tokens"}, *_fields(".1%", "error", "low", "high")]
    measured, overlay, chosen = (_data(name, rows) for name in ("measured", "overlay", "chosen"))
    band = {**y, "field": "low", "scale": {"domain": [0, 1]}}
    opacity = 0.13 if len(tiers) <= CROWD else 0.04
    return figure(
        palette,
        [
            layer(measured, "area", {"opacity": opacity}, x=x, y=band, y2={"field": "high"}, color=color),
            layer(measured, "line", {"strokeWidth": 1.8}, x=x, y=y, color=color, strokeDash=dash),
            layer(measured, "point", {"filled": True, "size": 46}, x=x, y=y, color=color, shape=shape, tooltip=tip),
            layer(overlay, "line", {"strokeWidth": 4, "opacity": 0.45}, x=x, y=y, color=color),
            layer(chosen, "rule", {"strokeWidth": 1}, x=x, color=color, strokeDash=dash),
            layer(chosen, "point", {"size": 260, "strokeWidth": 2.5}, x=x, y=y, color=color, shape=shape),
            *_labels(chosen, palette, x),
        ],
        top=5 + LABEL_ROW,
    )


def frontier_figure(ratios: list[str], palette: Palette, most_expensive: str, **rows: Rows) -> Spec:
    """CWE against the most expensive tier's budget, a line for each cost ratio, its optimum marked.

    ``lines``: ratio, budget, cwe, others. ``ends``: the last row of each line, with ``name`` and its height ``at``.
    ``best``: each line's optimum. ``now``: the line of the current ratio. ``mark``: its optimum, with ``label``,
    ``align`` and ``lift``.
    """
    color, dash, _ = _by_name("ratio", ratios, palette)
    color["legend"] = dash["legend"] = None  # each line has its cost ratio at its end (``ends``)
    x = _tokens(f"visual tokens per image of tier {most_expensive}")
    y = quantity("cwe", "cost-weighted error", scale={"zero": False})
    tip = [
        {"field": "ratio", "title": "cost ratio"},
        {"field": "budget", "title": f"tokens, {most_expensive}"},
        {"field": "others", "title": "others"},
        {"field": "cwe", "title": "CWE", "format": ".4f"},
    ]
    lines, ends, now, best, mark = (_data(name, rows) for name in ("lines", "ends", "now", "best", "mark"))
    name = {"x": x, "y": {**y, "field": "at"}, "text": {"field": "name"}, "color": color}
    diamond = {"shape": "diamond", "size": 170, "filled": True, "stroke": palette["paper"], "strokeWidth": 1.5}
    current = {**diamond, "size": 330, "filled": False, "strokeWidth": 2.5, "stroke": palette["ink"]}
    return figure(
        palette,
        [
            layer(lines, "line", {"strokeWidth": 1.6}, x=x, y=y, color=color, strokeDash=dash),
            layer(lines, "point", {"size": 22, "filled": True, "opacity": 0.8}, x=x, y=y, color=color, tooltip=tip),
            layer(ends, "text", {"align": "left", "dx": 13, "fontSize": 11}, **name),
            layer(now, "line", {"strokeWidth": 4, "stroke": palette["ink"], "opacity": 0.9}, x=x, y=y),
            layer(best, "point", diamond, x=x, y=y, color=color, tooltip=tip),
            layer(mark, "point", {**current, "fill": palette["paper"]}, x=x, y=y, tooltip=tip),
            layer(mark, "rule", {"strokeWidth": 1, "strokeDash": [3, 3], "color": palette["muted"]}, x=x),
            *_labels(mark, palette, x),
        ],
        right=52,  # for the names at the lines' ends
        top=5 + LABEL_ROW,
    )


def arms_figure(arms: list[str], measures: list[str], palette: Palette, **rows: Rows) -> Spec:
    """Errors by tier, their average and CWE for every arm. ``arms``: arm, measure, value, low, high."""
    color, _, shape = _by_name("arm", arms, palette)
    offset = {"field": "arm", "sort": arms}
    y: Spec = {"field": "measure", "type": "nominal", "sort": measures, "title": None, "axis": {"grid": False}}
    y["scale"] = {"paddingInner": 0.35}
    x = quantity("value", "share of mistakes (CWE: of their cost)", axis={**PERCENT, "tickCount": 8})
    low = {**x, "field": "low", "scale": {"zero": True}}
    tip = [{"field": "arm"}, {"field": "measure"}, *_fields(".1%", "value", "low", "high")]
    data, place = _data("arms", rows), {"y": y, "yOffset": offset, "color": color}
    return figure(
        palette,
        [
            layer(data, "rule", {"strokeWidth": 2}, x=low, x2={"field": "high"}, **place),
            layer(data, "point", {"filled": True, "size": 95}, x=x, shape=shape, tooltip=tip, **place),
        ],
        height={"step": 16},
    )


def latency_figure(palette: Palette, **rows: Rows) -> Spec:
    """Milliseconds against budget. ``latency``: budget, n, median, p25, p75. ``marks``: budget."""
    x = _tokens("visual tokens per image")
    y = quantity("p25", "milliseconds per answer")
    median = {"field": "median", "type": "quantitative"}
    fields = _fields(".0f", "median", "p25", "p75")
    tip = [{"field": "budget", "title": "tokens"}, {"field": "n", "title": "answers"}, *fields]
    data, muted = _data("latency", rows), {"color": palette["muted"]}
    line = {"color": palette["accent"], "point": {"filled": True, "size": 50}}
    return figure(
        palette,
        [
            layer(_data("marks", rows), "rule", {"strokeDash": [4, 3], **muted}, x=x),
            layer(data, "rule", {"strokeWidth": 2, **muted}, x=x, y=y, y2={"field": "p75"}),
            layer(data, "line", line, x=x, y=median, tooltip=tip),
        ],
        height=220,
    )


def figure(palette: Palette, layers: list[Spec], height: Any = 320, right: int = 8, top: int = 5) -> Spec:
    """Layers in the common frame, as wide as its container; ``right``, ``top``: padding for names outside of it."""
    return {
        "width": "container",
        "height": height,
        "padding": {"left": 5, "top": top, "bottom": 5, "right": right},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": config(palette),
        "layer": layers,
    }


def layer(data: Spec, mark: str, look: Spec, **encoding: Any) -> Spec:
    """One layer of a figure."""
    return {"data": data, "mark": {"type": mark, **look}, "encoding": encoding}


def lift_labels(chosen: Rows, span: float) -> Rows:
    """The rows with ``lift``: a label too close to another goes into the next row above the figure."""
    ends: list[float] = []
    lifted = []
    for row in sorted(chosen, key=lambda row: row["budget"]):
        free = (k for k, end in enumerate(ends) if row["budget"] - end >= LABEL_SHARE * span)
        k = next(free, len(ends))
        ends[k : k + 1] = [row["budget"]]
        lifted.append({**row, "lift": -9 - LABEL_ROW * k})
    return lifted


def _labels(data: Spec, palette: Palette, x: Spec) -> list[Spec]:
    """Labels above the figure, ``lift`` pixels from its top, so that they lie over no line and over no other label."""
    y = {"field": "lift", "type": "quantitative", "scale": None, "axis": None, "title": None}
    look = {"fontWeight": 600, "align": {"expr": "datum.align"}, "color": palette["ink"]}
    return [layer(data, "text", look, x=x, y=y, text={"field": "label"})]


def _data(name: str, rows: dict[str, Rows]) -> Spec:
    """A data set that the report finds by this name; empty until it is filled."""
    return {"name": name, "values": rows.get(name, [])}


def _by_name(field: str, names: list[str], palette: Palette) -> list[Spec]:
    """Encodings of color, dash and shape by the names in a field."""
    look = series(names, palette)
    return [
        {"field": field, "scale": look[channel], "title": field, "sort": names}
        for channel in ("color", "dash", "shape")
    ]


def _tokens(title: str) -> Spec:
    """The axis of visual tokens."""
    return quantity("budget", title, scale={"nice": False, "zero": False}, axis={"tickCount": 8})


def quantity(field: str, title: str, **more: Any) -> Spec:
    """The encoding of a number."""
    return {"field": field, "type": "quantitative", "title": title, **more}


def _fields(numbers: str, *names: str) -> list[Spec]:
    """Tooltip entries in one number format."""
    return [{"field": name, "format": numbers} for name in names]
