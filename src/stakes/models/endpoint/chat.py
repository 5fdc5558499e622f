"""OpenAI chat completions: one question about one image as a request body, and a reply that is read strictly.

    body = chat_body("my-model", "What is the total?", "data:image/png;base64,…", 16)
    read_reply({"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}]}).text      # '7'

A reply that is not an answer is ``Unusable``, which the HTTP client retries.
"""

from __future__ import annotations

import base64
import io
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL.Image import Resampling

from stakes.errors import BadInput, LedgerBreach
from stakes.http import Unusable
from stakes.models.base import DEFAULT_SELECTOR, SUFFIX, Request, choice_logprobs
from stakes.vision.geometry import accepted_size, count_tokens
from stakes.vision.geometry.menus import ActuatorName, highest_level, menu, settings_of
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

# Finish reasons of a complete answer, or of one that was cut at its length; any other means that it did not finish.
FINISHED = {"stop", "length", "eos_token", "stop_sequence", None}

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Reply:
    """One chat completion; ``usage`` as the server gave it, unchecked. ``logprobs``: of its tokens, where they came."""

    text: str
    truncated: bool
    usage: Any
    logprobs: tuple[float, ...] = ()


def chat_body(
    model: str,
    question: str,
    image_url: str | None,
    max_new_tokens: int,
    extra: Mapping[str, Any] | None = None,
    *,
    high_detail: bool = False,
) -> dict[str, Any]:
    """The image, if any, then the question, in the order of the local models; a field that is None is left out."""
    content: list[dict[str, Any]] = [{"type": "text", "text": question + SUFFIX}]
    if image_url is not None:
        image = {"url": image_url, "detail": "high"} if high_detail else {"url": image_url}
        content.insert(0, {"type": "image_url", "image_url": image})
    body = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": max_new_tokens,
        **(extra or {}),
    }
    return {key: value for key, value in body.items() if value is not None}


def read_reply(reply: Any, *, allow_empty: bool = False) -> Reply:
    """The text of a finished completion, else ``Unusable``. ``allow_empty``: it may be empty if the model stopped."""
    try:
        choice = reply["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError):
        raise Unusable("its reply is not a chat completion") from None
    if not isinstance(reason, str | None) or reason not in FINISHED:
        raise Unusable(f"its reply did not finish ({reason!s:.40})")
    if not isinstance(content, str) or not (content.strip() or (allow_empty and reason == "stop")):
        raise Unusable("its reply has no text")
    text = _replace_surrogates(content).strip()
    return Reply(text, reason == "length", reply.get("usage"), choice_logprobs(choice) or ())


def model_names(reply: Any) -> list[str]:
    """The models that ``/v1/models`` lists."""
    try:
        return [_replace_surrogates(str(one["id"])) for one in reply["data"]]
    except (LookupError, TypeError):
        raise Unusable("its reply is no list of models") from None


def _replace_surrogates(text: str) -> str:
    """Put U+FFFD for every half of a surrogate pair: JSON can escape one, and no UTF-8 file can hold it."""
    return LONE_SURROGATE.sub("\ufffd", text)


@dataclass(frozen=True)
class EncodedImage:
    """An image as it is sent: its data URL, its tokens at this size, its native tokens, and the encoding time."""

    url: str
    tokens: int
    native: int
    ms: float
    setting: Any = None
    """The value of the engine's parameter, where that sets the tokens and not the size of the image."""


def encode_image(
    request: Request,
    family: str,
    cache: dict[tuple[int, int | None, Any], EncodedImage],
    actuator: ActuatorName = "pixels",
) -> tuple[EncodedImage, bool]:
    """The request's image fitted to its budget as a PNG data URL, and whether it was not in ``cache`` yet.

    ``cache`` holds the images of one call, by identity, budget and, for deletion, what chooses the tokens.
    """
    key = (id(request.image), request.budget, (request.selector, request.sample) if request.selector else None)
    if key in cache:
        return cache[key], False
    started, setting = time.perf_counter(), None
    if request.budget is None or actuator != "pixels":
        image = open_image(request.image)
        size = accepted_size(family, *image.size)
        image = image if size == image.size else image.resize(size, Resampling.LANCZOS)
        tokens = native = count_tokens(family, *size)
        if request.budget is not None and actuator == "vllm-deletion":
            setting, tokens = deletion_setting(request, native), request.budget
        elif request.budget is not None:
            chosen, tokens = highest_level(settings_of(actuator, family, request.budget), size, request.budget)
            setting, entries = chosen.value, menu(actuator, family)
            native = native if entries is None else entries[-1]
    else:
        fitted = fit(request.image, request.budget, family)
        image, tokens, native = fitted.image, fitted.tokens, fitted.native
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)  # as small as the default's on real pages, in a third of its time
    url = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
    cache[key] = EncodedImage(url, tokens, native, 1000 * (time.perf_counter() - started), setting)
    return cache[key], True


def deletion_setting(request: Request, native: int) -> dict[str, Any]:
    """What the plugin of vLLM takes for one image; a budget beyond its tokens is refused there, too."""
    if request.budget is None or request.budget > native:
        raise LedgerBreach(f"a budget of {request.budget} visual tokens exceeds the image's {native}")
    selector = request.selector or DEFAULT_SELECTOR
    if not isinstance(selector, str):
        raise BadInput(f"a server is told a selector by name, not by the object {selector!r}")
    seed = {} if request.sample is None else {"stakes_sample": request.sample}
    return {"stakes_budget": request.budget, "stakes_selector": selector, **seed}


def set_parameter(body: dict[str, Any], actuator: ActuatorName, value: Any) -> None:
    """Write the value of an engine's parameter into a chat request with one image, its first part."""
    part = body["messages"][0]["content"][0]
    if actuator == "detail":
        part["image_url"]["detail"] = value
    elif actuator == "gemini":
        part["media_resolution"] = value
    else:
        body["mm_processor_kwargs"] = {"image": value} if actuator == "lmdeploy" else value
