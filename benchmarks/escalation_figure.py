"""Draw CWE against tokens for every arm of ``stakes reproduce escalation``.

python benchmarks/escalation_figure.py docs/results/escalation.json docs/figures/escalation.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from stakes.report.charts import LIGHT, config, series
from stakes.report.svg import converter

ARMS = ("uniform", "cost", "options alone", "cost and options")


def draw(table: dict[str, Any]) -> str:
    """One panel for each kind of option, at the first cost ratio."""
    columns = {name: i for i, name in enumerate(table["columns"])}
    points = [
        {"options": row[columns["options"]], "arm": arm, "tokens": row[columns["tokens"]], "cwe": row[columns[arm]]}
        for row in table["rows"]
        if row[columns["r"]] == table["rows"][0][columns["r"]]
        for arm in ARMS
    ]
    look = series(list(ARMS), LIGHT)
    x, y = (
        {"field": field, "type": "quantitative", "title": title, "axis": {"grid": False}}
        for field, title in (("tokens", "realised tokens per image, both attempts"), ("cwe", "CWE, r = 5"))
    )
    legend = {"orient": "bottom", "title": None, "columns": 2}
    spec: dict[str, Any] = {
        "data": {"values": points},
        "facet": {"field": "options", "title": None, "sort": ["second attempts", "predicted budgets", "both"]},
        "spec": {
            "width": 300,
            "height": 260,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": x,
                "y": y,
                "color": {"field": "arm", "sort": list(ARMS), "scale": look["color"], "legend": legend},
                "strokeDash": {"field": "arm", "sort": list(ARMS), "scale": look["dash"], "legend": legend},
            },
        },
        "padding": 12,
        "config": {**config(LIGHT), "background": LIGHT["paper"], "font": "Arial, Helvetica, sans-serif"},
    }
    text: str = converter().vegalite_to_svg(spec)
    return text if text.endswith("\n") else text + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    target.write_text(draw(json.loads(source.read_text("utf-8"))["tables"]["escalation"]), encoding="utf-8")
