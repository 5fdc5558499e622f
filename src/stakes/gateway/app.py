"""What answers on which path? The gateway's own pages, and the gate for everything else.

app = create_app(Settings(upstream="http://127.0.0.1:8000/v1"), Served.start(load, (path,), check))
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stakes.budgets.policy import Policy
from stakes.calibration.certify.drift import Conditions
from stakes.errors import BadInput
from stakes.gateway.monitoring import dashboard as live
from stakes.gateway.monitoring.dashboard import state
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.probe import Finding, probe, probe_until_known
from stakes.gateway.monitoring.recent import Recent
from stakes.gateway.monitoring.shadow import Shadow, conditions_of
from stakes.gateway.openapi import description
from stakes.gateway.proxy import actuators
from stakes.gateway.proxy.errors import Refused, error_body
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.handler import Gate
from stakes.gateway.proxy.images import Workers
from stakes.gateway.proxy.upstream import Doorkeeper, Upstream
from stakes.gateway.reload import Served, cautions
from stakes.gateway.settings import Settings

if TYPE_CHECKING:
    from stakes.gateway.monitoring.telemetry import Telemetry


# Is the gateway alive, and can it serve? ``/healthz`` and ``/readyz``.
#
# Alive is whether it answers at all. Ready is whether the upstream answers too, asked at most every few seconds; any
# answer but a 5xx counts, because a 401 comes from a server that works.


_FRESH_S = 3.0
_PATIENCE = aiohttp.ClientTimeout(total=3.0)


@dataclass
class Health:
    """What is known of the upstream; ``draining`` is set when the gateway begins to shut down."""

    upstream: Upstream
    draining: bool = False
    _asked: float = -_FRESH_S
    _answers: bool = False

    async def ready(self) -> tuple[bool, str]:
        """Whether requests can be served, and why not."""
        if self.draining:
            return False, "shutting down"
        if time.monotonic() - self._asked > _FRESH_S:
            self._answers = await self._ask()
            self._asked = time.monotonic()
        return self._answers, "ready" if self._answers else "the upstream does not answer"

    async def _ask(self) -> bool:
        try:
            async with self.upstream.session.get(
                f"{self.upstream.base}/models", headers=self.upstream.headers((), changed=False), timeout=_PATIENCE
            ) as reply:
                return reply.status < 500
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


Source = Callable[[Policy], Conditions]


def check_policy(policy: Policy, settings: Settings, conditions: Source = Conditions.of_policy) -> None:
    """Refuse a policy that this gateway could not carry out, or could not watch where it is to."""
    if policy.mechanism != "resolution":
        raise BadInput(
            f"this policy is for {policy.mechanism}, which works inside a model; a gateway needs one calibrated with "
            "--mechanism resolution"
        )
    actuators.check(settings.actuator, policy.family)
    policy.decide("")  # a policy that reads its tiers from a judge has none here
    if settings.shadow:
        conditions_of(policy, conditions)


def create_app(
    settings: Settings,
    served: Served,
    telemetry: "Telemetry | None" = None,
    conditions: Source = Conditions.of_policy,
) -> Starlette:
    """The whole gateway as one ASGI app.

    ``telemetry``: in place of what the settings name. ``conditions``: what shadow answers are held to.
    """
    if telemetry is None and settings.telemetry:
        from stakes.gateway.monitoring.telemetry import (
            Telemetry,  # half a second of imports that most gateways do without
        )

        telemetry = Telemetry.of(settings.telemetry, settings.upstream)
    metrics, log = Metrics(), Log(settings.log_questions)
    keeper = Doorkeeper(settings.client_keys, settings.upstream_key)
    upstream = Upstream(settings, keeper, metrics)
    workers = Workers(settings.limits)
    preparer = Preparer(settings, served, workers, metrics, log)
    health, recent = Health(upstream), Recent(settings.keep_images)
    shadow = Shadow(settings, served, upstream, metrics, log, conditions) if settings.shadow else None
    finding = Finding(None, "not asked yet")

    def show_policy() -> None:
        metrics.policy.clear()
        metrics.policy.labels(served.rules.policy.fingerprint, settings.mode).set(1)

    def warn() -> None:
        for sentence in cautions(served.rules.policy):
            log.say(sentence, logging.WARNING, policy=served.rules.policy.fingerprint)

    def reloaded(result: str) -> None:
        good = result in ("loaded", "same")
        metrics.reloads.labels("good" if good else "bad").inc()
        show_policy()
        if good:
            log.say("policy reloaded", policy=served.rules.policy.fingerprint, budgets=served.rules.policy.budgets)
            warn()
        else:
            log.say("policy not reloaded; the old one is kept", logging.ERROR, reason=result)

    def probed(found: Finding) -> None:
        nonlocal finding
        finding = found
        metrics.probe.set({True: 1, False: 0, None: -1}[found.follows])
        log.say(
            found.sentence,
            logging.INFO if found.follows else logging.ERROR if found.follows is False else logging.WARNING,
        )

    def ended(task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:  # else nobody would hear of it
            about = f"{task.get_name()} ended and will not begin again; restart the gateway"
            log.say(about, logging.ERROR, failure=error)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        upstream.open()
        show_policy()
        warn()
        tasks = []
        if served.files:
            tasks.append(asyncio.create_task(served.watch(settings.watch_s, reloaded), name="watch"))
        if settings.probe:
            family = served.rules.policy.family
            ask = probe_until_known(lambda: probe(settings, upstream, preparer, family), probed)
            tasks.append(asyncio.create_task(ask, name="probe"))
        for task in tasks:
            task.add_done_callback(ended)
        try:
            yield
        finally:
            health.draining = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if shadow is not None:
                await shadow.close()
            await upstream.close()
            workers.close()
            if telemetry is not None:
                await asyncio.to_thread(telemetry.close)

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"} if shadow is None else {"status": "ok", "alarms": shadow.alarms()})

    async def readyz(_: Request) -> Response:
        ready, why = await health.ready()
        about: dict[str, Any] = {
            "ready": ready, "why": why, "mode": settings.mode, "policy": served.rules.policy.fingerprint,
            "tokens_follow": finding.follows, "probe": finding.sentence,
        }  # fmt: skip
        return JSONResponse(about, 200 if ready else 503)

    async def show_metrics(request: Request) -> Response:
        try:
            keeper.check(request.headers.get("authorization", "").encode("latin-1"))
        except Refused as no:
            return Response(error_body(no.status, no.code, no.message), no.status, media_type="application/json")
        metrics.workers.set(workers.inside)
        if shadow is not None:
            shadow.state()
        page = metrics.show(served.rules.controller.state())
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(_: Request) -> Response:
        return JSONResponse(description())

    def standing() -> dict[str, Any]:
        probed = {"follows": finding.follows, "sentence": finding.sentence} if settings.probe else None
        about = {"mode": settings.mode, "actuator": settings.actuator, "fail": settings.fail, "probe": probed}
        watch = None if shadow is None else shadow.state()
        return {**about, "tasks": len(asyncio.all_tasks()), "watch": watch, **state(metrics, served.rules, recent)}

    gate = Gate(settings, keeper, preparer, upstream, metrics, log, recent, telemetry, shadow)
    app = Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", show_metrics),
            Route("/openapi.json", openapi),
            *live.routes(keeper, recent, standing),
            Route("/{path:path}", gate),
        ],
        lifespan=life,
    )
    app.state.metrics, app.state.workers, app.state.preparer = metrics, workers, preparer
    return app
