"""How do the arms and their latency look? What was measured, with its intervals."""

from stakes.report.charts import PERCENT, Palette, Rows, Spec, budgets, figure, named, series


def arms_figure(arms: list[str], measures: list[str], palette: Palette, **rows: Rows) -> Spec:
    """Errors by tier, their average and CWE for every arm. ``arms``: arm, measure, value, low, high."""
    look = series(arms, palette)
    y = {
        "field": "measure",
        "type": "nominal",
        "sort": measures,
        "title": None,
        "axis": {"grid": False},
        "scale": {"paddingInner": 0.35},
    }
    place = {"field": "arm", "sort": arms}
    colour = {"field": "arm", "scale": look["color"], "title": "arm", "sort": arms}
    x: dict[str, object] = {"field": "value", "type": "quantitative", "title": "share of mistakes (CWE: of their cost)"}
    x["axis"] = {**PERCENT, "tickCount": 8}
    tip = [{"field": "arm"}, {"field": "measure"}] + [
        {"field": name, "format": ".1%"} for name in ("value", "low", "high")
    ]
    data = named("arms", rows)
    return figure(
        palette,
        [
            {
                "data": data,
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "y": y,
                    "yOffset": place,
                    "x": {**x, "field": "low", "scale": {"zero": True}},
                    "x2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "data": data,
                "mark": {"type": "point", "filled": True, "size": 95},
                "encoding": {
                    "y": y,
                    "yOffset": place,
                    "x": x,
                    "color": colour,
                    "shape": {"field": "arm", "scale": look["shape"], "title": "arm", "sort": arms},
                    "tooltip": tip,
                },
            },
        ],
        height={"step": 16},
    )


def latency_figure(palette: Palette, **rows: Rows) -> Spec:
    """Milliseconds against budget. ``latency``: budget, median, p25, p75. ``marks``: budget, label."""
    x = budgets("visual tokens per image")
    tip = [{"field": "budget", "title": "tokens"}, {"field": "n", "title": "answers"}] + [
        {"field": name, "format": ".0f"} for name in ("median", "p25", "p75")
    ]
    data = named("latency", rows)
    return figure(
        palette,
        [
            {
                "data": named("marks", rows),
                "mark": {"type": "rule", "strokeDash": [4, 3], "color": palette["soft"]},
                "encoding": {"x": x},
            },
            {
                "data": data,
                "mark": {"type": "rule", "strokeWidth": 2, "color": palette["soft"]},
                "encoding": {
                    "x": x,
                    "y": {"field": "p25", "type": "quantitative", "title": "milliseconds an answer"},
                    "y2": {"field": "p75"},
                },
            },
            {
                "data": data,
                "mark": {"type": "line", "color": palette["accent"], "point": {"filled": True, "size": 50}},
                "encoding": {"x": x, "y": {"field": "median", "type": "quantitative"}, "tooltip": tip},
            },
        ],
        height=220,
    )
