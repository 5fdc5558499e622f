"""What does the gateway count? Prometheus metrics, all of them named ``stakes_…``, in a registry of its own.

``stakes_tokens_total{tier,kind}``: native (what the images would have taken), budgeted (what they were granted),
predicted (what they take after fitting), saved (native less predicted), actual (by the server's own count). Requests
outside the cap are in ``stakes_apart_…{why}``: bypassed, grounding, uncompressed; shadow answers in
``stakes_shadow_…``, and what they show in ``stakes_watch`` and ``stakes_alarm``.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_DIFFERENCE = (-1024, -256, -64, -16, -4, -1, 0, 1, 4, 16, 64, 256, 1024)


class Metrics:
    """All counters of one gateway."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stakes_{name}", text, labels, registry=registry)

        self.requests = counter("requests", "Requests by tier and what became of them.", "tier", "outcome")
        self.images = counter("images", "Images by tier.", "tier")
        self.tokens = counter("tokens", "Visual tokens by tier and kind.", "tier", "kind")
        self.apart_tokens = counter("apart_tokens", "Native tokens of images outside the cap, and why.", "why")
        self.apart_images = counter("apart_images", "Images outside the cap, and why.", "why")
        self.rejects = counter("rejects", "Requests refused, by reason.", "reason")
        self.would_reject = counter("would_reject", "Requests that observe mode let pass, by reason.", "reason")
        self.bypasses = counter("bypasses", "Requests that asked to be left alone.")
        self.undecided = counter("undecided", "Image requests that fell to the dearest tier for want of a sign.")
        self.retries = counter("upstream_retries", "Requests sent again before any byte of an answer.")
        self.upstream_errors = counter("upstream_errors", "Upstream failures by kind.", "kind")
        self.usage = counter(
            "usage_checks", "Server counts beside the prediction: agreed, differed, unknown.", "result"
        )
        self.reloads = counter("policy_reloads", "Policy files seen to change, by result.", "result")
        self.shadows = counter("shadows", "Requests to be asked again at native size, by result.", "tier", "result")
        self.shadow_tokens = counter("shadow_tokens", "Visual tokens of shadow answers, outside the cap.", "tier")
        self.watch = Gauge(
            "stakes_watch",
            "What is watched: disagreement with the full budget (a proxy for error), shares, token error.",
            ["name", "tier"],
            registry=registry,
        )
        self.alarms = Gauge(
            "stakes_alarm", "1 where a condition of the calibration fails.", ["condition", "tier"], registry=registry
        )
        self.prediction_error = Histogram(
            "stakes_prediction_error_tokens",
            "The server's image tokens less the predicted ones.",
            buckets=_DIFFERENCE,
            registry=registry,
        )
        self.fit_seconds = Histogram(
            "stakes_fit_seconds", "Reading, fitting and encoding one request.", buckets=_SECONDS, registry=registry
        )
        self.first_byte = Histogram(
            "stakes_first_byte_seconds", "Request in to answer begun.", ["images"], buckets=_SECONDS, registry=registry
        )
        self.duration = Histogram(
            "stakes_request_seconds", "Request in to answer ended.", ["images"], buckets=_SECONDS, registry=registry
        )
        self.in_flight = Gauge("stakes_requests_in_flight", "Requests being served.", registry=registry)
        self.workers = Gauge("stakes_fit_work", "Pieces of image work running or waiting.", registry=registry)
        self.controller = Gauge("stakes_controller", "The controller's state.", ["name"], registry=registry)
        self.policy = Gauge(
            "stakes_policy_info", "The policy that is served.", ["fingerprint", "mode"], registry=registry
        )
        self.probe = Gauge(
            "stakes_probe_follows", "Whether tokens follow the budget: 1 yes, 0 no, -1 unknown.", registry=registry
        )
        self.probe.set(-1)
        # Text requests are most of the traffic of many gateways: their counters are looked up once.
        self.text = self.requests.labels("", "text")
        self.text_first_byte = self.first_byte.labels("no")
        self.text_duration = self.duration.labels("no")

    def show(self, controller: Mapping[str, float]) -> bytes:
        """The page that Prometheus reads."""
        for name, value in controller.items():
            self.controller.labels(name).set(value)
        return generate_latest(self.registry)
