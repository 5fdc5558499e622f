"""The gateway's decision as a pre-call hook inside a LiteLLM proxy.

Next to the proxy's ``config.yaml``, in a file such as ``stakes_hook.py``::

    from stakes.gateway.litellm import Stakes
    hook = Stakes("policy.json")                      # mode="observe", fail="open", … as in Settings

and in the configuration ``litellm_settings: {callbacks: stakes_hook.hook}``. Chat completions and responses are read.
The ``x-stakes-`` headers and ``metadata.stakes_`` of a request mean the same as at the gateway, and the responses carry
the same headers. The proxy's environment needs ``stakes[gateway]``.
"""

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from litellm.exceptions import Timeout
from litellm.integrations.custom_logger import CustomLogger

from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.gateway.app import check_policy
from stakes.gateway.escalation.confidence import UpstreamConfidence, not_asked
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.decide import RequestPlan
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.request import ClientHints, check_names, dump, header_bytes
from stakes.gateway.proxy.scan import ENGINE_PARAMETERS, Api, find_images
from stakes.gateway.proxy.usage import settle_request
from stakes.gateway.reload import Served, policy_warnings
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers

# ruff: noqa: ARG002 - LiteLLM calls its hooks with arguments that are not used here


HINTS = frozenset({"stakes_tier", "stakes_task", "stakes_cost"})  # of a request's metadata
SAYS = ("response_format", "text", "tools", "tool_choice", "instructions", "extra_body")  # read beside the messages
APIS: Mapping[str, Api] = {
    "completion": "chat", "acompletion": "chat", "responses": "responses", "aresponses": "responses",
}  # fmt: skip
_FRONT = "a hook does not see answers"
_UNUSED = "http://upstream.invalid/v1"  # LiteLLM calls the upstream itself
LONGEST_S = 1800.0  # after this time a request without a reported answer counts as spent, so that the total holds


class Stakes(CustomLogger):  # type: ignore[misc]
    """One hook; ``policy`` is a file that is read again when it changes, ``knobs`` are fields of ``Settings``."""

    def __init__(self, policy: str | Path, **knobs: Any) -> None:
        super().__init__()
        path = Path(policy)
        self.settings = Settings(upstream=_UNUSED, **knobs)
        if self.settings.shadow:
            raise BadInput("a hook does not see answers, so it cannot compare shadow answers; use stakes serve")
        if self.settings.keep_undecided:
            raise BadInput("a hook has no dashboard to show texts on, so it keeps none; leave keep_undecided out")
        self.served = Served(lambda: Policy.load(path), (path,), lambda one: check_policy(one, self.settings))
        self.metrics, log = Metrics(), Log()
        for sentence in policy_warnings(self.served.rules.policy):
            log.write(sentence, logging.WARNING)
        self._workers = Workers(self.settings.limits)
        if sentence := not_asked(self.served.rules.policy, _FRONT):
            log.write(sentence, logging.WARNING)
        confidence = UpstreamConfidence(_FRONT)
        self._preparer = Preparer(self.settings, self.served, self._workers, self.metrics, log, confidence)
        self._plans: OrderedDict[str, tuple[float, RequestPlan]] = OrderedDict()  # by LiteLLM's id of the call
        self._checked = time.monotonic()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Fit the images of one request; a refusal is an ``HTTPException`` with the gateway's status."""
        api = APIS.get(call_type)
        turns = "messages" if api == "chat" else "input"
        if api is None:
            self._check_other((data.get("proxy_server_request") or {}).get("body"))
        if api is None or not data.get(turns):
            return data
        await self._reload()
        metadata = {key: value for key, value in (data.get("metadata") or {}).items() if key in HINTS}
        headers = (data.get("proxy_server_request") or {}).get("headers") or {}
        given = header_bytes(headers)
        try:
            if (unknown := check_names(given)) is not None:
                self._preparer.pass_or_raise(unknown)
            said = {key: data[key] for key in (*SAYS, *ENGINE_PARAMETERS) if data.get(key)}
            body = await self._workers.run(dump, {turns: data[turns], "metadata": metadata, **said})
            sender = str(getattr(user_api_key_dict, "api_key", None) or "")  # LiteLLM gives a digest of the key
            plan = await self._preparer.prepare(api, body, replace(ClientHints.from_headers(given), sender=sender))
        except Refused as refusal:
            self.metrics.rejects.labels(refusal.code).inc()
            raise HTTPException(refusal.status, detail=refusal.message) from None
        if plan.outcome == "text":
            return data
        self.metrics.fit_seconds.observe(plan.fit_s)
        self._hold(str(data.get("litellm_call_id")), plan)
        if plan.body is None:
            return data
        fitted = json.loads(plan.body)
        data.update({key: value for key, value in fitted.items() if key not in ("metadata", *SAYS)})
        return data

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """Settle the request and return the headers for the client; no ``response`` means that it failed."""
        plan = self._release(data, 500 if response is None else 200)
        return {} if plan is None else {n.decode(): value.decode() for n, value in plan.headers(self.settings.mode)}

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Return the grant if the model refused the request; after any other failure it may have read the images."""
        status = getattr(original_exception, "status_code", 500)
        self._release(request_data, 504 if isinstance(original_exception, Timeout) else status)

    def _check_other(self, body: Any) -> None:
        """Refuse a call of another kind that may hold an image, or count it."""
        count = len(find_images(body, "other").unread) if isinstance(body, dict) else 0
        if not count:
            return
        if self.settings.mode == "enforce" and self.settings.unread == "refuse":
            self.metrics.rejects.labels("unread_image").inc()
            raise HTTPException(422, detail="the hook does not read images of this kind of call (see unread='pass')")
        self.metrics.uncapped_images.labels("uncompressed").inc(count)

    def _release(self, data: dict[str, Any], status: int) -> RequestPlan | None:
        plan = self._plans.pop(str(data.get("litellm_call_id")), (0.0, None))[1]
        if plan is not None:
            settle_request(self.metrics, plan, status)
        return plan

    def _hold(self, call: str, plan: RequestPlan) -> None:
        now = time.monotonic()
        while self._plans and now - next(iter(self._plans.values()))[0] > LONGEST_S:
            settle_request(self.metrics, self._plans.popitem(last=False)[1][1], 200)
        self._release({"litellm_call_id": call}, 200)  # a client may name its call, and so use one name twice
        self._plans[call] = (now, plan)

    async def _reload(self) -> None:
        """Check whether the policy's file changed, at most every ``watch_s``."""
        if time.monotonic() - self._checked >= self.settings.watch_s:
            self._checked = time.monotonic()
            result = await asyncio.to_thread(self.served.reload_if_changed)
            if result is not None:
                self.metrics.reloads.labels("good" if result in ("loaded", "same") else "bad").inc()
