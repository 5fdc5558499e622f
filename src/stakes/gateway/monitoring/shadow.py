"""Drift monitoring by shadow answers: a sample of answered requests is answered again at native size.

Off unless ``--shadow`` gives a share. A shadow request is sent after the client has its whole answer, not streamed, at
most a few at a time; when all of those are busy it is dropped and counted, so nothing queues. Its tokens are counted
outside the cap. Whether the two answers agree goes to ``certify.drift``, with the mix of tiers and the server's token
counts. A condition of the calibration that no longer holds raises an alarm in the log, the metrics, ``/healthz`` and
the dashboard. Disagreement is a proxy for error, not error.

Alarms are rarely false (5 % ever) if requests are independent. They come in runs, so the requests of one client within
``--shadow-window`` seconds (60) count as one value, their mean; where the header ``x-stakes-group`` names a group, such
as a document or a session, those of one group do.

A request that was sent at native size anyway agrees without being sent again. One that asks for several choices, for
tools or for a temperature above zero has no single answer to compare, and is counted as ``not_comparable``.
"""

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from stakes.budgets.policy import Policy
from stakes.calibration.certify.drift import ALPHA, Conditions, DriftMonitor, same_answer
from stakes.errors import BadInput
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.clients import CREDENTIALS
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.http_limits import unpack
from stakes.gateway.proxy.request import ReceivedRequest, dump, parse
from stakes.gateway.proxy.scan import Api
from stakes.gateway.proxy.upstream import NETWORK_ERRORS, Upstream
from stakes.gateway.proxy.usage import MOST_BYTES, UsageReader, image_tokens, parsed
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings

_COMPARED = ("native", "agreed", "differed")
_DRIFT = ("disagreement", "disagreement_above", "disagreement_allowed", "share", "share_calibrated")


class Shadow:
    """Sends shadow requests and feeds the drift monitor; used from one event loop."""

    def __init__(
        self,
        settings: Settings,
        served: Served,
        upstream: Upstream,
        metrics: Metrics,
        log: Log,
        conditions: Callable[[Policy], Conditions] = Conditions.of_policy,
        alpha: float = ALPHA,
    ) -> None:
        import scipy.optimize  # noqa: F401 - the monitor needs it; loading it takes a moment, and no client waits now

        self._settings, self._served, self._upstream = settings, served, upstream
        self._metrics, self._log, self._conditions, self._alpha = metrics, log, conditions, alpha
        self._tasks: set[asyncio.Task[None]] = set()
        self._start(served.rules)

    def _start(self, rules: Rules) -> None:
        self._controller = rules.controller
        conditions = drift_conditions(rules.policy, self._conditions)
        self._monitor = DriftMonitor(conditions, window=self._settings.shadow_window, alpha=self._alpha)
        self._logged: set[tuple[str, str]] = set()

    def _monitor_of(self, plan: RequestPlan) -> DriftMonitor | None:
        """The monitor of the policy that served this request; None if that policy was replaced since."""
        if self._served.rules.controller is not self._controller:  # other budgets: earlier answers do not count
            self._start(self._served.rules)
        return self._monitor if plan.rules.controller is self._controller else None

    def answered(
        self, plan: RequestPlan, counted: int | None, reader: UsageReader | None, received: ReceivedRequest
    ) -> None:
        """Observe a fitted request whose client has its whole answer, and sample it for a shadow answer."""
        monitor = self._monitor_of(plan)
        if monitor is None:
            return
        unit = drift_unit(received)
        monitor.observe(plan.tier, predicted=plan.expected, counted=counted, unit=unit)
        self._log_alarms(monitor)
        if random.random() >= self._settings.shadow:
            return
        if reader is None or plan.fetched or plan.pages or plan.expected is None:
            self._count(plan, "not_comparable", unit)
        elif sum(plan.predicted) == sum(plan.natives):
            self._count(plan, "native", unit)
        elif len(self._tasks) >= self._settings.shadow_at_once:
            self._count(plan, "dropped", unit)
        else:
            task = asyncio.get_running_loop().create_task(self._answer_again(plan, reader, received))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer_again(self, plan: RequestPlan, reader: UsageReader, received: ReceivedRequest) -> None:
        unit = drift_unit(received)
        try:
            self._count(plan, await self._compare(plan, reader, received), unit)
        except asyncio.CancelledError:  # the gateway is closing
            self._count(plan, "dropped", unit)
            raise
        except Exception as error:
            self._count(plan, "failed", unit)
            self._log.write("a shadow request failed", logging.ERROR, failure=error)

    async def _compare(self, plan: RequestPlan, reader: UsageReader, received: ReceivedRequest) -> str:
        """How the answer at native size compares with the client's: agreed, differed, not_comparable or failed."""
        most = self._settings.limits.body_bytes
        prepared = await asyncio.to_thread(shadow_request, plan, reader, received, most)
        if prepared is None:
            return "not_comparable"
        body, first = prepared
        data = await self._send(received, body)
        if data is None:
            return "failed"
        counted = image_tokens(parsed(data))
        self._metrics.shadow_tokens.labels(plan.tier).inc(sum(plan.natives) if counted is None else counted)
        second = answer_text(plan.api, data, streamed=False)
        if second is None:
            return "not_comparable"
        return "agreed" if same_answer(first, second) else "differed"

    async def _send(self, received: ReceivedRequest, body: bytes) -> bytes | None:
        """The response's body; None if the upstream does not give a whole one in time."""
        timeout = aiohttp.ClientTimeout(total=self._settings.shadow_s, sock_connect=self._settings.timeouts.connect_s)
        headers = self._upstream.headers(received.headers, changed=True)
        out = bytearray()
        try:
            async with self._upstream.session.post(
                received.url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    return None
                async for part in response.content.iter_any():
                    out += part
                    if len(out) > MOST_BYTES:
                        return None
        except NETWORK_ERRORS:
            return None
        return bytes(out)

    def _count(self, plan: RequestPlan, result: str, unit: str) -> None:
        """Count a result; the drift monitor gets those of two answers."""
        self._metrics.shadows.labels(plan.tier, result).inc()
        if result in _COMPARED and (monitor := self._monitor_of(plan)) is not None:
            monitor.compare(plan.tier, result != "differed", unit)
            self._log_alarms(monitor)

    def _log_alarms(self, monitor: DriftMonitor) -> None:
        """Log each alarm once."""
        for key, sentence in monitor.alarms().items():
            if key not in self._logged:
                self._logged.add(key)
                condition, tier = key
                self._log.write(f"ALARM: {sentence}", logging.ERROR, condition=condition, tier=tier or None)

    def state(self) -> dict[str, Any]:
        """The drift for the dashboard; also sets the metrics."""
        drift = self._monitor.state()
        for tier, about in drift["tiers"].items():
            for name in _DRIFT:
                if about[name] is not None:
                    self._metrics.drift.labels(name, tier).set(about[name])
        self._metrics.drift.labels("token_error", "").set(drift["token_error"])
        alarms = self._monitor.alarms()
        self._metrics.alarms.clear()
        for condition, tier in self._monitor.monitored():
            self._metrics.alarms.labels(condition, tier).set((condition, tier) in alarms)
        return {"part": self._settings.shadow, **drift}

    def alarms(self) -> list[str]:
        """The conditions that no longer hold, as sentences."""
        return list(self._monitor.alarms().values())

    async def close(self) -> None:
        """Cancel what is running."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def drift_unit(received: ReceivedRequest) -> str:
    """A digest of whose request this is: the group in ``x-stakes-group``, else the client's key and address."""
    headers = dict(received.headers)
    if group := headers.get(b"x-stakes-group", b"").strip():
        parts = (b"group", group)
    else:
        keys = b" ".join(headers.get(name, b"") for name in CREDENTIALS)
        parts = (b"client", keys + b" " + received.client.encode())
    return hashlib.blake2b(b" ".join(parts), digest_size=8).hexdigest()


def drift_conditions(policy: Policy, source: Callable[[Policy], Conditions]) -> Conditions:
    """The conditions that are monitored under this policy; an error if a tier would have none."""
    conditions = source(policy)
    if set(conditions.disagreement) != set(policy.tiers):
        raise BadInput(
            f"drift monitoring needs the allowed disagreement of each of {', '.join(policy.tiers)}, not of "
            f"{', '.join(conditions.disagreement)}; give it with --shadow-allow, or use the policy's own"
        )
    return conditions


def shadow_request(
    plan: RequestPlan, reader: UsageReader, received: ReceivedRequest, most: int
) -> tuple[bytes, str] | None:
    """(the request at native size and not streamed, the text of the client's answer), None if they cannot be compared.

    Parsing a large body takes milliseconds: this runs in a thread.
    """
    whole = reader.whole()
    first = None if whole is None else answer_text(plan.api, whole, reader.streamed)
    if first is None:
        return None
    try:
        record = parse(unpack(received.body, received.encoding, most))
    except Refused:
        return None
    if record.get("n") not in (None, 1) or any(record.get(name) for name in ("tools", "background", "temperature")):
        return None
    for name in ("stream", "stream_options"):
        record.pop(name, None)
    if plan.api == "responses":
        record["store"] = False  # it belongs to no conversation
    return dump(record), first


def answer_text(api: Api, data: bytes, streamed: bool) -> str | None:
    """The text of a response, whole or as a stream of events; None if it is not one single text.

    Several choices, a tool call, a refusal or a response that was not kept whole are not.

    >>> answer_text("chat", b'{"choices": [{"message": {"content": "42"}}]}', streamed=False)
    '42'
    """
    try:
        if not streamed:
            return _whole_text(api, json.loads(data))
        events = [json.loads(line[5:]) for line in data.split(b"\n") if line.startswith(b"data:") and b"{" in line]
        if api == "chat":
            return _joined_deltas(events)
        if api == "messages":
            return _joined_blocks(events)
        ends = [event["response"] for event in events if event.get("type") == "response.completed"]
        return _whole_text("responses", ends[-1]) if ends else None  # the last event holds the whole response
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None  # a server may send anything


def _whole_text(api: Api, answer: Any) -> str | None:
    if api == "responses":
        parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        others = [item for item in answer["output"] if item["type"] not in ("message", "reasoning")]
        if others or not parts or any(part["type"] != "output_text" for part in parts):
            return None
        return "".join(part["text"] for part in parts)
    if api == "messages":
        texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
        return "".join(texts) if texts and len(texts) == len(answer["content"]) else None
    (choice,) = answer["choices"]
    content = choice["message"]["content"]
    return content if isinstance(content, str) and not choice["message"].get("tool_calls") else None


def _joined_blocks(events: Sequence[Any]) -> str | None:
    """The text of a stream of messages, if all of its blocks are text."""
    kinds = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    ended = any(event["type"] == "message_stop" for event in events)
    if not ended or not kinds or set(kinds) != {"text"}:
        return None
    return "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")


def _joined_deltas(events: Sequence[Any]) -> str | None:
    choices = [choice for event in events for choice in event["choices"]]
    failed = any("error" in event for event in events)
    if failed or not choices or any(one["index"] or one["delta"].get("tool_calls") for one in choices):
        return None
    return "".join(one["delta"].get("content") or "" for one in choices)
