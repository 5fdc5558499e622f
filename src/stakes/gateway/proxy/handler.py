"""Handles one request from its first byte to its last: authenticate, read, plan, forward, settle, count.

A request that cannot hold an image is forwarded byte for byte without being parsed. What is done with other paths than
…/chat/completions, …/responses and …/messages is a table in ``scan``.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from starlette.types import Receive, Scope, Send

from stakes.gateway.escalation.attempts import Relay, TwoAttempts
from stakes.gateway.monitoring.logs import Log, without_quotes
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.recent import RecentDecisions
from stakes.gateway.monitoring.shadow import Shadow
from stakes.gateway.monitoring.undecided import UndecidedTexts
from stakes.gateway.proxy.clients import Authenticator, Client
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.http_limits import (
    ClientGone,
    DisconnectWatcher,
    Drain,
    OpenBodies,
    ResponseSender,
    read_body,
    request_id,
    unpack,
    unpacked_size,
)
from stakes.gateway.proxy.request import ClientHints, ReceivedRequest, check_names, headers_of
from stakes.gateway.proxy.scan import Action, Api, is_read, may_hold_image, stream_api
from stakes.gateway.proxy.upstream import Dropped, SentBody, Upstream, is_stream
from stakes.gateway.proxy.usage import CapCheck, Usage, UsageReader, compare_usage, settle_images, settle_request
from stakes.gateway.settings import Settings

if TYPE_CHECKING:
    from stakes.gateway.monitoring.telemetry import Telemetry, Trace


@dataclass(frozen=True)
class Monitors:
    """What observes the requests."""

    metrics: Metrics
    log: Log
    recent: RecentDecisions
    undecided: UndecidedTexts
    caps: CapCheck
    report_cap: Callable[[str], None]
    telemetry: "Telemetry | None" = None
    shadow: Shadow | None = None


@dataclass
class ActiveRequest:
    """A request in progress; ``began`` is on the clock of ``time.perf_counter``; ``client`` is set once it is known."""

    scope: Scope
    send: ResponseSender
    began: float
    trace: "Trace | None"
    client: Client | None = None
    held: int = 0  # bytes of its body in memory

    def about(self) -> dict[str, Any]:
        """What every line of the log says about it."""
        name = None if self.client is None else self.client.name
        return {"path": self.scope.get("path"), "request_id": self.send.request_id.decode("ascii"), "client": name}

    def seconds(self) -> float:
        """The time since the request began."""
        return time.perf_counter() - self.began


@dataclass(frozen=True)
class ProxyHandler:
    """The ASGI app of every path that is not the gateway's own."""

    settings: Settings
    authenticator: Authenticator
    preparer: Preparer
    upstream: Upstream
    monitors: Monitors
    drain: Drain
    bodies: OpenBodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request: it is answered once, or its connection is closed."""
        began, metrics, telemetry = time.perf_counter(), self.monitors.metrics, self.monitors.telemetry
        is_traced = telemetry and is_read(self.upstream.action(scope["method"], scope["raw_path"]))
        trace = telemetry.begin(scope["headers"]) if telemetry and is_traced else None
        active = ActiveRequest(scope, ResponseSender(send, request_id(scope["headers"])), began, trace)
        client = DisconnectWatcher(receive, active.send)
        plan: RequestPlan | None = None
        problem = None
        metrics.in_flight.inc()
        try:
            plan = await self._serve(active, receive, client)
        except Refused as refusal:
            problem = refusal.code
            refusal.__traceback__ = refusal.__context__ = None  # their frames hold the body until garbage is collected
            await self._refuse(active, refusal)
        except (ClientGone, Dropped) as error:  # the server closes the connection of an incomplete response
            problem = "broken_off"
            metrics.requests.labels("", "broken_off").inc()
            if isinstance(error, Dropped):
                event = "the upstream broke off its response"
                self.monitors.log.write(event, logging.WARNING, **active.about(), reason=str(error))
        except asyncio.CancelledError:
            if not client.fired:
                problem = "cancelled"
                raise
            client.uncancel()
            if not active.send.complete:
                problem = "cancelled"
                metrics.requests.labels("", "cancelled").inc()
        except Exception as error:
            problem = "internal_error"
            self.monitors.log.write("request failed", logging.ERROR, failure=error, **active.about())
            if active.send.status is not None:
                raise
            await self._refuse(active, Refused(500, "internal_error", "the gateway failed"))
        finally:
            self.bodies.bytes -= active.held
            client.stop()
            if trace is not None:
                trace.end(active.send.status, problem)
            metrics.in_flight.dec()
            duration = metrics.duration.labels("yes") if plan and plan.images else metrics.text_duration
            duration.observe(active.seconds())

    async def _serve(self, active: ActiveRequest, receive: Receive, client: DisconnectWatcher) -> RequestPlan | None:
        """Forward the request and relay the response; the plan, or None for a request without images."""
        scope, limits = active.scope, self.settings.limits
        headers = headers_of(scope)
        self._admit(active, headers)
        url = self.upstream.address(scope["raw_path"], scope["query_string"])
        body = await read_body(
            receive, headers.get(b"content-length"), limits.body_bytes, limits.body_s, partial(self.hold, active)
        )
        client.start()
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        client_address = str((scope.get("client") or ("",))[0])
        received = ReceivedRequest(url, scope["headers"], body, encoding, client_address)
        action = self.upstream.action(scope["method"], scope["raw_path"])
        plan = await self._plan(action, received, headers, active)
        if plan is not None and plan.body is not None:
            body = plan.body
        forwarded = self.upstream.headers(received.headers, changed=body is not received.body)
        forwarded["x-request-id"] = active.send.request_id.decode("ascii")
        if active.trace is not None:
            active.trace.inject(forwarded)
        ask = partial(self.upstream.ask, scope["method"], url, forwarded)
        if plan is not None and plan.attempts is not None and plan.attempts.asks:
            await TwoAttempts(self, active, plan, received, ask).serve()
            return plan
        sent = SentBody(body)
        try:
            response = await ask(sent)
        except BaseException as error:
            if plan is not None:
                self.unanswered(active, plan, sent, error)
            raise
        try:
            if plan is None:
                await self._relay_text(
                    active, response, stream_api(action, url.path) if is_stream(response) else "other"
                )
            else:
                relay = partial(self.upstream.relay, response, active.send, plan.api)
                await self.relay_images(active, response, plan, received, relay)
        finally:
            response.release() if active.send.over else response.close()
        return plan

    def _admit(self, active: ActiveRequest, headers: Mapping[bytes, bytes]) -> None:
        """Find the client, and refuse it without a key, beyond its limit, or while the gateway shuts down."""
        if self.authenticator.own:
            active.client = self.authenticator.check(headers)
        if self.drain.begun:
            raise Refused(503, "draining", "this gateway is shutting down; ask again", retry_after=1)
        if active.client is not None:
            active.client.admit()

    def hold(self, active: ActiveRequest, count: int) -> None:
        """Count bytes of this request as being in memory until it is over."""
        active.held += self.bodies.add(count, active.held)

    async def _plan(
        self, action: Action, received: ReceivedRequest, headers: Mapping[bytes, bytes], active: ActiveRequest
    ) -> RequestPlan | None:
        """The plan; None where the request holds no image."""
        if action == "pass" or not received.body:
            return None
        if (unknown := check_names(headers)) is not None:
            self.preparer.pass_or_raise(unknown)
        hints = ClientHints.from_headers(headers)
        if hints.bypass:
            self.monitors.metrics.bypasses.inc()
        try:
            text = received.body
            if received.encoding:
                most = self.settings.limits.body_bytes
                size = unpacked_size(text, received.encoding, most)
                self.hold(active, size)
                text = await self.preparer.workers.run_for(size, unpack, text, received.encoding, most)
        except Refused:
            if not (self.settings.mode == "observe" or hints.bypass):
                raise
            return None
        if not is_read(action):
            return await self.preparer.prepare_other(action, text, hints)
        if not may_hold_image(text):
            return None
        plan = await self.preparer.prepare(action, text, hints, active.client)
        if plan.outcome == "text":
            return None
        self.monitors.metrics.fit_seconds.observe(plan.fit_s)
        return plan

    async def _relay_text(self, active: ActiveRequest, response: aiohttp.ClientResponse, api: Api) -> None:
        self.monitors.metrics.text.inc()
        self.monitors.metrics.text_first_byte.observe(active.seconds())
        reader = UsageReader(is_stream(response)) if active.trace is not None else None
        await self.upstream.relay(response, active.send, api, [], reader)
        if active.trace is not None and reader is not None:
            active.trace.answered(None, reader.usage(), None)

    async def relay_images(
        self,
        active: ActiveRequest,
        response: aiohttp.ClientResponse,
        plan: RequestPlan,
        received: ReceivedRequest,
        relay: Relay,
    ) -> None:
        """Settle and count a request with images whose response has come, and send it by ``relay``."""
        self.monitors.metrics.first_byte.labels("yes").observe(active.seconds())
        settle_request(self.monitors.metrics, plan, response.status)
        read = response.status < 400 and (plan.expected is not None or active.trace is not None)
        result, reader = "answered", UsageReader(is_stream(response)) if read else None
        try:
            await relay(plan.headers(self.settings.mode), reader)
        except Dropped:
            result = "dropped"
            raise
        except asyncio.CancelledError:
            result = "answered" if active.send.complete else "cancelled"
            raise
        finally:
            if plan.attempts is not None and (result, response.status) == ("answered", 200):
                plan.attempts.count_in(self.monitors.metrics, plan.tier)
            counted = compare_usage(self.monitors.metrics, plan, reader) if result == "answered" else None
            if result == "answered" and (sentence := self.monitors.caps.add(plan, counted, reader)) is not None:
                self.monitors.report_cap(sentence)
            ended, shadow = (result, response.status, plan.outcome), self.monitors.shadow
            if shadow is not None and ended == ("answered", 200, "fitted"):
                shadow.answered(plan, counted, reader, received)
            if active.trace is not None:
                active.trace.answered(plan, reader.usage() if reader is not None else Usage(), counted)
            self._log(active, plan, response.status, result, counted)

    def unanswered(self, active: ActiveRequest, plan: RequestPlan, sent: SentBody, error: BaseException) -> None:
        """Settle a request without a response: once bytes of it went to the upstream, its images count as read."""
        settle_images(self.monitors.metrics, plan, read=sent.begun)
        status, result = (error.status, "failed") if isinstance(error, Refused) else (None, "cancelled")
        self._log(active, plan, status, result, None)

    def _log(
        self, active: ActiveRequest, plan: RequestPlan, status: int | None, result: str, counted: int | None
    ) -> None:
        """Add an image request to the dashboard and to the log."""
        ms, log = 1000 * active.seconds(), self.monitors.log
        self.monitors.recent.add(plan, status=status, result=result, counted=counted, ms=ms)
        if plan.example:
            self.monitors.undecided.add(plan.example)
        log.write(
            "request", **active.about(), status=status, result=result, **plan.decision(),
            why=plan.why if log.questions else without_quotes(plan.why), images=plan.images, counted=counted,
            booked=plan.booked, fit_ms=round(1000 * plan.fit_s, 1), ms=round(ms, 1),
            question=plan.question if log.questions else None,
        )  # fmt: skip

    async def _refuse(self, active: ActiveRequest, refusal: Refused) -> None:
        self.monitors.metrics.rejects.labels(refusal.code).inc()
        self.monitors.metrics.requests.labels("", "refused").inc()
        status = refusal.status
        self.monitors.log.write("refused", logging.WARNING, **active.about(), status=status, reason=refusal.code)
        headers, body = refusal.reply(self.upstream.action(active.scope["method"], active.scope["raw_path"]))
        await active.send({"type": "http.response.start", "status": status, "headers": headers})
        await active.send({"type": "http.response.body", "body": body, "more_body": False})
