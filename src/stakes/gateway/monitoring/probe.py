"""Do the upstream's tokens follow the budget? One page is sent at two budgets, and what the server counts is compared.

Two, because most servers state only the whole prompt: text and markers are the same in both, so the difference of the
two counts is the difference of the images. A server that resizes images itself, or a policy of another family than the
model's, is found out here and not by the bill.

    yes: "tokens follow the budget: 90 and 280 expected, 90 and 280 counted"
    no:  "TOKENS DO NOT FOLLOW THE BUDGET: …"
"""

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
from PIL import Image, ImageDraw

from stakes.budgets.policy import Policy
from stakes.errors import InfeasibleBudget
from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.fit import Preparer
from stakes.gateway.proxy.images import Workers, data_url, measure
from stakes.gateway.proxy.request import Call, read_call
from stakes.gateway.proxy.upstream import Doorkeeper, Upstream
from stakes.gateway.proxy.usage import image_tokens
from stakes.gateway.reload import Rules, Served
from stakes.gateway.settings import Settings

_SHARES = (1 / 6, 1 / 4, 1 / 3, 1 / 2, 3 / 4)  # of the native tokens; the least that can be reached, and the most
_PATIENCE = aiohttp.ClientTimeout(total=120.0)
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Finding:
    """``follows``: True, False, or None where nothing could be learned (``again``: worth asking once more)."""

    follows: bool | None
    sentence: str
    again: bool = False


async def probe(settings: Settings, upstream: Upstream, preparer: Preparer, family: str) -> Finding:
    """Ask twice and compare."""
    try:
        model = settings.probe_model or await _first_model(upstream)
        asked = await asyncio.to_thread(_bodies, settings, preparer, family, model)
        counts = [await _ask(upstream, body) for body, _ in asked]
    except (aiohttp.ClientError, TimeoutError, OSError):
        return Finding(None, "the upstream does not answer, so it is not known whether tokens follow", again=True)
    except _NoWord as error:
        return Finding(None, f"not known whether tokens follow the budget: {error}")
    except (Refused, InfeasibleBudget) as error:
        return Finding(None, f"the probe's image could not be fitted: {error}")
    return compare([tokens for _, tokens in asked], counts)


def compare(expected: list[int], counts: list[tuple[int | None, int | None]]) -> Finding:
    """Judge two counts, each (image tokens if stated, prompt tokens if stated)."""
    stated = [image for image, _ in counts]
    if None not in stated:
        verdict, numbers = stated == expected, f"{stated[0]} and {stated[1]} counted"
    else:
        prompts = [prompt for _, prompt in counts if prompt is not None]
        if len(prompts) < 2:
            return Finding(None, "the upstream states no usage, so it is not known whether tokens follow the budget")
        difference = prompts[1] - prompts[0]
        verdict = abs(difference - (expected[1] - expected[0])) <= 1
        numbers = f"the prompt grew by {difference}"
    said = f"{expected[0]} and {expected[1]} expected, {numbers}"
    if verdict:
        return Finding(True, f"tokens follow the budget: {said}")
    return Finding(
        False,
        f"TOKENS DO NOT FOLLOW THE BUDGET: {said}; check the policy's family, and that the upstream resizes no image "
        "itself (or use its own parameter with --actuator)",
    )


def _bodies(settings: Settings, preparer: Preparer, family: str, model: str) -> list[tuple[bytes, int]]:
    """The smallest and the largest share of the page's native tokens that can be reached, as requests."""
    page = _page()
    native = measure(page, family, settings.limits).native
    made: list[tuple[bytes, int]] = []
    for share in _SHARES:
        call = _call(model, page)
        one = measure(page, family, settings.limits)
        try:
            body, tokens, _ = preparer.fit(call, call.images, [one], [max(1, int(native * share))], family, False)
        except Refused:
            continue
        assert body is not None
        made.append((body, tokens[0]))
    if len({tokens for _, tokens in made}) < 2:
        raise Refused(422, "infeasible_budget", f"{family} has no two budgets for one page")
    return [made[0], made[-1]]


def _call(model: str, page: str) -> Call:
    parts = [{"type": "image_url", "image_url": {"url": page}}, {"type": "text", "text": "What is this?"}]
    record = {"model": model, "messages": [{"role": "user", "content": parts}], "max_tokens": 1, "temperature": 0}
    return read_call("chat", record)


def _page() -> str:
    """A page of lines: 560 x 784 pixels, 560 native tokens of Qwen2.5-VL."""
    image = Image.new("RGB", (560, 784), "white")
    draw = ImageDraw.Draw(image)
    for row in range(24, 760, 24):
        draw.text((24, row), f"Line {row // 24} of a page that only tests the budget: {row * 37}", fill="black")
    out = io.BytesIO()
    image.save(out, "PNG")
    return data_url(out.getvalue(), "png")


class _NoWord(Exception):
    pass


async def _first_model(upstream: Upstream) -> str:
    reply = await _json(upstream, "GET", "models", None)
    try:
        return str(reply["data"][0]["id"])
    except (LookupError, TypeError):
        raise _NoWord("the upstream lists no model; name one with --probe-model") from None


async def _ask(upstream: Upstream, body: bytes) -> tuple[int | None, int | None]:
    reply = await _json(upstream, "POST", "chat/completions", body)
    usage = reply.get("usage") if isinstance(reply, dict) else None
    prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return image_tokens(reply), prompt if isinstance(prompt, int) else None


async def _json(upstream: Upstream, method: str, path: str, body: bytes | None) -> Any:
    headers = upstream.headers(((b"content-type", b"application/json"),), changed=False)
    async with upstream.session.request(
        method, f"{upstream.base}/{path}", data=body, headers=headers, timeout=_PATIENCE, auto_decompress=True
    ) as reply:
        if reply.status >= 500:
            raise aiohttp.ClientError("the upstream is not ready")
        if reply.status != 200:
            reason = "" if reply.status in (401, 403) else _reason(await reply.read())  # those may name the key
            raise _NoWord(f"the upstream answered {path} with status {reply.status}" + (reason and f": {reason}"))
        try:
            return json.loads(await reply.read())
        except ValueError:
            raise _NoWord(f"the upstream's answer to {path} is not JSON") from None


def _reason(body: bytes) -> str:
    """What a server says in an error, ``error.message`` or ``message``, on one line and shortened; else nothing."""
    try:
        record = json.loads(body)
        said = (record.get("error") or record)["message"]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""
    text = " ".join(said.split()) if isinstance(said, str) else ""
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


async def probe_until_known(ask: Callable[[], Any], tell: Callable[[Finding], None], pause_s: float = 5.0) -> None:
    """Ask until the upstream has answered, since it may still be starting; ``tell`` hears the first and the last."""
    told = False
    while True:
        finding: Finding = await ask()
        if not finding.again or not told:
            tell(finding)
            told = True
        if not finding.again:
            return
        await asyncio.sleep(pause_s)


# Would a gateway work in front of this upstream? Reachable, its models, and whether its tokens follow the budget.
#
# for one in asyncio.run(check_upstream(Settings(upstream="http://127.0.0.1:8000/v1"), policy)):
#     print(one.state, one.name, one.found, one.advice)


State = Literal["good", "absent", "unknown", "bad"]
_PATIENCE_checkup = aiohttp.ClientTimeout(total=10.0)


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
        async with upstream.session.get(
            address, headers=headers, timeout=_PATIENCE_checkup, auto_decompress=True
        ) as reply:
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
        async with upstream.session.get(address, timeout=_PATIENCE_checkup, auto_decompress=True) as reply:
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
