"""Telemetry is one span a request in gen_ai conventions, joined to its client's trace, and off by default."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as words
from tests.gateway.gateways import Gateway, ask, gateway, policy
from tests.gateway.upstream import Upstream, until

from stakes import BadInput
from stakes.gateway.app import check_policy, create_app
from stakes.gateway.monitoring.telemetry import Telemetry
from stakes.gateway.proxy.http_limits import server_options
from stakes.gateway.reload import Served
from stakes.gateway.run import running
from stakes.gateway.settings import Settings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = int(PARENT.split("-")[1], 16)


@dataclass
class Traced:
    front: Gateway
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader = field(repr=False)

    def span(self) -> ReadableSpan:
        """The newest span, once it has ended."""
        assert until(lambda: bool(self.exporter.get_finished_spans()))
        found: ReadableSpan = self.exporter.get_finished_spans()[-1]
        self.exporter.clear()
        return found


@pytest.fixture
def traced(upstream: Upstream) -> Iterator[Traced]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(upstream.url, tracers, MeterProvider([reader]))
    settings, made = Settings(upstream=upstream.url, probe=False, client_keys=("correct-horse",)), policy()
    served = Served(lambda: made, (), lambda one: check_policy(one, settings))
    app = create_app(settings, served, telemetry)
    with running(app, **server_options(settings.limits, 5)) as address:
        yield Traced(Gateway(address, app, served), exporter, reader)


def _post(http: httpx.Client, one: Traced, body: Any, **headers: str) -> httpx.Response:
    headers = {"authorization": "Bearer correct-horse", **headers}
    return http.post(f"{one.front.base_url}/chat/completions", json=body, headers=headers)


def test_an_image_request_is_one_span_in_the_clients_trace(
    traced: Traced, http: httpx.Client, upstream: Upstream
) -> None:
    tokens = int(_post(http, traced, ask(), traceparent=PARENT).headers["x-stakes-predicted-tokens"])
    span = traced.span()
    about = dict(span.attributes or {})
    assert span.name == "chat tiny"
    assert about[words.GEN_AI_OPERATION_NAME] == "chat"
    assert about[words.GEN_AI_PROVIDER_NAME] == "openai"
    assert about[words.GEN_AI_REQUEST_MODEL] == about[words.GEN_AI_RESPONSE_MODEL] == "tiny"
    assert about[words.GEN_AI_USAGE_INPUT_TOKENS] == 10 + tokens
    assert about[words.GEN_AI_USAGE_OUTPUT_TOKENS] == 1
    assert (about["stakes.tier"], about["stakes.outcome"], about["stakes.policy"]) == ("high", "fitted", "f1nger")
    assert (about["stakes.native"], about["stakes.budget"]) == ((1260,), (256,))
    assert (about["stakes.predicted"], about["stakes.counted"]) == ((tokens,), tokens)
    assert about["server.port"] == int(upstream.url.split(":")[2].removesuffix("/v1"))
    assert span.context is not None
    assert span.parent is not None
    assert (span.context.trace_id, format(span.parent.span_id, "016x")) == (TRACE, PARENT.split("-")[2])
    passed = upstream.last.header("traceparent")
    assert passed == f"00-{TRACE:032x}-{span.context.span_id:016x}-01"


def test_no_question_and_no_image_is_traced(traced: Traced, http: httpx.Client) -> None:
    _post(http, traced, ask("What is the total of Mrs Smith?"))
    text = traced.span().to_json()
    assert "Smith" not in text
    assert "keyword" not in text
    assert "base64" not in text


def test_text_and_streams_have_usage_too(traced: Traced, http: httpx.Client) -> None:
    _post(http, traced, {"model": "tiny", "messages": [{"role": "user", "content": "?"}]})
    span = traced.span()
    assert span.name == "chat"  # a text request is not parsed
    assert dict(span.attributes or {})[words.GEN_AI_USAGE_INPUT_TOKENS] == 10
    assert not [name for name in span.attributes or {} if name.startswith("stakes.")]
    _post(http, traced, ask(stream=True))
    streamed = dict(traced.span().attributes or {})
    assert streamed["stakes.predicted"] == (streamed["stakes.counted"],)


def test_refusals_and_failures_are_errors(traced: Traced, http: httpx.Client, upstream: Upstream) -> None:
    def ended() -> tuple[Any, Any, bool]:
        span = traced.span()
        about = span.attributes or {}
        return about.get("error.type"), about.get("http.response.status_code"), not span.status.is_ok

    _post(http, traced, ask("?", "data:nonsense"))
    assert ended() == ("bad_data_url", 422, True)
    _post(http, traced, ask(), authorization="Bearer wrong-horse")
    assert ended() == ("invalid_api_key", 401, True)
    upstream.script = lambda _, wire: wire.reply(b"{}", 429)
    _post(http, traced, ask())
    assert ended() == ("429", 429, True)
    upstream.script = lambda _, wire: wire.drop()
    _post(http, traced, ask())
    assert ended() == ("upstream_unreachable", 502, True)


def test_other_paths_are_not_traced(traced: Traced, http: httpx.Client) -> None:
    http.get(f"{traced.front.base_url}/models", headers={"authorization": "Bearer correct-horse"})
    http.get(f"{traced.front.address}/healthz")
    _post(http, traced, ask())
    assert traced.span().name == "chat tiny"
    assert traced.exporter.get_finished_spans() == ()


def test_the_metrics_have_the_conventions_names(traced: Traced, http: httpx.Client) -> None:
    _post(http, traced, ask())
    traced.span()
    data: Any = traced.reader.get_metrics_data()
    found = {one.name: one for part in data.resource_metrics[0].scope_metrics for one in part.metrics}
    assert set(found) == {"gen_ai.client.token.usage", "gen_ai.client.operation.duration"}
    kinds = {point.attributes[words.GEN_AI_TOKEN_TYPE] for point in found["gen_ai.client.token.usage"].data.data_points}
    assert kinds == {"input", "output"}
    assert (found["gen_ai.client.token.usage"].unit, found["gen_ai.client.operation.duration"].unit) == ("{token}", "s")


def test_off_means_off(front: Gateway, http: httpx.Client, upstream: Upstream) -> None:
    http.post(f"{front.base_url}/chat/completions", json=ask(), headers={"traceparent": PARENT})
    assert upstream.last.header("traceparent") == PARENT
    http.post(f"{front.base_url}/chat/completions", json=ask())
    assert upstream.last.header("traceparent") is None


def test_otlp_reaches_a_collector_when_the_gateway_ends(upstream: Upstream, http: httpx.Client) -> None:
    otlp = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    got: dict[str, list[bytes]] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            got.setdefault(self.path, []).append(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with gateway(upstream.url, telemetry=f"http://127.0.0.1:{server.server_port}") as front:
            http.post(f"{front.base_url}/chat/completions", json=ask())
    finally:
        server.shutdown()
        server.server_close()
    assert set(got) == {"/v1/traces", "/v1/metrics"}
    sent = otlp.ExportTraceServiceRequest.FromString(got["/v1/traces"][0])
    spans = [span for one in sent.resource_spans for part in one.scope_spans for span in part.spans]
    assert [span.name for span in spans] == ["chat tiny"]


def test_the_console_gets_json(upstream: Upstream, http: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(upstream.url, telemetry="console") as front:
        http.post(f"{front.base_url}/chat/completions", json=ask())
    output = capsys.readouterr()
    assert output.out == ""
    assert '"stakes.tier": "high"' in json.dumps(json.loads(output.err[: output.err.index("\n}\n") + 2]))


def test_an_unknown_destination_is_refused(upstream: Upstream) -> None:
    with pytest.raises(BadInput, match="console, global or an http"), gateway(upstream.url, telemetry="jaeger"):
        pass
