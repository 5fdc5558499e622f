"""The gateway's own endpoints: health, readiness, metrics and the dashboard's state, over all of its processes."""

import asyncio
import base64
import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stakes.gateway.accounts import merge_controllers
from stakes.gateway.monitoring import dashboard, merge
from stakes.gateway.monitoring.recent import DECISIONS, Side

if TYPE_CHECKING:
    from stakes.gateway.app import Gateway

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """Answers for one gateway, whichever of its processes is asked."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway, self._siblings = gateway, gateway.siblings

    async def healthz(self, _: Request) -> Response:
        """The process is alive; with drift monitoring also the alarms."""
        if self._gateway.monitors.shadow is None:
            return JSONResponse({"status": "ok"})
        alarms = [alarm for report in (await self._reports())[0] for alarm in report["alarms"]]
        return JSONResponse({"status": "ok", "alarms": alarms})

    async def readyz(self, _: Request) -> Response:
        """Whether requests can be served, and what the probe found."""
        gateway = self._gateway
        ready, why = await gateway.readiness.check()
        policy = gateway.served.rules.policy
        about: dict[str, Any] = {
            "ready": ready, "why": why, "mode": gateway.settings.mode, "policy": policy.fingerprint,
            "tokens_follow": gateway.probe_result.follows, "probe": gateway.probe_result.sentence,
        }  # fmt: skip
        if not policy.fixed:
            about["confidence_given"] = gateway.confidence.given
        return JSONResponse(about, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics in Prometheus's format."""
        gateway = self._gateway
        gateway.authenticator.check(dict(request.headers.raw))
        if self._siblings is None:
            self._measure()
            return Response(gateway.metrics.render(gateway.served.rules.state()), media_type=_TEXT)
        reports, ended = await self._reports()
        gateway.metrics.set_controller(merge_controllers(*self._controllers(reports, ended)))
        reports[0]["families"] = merge.families_of(gateway.metrics.registry)
        return Response(merge.render(merge.merge_families(_families(reports, ended))), media_type=_TEXT)

    async def openapi(self, _: Request) -> Response:
        """The description of the paths that the gateway answers or reads itself."""
        document = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))
        document["info"]["version"] = version("stakes")
        return JSONResponse(document)

    async def state(self) -> dict[str, Any]:
        """What the dashboard shows."""
        gateway = self._gateway
        settings, probed, monitors = gateway.settings, gateway.probe_result, gateway.monitors
        reports, ended = await self._reports()
        counts = merge.counts_of(merge.merge_families(_families(reports, ended)))
        controller = merge_controllers(*self._controllers(reports, ended))
        decisions = sorted((one for report in reports for one in report["decisions"]), key=lambda one: -one["time"])
        texts = [text for report in reports for text in report["texts"]]
        return {
            "mode": settings.mode,
            "actuator": settings.actuator,
            "fail": settings.fail,
            "processes": len(reports),
            "probe": {"follows": probed.follows, "sentence": probed.sentence} if settings.probe else None,
            "tasks": len(asyncio.all_tasks()),
            "watch": None if monitors.shadow is None else monitors.shadow.state(),
            **dashboard.state(counts, gateway.served.rules, controller),
            "worth": dashboard.worth(counts, settings.price, settings.token_ms),
            "means": merge.merge_means([report["points"] for report in reports]),
            "decisions": decisions[: max(DECISIONS, settings.keep_images)],
            "keep_images": settings.keep_images,
            "filmstrip": gateway.filmstrips.available,
            "undecided": dashboard.undecided_state(counts, monitors.undecided, texts),
        }

    async def image(self, decision: int, index: int, side: Side) -> tuple[str, bytes] | None:
        """An image of a decision, from the process that has it."""
        siblings, recent = self._siblings, self._gateway.monitors.recent
        if siblings is None or decision % siblings.count == siblings.index:
            return recent.image(decision, index, side)
        question = {"what": "image", "decision": decision, "index": index, "side": side}
        for media_type, text in await siblings.ask(question, only=decision % siblings.count):
            return media_type, base64.b64decode(text)
        return None

    def answer(self, question: dict[str, Any]) -> Any:
        """The answer to a question of another process."""
        if question["what"] == "report":
            return self._report()
        kept = self._gateway.monitors.recent.image(question["decision"], question["index"], question["side"])
        return None if kept is None else (kept[0], base64.b64encode(kept[1]).decode())

    async def _reports(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The reports of all processes, this one's first, and what is left of those that have ended."""
        own, siblings = self._report(), self._siblings
        if siblings is None:
            return [own], []
        reports = [own, *await siblings.ask({"what": "report"})]
        return reports, siblings.ended({report["pid"] for report in reports})

    def _report(self) -> dict[str, Any]:
        gateway, monitors = self._gateway, self._gateway.monitors
        self._measure()
        report: dict[str, Any] = {
            "pid": os.getpid(), "families": merge.without_controller(merge.families_of(gateway.metrics.registry)),
            "controller": gateway.served.rules.state(),
        }  # fmt: skip
        if self._siblings is not None:
            self._siblings.keep({**report, "families": merge.counters(report["families"])})
        alarms = [] if monitors.shadow is None else monitors.shadow.alarms()
        return report | {
            "decisions": monitors.recent.records(), "points": monitors.recent.points(), "alarms": alarms,
            "texts": monitors.undecided.records(),
        }  # fmt: skip

    def _measure(self) -> None:
        """Bring the gauges up to date."""
        gateway = self._gateway
        gateway.metrics.workers.set(gateway.workers.inside)
        if gateway.monitors.shadow is not None:
            gateway.monitors.shadow.state()

    @staticmethod
    def _controllers(reports: list[dict[str, Any]], ended: list[dict[str, Any]]) -> tuple[Any, Any]:
        return [report["controller"] for report in reports], [report["controller"] for report in ended]


def _families(reports: list[dict[str, Any]], ended: list[dict[str, Any]]) -> list[merge.Families]:
    return [report["families"] for report in (*reports, *ended)]
