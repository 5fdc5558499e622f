"""How results look in a notebook: a table, a chart, and a pandas DataFrame.

    calibration                   # the last line of a cell shows a table
    calibration.plot()            # a chart, drawn by JupyterLab and VS Code, or by any Vega-Lite tool
    calibration.to_frame()        # pandas, which is imported here only

``Curve``, ``Allocation``, ``Policy``, ``Evaluation`` and ``Calibration`` each take one of the classes below. A chart is
a Vega-Lite specification, as in the report; where vl-convert is installed it carries its drawing as SVG too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from stakes.errors import BadInput

VEGA_LITE = "application/vnd.vegalite.v5+json"
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
Row = dict[str, Any]


class Chart(dict[str, Any]):
    """A Vega-Lite specification that notebooks draw; ``altair.Chart.from_dict`` and any Vega-Lite tool take it too."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        bundle: dict[str, Any] = {VEGA_LITE: dict(self)}
        if find_spec("vl_convert") is not None:  # for viewers that draw no Vega-Lite
            bundle["image/svg+xml"] = import_module("vl_convert").vegalite_to_svg(dict(self))
        return bundle


class Shown(ABC):
    """A result with ``rows()``, shown as a table with a caption."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Plain dicts with the same keys."""

    @abstractmethod
    def _caption(self) -> str:
        """What stands above the table."""

    def to_frame(self) -> Any:
        """``rows`` as a pandas DataFrame."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise BadInput("a frame needs pandas; run: pip install pandas, or take rows() for plain dicts") from None
        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        rows = self.rows()
        names = list(rows[0]) if rows else []
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(name, row[name]))}</td>" for name in names) + "</tr>" for row in rows
        )
        caption = f'<caption style="caption-side: top; text-align: left">{escape(self._caption())}</caption>'
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class CurveView(Shown):
    """Of a curve: error by budget."""

    def rows(self: Any) -> list[Row]:
        """One row for each budget: the measured error, its 95 % interval and the answers it rests on."""
        points = zip(self.budgets, self.errors, self.counts, strict=True)
        return [
            {"budget": b, "error": e, "low": self.interval(b)[0], "high": self.interval(b)[1], "count": n}
            for b, e, n in points
        ]

    def _caption(self) -> str:
        return "Share of wrong answers at each budget (visual tokens per image), with 95 % intervals"

    def plot(self) -> Chart:
        """Error by tokens, with intervals."""
        return curves_chart([{"tier": "error", **row} for row in self.rows()])


class AllocationView(Shown):
    """Of an allocation: budget and error by tier."""

    def rows(self: Any) -> list[Row]:
        """One row for each tier: its budget, its error there, and whether the grid ends there."""
        return [
            {"tier": tier, "budget": budget, "error": self.errors[tier], "on_edge": self.on_edge.get(tier, "")}
            for tier, budget in self.budgets.items()
        ]

    def _caption(self: Any) -> str:
        return f"Cost-weighted error {self.cwe:.3f} for {self.spent:,} of {self.total:,} visual tokens"

    def plot(self) -> Chart:
        """Budgets as bars."""
        return budgets_chart(self.rows())


class PolicyView(Shown):
    """Of a policy: cost, budget and expected error by tier."""

    def rows(self: Any) -> list[Row]:
        """One row for each tier; ``error`` is that of the curve its budget was chosen on, None where there is none."""
        return [
            {"tier": tier, "cost": plan.cost, "budget": plan.budget, "error": _expected(plan)}
            for tier, plan in self.tiers.items()
        ]

    def _caption(self: Any) -> str:
        certified = "certified" if self.certificate else "not certified"
        return f"Policy: {self.mean_budget} visual tokens per image on average, by {self.mechanism}; {certified}"

    def plot(self: Any) -> Chart:
        """The measured curves with each tier's budget; bars of the budgets where no curve was measured."""
        rows = [
            {"tier": tier, **row, "chosen": row["budget"] == plan.budget}
            for tier, plan in self.tiers.items()
            if plan.curve is not None
            for row in plan.curve.rows()
        ]
        return curves_chart(rows) if rows else budgets_chart(self.rows())


class EvaluationView(Shown):
    """Of an evaluation: errors and cost-weighted error by arm."""

    def rows(self: Any) -> list[Row]:
        """One row for each arm; ``fall`` is how much lower its CWE is than uniform's, with its 95 % interval."""
        return [
            {
                "arm": row.arm,
                **{f"error {tier}": error for tier, error in row.errors.items()},
                "cwe": row.cwe,
                "fall": None if row.gain is None else row.gain.value,
                "low": None if row.gain is None else row.gain.low,
                "high": None if row.gain is None else row.gain.high,
                "p": None if row.high_cost is None else row.high_cost.p_by_document,
                "tokens": row.spent,
            }
            for row in self.comparison.rows
        ]

    def _caption(self: Any) -> str:
        size = f"{len(self.plan.samples)} questions on {self.comparison.documents} {self.comparison.unit}s"
        return f"Ways of spending the same {self.plan.total:,} tokens on {size}; CWE: cost-weighted error"

    def plot(self: Any) -> Chart:
        """Errors of each tier and cost-weighted error, by arm."""
        rows = [
            {"arm": row["arm"], "measure": "CWE" if name == "cwe" else name, "value": value}
            for row in self.rows()
            for name, value in row.items()
            if name == "cwe" or name.startswith("error ")
        ]
        value = {"field": "value", "type": "quantitative", "title": "share of mistakes (CWE: of their cost)"}
        arm = {"field": "arm", "type": "nominal", "sort": None}
        measure = {"field": "measure", "type": "nominal", "sort": None, "title": None}
        encoding = {"x": value, "y": measure, "color": arm, "shape": arm}
        return _chart(rows, [{"mark": {"type": "point", "filled": True, "size": 90}, "encoding": encoding}])


class CalibrationView(Shown):
    """Of a calibration: the curves and the choice; its ``rows`` are its own."""

    def _caption(self: Any) -> str:
        budgets = ", ".join(f"{tier} {budget}" for tier, budget in self.policy.budgets.items())
        return f"Budgets {budgets}: cost-weighted error {self.plan.allocation.cwe:.3f} on the fitted curves"

    def plot(self) -> Chart:
        """Error by tokens: measured points with their intervals, the fitted line, and each tier's budget."""
        return curves_chart(self.rows(), line="fitted")


def curves_chart(rows: Sequence[Row], line: str = "error") -> Chart:
    """Error by tokens; rows: tier, budget, error, low, high, ``line``, and ``chosen`` where a budget is."""
    x = {"field": "budget", "type": "quantitative", "title": "visual tokens per image"}
    color: Row = {"field": "tier", "type": "nominal", "sort": None}
    if len({row["tier"] for row in rows}) < 2:
        color["legend"] = None
    shape = color | {"legend": None}  # layers do not share legends, so colors have the only one

    def layer(mark: Any, field: str, **more: Any) -> Row:
        y = {"field": field, "type": "quantitative", "title": "error rate"}
        return {"mark": mark, "encoding": {"x": x, "y": y, "color": color} | more}

    chosen = {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"x": x, "color": color}}
    layers = [
        layer("line", line),
        layer({"type": "point", "filled": True}, "error", shape=shape),
        layer({"type": "rule", "opacity": 0.4}, "low", y2={"field": "high"}),
        chosen | {"transform": [{"filter": "datum.chosen"}]},
    ]
    return _chart(rows, layers)


def budgets_chart(rows: Sequence[Row]) -> Chart:
    """Budgets of tiers as bars; rows: tier, budget."""
    x = {"field": "budget", "type": "quantitative", "title": "visual tokens per image"}
    y = {"field": "tier", "type": "nominal", "sort": None}
    return _chart(rows, [{"mark": "bar", "encoding": {"x": x, "y": y}}])


def _expected(plan: Any) -> float | None:
    """The error of a tier's plan on the curve that its budget was chosen on."""
    curve = plan.chosen_on
    return curve.error(plan.budget) if curve is not None and plan.budget in curve.budgets else None


def _chart(rows: Sequence[Row], layers: list[Row]) -> Chart:
    return Chart({"$schema": SCHEMA, "data": {"values": list(rows)}, "width": 420, "layer": layers})


def _text(name: str, value: object) -> str:
    """A value in a table: shares with three decimals, p with two digits, nothing for None."""
    if value is None or value is False:
        return ""
    if value is True:
        return "chosen" if name == "chosen" else "yes"
    if isinstance(value, float):
        return f"{value:.2g}" if name == "p" else f"{value:.3f}" if name != "cost" else f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
