"""What happens to one request, from its first byte to its last? Let in, read, planned, forwarded, settled, counted.

A request that can hold no image is passed on byte for byte without being parsed; so is everything that is not
``POST /v1/chat/completions`` or ``POST /v1/responses``.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stakes.gateway.auth import Doorkeeper
from stakes.gateway.body import Gone, Receive, Send, read_body, unpack
from stakes.gateway.forward import Dropped, Upstream
from stakes.gateway.logs import Log
from stakes.gateway.meter import compare, count
from stakes.gateway.metrics import Metrics
from stakes.gateway.plan import Plan
from stakes.gateway.prepare import Preparer, Said
from stakes.gateway.read_request import Api, may_hold_image, split_tiers
from stakes.gateway.recent import Recent
from stakes.gateway.refusal import Refused, error_body
from stakes.gateway.settings import Settings
from stakes.gateway.usage import Tap, Usage
from stakes.gateway.watch import Answering, Watch

if TYPE_CHECKING:
    from stakes.gateway.telemetry import Telemetry, Trace

READ: Mapping[str, Api] = {"/v1/chat/completions": "chat", "/v1/responses": "responses"}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO = frozenset({b"", b"0", b"false", b"no", b"off"})
_ONCE = frozenset(
    {
        b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"authorization", b"content-type",
        b"x-stakes-tier", b"x-stakes-bypass", b"x-stakes-task",
    }
)  # fmt: skip


def is_yes(value: bytes) -> bool:
    """Whether a header that is set means it: anything but nothing, 0, false, no and off."""
    return value.strip().lower() not in _NO


def _api(scope: Mapping[str, Any]) -> Api | None:
    return READ.get(scope["path"].rstrip("/")) if scope["method"] == "POST" else None


def _is_stream(answer: Any) -> bool:
    kind: str = answer.headers.get("content-type", "")
    return kind.startswith("text/event-stream")


class Gate:
    """The ASGI app behind every path that is not the gateway's own."""

    def __init__(
        self,
        settings: Settings,
        keeper: Doorkeeper,
        preparer: Preparer,
        upstream: Upstream,
        metrics: Metrics,
        log: Log,
        recent: Recent,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self._settings, self._keeper, self._preparer = settings, keeper, preparer
        self._upstream, self._metrics, self._log, self._recent = upstream, metrics, log, recent
        self._telemetry = telemetry

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request; whatever happens, it is answered once or its connection is closed."""
        began = time.perf_counter()
        answering = Answering(send)
        watch = Watch(receive, answering)
        plan: Plan | None = None
        trace = self._telemetry.begin(scope["headers"]) if self._telemetry and _api(scope) else None
        problem = None
        self._metrics.in_flight.inc()
        try:
            plan = await self._serve(scope, receive, answering, watch, began, trace)
        except Refused as refusal:
            problem = refusal.code
            await self._refuse(scope, answering, refusal)
        except (Gone, Dropped):  # the server closes a connection whose answer is incomplete: no length can lie
            problem = "broken_off"
            self._metrics.requests.labels("", "broken_off").inc()
        except asyncio.CancelledError:
            problem = "cancelled"
            if not watch.fired:
                raise
            watch.forgive()
            self._metrics.requests.labels("", "cancelled").inc()
        except Exception as error:
            problem = "internal_error"
            self._log.say("request failed", logging.ERROR, failure=error, path=scope.get("path"))
            if answering.begun:
                raise
            await self._refuse(scope, answering, Refused(500, "internal_error", "the gateway failed"))
        finally:
            watch.stop()
            if trace is not None:
                trace.end(answering.status, problem)
            self._metrics.in_flight.dec()
            ended = time.perf_counter() - began
            (self._metrics.duration.labels("yes") if plan and plan.images else self._metrics.text_duration).observe(
                ended
            )

    async def _serve(
        self, scope: Mapping[str, Any], receive: Receive, send: Answering, watch: Watch, began: float,
        trace: "Trace | None",
    ) -> Plan | None:  # fmt: skip
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        seen = self._seen(headers, scope)
        self._keeper.check(seen.get(b"authorization"))
        url = self._upstream.address(scope["raw_path"], scope["query_string"])
        limits, method = self._settings.limits, scope["method"]
        body = await read_body(receive, seen.get(b"content-length"), limits.body_bytes, limits.body_s)
        watch.start()
        plan = None
        api = _api(scope)
        if api is not None:
            plan = await self._plan(api, body, seen)
        changed = plan is not None and plan.body is not None
        told = [] if plan is None or plan.outcome == "text" else plan.headers(self._settings.mode)
        passed = self._upstream.headers(headers, changed=changed)
        if trace is not None:
            trace.inject(passed)
        try:
            answer = await self._upstream.ask(
                method,
                url,
                passed,
                plan.body if plan is not None and plan.body is not None else body,
            )
        except BaseException:
            if plan is not None:
                plan.cancel()
            raise
        try:
            first = time.perf_counter() - began
            if plan is None or plan.outcome == "text":
                self._metrics.text.inc()
                self._metrics.text_first_byte.observe(first)
                tap = Tap(_is_stream(answer)) if trace is not None else None
                await self._upstream.pass_on(answer, send, told, api or "chat", tap)
                if trace is not None and tap is not None:
                    trace.answered(None, tap.usage(), None)
                return None
            self._metrics.first_byte.labels("yes").observe(first)
            await self._answer(plan, answer, send, told, scope, began, trace)
        finally:
            answer.release() if send.over else answer.close()
        return plan

    async def _plan(self, api: Api, body: bytes, seen: Mapping[bytes, bytes]) -> Plan | None:
        """None where the body can hold no image."""
        limits, observing = self._settings.limits, self._settings.mode == "observe"
        bypass = is_yes(seen.get(b"x-stakes-bypass", b""))
        if bypass:
            self._metrics.bypasses.inc()
        encoding = seen.get(b"content-encoding", b"").strip().lower()
        try:
            text = unpack(body, encoding, limits.body_bytes) if encoding else body
        except Refused:
            if not (observing or bypass):
                raise
            return None
        if not may_hold_image(text):
            return None
        tier = seen.get(b"x-stakes-tier", b"").decode("latin-1")
        task = seen.get(b"x-stakes-task", b"").decode("latin-1") or None
        plan = await self._preparer.prepare(api, text, Said(split_tiers(tier), task, bypass))
        if plan.outcome != "text":
            self._metrics.fit_seconds.observe(plan.fit_s)
        return plan

    async def _answer(
        self, plan: Plan, answer: Any, send: Answering, told: list[tuple[bytes, bytes]], scope: Mapping[str, Any],
        began: float, trace: "Trace | None",
    ) -> None:  # fmt: skip
        accepted = answer.status < 400
        plan.settle() if accepted else plan.cancel()
        count(self._metrics, plan, accepted)
        tap = Tap(_is_stream(answer)) if accepted and (plan.expected is not None or trace is not None) else None
        result = "answered"
        try:
            await self._upstream.pass_on(answer, send, told, plan.api, tap)
        except Dropped:
            result = "dropped"
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        finally:
            counted = compare(self._metrics, plan, tap) if result == "answered" else None
            if trace is not None:
                trace.answered(plan, tap.usage() if tap is not None else Usage(), counted)
            ms, total = 1000 * (time.perf_counter() - began), plan.rules.controller.state()
            self._recent.add(
                plan, status=answer.status, result=result, counted=counted, ms=ms, images=total["images"],
                mean=total["mean"],
            )  # fmt: skip
            self._log.say(
                "request", path=scope["path"], status=answer.status, result=result, outcome=plan.outcome,
                tier=plan.tier, why=self._log.why(plan.why), images=plan.images, native=list(plan.natives),
                budget=list(plan.budgets), predicted=list(plan.predicted), counted=counted,
                fit_ms=round(1000 * plan.fit_s, 1), ms=round(ms, 1),
                question=plan.question if self._settings.log_questions else None,
            )  # fmt: skip

    def _seen(self, headers: list[tuple[bytes, bytes]], scope: Mapping[str, Any]) -> dict[bytes, bytes]:
        """The headers by name; those that must stand once and do not, or that change what a connection is, are 400."""
        if scope["method"] not in _METHODS:
            raise Refused(405, "bad_method", "this method is not served here")
        seen: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in seen and name in _ONCE:
                raise Refused(400, "bad_headers", f"{name.decode('ascii')} stands twice in the headers")
            seen[name] = value
        if b"upgrade" in seen:
            raise Refused(400, "bad_headers", "connections are not upgraded here; leave the upgrade header out")
        if b"host" not in seen and scope["http_version"] == "1.1":
            raise Refused(400, "bad_headers", "the host header is missing")
        if b"transfer-encoding" in seen and b"content-length" in seen:
            raise Refused(400, "bad_headers", "a body has a length or a transfer encoding, not both")
        return seen

    async def _refuse(self, scope: Mapping[str, Any], send: Answering, refusal: Refused) -> None:
        self._metrics.rejects.labels(refusal.code).inc()
        self._metrics.requests.labels("", "refused").inc()
        self._log.say("refused", logging.WARNING, path=scope.get("path"), status=refusal.status, reason=refusal.code)
        body = error_body(refusal.status, refusal.code, refusal.message)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if refusal.retry_after:
            headers.append((b"retry-after", str(refusal.retry_after).encode()))
        if refusal.status in (400, 408, 413):  # part of the body may still be on its way: nothing may follow it
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
