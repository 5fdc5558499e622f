"""How does a LiteLLM proxy spend tokens by stakes? The gateway's own decision as a pre-call hook inside it.

Beside the proxy's ``config.yaml``, in a file of one's own such as ``stakes_hook.py``::

    from stakes.gateway.litellm import Stakes
    hook = Stakes("policy.json")                      # mode="observe", fail="open", … as of Settings

and in the configuration ``litellm_settings: {callbacks: stakes_hook.hook}``. Chat completions and responses are read;
the ``x-stakes-`` headers and ``metadata.stakes_`` of a request say the same as at the gateway, and the answers carry
the same headers. Needs the proxy's environment to have ``stakes[gateway]`` installed.
"""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.gateway.app import check_policy
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Plan, Preparer, Said
from stakes.gateway.proxy.images import Workers
from stakes.gateway.proxy.request import Api, dump, is_yes, names, text_of
from stakes.gateway.proxy.usage import count
from stakes.gateway.reload import Served, cautions
from stakes.gateway.settings import Settings

# ruff: noqa: ARG002 - LiteLLM calls its hooks with arguments that this one has no use for


SAID = frozenset({"stakes_tier", "stakes_task", "stakes_cost"})  # of a request's metadata
APIS: Mapping[str, Api] = {
    "completion": "chat", "acompletion": "chat", "responses": "responses", "aresponses": "responses",
}  # fmt: skip
_UNUSED = "http://upstream.invalid/v1"  # LiteLLM asks the upstream, never this
LONGEST_S = 1800.0  # after this an answer that was never heard of is booked as spent, so that the total stays honest


class Stakes(CustomLogger):  # type: ignore[misc]
    """One hook; ``policy`` is a file that is read again when it changes, ``knobs`` are those of ``Settings``."""

    def __init__(self, policy: str | Path, **knobs: Any) -> None:
        super().__init__()
        path = Path(policy)
        self.settings = Settings(upstream=_UNUSED, **knobs)
        if self.settings.shadow:
            raise BadInput(
                "a hook sees no answers, so there is nothing to compare shadows with; shadow is the gateway's"
            )
        self.served = Served.start(lambda: Policy.load(path), (path,), lambda one: check_policy(one, self.settings))
        self.metrics, log = Metrics(), Log()
        for sentence in cautions(self.served.rules.policy):
            log.say(sentence, logging.WARNING)
        self._workers = Workers(self.settings.limits)
        self._preparer = Preparer(self.settings, self.served, self._workers, self.metrics, log)
        self._plans: OrderedDict[str, tuple[float, Plan]] = OrderedDict()  # by LiteLLM's id of the call
        self._looked = time.monotonic()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Fit the images of one request; a refusal is an ``HTTPException`` with the gateway's status."""
        api = APIS.get(call_type)
        turns = "messages" if api == "chat" else "input"
        if api is None or not data.get(turns):
            return data
        await self._look()
        metadata = data.get("metadata")
        said = {key: value for key, value in (metadata or {}).items() if key in SAID}
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        try:
            body = await self._workers.run(dump, {turns: data[turns], "metadata": said})
            plan = await self._preparer.prepare(api, body, _said(headers))
        except Refused as no:
            self.metrics.rejects.labels(no.code).inc()
            raise HTTPException(no.status, detail=no.message) from None
        if plan.outcome == "text":
            return data
        self.metrics.fit_seconds.observe(plan.fit_s)
        self._hold(str(data.get("litellm_call_id")), plan)
        if plan.body is None:
            return data
        fitted = json.loads(plan.body)
        fitted.pop("metadata")
        data.update(fitted)
        return data

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """Book the request, as an answer has begun or never will, and tell the client what was decided."""
        plan = self._release(str(data.get("litellm_call_id")))
        if plan is None:
            return {}
        self._book(plan, response is not None)
        return {name.decode(): value.decode() for name, value in plan.headers(self.settings.mode)}

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """No model read the images."""
        plan = self._release(str(request_data.get("litellm_call_id")))
        if plan is not None:
            self._book(plan, False)

    def _book(self, plan: Plan, accepted: bool) -> None:
        plan.settle() if accepted else plan.cancel()
        count(self.metrics, plan, accepted)

    def _hold(self, call: str, plan: Plan) -> None:
        now = time.monotonic()
        while self._plans and now - next(iter(self._plans.values()))[0] > LONGEST_S:
            self._book(self._plans.popitem(last=False)[1][1], True)
        older = self._release(call)  # a client may name its call, and so use one name twice
        if older is not None:
            self._book(older, True)
        self._plans[call] = (now, plan)

    def _release(self, call: str) -> Plan | None:
        return self._plans.pop(call, (0.0, None))[1]

    async def _look(self) -> None:
        """See whether the policy's file changed, at most every ``watch_s``."""
        if time.monotonic() - self._looked >= self.settings.watch_s:
            self._looked = time.monotonic()
            result = await asyncio.to_thread(self.served.look)
            if result is not None:
                self.metrics.reloads.labels("good" if result in ("loaded", "same") else "bad").inc()


def _said(headers: Mapping[str, str]) -> Said:
    """What the client's headers say of the tier."""
    lowered = {name.lower(): value for name, value in headers.items() if isinstance(value, str)}
    return Said(
        tiers=names(lowered.get("x-stakes-tier", "")),
        task=text_of(lowered.get("x-stakes-task", "")) or None,
        bypass=is_yes(lowered.get("x-stakes-bypass", "").encode("latin-1", "replace")),
        cost=lowered.get("x-stakes-cost", "").strip(),
    )
