"""How does the gateway stand? Its counters, its controller and its last decisions as one JSON object for the page."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from prometheus_client import Counter

from stakes.gateway.cautions import cautions
from stakes.gateway.metrics import Metrics
from stakes.gateway.recent import Recent
from stakes.gateway.reload import Rules

KINDS = ("native", "budgeted", "predicted", "saved", "actual")


def state(metrics: Metrics, rules: Rules, recent: Recent) -> dict[str, Any]:
    """Whatever the page shows, all of it since the start."""
    policy, controller = rules.policy, rules.controller.state()
    tokens: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(KINDS, 0))
    for labels, value in samples(metrics.tokens):
        tokens[labels["tier"]][labels["kind"]] = value
    images = {labels["tier"]: value for labels, value in samples(metrics.images)}
    outcomes: dict[str, float] = defaultdict(float)
    for labels, value in samples(metrics.requests):
        outcomes[labels["outcome"]] += value
    names = [*policy.tiers, *(name for name in images if name not in policy.tiers)]  # a reload may have dropped one
    return {
        "policy": {
            "fingerprint": policy.fingerprint, "family": policy.family, "mean_budget": policy.mean_budget,
            "floor": policy.floor, "basis": policy.basis,
        },
        "warnings": cautions(policy),
        "tiers": [
            {
                "name": name,
                "cost": policy.tiers[name].cost if name in policy.tiers else None,
                "budget": policy.tiers[name].budget if name in policy.tiers else None,
                "budget_now": controller.get(f"budget_{name}"),
                "images": images.get(name, 0),
                **tokens[name],
            }
            for name in names
        ],
        "tokens": {kind: sum(tokens[name][kind] for name in names) for kind in KINDS},
        "requests": dict(outcomes),
        "refused": {labels["reason"]: value for labels, value in samples(metrics.rejects)},
        "apart": {labels["why"]: value for labels, value in samples(metrics.apart_images)},
        "checks": {labels["result"]: value for labels, value in samples(metrics.usage)},
        "controller": controller,
        "means": recent.means(),
        "decisions": recent.shown(),
        "keep_images": recent.keep_images,
    }  # fmt: skip


def samples(counter: Counter) -> Iterator[tuple[dict[str, str], float]]:
    """(labels, value) of everything that a counter has counted."""
    for family in counter.collect():
        for sample in family.samples:
            if sample.name.endswith("_total"):
                yield sample.labels, sample.value
