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
ADDED_STATES = {
    "images", "images_outstanding", "tokens_granted", "tokens_spent", "solutions", "ledger_held", "ledger_waiting",
    "ledger_exchanges", "ledger_overdrawn", "ledger_lost",
}  # fmt: skip
TOTALS = ("images", "tokens_granted", "tokens_spent")  # of a process that has ended


def families_of(registry: CollectorRegistry) -> Families:
    """All metrics of a registry as JSON."""
    return [
        [one.name, one.type, one.documentation, [[each.name, each.labels, each.value] for each in one.samples]]
        for one in registry.collect()
    ]


def counters(families: Families) -> Families:
    """What is left of a process that has ended."""
    return [family for family in families if family[1] in ("counter", "histogram")]


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


def merge_controllers(
    states: Sequence[Mapping[str, float]], ended: Iterable[Mapping[str, float]] = ()
) -> dict[str, float]:
    """One state of the controllers: sums of what they counted, the first one's view of everything else."""
    merged = dict(states[0])
    for name in ADDED_STATES & set(merged):
        merged[name] = sum(state.get(name, 0) for state in states)
    if "ledger_reachable" in merged:
        merged["ledger_reachable"] = min(state["ledger_reachable"] for state in states)
    spent = sum(state["mean"] * state["images"] for state in states)  # and still reserved
    for state in ended:
        spent += state["tokens_spent"]
        for name in TOTALS:
            merged[name] += state[name]
    merged["mean"] = spent / merged["images"] if merged["images"] else 0.0
    return merged


def merge_means(points: Sequence[Sequence[tuple[float, int, float]]]) -> list[tuple[int, float]]:
    """(images so far, running mean) of all processes, from (when, images, mean) of each."""
    latest = [series[0][1:] for series in points if series]
    events = sorted((at, number, point) for number, series in enumerate(filter(None, points)) for at, *point in series)
    merged = []
    for _, number, (images, mean) in events:
        latest[number] = (images, mean)
        total = sum(count for count, _ in latest)
        merged.append((total, round(sum(count * each for count, each in latest) / total, 2)))
    return merged
