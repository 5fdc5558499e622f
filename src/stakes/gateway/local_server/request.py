"""Parses a request to the local server: one question about one image, or an error that says why not.

    parsed = read_request(body, "embedded")             # a chat completion's body; "responses": the other API's
    parsed.question.image.size, parsed.question.question, parsed.max_tokens

The model answers one question about one page and keeps no conversation. It gets the text of the last user message and
the image of that message, or else of the latest user message that had one. System, assistant and earlier user messages
are not given to it. Images must be ``data:`` URLs: nothing is fetched. Every local model is prompted with "Answer
briefly." at the end, so a text that has this suffix already loses it here. What this server would have to ignore
(sampling, tools, several images) is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stakes.errors import UnreadableImage
from stakes.gateway.local_server.replies import ApiError
from stakes.gateway.proxy.scan import Api
from stakes.models.base import SUFFIX, Request
from stakes.vision.image.decode import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

ROLES = ("user", "assistant", "system", "developer")
DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
# Where each API has its messages, and how it names the longest answer.
FIELDS: Mapping[Api, tuple[str, tuple[str, ...]]] = {
    "chat": ("messages", ("max_completion_tokens", "max_tokens")),
    "responses": ("input", ("max_output_tokens",)),
}
# Fields that would change the answer, and the values that do not.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0, None),
    "n": (1, None),
    "stop": (None, []),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "response_format": (None, {"type": "text"}),
    "mm_processor_kwargs": (None, {}),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
    "text": (None, {}, {"format": {"type": "text"}}),
    "background": (None, False),
    "conversation": (None,),
    "previous_response_id": (None, ""),
}


@dataclass(frozen=True)
class ApiRequest:
    """A parsed request. ``question``: its text and its image, RGB and upright, without a budget.

    ``max_tokens``: None for the model's own answer length. ``left_out``: images of earlier messages, which the model
    does not read.
    """

    question: Request
    max_tokens: int | None
    stream: bool
    stream_usage: bool
    left_out: int = 0
    logprobs: bool = False


def read_request(body: Any, model: str, api: Api = "chat") -> ApiRequest:
    """Check a request's JSON completely and decode its image."""
    messages, limits = FIELDS[api]
    if not isinstance(body, dict):
        raise ApiError(f"the body is not a JSON object; give model and {messages}", code="invalid_json")
    if body.get("model") != model:
        raise ApiError(f"there is no model {body.get('model')!r:.80} here, only {model!r}", 404, "model_not_found")
    for field, allowed in UNSUPPORTED.items():
        if body.get(field) not in allowed:
            raise ApiError(
                f"{field} is {body[field]!r:.80}, which this server cannot do (greedy, keeps nothing); leave it out",
                code="unsupported_value",
            )
    named = next((name for name in limits if name in body), limits[-1])
    limit = body.get(named)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise _invalid(f"{named} is {limit!r:.80}; give a whole number of at least 1")
    stream, options = body.get("stream") or False, body.get("stream_options") or {}
    logprobs = body.get("logprobs") or False
    if not isinstance(stream, bool) or not isinstance(options, dict) or not isinstance(logprobs, bool):
        raise _invalid("stream is true or false, as logprobs is, and stream_options an object")
    image, text, left_out = find_question(body.get(messages))
    question = Request(_decode(image), text.removesuffix(SUFFIX))
    return ApiRequest(question, limit, stream, options.get("include_usage") is True, left_out, logprobs)


def find_question(messages: Any) -> tuple[dict[str, Any], str, int]:
    """The object with the image's URL and detail, the question, and how many images of earlier messages are left out.

    Parts are those of chat completions (text, image_url) and of responses (input_text, input_image).
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list):
        raise _invalid(f"the messages are {type(messages).__name__}; give a list of messages")
    by_user = [_parts(one.get("content")) for one in map(_checked, messages) if one["role"] == "user"]
    if not by_user:
        raise _invalid("no message is the user's; give one with an image and a text as its parts")
    text = "\n".join(part for part in by_user[-1] if isinstance(part, str))
    images = [[part for part in parts if not isinstance(part, str)] for parts in by_user]
    latest: list[dict[str, Any]] = next((found for found in reversed(images) if found), [])
    if not latest:
        raise ApiError(
            "this server's reader answers questions about a page, and no image was sent; give one as a data: URL "
            "beside the text",
            code="image_missing",
        )
    if len(latest) > 1:
        raise ApiError(
            f"this model answers one text about one image, not about {len(latest)}; ask about each in a request of its "
            "own",
            code="too_many_images",
        )
    if not text.strip():
        raise _invalid("the user's last message has no text; ask something about the image")
    return latest[0], text, sum(map(len, images)) - 1


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("type", "message") != "message":
        kind = message.get("type") if isinstance(message, dict) else message
        raise _invalid(f"a message is {kind!r:.80}; give messages with a role and content alone")
    if message.get("role") not in ROLES:
        raise _invalid(f"a message's role is {message.get('role')!r:.80}; give {', '.join(ROLES)}")
    return message


def _parts(content: Any) -> list[str | dict[str, Any]]:
    """Texts, and for each image the object that holds its URL and its detail."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise _invalid("a message's content is neither a text nor a list of parts")
    parts: list[str | dict[str, Any]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text") and isinstance(part.get("text"), str):
            parts.append(part["text"])
        elif kind == "image_url" and isinstance(part.get("image_url"), dict):
            parts.append(part["image_url"])
        elif kind == "input_image":
            parts.append({"url": part.get("image_url"), "detail": part.get("detail")})
        else:
            raise _invalid(
                f"a part of the message is {kind!r:.80}; give text and image_url, or input_text and input_image"
            )
    return parts


def _decode(image: dict[str, Any]) -> Image:
    if image.get("detail") == "low":
        raise ApiError("images are used as sent; make it smaller and leave detail out", code="unsupported_value")
    url = image.get("url")
    if not isinstance(url, str):
        raise _invalid("the image has no address; give it as a data: URL, no file is kept here")
    head = DATA_URL.match(url)
    if head is None:
        raise ApiError("the image must be a data:image/…;base64 URL; nothing is fetched here", code="invalid_image")
    try:
        return open_image(base64.b64decode(url[head.end() :], validate=True))
    except binascii.Error:
        raise ApiError("the image's base64 is damaged", code="invalid_image") from None
    except UnreadableImage as error:
        raise ApiError(f"the image cannot be read: {error}", code="invalid_image") from None


def _invalid(message: str) -> ApiError:
    return ApiError(message, code="invalid_value")
