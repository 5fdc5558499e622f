"""What do all figures share? Their frame, their axis of budgets, and rows that the page can replace by name."""

from typing import Any

from stakes.report.colours import Palette, config

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
