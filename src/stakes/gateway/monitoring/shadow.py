"""Would the full budget have said something else? A sample of answered requests is asked again at native size.

Off unless ``--shadow`` says how large a share. A shadow is asked after the client has its whole answer, not streamed,
once and never again, a few at a time: where all of those are busy it is dropped and counted, so nothing queues. Its
tokens are counted apart, outside the cap. Whether both answers say the same goes to the watch
(``certify.drift``) with the mix of tiers and the server's token counts, and what no longer holds as it did when
the budgets were chosen raises an alarm: in the log, the metrics, ``/healthz`` and on the live page. Disagreement is a
proxy for error, not error.

A request that was sent at native size anyway agrees without being asked. One that asks for several choices, for tools
or for a temperature above zero has no one answer to compare, and is counted as such.
"""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from stakes.budgets.controller import Controller
from stakes.budgets.policy import Policy
from stakes.calibration.certify.drift import Conditions, Watch, same_answer
from stakes.errors import BadInput
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Plan
from stakes.gateway.proxy.http_limits import unpack
from stakes.gateway.proxy.request import Api, dump, parse
from stakes.gateway.proxy.upstream import Upstream
from stakes.gateway.proxy.usage import MOST_BYTES, Tap, image_tokens, parsed
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings

# What did an answer say? Its words, out of a whole reply or a stream of events, of either API.
#
# None where it is not one text: several choices, a call of a tool, a refusal, an answer that was not kept whole.
#
#     answer_text("chat", b'{"choices": [{"message": {"content": "42"}}]}', streamed=False)      # '42'


def answer_text(api: Api, data: bytes, streamed: bool) -> str | None:
    """The text of one answer, None where there is none to compare."""
    try:
        if not streamed:
            return _whole(api, json.loads(data))
        events = [json.loads(line[5:]) for line in data.split(b"\n") if line.startswith(b"data:") and b"{" in line]
        return _deltas(events) if api == "chat" else _last(events)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None  # a server may send anything


def _whole(api: Api, answer: Any) -> str | None:
    if api == "responses":
        parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        others = [item for item in answer["output"] if item["type"] not in ("message", "reasoning")]
        if others or not parts or any(part["type"] != "output_text" for part in parts):
            return None
        return "".join(part["text"] for part in parts)
    (choice,) = answer["choices"]
    message = choice["message"]
    return None if message.get("tool_calls") else _text(message["content"])


def _deltas(events: Iterable[Any]) -> str | None:
    texts = []
    for event in events:
        if "error" in event:
            return None
        for choice in event["choices"]:
            delta = choice["delta"]
            if choice["index"] or delta.get("tool_calls"):
                return None
            texts.append(delta.get("content") or "")
    return "".join(texts) if texts else None


def _last(events: Iterable[Any]) -> str | None:
    """A stream of responses ends with the whole of it."""
    ends = [event["response"] for event in events if event.get("type") == "response.completed"]
    return _whole("responses", ends[-1]) if ends else None


def _text(content: Any) -> str | None:
    return content if isinstance(content, str) else None


# How is a request asked again? As it came, at native size, not streamed, and leaving nothing at the upstream.


@dataclass(frozen=True)
class Came:
    """A request as it came, to be asked again."""

    url: URL
    headers: list[tuple[bytes, bytes]]
    body: bytes
    encoding: bytes


def again(plan: Plan, tap: Tap, came: Came, most: int) -> tuple[bytes, str] | None:
    """(the request at native size and not streamed, the words of the client's answer), None where they cannot be had.

    Reading a large body takes milliseconds: this runs in a thread.
    """
    whole = tap.whole()
    first = None if whole is None else answer_text(plan.api, whole, tap.streamed)
    if first is None:
        return None
    try:
        record = parse(unpack(came.body, came.encoding, most))
    except Refused:
        return None
    if record.get("n") not in (None, 1) or any(record.get(name) for name in ("tools", "background", "temperature")):
        return None
    for name in ("stream", "stream_options"):
        record.pop(name, None)
    if plan.api == "responses":
        record["store"] = False  # it is nobody's conversation
    return dump(record), first


class Shadow:
    """Asks shadows and feeds the watch; used from one event loop."""

    def __init__(
        self,
        settings: Settings,
        served: Served,
        upstream: Upstream,
        metrics: Metrics,
        log: Log,
        conditions: Callable[[Policy], Conditions] = Conditions.of_policy,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings, self._served, self._upstream = settings, served, upstream
        self._metrics, self._log, self._conditions, self._draw = metrics, log, conditions, draw
        import scipy.optimize  # noqa: F401 - what the watch needs takes a moment to load, and no client waits now

        self._most = settings.limits.body_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[tuple[str, str]] = set()
        self._begin(served.rules)

    def _begin(self, rules: Rules) -> None:
        self._controller: Controller = rules.controller
        self._watch, self._told = Watch(conditions_of(rules.policy, self._conditions)), set()

    def _watching(self, plan: Plan) -> Watch | None:
        """The watch over the policy that this request was served by; None where that was let go of since."""
        if self._served.rules.controller is not self._controller:  # other budgets: what was seen says nothing of them
            self._begin(self._served.rules)
        return self._watch if plan.rules.controller is self._controller else None

    def answered(self, plan: Plan, counted: int | None, tap: Tap | None, came: Came) -> None:
        """Note a fitted request whose client has its whole answer, and ask it again if the lot falls on it."""
        watch = self._watching(plan)
        if watch is None:
            return
        watch.observe(plan.tier, predicted=plan.expected, counted=counted)
        self._look(watch)
        if self._draw() >= self._settings.shadow:
            return
        if tap is None or plan.fetched or plan.expected is None:
            self._count(plan, "not_comparable")
        elif sum(plan.predicted) == sum(plan.natives):
            self._compare(plan, "native", True)
        elif len(self._tasks) >= self._settings.shadow_at_once:
            self._count(plan, "dropped")
        else:
            task = asyncio.get_running_loop().create_task(self._ask(plan, tap, came))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, plan: Plan, tap: Tap, came: Came) -> None:
        try:
            prepared = await asyncio.to_thread(again, plan, tap, came, self._most)
            if prepared is None:
                self._count(plan, "not_comparable")
                return
            body, first = prepared
            data = await self._fetch(came, body)
            counted = image_tokens(parsed(data)) if data is not None else None
            if data is not None:
                tokens = sum(plan.natives) if counted is None else counted
                self._metrics.shadow_tokens.labels(plan.tier).inc(tokens)
            second = None if data is None else answer_text(plan.api, data, streamed=False)
            if second is None:
                self._count(plan, "failed" if data is None else "not_comparable")
                return
            same = same_answer(first, second)
            self._compare(plan, "agreed" if same else "differed", same)
        except asyncio.CancelledError:  # the gateway is closing
            self._count(plan, "dropped")
            raise
        except Exception as error:
            self._count(plan, "failed")
            self._log.say("a shadow failed", logging.ERROR, failure=error)

    async def _fetch(self, came: Came, body: bytes) -> bytes | None:
        """The answer's body; None where the upstream does not give a whole one in time."""
        patience = aiohttp.ClientTimeout(total=self._settings.shadow_s, sock_connect=self._settings.timeouts.connect_s)
        headers = self._upstream.headers(came.headers, changed=True)
        out = bytearray()
        try:
            async with self._upstream.session.post(
                came.url, data=body, headers=headers, timeout=patience, allow_redirects=False
            ) as reply:
                if reply.status != 200:
                    return None
                async for part in reply.content.iter_any():
                    out += part
                    if len(out) > MOST_BYTES:
                        return None
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None
        return bytes(out)

    def _count(self, plan: Plan, result: str) -> None:
        self._metrics.shadows.labels(plan.tier, result).inc()

    def _compare(self, plan: Plan, result: str, same: bool) -> None:
        self._count(plan, result)
        watch = self._watching(plan)
        if watch is not None:
            watch.compare(plan.tier, same)
            self._look(watch)

    def _look(self, watch: Watch) -> None:
        for key, sentence in watch.alarms().items():
            if key not in self._told:
                self._told.add(key)
                condition, tier = key
                self._log.say(f"ALARM: {sentence}", logging.ERROR, condition=condition, tier=tier or None)

    def state(self) -> dict[str, Any]:
        """For the page and ``/healthz``; sets the metrics by the way."""
        seen = self._watch.state()
        for tier, about in seen["tiers"].items():
            for name in ("disagreement", "disagreement_above", "disagreement_allowed", "share", "share_calibrated"):
                if about[name] is not None:
                    self._metrics.watch.labels(name, tier).set(about[name])
        self._metrics.watch.labels("token_error", "").set(seen["token_error"])
        alarms = self._watch.alarms()
        self._metrics.alarms.clear()
        for condition, tier in self._watch.watched():
            self._metrics.alarms.labels(condition, tier).set((condition, tier) in alarms)
        return {"part": self._settings.shadow, **seen}

    def alarms(self) -> list[str]:
        """What no longer holds, in words."""
        return list(self._watch.alarms().values())

    async def close(self) -> None:
        """Ask no further."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def conditions_of(policy: Policy, source: Callable[[Policy], Conditions]) -> Conditions:
    """What is watched under this policy; an error where a tier would go unwatched."""
    found = source(policy)
    if set(found.disagreement) != set(policy.tiers):
        raise BadInput(
            f"the watch needs what is allowed of each of {', '.join(policy.tiers)}, not of "
            f"{', '.join(found.disagreement)}; give it with --shadow-allow, or take the policy's own"
        )
    return found
