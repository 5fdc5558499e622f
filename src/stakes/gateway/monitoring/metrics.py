"""The gateway's Prometheus metrics, all named ``stakes_…``, in a registry of their own.

``stakes_tokens_total{tier,kind}`` counts native tokens (what the images would have taken), budgeted (what they were
granted), predicted (what they take after fitting), saved (native less predicted) and actual (by the server's count).
Images outside the cap (bypassed, grounding, uncompressed) are counted in ``stakes_apart_…{why}``, shadow answers in
``stakes_shadow_…``, and the drift that they show in ``stakes_watch`` and ``stakes_alarm``.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from stakes.evaluation.savings import savings

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_DIFFERENCE = (-1024, -256, -64, -16, -4, -1, 0, 1, 4, 16, 64, 256, 1024)


class Metrics:
    """All metrics of one gateway."""

    def __init__(self, price: float | None = None, token_ms: float | None = None) -> None:
        self._price, self._token_ms = price, token_ms
        self.has_worth = price is not None or token_ms is not None
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"stakes_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"stakes_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"stakes_{name}", text, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Requests by tier and outcome.", "tier", "outcome")
        self.images = counter("images", "Images by tier.", "tier")
        self.tokens = counter("tokens", "Visual tokens by tier and kind.", "tier", "kind")
        self.saved_dollars = counter("saved_dollars", "Saved tokens at --price dollars per million.", "tier")
        self.saved_seconds = counter("saved_seconds", "Saved tokens at --token-ms milliseconds per 1,000.", "tier")
        self.uncapped_tokens = counter("apart_tokens", "Native tokens of images outside the cap, by reason.", "why")
        self.uncapped_images = counter("apart_images", "Images outside the cap, by reason.", "why")
        self.rejects = counter("rejects", "Refused requests by reason.", "reason")
        self.would_reject = counter("would_reject", "Requests that observe mode let pass, by reason.", "reason")
        self.bypasses = counter("bypasses", "Requests that asked to be forwarded unchanged.")
        self.undecided = counter("undecided", "Image requests of unclear tier, which get the most expensive one.")
        self.retries = counter("upstream_retries", "Requests sent again before any byte of a response.")
        self.upstream_errors = counter("upstream_errors", "Upstream failures by kind.", "kind")
        self.usage = counter("usage_checks", "Server counts against predictions: agreed, differed, unknown.", "result")
        self.reloads = counter("policy_reloads", "Changes of the policy file by result.", "result")
        self.shadows = counter("shadows", "Requests sampled to be answered again at native size.", "tier", "result")
        self.shadow_tokens = counter("shadow_tokens", "Visual tokens of shadow answers, outside the cap.", "tier")
        about = "Drift: disagreement with the full budget (a proxy for error), shares, token error."
        self.drift = gauge("watch", about, "name", "tier")
        about = (
            "1 where a condition of the calibration fails; false alarms 5 % at most, ever, if requests of different "
        )
        about += "clients or groups, or --shadow-window seconds apart, are independent."
        self.alarms = gauge("alarm", about, "condition", "tier")
        about = "Answers of tiers that escalate or review: sure, answered (again), unpaid, failed, too long, not asked."
        self.attempts = counter("attempts", about, "tier", "result")
        self.flagged = counter("flagged", "Answers that a person should review, by tier.", "tier")
        self.first_attempt = histogram("first_attempt_seconds", "Request received to first attempt answered, if held.")
        self.attempts_in_flight = gauge("attempts_in_flight", "Requests waiting for an attempt.", "attempt")
        about = "Whether the upstream gives log-probabilities: 1 yes, 0 no, -1 unknown."
        self.confidence = gauge("confidence_given", about)
        self.confidence.set(-1)
        self.prediction_error = histogram(
            "prediction_error_tokens", "The server's image tokens less the predicted ones.", buckets=_DIFFERENCE
        )
        self.fit_seconds = histogram("fit_seconds", "Reading, fitting and encoding one request.")
        self.first_byte = histogram("first_byte_seconds", "Request received to response begun.", "images")
        self.duration = histogram("request_seconds", "Request received to response ended.", "images")
        self.in_flight = gauge("requests_in_flight", "Requests in progress.")
        self.workers = gauge("fit_work", "Image tasks running or waiting.")
        self.processes = gauge("processes", "Processes of this gateway that answer; 0 where it has only one.")
        self.restarts = gauge("process_restarts", "Times that a process of this gateway was started again.")
        self.controller = gauge("controller", "The controller's state.", "name")
        self.policy = gauge("policy_info", "The served policy.", "fingerprint", "mode")
        self.probe = gauge("probe_follows", "Whether tokens follow the budget: 1 yes, 0 no, -1 unknown.")
        self.probe.set(-1)
        # Text requests are most of the traffic of many gateways: their counters are looked up once.
        self.text = self.requests.labels("", "text")
        self.text_first_byte = self.first_byte.labels("no")
        self.text_duration = self.duration.labels("no")

    def set_controller(self, state: Mapping[str, float]) -> None:
        """Show the controller's state."""
        for name, value in state.items():
            self.controller.labels(name).set(value)

    def count_worth(self, tier: str, tokens: int) -> None:
        """Count what saved tokens are worth, in money and time, where that is known."""
        worth = savings(tokens, self._price, self._token_ms)
        if worth.dollars is not None:
            self.saved_dollars.labels(tier).inc(worth.dollars)
        if worth.seconds is not None:
            self.saved_seconds.labels(tier).inc(worth.seconds)

    def count_passed(self, code: str, observing: bool) -> None:
        """Count a refusal that is not enforced: by a gateway that observes, or fails open."""
        (self.would_reject if observing else self.rejects).labels(code).inc()

    def render(self, controller: Mapping[str, float]) -> bytes:
        """The text that Prometheus scrapes."""
        self.set_controller(controller)
        return generate_latest(self.registry)
