"""Would a gateway work in front of this upstream? Reachable, its models, and whether its tokens follow the budget.

for one in asyncio.run(check_upstream(Settings(upstream="http://127.0.0.1:8000/v1"), policy)):
    print(one.state, one.name, one.found, one.advice)
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp

from stakes.budgets.policy import Policy
from stakes.gateway.auth import Doorkeeper
from stakes.gateway.forward import Upstream
from stakes.gateway.logs import Log
from stakes.gateway.metrics import Metrics
from stakes.gateway.prepare import Preparer
from stakes.gateway.probe import Finding, probe
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings
from stakes.gateway.workers import Workers

State = Literal["good", "absent", "unknown", "bad"]
_PATIENCE = aiohttp.ClientTimeout(total=10.0)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; "absent" is optional and not there, only "bad" is a problem."""

    name: str
    state: State
    found: str
    advice: str = ""


async def check_upstream(settings: Settings, policy: Policy) -> list[Check]:
    """Ask the upstream what it is, then send it the probe's page at two budgets."""
    metrics = Metrics()
    upstream = Upstream(settings, Doorkeeper((), settings.upstream_key), metrics)
    workers = Workers(settings.limits)
    upstream.open()
    try:
        checks, models = await _models(upstream)
        if models is None:
            return checks
        served = Served(Rules.of(policy), lambda: policy)
        preparer = Preparer(settings, served, workers, metrics, Log())
        named = settings.probe_model
        if named and models and named not in models:
            advice = f"name one that it has: {_list(models)}"
            return [*checks, Check("upstream model", "bad", f"{named!r} is not one of its models", advice)]
        finding = await probe(settings, upstream, preparer, policy.family)
        if finding.follows is False and await _is_gateway(upstream):
            advice = "give the address of the server behind it; budgets are set once"
            return [*checks, Check("tokens follow", "bad", "this address is a stakes gateway itself", advice)]
        return [*checks, _tokens(finding)]
    finally:
        await upstream.close()
        workers.close()


async def _models(upstream: Upstream) -> tuple[list[Check], list[str] | None]:
    """What it says of itself; None for its models where there is no use in asking on."""
    address = f"{upstream.base}/models"
    headers = upstream.headers((), changed=False)
    try:
        async with upstream.session.get(address, headers=headers, timeout=_PATIENCE, auto_decompress=True) as reply:
            status, body = reply.status, await reply.read()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        advice = "start the server, or correct the address: host, port and the /v1 at its end"
        return [Check("upstream", "bad", f"{upstream.base} does not answer ({type(error).__name__})", advice)], None
    if status in (401, 403):
        advice = "give its key in a file: --upstream-key-file key.txt"
        return [Check("upstream", "bad", f"{upstream.base} refuses us with status {status}", advice)], None
    if status >= 500:
        advice = "its own log says why; it may still be loading its model"
        return [Check("upstream", "bad", f"{upstream.base} answers with status {status}", advice)], None
    models = _ids(body) if status == 200 else None
    if models is None:
        advice = "an OpenAI-compatible address ends in /v1 on most servers; correct --upstream"
        found = f"{address} answers with status {status} and no list of models"
        return [Check("upstream", "bad", found, advice)], None
    answers = Check("upstream", "good", f"{upstream.base} answers")
    if not models:
        return [answers, Check("upstream models", "unknown", "it lists none", "name one with --model")], models
    return [answers, Check("upstream models", "good", _list(models))], models


async def _is_gateway(upstream: Upstream) -> bool:
    """Whether it says of itself what only our own gateway does."""
    address = f"{upstream.base.removesuffix('/v1')}/readyz"
    try:
        async with upstream.session.get(address, timeout=_PATIENCE, auto_decompress=True) as reply:
            return "tokens_follow" in json.loads(await reply.read())
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError):
        return False


def _tokens(finding: Finding) -> Check:
    if finding.follows:
        return Check("tokens follow", "good", finding.sentence)
    if finding.follows is None:
        advice = "give the served model with --model and see that it takes images; else watch stakes_usage_checks_total"
        return Check("tokens follow", "unknown", finding.sentence, advice)
    said, _, advice = finding.sentence.partition("; ")
    return Check("tokens follow", "bad", said, advice)


def _ids(body: bytes) -> list[str] | None:
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, LookupError, TypeError):
        return None


def _list(models: list[Any]) -> str:
    more = f" and {len(models) - 5} more" if len(models) > 5 else ""
    return ", ".join(models[:5]) + more
