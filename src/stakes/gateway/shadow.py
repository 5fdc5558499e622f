"""Would the full budget have said something else? A sample of answered requests is asked again at native size.

Off unless ``--shadow`` says how large a share. A shadow is asked after the client has its whole answer, not streamed,
once and never again, a few at a time: where all of those are busy it is dropped and counted, so nothing queues. Its
tokens are counted apart, outside the cap. Whether both answers say the same goes to the watch
(``stakes.budgets.watch``) with the mix of tiers and the server's token counts, and what no longer holds as it did when
the budgets were chosen raises an alarm: in the log, the metrics, ``/healthz`` and on the live page. Disagreement is a
proxy for error, not error.

A request that was sent at native size anyway agrees without being asked. One that asks for several choices, for tools
or for a temperature above zero has no one answer to compare, and is counted as such.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import aiohttp

from stakes.budgets.conditions import Conditions, same_answer
from stakes.budgets.policy import Policy
from stakes.budgets.watch import Watch
from stakes.errors import BadInput
from stakes.gateway.answers import answer_text
from stakes.gateway.controller import Controller
from stakes.gateway.forward import Upstream
from stakes.gateway.logs import Log
from stakes.gateway.metrics import Metrics
from stakes.gateway.plan import Plan
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings
from stakes.gateway.shadow_request import Came, again
from stakes.gateway.usage import MOST_BYTES, Tap, image_tokens, parsed


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
