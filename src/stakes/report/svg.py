"""The paper's figures from a run of one's own, as SVG: motivation, framework, frontier (a) and (b).

    draw_all(read_run("policy.json"), "docs/figures")

Every number in them is the run's. Charts are the report's own figures, drawn on white; the two diagrams are written
out by hand.
"""

from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from stakes.budgets.allocate import allocate
from stakes.budgets.curve import cwe_at
from stakes.errors import BadInput
from stakes.evaluation.statistics import RATIOS
from stakes.report.charts import LIGHT, Spec, config, curves_figure, frontier_figure, series
from stakes.report.facts import facts, frontier_rows
from stakes.report.run import Run
from stakes.tiers import extremes

# Where does the charting script come from? Out of vl-convert's own wheel, so that a report needs no network.
#
# Vega and Vega-Lite are bundled and minified once a process; about 0.9 MB.


_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def converter() -> Any:
    """The vl_convert module, or a sentence saying how to get it."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput("a report needs the charting extra; run: pip install 'stakes[report]'") from None
    return vl_convert


@cache
def charting_script() -> str:
    """The script that defines ``window.vegaEmbed``, safe within a ``<script>`` element."""
    text: str = converter().javascript_bundle(_SNIPPET)
    # Inside a string or a regular expression of a script "<\/" is the same as "</", and cannot end the element.
    text = text.replace("</script", "<\\/script").replace("<!--", "\\x3C!--")
    return f"(() => {{{text}\n}})();"  # the bundle names hundreds of things, "$" among them; none is the page's


WIDTH = 560


def draw_all(run: Run, folder: str | Path) -> list[Path]:
    """Write every figure that the run has the numbers for, and say which."""
    if not run.curves:
        raise BadInput("the policy carries no measured curves, so there is nothing to draw")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    made = {"frontier-a": curves_svg(run), "framework": framework_svg(run)}
    if len(run.curves) > 1:
        made |= {"frontier-b": frontier_svg(run), "motivation": motivation_svg(run)}
    paths = []
    for name, text in sorted(made.items()):
        path = target / f"{name}.svg"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def curves_svg(run: Run) -> str:
    """(a): error against tokens for each tier, the policy's budgets ringed."""
    tiers = facts(run)["tiers"]
    measured, chosen = [], []
    grid = [budget for tier in tiers for budget in tier["budgets"]]
    for tier in tiers:
        columns = zip(*(tier[key] for key in ("budgets", "errors", "low", "high")), strict=True)
        measured += [{"tier": tier["name"], "budget": b, "error": e, "low": lo, "high": hi} for b, e, lo, hi in columns]
        budget = run.policy.budgets[tier["name"]]
        if budget in tier["budgets"]:
            error = tier["errors"][tier["budgets"].index(budget)]
            label = f"{tier['name']} {budget}"
            chosen.append({**_at(budget, grid), "tier": tier["name"], "error": error, "label": label})
    names = [tier["name"] for tier in tiers]
    return _svg(curves_figure(names, LIGHT, measured=measured, chosen=chosen))


def frontier_svg(run: Run) -> str:
    """(b): CWE against the dearest tier's budget at each cost ratio, optima marked."""
    costs, counts, curves = run.costs, run.counts, run.fitted
    costs = {tier: costs[tier] for tier in curves}
    total = run.policy.mean_budget * sum(counts.values())
    floor = None if run.policy.floor == 1 else run.policy.floor
    dearest, cheapest = extremes(costs)
    lines, best, ends = [], [], []
    for ratio in RATIOS:
        rows = frontier_rows(curves, costs, counts, total, ratio, floor)
        prices = {**costs, dearest: ratio * costs[cheapest]}
        budget = allocate(curves, prices, counts, total, floor).budgets[dearest]
        lines += rows
        best += [row for row in rows if row["budget"] == budget]
        ends += [{**row, "told": f"r = {ratio:g}"} for row in rows[-1:]]
    gap = 0.045 * (max(row["cwe"] for row in lines) - min(row["cwe"] for row in lines))
    least = float("-inf")
    for row in sorted(ends, key=lambda row: row["cwe"]):  # names of lines stand a line of print apart at least
        row["place"] = max(row["cwe"], least)
        least = row["place"] + gap
    names = [f"{ratio:g}" for ratio in RATIOS]
    return _svg(frontier_figure(names, LIGHT, dearest, lines=lines, best=best, ends=ends))


def motivation_svg(run: Run) -> str:
    """Why consequence matters: the same tokens, uniform and by cost, as bars of what mistakes cost in each tier."""
    costs, counts, curves = run.costs, run.counts, run.curves
    shared = set.intersection(*(set(curve.budgets) for curve in curves.values()))
    uniform = max((b for b in shared if b <= run.policy.mean_budget), default=min(shared))
    ways = {"one budget for all": dict.fromkeys(curves, uniform), "budgets by cost": run.policy.budgets}
    whole = sum(counts[tier] * costs[tier] for tier in curves)
    rows: list[dict[str, Any]] = []
    for way, budgets in ways.items():
        if any(budgets[tier] not in curves[tier].budgets for tier in curves):
            raise BadInput("a budget of the policy was not measured, so what it costs cannot be drawn")
        total = cwe_at(curves, {tier: budgets[tier] for tier in curves}, costs, counts)
        start = 0.0
        for tier, curve in curves.items():
            error = curve.error(budgets[tier])
            end = start + counts[tier] * costs[tier] * error / whole
            told = f"{tier}, {budgets[tier]} tokens:" if end - start > 0.08 else ""  # narrower has no room for words
            row = {"way": f"{way}: CWE {total:.3f}", "tier": tier, "start": start, "end": end}
            row |= {"middle": (start + end) / 2, "told": told, "wrong": f"{error:.0%} wrong" if told else ""}
            rows.append(row)
            start = end
    look = series(list(curves), LIGHT)
    y = {"field": "way", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 240, "minExtent": 200}}
    share = {"type": "quantitative", "title": "share of all cost that mistakes lose"}
    spec = {
        "data": {"values": rows},
        "width": WIDTH,
        "height": {"step": 64},
        "config": config(LIGHT),
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "stroke": LIGHT["paper"], "strokeWidth": 2},
                "encoding": {
                    "x": {**share, "field": "start"},
                    "x2": {"field": "end"},
                    "color": {"field": "tier", "scale": look["color"], "title": "tier"},
                },
            },
            *(
                {
                    "mark": {"type": "text", "color": LIGHT["paper"], "dy": dy, "fontSize": 11},
                    "encoding": {"x": {**share, "field": "middle"}, "text": {"field": field}},
                }
                for field, dy in (("told", -7), ("wrong", 8))
            ),
        ],
    }
    return _svg(spec, sized=True)


def framework_svg(run: Run) -> str:
    """The two stages with this run's own numbers in their boxes."""
    policy, counts = run.policy, run.counts
    budgets = ", ".join(f"{tier} {budget}" for tier, budget in list(policy.budgets.items())[:4])
    grid = sorted({b for curve in run.curves.values() for b in curve.budgets})
    signal = str(policy.signal.get("kind", "signal"))
    offline = [
        ("labelled questions", f"{sum(counts.values())} in {len(counts)} tiers"),
        ("answer at every budget", f"{len(grid)} budgets, {grid[0]} to {grid[-1]}"),
        ("error curves by tier", f"drawn by {policy.estimator}"),
        ("allocate", f"{policy.mean_budget} tokens on average"),
    ]
    online = [
        ("a request", "image and question"),
        ("which tier?", f"read by {signal}"),
        ("which budget?", budgets),
        ("fit the image", f"by {policy.mechanism}, then the VLM answers"),
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 300" width="980" height="300" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{LIGHT["ink"]}">',
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LIGHT["soft"]}"/></marker></defs>',
        f'<rect width="980" height="300" fill="{LIGHT["paper"]}"/>',
    ]
    for top, title, boxes in ((20, "Offline, once: calibrate", offline), (170, "Online, every request: serve", online)):
        parts.append(f'<text x="20" y="{top + 8}" font-weight="600">{escape(title)}</text>')
        for i, (head, below) in enumerate(boxes):
            x = 20 + 240 * i
            parts.append(
                f'<rect x="{x}" y="{top + 22}" width="210" height="74" rx="8" fill="none" stroke="{LIGHT["c0"]}" '
                f'stroke-width="1.5"/><text x="{x + 105}" y="{top + 53}" text-anchor="middle" font-weight="600">'
                f'{escape(head)}</text><text x="{x + 105}" y="{top + 76}" text-anchor="middle" font-size="12" '
                f'fill="{LIGHT["soft"]}">{escape(below)}</text>'
            )
            if i < 3:
                parts.append(_arrow(x + 210, top + 59, x + 239, top + 59))
    parts.append(_arrow(845, 116, 605, 191))
    parts.append(f'<text x="778" y="160" font-size="12" fill="{LIGHT["soft"]}">the policy file</text></svg>')
    return "\n".join(parts) + "\n"


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    colour = LIGHT["soft"]
    return f'<path d="M{x} {y}L{to_x} {to_y}" stroke="{colour}" stroke-width="1.5" marker-end="url(#tip)" fill="none"/>'


def _at(budget: int, grid: list[int]) -> dict[str, Any]:
    """A label's place and the side it stands on, as in the page."""
    where = (budget - min(grid)) / (max(grid) - min(grid) or 1)
    return {"budget": budget, "align": "right" if where > 0.85 else "left" if where < 0.15 else "center"}


def _svg(spec: Spec, *, sized: bool = False) -> str:
    drawn = spec if sized else {**spec, "width": WIDTH}
    drawn = {**drawn, "padding": 12}
    # A font that the converter can measure: with one it has not, labels run over the edge.
    looks = {**drawn["config"], "background": LIGHT["paper"], "font": "Arial, Helvetica, sans-serif"}
    text: str = converter().vegalite_to_svg({**drawn, "config": looks})
    return text if text.endswith("\n") else text + "\n"
