"""The gateway as an ASGI app: its own endpoints, and the proxy for every other path.

app = create_app(Settings(upstream="http://127.0.0.1:8000/v1"), Served(load, (path,), check))
"""

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Route

from stakes.budgets.policy import Policy
from stakes.calibration.certify.drift import ALPHA, Conditions
from stakes.errors import StakesError
from stakes.gateway.decision import DecideEndpoint
from stakes.gateway.endpoints import Endpoints
from stakes.gateway.escalation.confidence import UpstreamConfidence, not_asked
from stakes.gateway.monitoring import dashboard
from stakes.gateway.monitoring.filmstrip import Filmstrips
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.probe import ProbeResult, probe, probe_until_known
from stakes.gateway.monitoring.recent import RecentDecisions
from stakes.gateway.monitoring.shadow import Shadow, drift_conditions
from stakes.gateway.monitoring.undecided import UndecidedTexts
from stakes.gateway.processes.siblings import Siblings
from stakes.gateway.proxy import sites
from stakes.gateway.proxy.actuators import check_servable, trim_warnings
from stakes.gateway.proxy.clients import Authenticator
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.handler import Monitors, ProxyHandler
from stakes.gateway.proxy.http_limits import Drain, OpenBodies
from stakes.gateway.proxy.upstream import NETWORK_ERRORS, Upstream
from stakes.gateway.proxy.usage import PARAMETERS, CapCheck
from stakes.gateway.reload import Served, policy_warnings
from stakes.gateway.secret_files import SecretFiles
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers

if TYPE_CHECKING:
    from stakes.gateway.monitoring.telemetry import Telemetry

ConditionsSource = Callable[[Policy], Conditions]
_FRESH_S, _READY_S = 3.0, 3.0


def check_policy(policy: Policy, settings: Settings, conditions: ConditionsSource = Conditions.of_policy) -> None:
    """Refuse a policy that this gateway cannot serve, or whose drift it cannot monitor where that is asked for."""
    check_servable(policy, settings)
    if settings.shadow:
        drift_conditions(policy, conditions)


def create_app(
    settings: Settings,
    served: Served,
    telemetry: "Telemetry | None" = None,
    conditions: ConditionsSource = Conditions.of_policy,
    siblings: Siblings | None = None,
) -> Starlette:
    """The whole gateway.

    ``telemetry``: instead of what the settings name. ``conditions``: what shadow answers are compared with.
    ``siblings``: the other processes of this gateway.
    """
    gateway = Gateway(settings, served, telemetry, conditions, siblings)
    endpoints = gateway.endpoints
    app = Starlette(
        routes=[
            Route("/v1/{path:path}", gateway.proxy),  # first, because nearly all requests are here
            Route("/healthz", endpoints.healthz),
            Route("/readyz", endpoints.readyz),
            Route("/metrics", endpoints.metrics),
            Route("/openapi.json", endpoints.openapi),
            *gateway.decide.routes(),
            *dashboard.routes(
                gateway.authenticator,
                dashboard.DashboardSource(endpoints.state, endpoints.image, gateway.filmstrips.answer),
            ),
            Route("/{path:path}", gateway.proxy),
        ],
        middleware=sites.middleware(settings),
        lifespan=gateway.lifespan,
        exception_handlers={Refused: dashboard.refusal_reply},
    )
    app.state.metrics, app.state.workers, app.state.preparer = gateway.metrics, gateway.workers, gateway.preparer
    app.state.filmstrips = gateway.filmstrips
    app.state.drain, app.state.tls = gateway.drain.begin, gateway.secrets.tls
    return app


@dataclass
class Readiness:
    """Whether the upstream answers, asked at most every few seconds, and the gateway is not shutting down.

    Any status below 500 counts, because a 401 comes from a server that works.
    """

    upstream: Upstream
    drain: Drain
    _checked: float = -_FRESH_S
    _answers: bool = False

    async def check(self) -> tuple[bool, str]:
        """Whether requests can be served, and why not."""
        if self.drain.begun:
            return False, "shutting down"
        if time.monotonic() - self._checked > _FRESH_S:
            try:
                self._answers = await self.upstream.status(f"{self.upstream.base}/models", _READY_S) < 500
            except NETWORK_ERRORS:
                self._answers = False
            self._checked = time.monotonic()
        return self._answers, "ready" if self._answers else "the upstream does not answer"


class Gateway:
    """The components of one gateway, or of one of its processes."""

    def __init__(
        self,
        settings: Settings,
        served: Served,
        telemetry: "Telemetry | None",
        conditions: ConditionsSource,
        siblings: Siblings | None = None,
    ) -> None:
        if telemetry is None and settings.telemetry:
            from stakes.gateway.monitoring.telemetry import Telemetry  # takes half a second to import

            telemetry = Telemetry.of(settings.telemetry, settings.upstream)
        self.settings, self.served, self.siblings = settings, served, siblings
        first, step = (1, 1) if siblings is None else (siblings.count + siblings.index, siblings.count)
        self.metrics, log = Metrics(settings.price, settings.token_ms), Log(settings.log_questions)
        self.authenticator = Authenticator(
            settings.client_keys, settings.upstream_key, lambda: served.rules.accounts.ledger.processes
        )
        self.upstream = Upstream(settings, self.authenticator, self.metrics)
        self.workers = Workers(settings.limits)
        self.confidence = UpstreamConfidence(report=self._no_confidence)
        self.preparer = Preparer(settings, served, self.workers, self.metrics, log, self.confidence)
        shadow = (
            Shadow(settings, served, self.upstream, self.metrics, log, conditions, ALPHA / step)
            if settings.shadow
            else None
        )
        recent = RecentDecisions(settings.keep_images, first, step)
        undecided = UndecidedTexts(settings.keep_undecided, settings.keep_undecided_hours)
        caps = CapCheck(PARAMETERS[settings.actuator])
        self.monitors = Monitors(self.metrics, log, recent, undecided, caps, self._cap_ignored, telemetry, shadow)
        self.decide = DecideEndpoint(settings, served, self.preparer, self.metrics, self.authenticator)
        self.drain, self.secrets = Drain(), SecretFiles(settings, self.authenticator)
        self.proxy = ProxyHandler(
            settings, self.authenticator, self.preparer, self.upstream, self.monitors, self.drain,
            OpenBodies(settings.limits.open_bytes),
        )  # fmt: skip
        self.readiness = Readiness(self.upstream, self.drain)
        self.probe_result = ProbeResult(None, "not asked yet")
        self.filmstrips = Filmstrips(settings, served)
        self.endpoints = Endpoints(self)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Open the upstream, watch the policy's files and probe; at the end close everything."""
        self.upstream.open()
        self._show_policy()
        self._warn_of_secrets()
        settings, tasks = self.settings, []
        if self.served.files:
            watching = self.served.watch(settings.watch_s, self._reloaded)
            tasks.append(asyncio.create_task(watching, name="watch"))
        if self.secrets.files:
            tasks.append(asyncio.create_task(self._watch_secrets(), name="watch of keys"))
        self._on_hangup(self._reload_all)
        if settings.probe:
            policy = self.served.rules.policy
            probing = probe_until_known(lambda: probe(settings, self.upstream, policy), self._probed)
            tasks.append(asyncio.create_task(probing, name="probe"))
        if settings.keep_undecided:
            tasks.append(asyncio.create_task(self.monitors.undecided.sweep(), name="retention"))
        for task in tasks:
            task.add_done_callback(self._log_failure)
        try:
            async with self._answering_siblings():
                yield
        finally:
            self.drain.begin()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.monitors.shadow is not None:
                await self.monitors.shadow.close()
            await self.upstream.session.close()
            self.preparer.close()
            await asyncio.to_thread(self.served.rules.close)
            if self.monitors.telemetry is not None:
                await asyncio.to_thread(self.monitors.telemetry.close)

    def _answering_siblings(self) -> AbstractAsyncContextManager[None]:
        if self.siblings is None:
            return nullcontext()
        self.metrics.processes.set(1)
        self.metrics.restarts.set(self.siblings.starts - 1)
        return self.siblings.answering(self.endpoints.answer)

    def _log_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            event = f"{task.get_name()} ended and will not begin again; restart the gateway"
            self.monitors.log.write(event, logging.ERROR, failure=error)

    def _show_policy(self) -> None:
        policy = self.served.rules.policy
        self.metrics.policy.clear()
        self.metrics.policy.labels(policy.fingerprint, self.settings.mode).set(1)
        for sentence in [*policy_warnings(policy), *trim_warnings(policy, self.settings)]:
            self.monitors.log.write(sentence, logging.WARNING, policy=policy.fingerprint)

    def _reloaded(self, result: str) -> None:
        good, policy, log = result in ("loaded", "same"), self.served.rules.policy, self.monitors.log
        self.metrics.reloads.labels("good" if good else "bad").inc()
        if good:
            log.write("policy reloaded", policy=policy.fingerprint, budgets=policy.budgets)
            self._show_policy()
        else:
            log.write("policy not reloaded; the old one stays in force", logging.ERROR, reason=result)

    async def _watch_secrets(self) -> None:
        while True:
            await asyncio.sleep(self.settings.watch_s)
            await self._reload_secrets()

    async def _reload_secrets(self, force: bool = False) -> None:
        log = self.monitors.log
        try:
            for event in await asyncio.to_thread(self.secrets.reload_if_changed, force):
                log.write(event)
                self._warn_of_secrets()
        except StakesError as error:
            log.write("keys or certificate not reloaded; the old ones stay in force", logging.ERROR, reason=str(error))

    def _warn_of_secrets(self) -> None:
        for sentence in self.secrets.warnings():
            self.monitors.log.write(sentence, logging.WARNING)

    async def _reload_all(self) -> None:
        """Read the policy, the keys and the certificate again, changed or not."""
        await self._reload_secrets(force=True)
        result = await asyncio.to_thread(self.served.reload_if_changed, True)
        self._reloaded("same" if result is None else result)

    def _on_hangup(self, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run ``reload`` on SIGHUP, where the gateway has the main thread and the system such a signal."""
        tasks: set[asyncio.Task[None]] = set()

        def start() -> None:
            task = asyncio.get_running_loop().create_task(reload(), name="reload")
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(self._log_failure)

        if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, start)

    def _probed(self, result: ProbeResult) -> None:
        self.probe_result = result
        self.metrics.probe.set({True: 1, False: 0, None: -1}[result.follows])
        level = {True: logging.INFO, False: logging.ERROR, None: logging.WARNING}[result.follows]
        self.monitors.log.write(result.sentence, level)
        if result.confidence is not None:
            self.metrics.confidence.set(result.confidence)
            self.confidence.probed(result.confidence)

    def _no_confidence(self, why: str) -> None:
        self.metrics.confidence.set(0)
        why = f"the upstream gives no log-probabilities ({why})"
        self.monitors.log.write(not_asked(self.served.rules.policy, why) or why, logging.ERROR)

    def _cap_ignored(self, sentence: str) -> None:
        self._probed(ProbeResult(False, sentence))
