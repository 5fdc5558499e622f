"""OpenTelemetry traces and metrics: one span a request in gen_ai conventions, never a question or an image.

Off unless asked for. ``--telemetry console`` writes to stderr, ``--telemetry http://127.0.0.1:4318`` sends OTLP over
HTTP (``pip install 'stakes[telemetry]'``), ``--telemetry global`` uses the providers that the process already has.

Span ``chat <model>``: ``gen_ai.operation.name``, ``.provider.name``, ``.request.model``, ``.response.model``,
``.usage.input_tokens``, ``.usage.output_tokens``, and ``stakes.tier``, ``.outcome``, ``.native``, ``.budget``,
``.predicted``, ``.counted``. Metrics ``gen_ai.client.token.usage`` and ``gen_ai.client.operation.duration``. A client's
``traceparent`` is the span's parent, and the upstream gets the span's own. A text request is not parsed, so its span
has only the model that the response names.
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from multidict import CIMultiDict
from opentelemetry import metrics, propagate, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from stakes.errors import BadInput
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.usage import Usage

_NAME = "stakes.gateway"
_OPERATION = "chat"
_CONTEXT = ("traceparent", "tracestate")


class Telemetry:
    """Begins spans; ``close`` sends what is left."""

    def __init__(
        self,
        upstream: str,
        tracers: trace.TracerProvider,
        meters: metrics.MeterProvider,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._tracer, meter = tracers.get_tracer(_NAME), meters.get_meter(_NAME)
        self.tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of a request.")
        self.duration = meter.create_histogram("gen_ai.client.operation.duration", "s", "Request in to answer ended.")
        self.close = close
        address = urlsplit(upstream)
        self.common: dict[str, Any] = {
            "gen_ai.operation.name": _OPERATION,
            "gen_ai.provider.name": "openai",  # the API; which server implements it is not known here
            "server.address": address.hostname or "",
            "server.port": address.port or (443 if address.scheme == "https" else 80),
        }

    @classmethod
    def of(cls, where: str, upstream: str) -> "Telemetry":
        """The telemetry that ``--telemetry`` names."""
        if where == "global":
            return cls(upstream, trace.get_tracer_provider(), metrics.get_meter_provider())
        span_exporter, metric_exporter = _exporters(where)
        resource = Resource.create({"service.name": "stakes-gateway"})
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(span_exporter))
        meters = MeterProvider([PeriodicExportingMetricReader(metric_exporter)], resource, shutdown_on_exit=False)

        def close() -> None:
            tracers.shutdown()
            meters.shutdown()

        return cls(upstream, tracers, meters, close)

    def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> "Trace":
        """Start the span of a request with these headers."""
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        context = propagate.extract({name: named[name] for name in _CONTEXT if name in named})
        return Trace(self, self._tracer.start_span(_OPERATION, context, SpanKind.CLIENT, attributes=dict(self.common)))


class Trace:
    """One request's span."""

    def __init__(self, telemetry: Telemetry, span: trace.Span) -> None:
        self._telemetry, self._span, self._began = telemetry, span, time.perf_counter()
        self._attributes = dict(telemetry.common)

    def inject(self, headers: CIMultiDict[str]) -> None:
        """Make this span the parent of the upstream's spans."""
        for name in _CONTEXT:
            headers.popall(name, None)
        context: dict[str, str] = {}
        propagate.inject(context, trace.set_span_in_context(self._span))
        headers.update(context)

    def answered(self, plan: RequestPlan | None, usage: Usage, counted: int | None) -> None:
        """Record the decision and the usage that the server states."""
        if plan is not None and plan.model:
            self._attributes["gen_ai.request.model"] = plan.model
            self._span.update_name(f"{_OPERATION} {plan.model}")
        if usage.model:
            self._attributes["gen_ai.response.model"] = usage.model
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens is not None:
                self._span.set_attribute(f"gen_ai.usage.{kind}_tokens", tokens)
                self._telemetry.tokens.record(tokens, {**self._attributes, "gen_ai.token.type": kind})
        if plan is not None and plan.outcome != "text":
            decision = {**plan.decision(), "policy": plan.rules.policy.fingerprint, "counted": counted}
            self._span.set_attributes({f"stakes.{key}": value for key, value in decision.items() if value is not None})

    def end(self, status: int | None, problem: str | None) -> None:
        """Close the span; ``problem``: why there is no complete response, if there is none."""
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
            if problem is None and status >= 400:
                problem = str(status)
        if problem is not None:
            self._attributes["error.type"] = problem
            self._span.set_status(StatusCode.ERROR)
        self._span.set_attributes(self._attributes)
        self._telemetry.duration.record(time.perf_counter() - self._began, self._attributes)
        self._span.end()


def _exporters(where: str) -> tuple[Any, Any]:
    if where == "console":
        return ConsoleSpanExporter(out=sys.stderr), ConsoleMetricExporter(out=sys.stderr)
    if not where.startswith(("http://", "https://")):
        raise BadInput(f"telemetry goes to console, global or an http(s) address of OTLP, not to {where!r}")
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise BadInput("sending telemetry needs OTLP's exporter; run: pip install 'stakes[telemetry]'") from None
    base = where.rstrip("/")
    return OTLPSpanExporter(endpoint=f"{base}/v1/traces"), OTLPMetricExporter(endpoint=f"{base}/v1/metrics")
