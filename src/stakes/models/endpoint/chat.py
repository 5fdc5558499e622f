"""What do OpenAI's chat completions look like? One question about one image as a body, and a reply read strictly.

    body = chat_body("my-model", "What is the total?", "data:image/png;base64,…", 16)
    read_reply({"choices": [{"message": {"content": "7"}, "finish_reason": "stop"}]}).text      # '7'

A reply that is not an answer is ``Unusable``, which the wire retries.
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

from stakes.models.base import SUFFIX, Request
from stakes.models.wire import Unusable
from stakes.vision.geometry import accepted_size, count_tokens
from stakes.vision.image.decode import open_image
from stakes.vision.image.resize import fit

ENDED = {"stop", "length", "eos_token", "stop_sequence", None}  # by any other reason the answer did not finish

HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Reply:
    """What one chat completion says; ``usage`` as the server gave it, whatever that is."""

    text: str
    truncated: bool
    usage: Any


def chat_body(
    model: str,
    question: str,
    image_url: str | None,
    max_new_tokens: int,
    extra: Mapping[str, Any] | None = None,
    *,
    high_detail: bool = False,
) -> dict[str, Any]:
    """The image, if any, then the question, as the local models are asked; fields that ``extra`` sets to None go."""
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
    """Text that finished; ``Unusable`` says what else the reply is. ``allow_empty``: no text is one, if it stopped."""
    try:
        choice = reply["choices"][0]
        content, reason = choice["message"]["content"], choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError):
        raise Unusable("its reply is not a chat completion") from None
    if not isinstance(reason, str | None) or reason not in ENDED:
        raise Unusable(f"its reply did not finish ({reason!s:.40})")
    if not isinstance(content, str) or not (content.strip() or (allow_empty and reason == "stop")):
        raise Unusable("its reply has no text")
    return Reply(_whole(content).strip(), reason == "length", reply.get("usage"))


def model_names(reply: Any) -> list[str]:
    """What ``/v1/models`` lists."""
    try:
        return [_whole(str(one["id"])) for one in reply["data"]]
    except (LookupError, TypeError):
        raise Unusable("its reply is no list of models") from None


def _whole(text: str) -> str:
    """The same with U+FFFD for every half of a surrogate pair, which JSON can escape and no file can hold."""
    return HALF.sub("\ufffd", text)


# How does an image go to a server? As PNG in a data URL, fitted to its budget, made once for all who ask about it.


@dataclass(frozen=True)
class Sent:
    """An image as it goes out: its data URL, the tokens that it will take, those that it would take, milliseconds."""

    url: str
    tokens: int
    native: int
    ms: float


def send_once(request: Request, family: str, made: dict[tuple[int, int | None], Sent]) -> tuple[Sent, bool]:
    """The request's image, and whether it was made now; ``made``: those of this call, by image and budget."""
    key = (id(request.image), request.budget)
    if key in made:
        return made[key], False
    began = time.perf_counter()
    if request.budget is None:
        image = open_image(request.image)
        size = accepted_size(family, *image.size)
        image = image if size == image.size else image.resize(size, Resampling.LANCZOS)
        tokens = native = count_tokens(family, *size)
    else:
        fitted = fit(request.image, request.budget, family)
        image, tokens, native = fitted.image, fitted.tokens, fitted.native
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=1)  # as small as the default's on real pages, in a third of its time
    url = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
    made[key] = Sent(url, tokens, native, 1000 * (time.perf_counter() - began))
    return made[key], True
