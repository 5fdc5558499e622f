"""Checks whether an upstream's token counts follow the budget, by sending one page at two budgets.

Two, because most servers state only the whole prompt: text and markers are the same in both, so the difference of the
two counts is the difference of the images. A third, small image shows whether the upstream enlarges small images as the
family does. This detects a server that resizes images itself, and a policy of another
model family, before the bill does.

    yes: "tokens follow the budget: 90 and 280 expected, 90 and 280 counted"
    no:  "TOKENS DO NOT FOLLOW THE BUDGET: …"
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from PIL import Image, ImageDraw

from stakes.budgets.policy import Policy
from stakes.errors import InfeasibleBudget
from stakes.gateway.escalation.confidence import AnswerReader, asking
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.upstreams import (
    UpstreamCheck,
    check_confidence,
    check_engine,
    check_plugin,
    error_message,
)
from stakes.gateway.proxy.actuators import fit_images
from stakes.gateway.proxy.clients import Authenticator
from stakes.gateway.proxy.errors import Refused
from stakes.gateway.proxy.images import data_url, measure
from stakes.gateway.proxy.request import dump, read_call
from stakes.gateway.proxy.upstream import NETWORK_ERRORS, Upstream
from stakes.gateway.proxy.usage import PARAMETERS, image_tokens, parsed
from stakes.gateway.settings import Settings
from stakes.vision.geometry import family as named_family
from stakes.vision.image.png import write_png

_SHARES = (1 / 6, 1 / 4, 1 / 3, 1 / 2, 3 / 4)  # of the native tokens; the least and the most feasible are sent
_PROBE_S, _CHECK_S = 120.0, 10.0


@dataclass(frozen=True)
class ProbeResult:
    """``follows``: True, False, or None if it is not known (``again``: worth probing once more)."""

    follows: bool | None
    sentence: str
    again: bool = False
    confidence: bool | None = None
    """Whether the answer had log-probabilities, which were asked for; None: not known."""


class _ProbeFailed(Exception):
    """The upstream answered, but not with anything that can be compared."""


async def probe(settings: Settings, upstream: Upstream, policy: Policy, confidence: bool = False) -> ProbeResult:
    """Send the page at two budgets and compare the counts; ``confidence``: ask for it whatever the policy."""
    family, given = policy.family, None
    try:
        model = settings.probe_model
        if model is None:
            models = _ids(await _json(upstream, "models"))
            if not models:
                raise _ProbeFailed("the upstream lists no model; name one with --probe-model")
            model = models[0]
        requests = await asyncio.to_thread(_requests, settings, policy, model)
        counts = [await _counts(upstream, body) for body, _ in requests]
        small, expected = _small_request(settings, family, model)
        note = "" if small is None else small_note(expected, (await _counts(upstream, small))[0])
        if confidence or policy.reads_confidence:
            given = await _gives_logprobs(upstream, requests[0][0])
    except NETWORK_ERRORS:
        return ProbeResult(None, "the upstream does not answer, so it is not known whether tokens follow", again=True)
    except _ProbeFailed as error:
        return ProbeResult(None, f"not known whether tokens follow the budget: {error}")
    except (Refused, InfeasibleBudget) as error:
        return ProbeResult(None, f"the probe's image could not be fitted: {error}")
    result = compare([tokens for _, tokens in requests], counts, PARAMETERS[settings.actuator])
    result = replace(result, confidence=given)
    return replace(result, sentence=result.sentence + note) if result.follows else result


async def _gives_logprobs(upstream: Upstream, body: bytes) -> bool:
    """Whether the answer to this request has log-probabilities when they are asked for."""
    status, data = await upstream.call(f"{upstream.base}/chat/completions", _PROBE_S, asking(body))
    reader = AnswerReader(streamed=False, strip=False)
    reader.feed(data)
    reader.end()
    return status == 200 and reader.found


def compare(expected: list[int], counts: list[tuple[int | None, int | None]], parameter: str = "") -> ProbeResult:
    """Judge two counts, each (image tokens if stated, prompt tokens if stated); ``parameter``: what may be ignored."""
    stated = [image for image, _ in counts]
    if None not in stated:
        follows, numbers = stated == expected, f"{stated[0]} and {stated[1]} counted"
        excess = f"{sum(filter(None, stated)) / sum(expected):.1f} times as many"
    else:
        prompts = [prompt for _, prompt in counts if prompt is not None]
        if len(prompts) < 2:
            return ProbeResult(
                None, "the upstream states no usage, so it is not known whether tokens follow the budget"
            )
        difference, due = prompts[1] - prompts[0], expected[1] - expected[0]
        follows, numbers = abs(difference - due) <= 1, f"the prompt grew by {difference}"
        excess = f"{difference - due:+d} tokens"
    numbers = f"{expected[0]} and {expected[1]} expected, {numbers}"
    if follows:
        return ProbeResult(True, f"tokens follow the budget: {numbers}")
    return ProbeResult(
        False,
        f"TOKENS DO NOT FOLLOW THE BUDGET: {numbers} ({excess}); check the policy's family and --actuator, or the "
        f"upstream ignores {parameter}",
    )


async def probe_until_known(
    probe_once: Callable[[], Awaitable[ProbeResult]], report: Callable[[ProbeResult], None], pause_s: float = 5.0
) -> None:
    """Probe until the upstream has answered, since it may still be starting; reports the first and the last result."""
    result = await probe_once()
    report(result)
    if result.again:
        while result.again:
            await asyncio.sleep(pause_s)
            result = await probe_once()
        report(result)


def _requests(settings: Settings, policy: Policy, model: str) -> list[tuple[bytes, int]]:
    """(body, expected tokens) at the smallest and the largest feasible share of the page's native tokens."""
    page, family = _page(), policy.family
    made: list[tuple[bytes, int]] = []
    for share in _SHARES:
        call = read_call("chat", _question(page, model))
        image = measure(page, family, settings.limits, bounds=settings.bounds_of(family))
        try:
            budgets = [max(1, int(image.native * share))]
            body, fitted = fit_images(settings, call, call.images, [image], budgets, policy, False)
        except InfeasibleBudget:
            continue
        assert body is not None
        made.append((body, fitted[0].tokens))
    if len({tokens for _, tokens in made}) < 2:
        raise InfeasibleBudget(f"{family} has no two budgets for one page")
    return [made[0], made[-1]]


def _small_request(settings: Settings, family: str, model: str) -> tuple[bytes | None, int]:
    """(body, expected tokens) of a small image, for families whose processors enlarge small ones; else (None, 0)."""
    if named_family(family).factor is None:
        return None, 0
    url = _blank()
    image = measure(url, family, settings.limits, bounds=settings.bounds_of(family))
    return dump(_question(url, model)), image.native


def small_note(expected: int, counted: int | None) -> str:
    """What to do where small images take other tokens than expected; "" where they do not, or nothing is stated."""
    if counted in (None, expected):
        return ""
    return (
        f"; SMALL IMAGES DO NOT: one of {expected} tokens was counted as {counted}, so the upstream's processor has "
        "other bounds; give them with --min-pixels and --max-pixels"
    )


def _question(url: str, model: str) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is this?"}]
    return {"model": model, "messages": [{"role": "user", "content": parts}], "max_tokens": 1, "temperature": 0}


def _blank() -> str:
    return data_url(write_png(Image.new("RGB", (60, 60), "white")), "png")


def _page() -> str:
    """A page of lines: 560 x 784 pixels, 560 native tokens of Qwen2.5-VL."""
    image = Image.new("RGB", (560, 784), "white")
    draw = ImageDraw.Draw(image)
    for row in range(24, 760, 24):
        draw.text((24, row), f"Line {row // 24} of a page that only tests the budget: {row * 37}", fill="black")
    return data_url(write_png(image), "png")


async def _counts(upstream: Upstream, body: bytes) -> tuple[int | None, int | None]:
    reply = await _json(upstream, "chat/completions", body)
    usage = reply.get("usage") if isinstance(reply, dict) else None
    prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return image_tokens(reply), prompt if isinstance(prompt, int) else None


async def _json(upstream: Upstream, path: str, body: bytes | None = None) -> Any:
    status, data = await upstream.call(f"{upstream.base}/{path}", _PROBE_S, body)
    if status >= 500:
        raise aiohttp.ClientError("the upstream is not ready")
    if status != 200:
        reason = "" if status in (401, 403) else error_message(data)  # those may name the key
        raise _ProbeFailed(f"the upstream answered {path} with status {status}" + (reason and f": {reason}"))
    reply = parsed(data)
    if reply is None:
        raise _ProbeFailed(f"the upstream's answer to {path} is not JSON")
    return reply


async def check_upstream(settings: Settings, policy: Policy) -> list[UpstreamCheck]:
    """Whether a gateway would work in front of this upstream: reachable, its models, and whether tokens follow."""
    upstream = Upstream(settings, Authenticator((), settings.upstream_key), Metrics())
    upstream.open()
    try:
        answers, models = await _check_models(upstream, settings)
        if models is None:
            return answers
        listed = UpstreamCheck("upstream models", "good", _list(models))
        if not models:
            listed = UpstreamCheck("upstream models", "unknown", "it lists none", "name one with --model")
        named = settings.probe_model
        if named and models and named not in models:
            advice = f"name one that it has: {_list(models)}"
            missing = UpstreamCheck("upstream model", "bad", f"{named!r} is not one of its models", advice)
            return [*answers, listed, missing]
        asked = _question(_blank(), named or next(iter(models), ""))
        answers += [listed, *await check_plugin(upstream, asked, settings.actuator)]
        if answers[-1].state == "bad":
            return answers
        result = await probe(settings, upstream, policy, confidence=True)
        return [*answers, await _check_tokens(upstream, result), *check_confidence(policy, result.confidence)]
    finally:
        await upstream.session.close()


async def _check_models(upstream: Upstream, settings: Settings) -> tuple[list[UpstreamCheck], list[str] | None]:
    """Whether it answers, what it is, and its list of models; None if there is no point in going on."""
    try:
        status, headers, body = await upstream.fetch(f"{upstream.base}/models", _CHECK_S)
    except NETWORK_ERRORS as error:
        problem = f"{upstream.base} does not answer ({type(error).__name__})"
        advice = "start the server, or correct the address: host, port and the /v1 at its end"
        return [UpstreamCheck("upstream", "bad", problem, advice)], None
    models = _ids(parsed(body)) if status == 200 else None
    engine = await check_engine(upstream, headers, parsed(body), settings.actuator)
    if models is not None:
        return [UpstreamCheck("upstream", "good", f"{upstream.base} answers"), engine], models
    problem = f"{upstream.base}/models answers with status {status} and no list of models"
    advice = "an OpenAI-compatible address ends in /v1 on most servers; correct --upstream"
    if status in (401, 403):
        problem = f"{upstream.base} refuses us with status {status}"
        advice = "give its key in a file: --upstream-key-file key.txt"
    elif status >= 500:
        problem = f"{upstream.base} answers with status {status}"
        advice = "its own log says why; it may still be loading its model"
    return [UpstreamCheck("upstream", "bad", problem, advice), engine], None


async def _check_tokens(upstream: Upstream, result: ProbeResult) -> UpstreamCheck:
    if result.follows:
        found, _, small = result.sentence.partition("; SMALL")
        if small:
            found, advice = f"{found}; small{small.rpartition(';')[0].lower()}", small.rpartition("; ")[2]
            return UpstreamCheck("tokens follow", "unknown", found, advice)
        return UpstreamCheck("tokens follow", "good", found)
    if result.follows is None:
        advice = "give a model that takes images with --model; else monitor stakes_usage_checks_total"
        return UpstreamCheck("tokens follow", "unknown", result.sentence, advice)
    problem, _, advice = result.sentence.partition("; ")
    if await _is_gateway(upstream):
        problem = "this address is a stakes gateway itself"
        advice = "give the address of the server behind it; budgets are set once"
    return UpstreamCheck("tokens follow", "bad", problem, advice)


async def _is_gateway(upstream: Upstream) -> bool:
    """Whether it has the ``/readyz`` of a stakes gateway; asked without the key, which is for the base address."""
    address, timeout = f"{upstream.base.removesuffix('/v1')}/readyz", aiohttp.ClientTimeout(total=_CHECK_S)
    try:
        async with upstream.session.get(address, timeout=timeout, auto_decompress=True) as reply:
            return "tokens_follow" in json.loads(await reply.read())
    except (*NETWORK_ERRORS, ValueError, TypeError):
        return False


def _ids(reply: Any) -> list[str] | None:
    """The ids of a list of models, None if it is not one."""
    try:
        return [str(model["id"]) for model in reply["data"]]
    except (LookupError, TypeError):
        return None


def _list(models: list[str]) -> str:
    return ", ".join(models[:5]) + (f" and {len(models) - 5} more" if len(models) > 5 else "")
