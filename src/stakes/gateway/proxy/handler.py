"""What happens to one request, from its first byte to its last? Let in, read, planned, forwarded, settled, counted.

A request that can hold no image is passed on byte for byte without being parsed; so is everything that is not posted to
the upstream's …/chat/completions or …/responses.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.recent import Recent
from stakes.gateway.monitoring.shadow import Came, Shadow
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Plan, Preparer, Said
from stakes.gateway.proxy.http_limits import Answering, Gone, Presence, Receive, Send, read_body, unpack
from stakes.gateway.proxy.request import Api, api_of, headers_of, is_yes, may_hold_image, names, text_of
from stakes.gateway.proxy.upstream import Doorkeeper, Dropped, Upstream
from stakes.gateway.proxy.usage import Tap, Usage, compare, count, note
from stakes.gateway.settings import Settings

if TYPE_CHECKING:
    from stakes.gateway.monitoring.telemetry import Telemetry, Trace


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
        shadow: Shadow | None = None,
    ) -> None:
        self._settings, self._keeper, self._preparer = settings, keeper, preparer
        self._upstream, self._metrics, self._log, self._recent = upstream, metrics, log, recent
        self._telemetry, self._shadow = telemetry, shadow

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request; whatever happens, it is answered once or its connection is closed."""
        began = time.perf_counter()
        answering = Answering(send)
        client = Presence(receive, answering)
        plan: Plan | None = None
        trace = self._telemetry.begin(scope["headers"]) if self._telemetry and self._api(scope) else None
        problem = None
        self._metrics.in_flight.inc()
        try:
            plan = await self._serve(scope, receive, answering, client, began, trace)
        except Refused as refusal:
            problem = refusal.code
            await self._refuse(scope, answering, refusal)
        except (Gone, Dropped):  # the server closes a connection whose answer is incomplete: no length can lie
            problem = "broken_off"
            self._metrics.requests.labels("", "broken_off").inc()
        except asyncio.CancelledError:
            problem = "cancelled"
            if not client.fired:
                raise
            client.forgive()
            if answering.complete:
                problem = None
            else:
                self._metrics.requests.labels("", "cancelled").inc()
        except Exception as error:
            problem = "internal_error"
            self._log.say("request failed", logging.ERROR, failure=error, path=scope.get("path"))
            if answering.begun:
                raise
            await self._refuse(scope, answering, Refused(500, "internal_error", "the gateway failed"))
        finally:
            client.stop()
            if trace is not None:
                trace.end(answering.status, problem)
            self._metrics.in_flight.dec()
            ended = time.perf_counter() - began
            (self._metrics.duration.labels("yes") if plan and plan.images else self._metrics.text_duration).observe(
                ended
            )

    async def _serve(
        self, scope: Mapping[str, Any], receive: Receive, send: Answering, client: Presence, began: float,
        trace: "Trace | None",
    ) -> Plan | None:  # fmt: skip
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        seen = headers_of(scope)
        self._keeper.check(seen.get(b"authorization"))
        url = self._upstream.address(scope["raw_path"], scope["query_string"])
        limits, method = self._settings.limits, scope["method"]
        body = await read_body(receive, seen.get(b"content-length"), limits.body_bytes, limits.body_s)
        client.start()
        plan = None
        api = self._api(scope)
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
            came = Came(url, headers, body, seen.get(b"content-encoding", b"").strip().lower())
            await self._answer(plan, answer, send, told, scope, began, trace, came)
        finally:
            answer.release() if send.over else answer.close()
        return plan

    def _api(self, scope: Mapping[str, Any]) -> Api | None:
        """The API by the path at the upstream; None also for a path that is refused."""
        try:
            return api_of(scope["method"], self._upstream.path(scope["raw_path"]))
        except Refused:
            return None

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
        tiers, task = names(seen.get(b"x-stakes-tier", b"")), text_of(seen.get(b"x-stakes-task", b"")) or None
        cost = seen.get(b"x-stakes-cost", b"").decode("latin-1").strip()
        plan = await self._preparer.prepare(api, text, Said(tiers, task, bypass, cost))
        if plan.outcome != "text":
            self._metrics.fit_seconds.observe(plan.fit_s)
        return plan

    async def _answer(
        self, plan: Plan, answer: Any, send: Answering, told: list[tuple[bytes, bytes]], scope: Mapping[str, Any],
        began: float, trace: "Trace | None", came: Came,
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
            result = "answered" if send.complete else "cancelled"
            raise
        finally:
            counted = compare(self._metrics, plan, tap) if result == "answered" else None
            if self._shadow is not None and (result, answer.status, plan.outcome) == ("answered", 200, "fitted"):
                self._shadow.answered(plan, counted, tap, came)
            if trace is not None:
                trace.answered(plan, tap.usage() if tap is not None else Usage(), counted)
            about = {"status": answer.status, "result": result, "counted": counted}
            note(self._recent, self._log, plan, scope["path"], 1000 * (time.perf_counter() - began), **about)

    async def _refuse(self, scope: Mapping[str, Any], send: Answering, refusal: Refused) -> None:
        self._metrics.rejects.labels(refusal.code).inc()
        self._metrics.requests.labels("", "refused").inc()
        self._log.say("refused", logging.WARNING, path=scope.get("path"), status=refusal.status, reason=refusal.code)
        headers, body = refusal.reply()
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})
