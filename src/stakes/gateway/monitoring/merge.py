"""One view of several processes: their metrics, controllers and last decisions, merged.

Counters and histograms are added. Gauges of work in progress are, too; of all others the largest counts. A process that
has ended keeps its counters, so that no counter ever falls.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

Counts = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
Families = list[Any]  # [name, type, description, [[sample, labels, value], …]] of each metric, as JSON
ADDED = {"stakes_requests_in_flight", "stakes_fit_work", "stakes_processes", "stakes_process_restarts"}


def families_of(registry: CollectorRegistry) -> Families:
    """All metrics of a registry as JSON."""
    return [
        [one.name, one.type, one.documentation, [[each.name, each.labels, each.value] for each in one.samples]]
        for one in registry.collect()
    ]


def counters(families: Families) -> Families:
    """What is left of a process that has ended."""
    return [family for family in families if family[1] in ("counter", "histogram")]


def without_controller(families: Families) -> Families:
    """Without the controller's state, which may be that of an earlier question; its present one is merged apart."""
    return [family for family in families if family[0] != "stakes_controller"]


def merge_families(reports: Sequence[Families]) -> Families:
    """The metrics of several processes as one."""
    merged: dict[str, tuple[list[Any], dict[tuple[Any, ...], list[Any]]]] = {}
    for name, kind, text, samples in (family for report in reports for family in report):
        _, values = merged.setdefault(name, ([name, kind, text], {}))
        for sample, labels, value in samples:
            kept = values.setdefault((sample, *sorted(labels.items())), [sample, labels, None])
            kept[2] = value if kept[2] is None else _join(name, kind, sample)(kept[2], value)
    return [[*about, list(values.values())] for about, values in merged.values()]


def _join(name: str, kind: str, sample: str) -> Any:
    if sample.endswith("_created"):
        return min
    return (lambda one, other: one + other) if kind in ("counter", "histogram") or name in ADDED else max


def render(families: Families) -> bytes:
    """The text that Prometheus scrapes."""
    registry = CollectorRegistry()
    registry.register(_Merged(families))
    return generate_latest(registry)


class _Merged:
    """A collector of metrics that were counted elsewhere."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """All metrics."""
        for name, kind, text, samples in self._families:
            metric = Metric(name, text, kind)
            for sample, labels, value in samples:
                metric.add_sample(sample, labels, value)
            yield metric


def counts_of(families: Families) -> Counts:
    """(labels, value) of everything that each counter has counted, by its name without ``stakes_``."""
    return {
        name.removeprefix("stakes_"): [
            (labels, value) for sample, labels, value in samples if sample.endswith("_total")
        ]
        for name, kind, _, samples in families
        if kind == "counter"
    }


def merge_means(points: Sequence[Sequence[tuple[float, int, float]]]) -> list[tuple[int, float]]:
    """(images so far, running mean) of all processes, from (when, images, mean) of each."""
    known = [series for series in points if series]
    latest = [(images, mean) for (_, images, mean), *_ in known]
    events = sorted((at, number, images, mean) for number, one in enumerate(known) for at, images, mean in one)
    merged = []
    for _, number, images, mean in events:
        latest[number] = (images, mean)
        total = sum(count for count, _ in latest)
        merged.append((total, round(sum(count * each for count, each in latest) / total, 2)))
    return merged
