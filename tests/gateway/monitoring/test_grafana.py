"""The Grafana dashboard uses only metrics, labels and values that the gateway exports."""

import json
import re
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from tests.gateway.gateways import Gateway, ask, calibrated, gateway
from tests.gateway.upstream import Upstream

DASHBOARD = Path(__file__).parents[3] / "docs/grafana.json"
_METRIC = re.compile(r"\b(stakes_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(=~?)\s*"([^"]*)"')
_BY = re.compile(r"by \(([\w, ]+)\)")


def _expressions() -> list[str]:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*found, *(one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query")]


def _exported(front: Gateway, http: httpx.Client) -> dict[str, list[dict[str, str]]]:
    """Every sample's name with its label sets, after traffic of every kind."""
    here = f"{front.base_url}/chat/completions"
    http.post(here, json=ask())
    http.post(here, json={"messages": []})
    http.post(here, json=ask(), headers={"x-stakes-bypass": "1"})
    http.post(here, json=ask(), headers={"x-stakes-tier": "grounding"})
    http.post(here, json=ask("?", "data:nonsense"))
    samples: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(http.get(f"{front.address}/metrics").text):
        samples.setdefault(family.name + ("_total" if family.type == "counter" else ""), [])  # not yet counted
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(dict(sample.labels))
    return samples


def test_every_metric_of_the_dashboard_is_exported_with_its_labels(upstream: Upstream, http: httpx.Client) -> None:
    with gateway(upstream.url, calibrated(), shadow=1.0, price=0.15, token_ms=80.0) as front:
        exported = _exported(front, http)
        registered = {
            name: one._labelnames for name, one in front.app.state.metrics.registry._names_to_collectors.items()
        }
    checked = 0
    for expression in _expressions():
        for name, labels in _METRIC.findall(expression):
            checked += 1
            assert name in exported, f"{name} of the dashboard is not in /metrics"
            names = {*registered[name], "instance", "le"}  # instance is Prometheus's own
            for label, how, value in _LABEL.findall(labels):
                assert label in names, f"{name} has no label {label}"
                if label == "instance":
                    continue
                there = {one.get(label, "") for one in exported[name]}
                same = any(re.fullmatch(value, one) for one in there) if how == "=~" else value in there
                assert same, f'{name} is never exported with {label}="{value}", only {sorted(there)}'
        for group in _BY.findall(expression):
            for label in group.split(","):
                used = [name for name, _ in _METRIC.findall(expression)]
                assert any(label.strip() in {*registered[name], "le"} for name in used), (label, expression)
    assert checked > 30


def test_the_dashboard_shows_every_counter(upstream: Upstream) -> None:
    with gateway(upstream.url) as front:
        families = [one.name for one in front.app.state.metrics.registry.collect()]
    text = "\n".join(_expressions())
    assert [name for name in families if name not in text] == []


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells
