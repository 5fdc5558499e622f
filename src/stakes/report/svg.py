"""The paper's figures from a measured run, as SVG: motivation, framework, frontier (a) and (b).

    draw_all(read_run("policy.json"), "docs/figures")

All numbers in them come from the run. Charts are the report's own figures on white; the framework diagram is written
out by hand.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from stakes.budgets.uniform import format_tokens, uniform_at
from stakes.errors import BadInput
from stakes.evaluation.statistics import RATIOS
from stakes.report.charts import LIGHT, Rows, Spec, config, curves_figure, frontier_figure, layer, quantity, series
from stakes.report.data import MeasuredRun, frontier_rows, report_data
from stakes.tiers import extremes

WIDTH = 560


def converter() -> Any:
    """The vl_convert module, or an error that says how to install it."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput("a report needs the charting extra; run: pip install 'stakes[report]'") from None
    return vl_convert


@cache
def charting_script() -> str:
    """The script that defines ``window.vegaEmbed``, safe within a ``<script>`` element.

    Vega and Vega-Lite come out of vl-convert's own wheel, so that a report needs no network: about 0.9 MB, minified.
    """
    text: str = converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # Inside a string or a regular expression of a script "<\/" is the same as "</", and cannot end the element.
    text = text.replace("</script", "<\\/script").replace("<!--", "\\x3C!--")
    return f"(() => {{{text}\n}})();"  # the bundle defines hundreds of names, "$" among them: keep them local


def draw_all(run: MeasuredRun, folder: str | Path) -> list[Path]:
    """Write every figure that the run has the numbers for; returns their paths."""
    if not run.curves:
        raise BadInput("the policy carries no measured curves, so there is nothing to draw")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    figures = {"framework": framework_svg(run), "frontier-a": curves_svg(run)}
    if len(run.curves) > 1:
        figures |= {"frontier-b": frontier_svg(run), "motivation": motivation_svg(run)}
    for name, text in figures.items():
        (target / f"{name}.svg").write_text(text, encoding="utf-8")
    return [target / f"{name}.svg" for name in figures]


def curves_svg(run: MeasuredRun) -> str:
    """(a): error against tokens for each tier, with the policy's budgets ringed."""
    tiers = report_data(run)["tiers"]
    grid = [budget for tier in tiers for budget in tier["budgets"]]
    measured: Rows = []
    chosen: Rows = []
    for tier in tiers:
        columns = zip(*(tier[key] for key in ("budgets", "errors", "low", "high")), strict=True)
        measured += [{"tier": tier["name"], "budget": b, "error": e, "low": lo, "high": hi} for b, e, lo, hi in columns]
        budget = run.policy.budgets[tier["name"]]
        if budget in tier["budgets"]:
            error = tier["errors"][tier["budgets"].index(budget)]
            where = (budget - min(grid)) / (max(grid) - min(grid) or 1)
            align = "right" if where > 0.85 else "left" if where < 0.15 else "center"  # as in the report's script
            label = f"{tier['name']} {budget}"
            chosen.append({"tier": tier["name"], "budget": budget, "error": error, "label": label, "align": align})
    return _svg(curves_figure([tier["name"] for tier in tiers], LIGHT, measured=measured, chosen=chosen))


def frontier_svg(run: MeasuredRun) -> str:
    """(b): CWE against the most expensive tier's budget at each cost ratio, with optima marked."""
    curves = run.fitted
    top, _ = extremes(run.policy.costs)
    lines: Rows = []
    best: Rows = []
    ends: Rows = []
    for ratio in RATIOS:
        terms = run.terms(ratio)
        rows = [{"ratio": f"{ratio:g}", **row} for row in frontier_rows(curves, terms, top)]
        budget = terms.allocate(curves).budgets[top]
        lines += rows
        best += [row for row in rows if row["budget"] == budget]
        ends += [{**row, "name": f"r = {ratio:g}"} for row in rows[-1:]]
    gap = 0.045 * (max(row["cwe"] for row in lines) - min(row["cwe"] for row in lines))
    lowest = float("-inf")
    for row in sorted(ends, key=lambda row: row["cwe"]):  # at least one line of text between two names
        row["at"] = max(row["cwe"], lowest)
        lowest = row["at"] + gap
    return _svg(frontier_figure([f"{ratio:g}" for ratio in RATIOS], LIGHT, top, lines=lines, best=best, ends=ends))


def motivation_svg(run: MeasuredRun) -> str:
    """Why consequence matters: bars of what mistakes cost in each tier, for uniform budgets and budgets by cost."""
    counts, curves = run.counts, run.fitted
    costs, budgets = run.terms().costs, {tier: run.policy.budgets[tier] for tier in curves}
    if any(budgets[tier] not in curve.budgets for tier, curve in curves.items()):
        raise BadInput("a budget of the policy was not measured, so what it costs cannot be drawn")
    chosen = {tier: curve.error(budgets[tier]) for tier, curve in curves.items()}
    policies: dict[str, tuple[Mapping[str, float], Mapping[str, float]]] = {"budgets by cost": (budgets, chosen)}
    mean = sum(counts[tier] * budget for tier, budget in budgets.items()) / sum(counts.values())
    if (even := uniform_at(curves, mean)) is not None:
        policies = {"one budget for all": (dict.fromkeys(curves, even.tokens), even.errors), **policies}
    whole = sum(counts[tier] * costs[tier] for tier in curves)
    rows: Rows = []
    for name, (tokens, errors) in policies.items():
        total = sum(counts[tier] * costs[tier] * error for tier, error in errors.items()) / whole
        start = 0.0
        for tier, error in errors.items():
            end = start + counts[tier] * costs[tier] * error / whole
            wide = end - start > 0.08  # a narrower bar has no space for a label
            row = {"policy": f"{name}: CWE {total:.3f}", "tier": tier, "start": start, "end": end}
            label = f"{tier}, {format_tokens(tokens[tier])} tokens:" if wide else ""
            row |= {"middle": (start + end) / 2, "label": label}
            rows.append({**row, "wrong": f"{error:.0%} wrong" if wide else ""})
            start = end
    data, axis = {"values": rows}, {"labelLimit": 240, "minExtent": 200}
    y = {"field": "policy", "type": "nominal", "sort": None, "title": None, "axis": axis}
    left, middle = (quantity(field, "share of all cost that mistakes lose") for field in ("start", "middle"))
    color = {"field": "tier", "scale": series(list(curves), LIGHT)["color"], "title": "tier"}
    look = {"stroke": LIGHT["paper"], "strokeWidth": 2}
    text = {"color": LIGHT["paper"], "fontSize": 11}
    layers = [
        layer(data, "bar", look, x=left, x2={"field": "end"}, y=y, color=color),
        layer(data, "text", {**text, "dy": -7}, x=middle, y=y, text={"field": "label"}),
        layer(data, "text", {**text, "dy": 8}, x=middle, y=y, text={"field": "wrong"}),
    ]
    return _svg({"height": {"step": 64}, "config": config(LIGHT), "layer": layers})


def framework_svg(run: MeasuredRun) -> str:
    """The two stages, with this run's own numbers in their boxes."""
    policy, counts = run.policy, run.counts
    budgets = ", ".join(f"{tier} {budget}" for tier, budget in list(policy.options.items())[:4])
    grid = sorted({b for curve in run.curves.values() for b in curve.budgets})
    offline = [
        ("labelled questions", f"{sum(counts.values())} in {len(counts)} tiers"),
        ("answer at every budget", f"{len(grid)} budgets, {grid[0]} to {grid[-1]}"),
        ("error curves by tier", f"estimator {policy.estimator}"),
        ("allocate", f"{policy.mean_budget} tokens on average"),
    ]
    online = [
        ("a request", "image and question"),
        ("which tier?", f"read by {policy.signal.get('kind', 'signal')}"),
        ("which budget?", budgets),
        ("fit the image", f"by {policy.mechanism}, then the VLM answers"),
    ]
    ink, muted, paper = LIGHT["ink"], LIGHT["muted"], LIGHT["paper"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 300" width="980" height="300" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="14" fill="{ink}">',
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{muted}"/></marker></defs>',
        f'<rect width="980" height="300" fill="{paper}"/>',
    ]
    for top, title, boxes in ((20, "Offline, once: calibrate", offline), (170, "Online, every request: serve", online)):
        parts.append(f'<text x="20" y="{top + 8}" font-weight="600">{escape(title)}</text>')
        for i, (head, below) in enumerate(boxes):
            x = 20 + 240 * i
            parts.append(
                f'<rect x="{x}" y="{top + 22}" width="210" height="74" rx="8" fill="none" stroke="{LIGHT["c0"]}" '
                f'stroke-width="1.5"/><text x="{x + 105}" y="{top + 53}" text-anchor="middle" font-weight="600">'
                f'{escape(head)}</text><text x="{x + 105}" y="{top + 76}" text-anchor="middle" font-size="12" '
                f'fill="{muted}">{escape(below)}</text>'
            )
            if i < 3:
                parts.append(_arrow(x + 210, top + 59, x + 239, top + 59))
    parts.append(_arrow(845, 116, 605, 191))
    parts.append(f'<text x="778" y="160" font-size="12" fill="{muted}">the policy file</text></svg>')
    return "\n".join(parts) + "\n"


def _arrow(x: int, y: int, to_x: int, to_y: int) -> str:
    line = f'stroke="{LIGHT["muted"]}" stroke-width="1.5" marker-end="url(#tip)" fill="none"'
    return f'<path d="M{x} {y}L{to_x} {to_y}" {line}/>'


def _svg(spec: Spec) -> str:
    # The converter cannot measure system-ui, and labels would run over the edge; it knows Arial.
    look = {**spec["config"], "background": LIGHT["paper"], "font": "Arial, Helvetica, sans-serif"}
    text: str = converter().vegalite_to_svg({**spec, "width": WIDTH, "padding": 12, "config": look})
    return text if text.endswith("\n") else text + "\n"
