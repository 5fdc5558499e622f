"""What does a request ask of a model on this machine? One question about one image, or a refusal that says why.

    ask = read_ask(body, "embedded")                  # a chat completion's body; "responses": the other API's
    ask.image.size, ask.question, ask.max_tokens

The image must come within the request, as a ``data:`` URL: nothing is fetched. It stands before the text, and the text
ends in "Answer briefly.", as every model here is asked; a text that ends so already is not told twice. What this server
would have to ignore (sampling, tools, several images) is refused by name; ``turns`` says what a conversation asks.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stakes.errors import UnreadableImage
from stakes.gateway.local_server.replies import Refused
from stakes.gateway.proxy.request import Api
from stakes.models.base import SUFFIX
from stakes.vision.image.decode import open_image

if TYPE_CHECKING:
    from PIL.Image import Image


# What does a conversation ask about which image? The text of its last user turn, about the last image that was sent.
#
#     find_question(messages)        # ('data:image/png;base64,…', 'And who signed it?', 0)
#
# For a model that answers one question about one page and keeps no conversation: what was said before (by the system,
# the
# assistant, the user) is not put to it. Only the image stays: where the last turn brings none, it is the one of the
# latest turn that did; how many came before it is said, since a count of tokens does not hold them. Parts are those of
# chat completions (text, image_url) and of responses (input_text, input_image).


ROLES = ("user", "assistant", "system", "developer")


def find_question(turns: Any) -> tuple[str, str, int]:
    """The image's address, the question, and how many images of earlier turns are not looked at.

    ``Refused`` where there is not one of each.
    """
    if isinstance(turns, str):
        turns = [{"role": "user", "content": turns}]
    if not isinstance(turns, list):
        raise Refused(f"the turns are {type(turns).__name__}; give a list of messages", code="invalid_value")
    asked = [_parts(turn.get("content")) for turn in map(_checked, turns) if turn["role"] == "user"]
    if not asked:
        raise Refused("no message is the user's; give one with an image and a text as its parts", code="invalid_value")
    text = "\n".join(part for part in asked[-1] if isinstance(part, str))
    images = next((found for parts in reversed(asked) if (found := [p for p in parts if not isinstance(p, str)])), [])
    if not images:
        raise Refused(
            "this server's reader answers questions about a page, and no image was sent; give one as a data: URL "
            "beside the text",
            code="image_missing",
        )
    if len(images) > 1:
        raise Refused(
            f"this model answers one text about one image, not about {len(images)}; ask about each in a request of its "
            "own",
            code="too_many_images",
        )
    if not text.strip():
        raise Refused("the last message of the user's has no text; ask something about the image", code="invalid_value")
    sent = sum(not isinstance(part, str) for parts in asked for part in parts)
    return _address(images[0]), text, sent - 1


def _checked(turn: Any) -> dict[str, Any]:
    if not isinstance(turn, dict) or turn.get("type", "message") != "message":
        kind = turn.get("type") if isinstance(turn, dict) else turn
        raise Refused(f"a turn is {kind!r:.80}; give messages with a role and content alone", code="invalid_value")
    if turn.get("role") not in ROLES:
        raise Refused(f"a message's role is {turn.get('role')!r:.80}; give {', '.join(ROLES)}", code="invalid_value")
    return turn


def _parts(content: Any) -> list[str | dict[str, Any]]:
    """Texts, and for each image the object that holds its address and its detail."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        raise Refused("a message's content is neither a text nor a list of parts", code="invalid_value")
    found: list[str | dict[str, Any]] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("text", "input_text") and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif kind == "image_url" and isinstance(part.get("image_url"), dict):
            found.append(part["image_url"])
        elif kind == "input_image":
            found.append({"url": part.get("image_url"), "detail": part.get("detail")})
        else:
            raise Refused(
                f"a part of the message is {kind!r:.80}; give text and image_url, or input_text and input_image",
                code="invalid_value",
            )
    return found


def _address(image: dict[str, Any]) -> str:
    if image.get("detail") == "low":
        raise Refused("images are taken as sent; make it smaller and leave detail out", code="unsupported_value")
    url = image.get("url")
    if not isinstance(url, str):
        raise Refused("the image has no address; give it as a data: URL, no file is kept here", code="invalid_value")
    return url


DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,", re.IGNORECASE)
# Where each API has its turns, and how it names the longest answer.
FIELDS: Mapping[Api, tuple[str, tuple[str, ...]]] = {
    "chat": ("messages", ("max_completion_tokens", "max_tokens")),
    "responses": ("input", ("max_output_tokens",)),
}
# Fields that would change the answer, and the values that leave it as it is.
CANNOT: Mapping[str, tuple[Any, ...]] = {
    "temperature": (0, None),
    "n": (1, None),
    "stop": (None, []),
    "tools": (None, []),
    "logprobs": (None, False),
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
class Ask:
    """One question; ``max_tokens``: None for the model's own answer length. ``image``: RGB, upright, as it was sent.

    ``left_out``: images of earlier turns, which are not looked at.
    """

    image: Image
    question: str
    max_tokens: int | None
    stream: bool
    stream_usage: bool
    left_out: int = 0


def read_ask(body: Any, model: str, api: Api = "chat") -> Ask:
    """Check a request's JSON whole and decode its image."""
    turns, limits = FIELDS[api]
    if not isinstance(body, dict):
        raise Refused(f"the body is not a JSON object; give model and {turns}", code="invalid_json")
    if body.get("model") != model:
        raise Refused(f"there is no model {body.get('model')!r:.80} here, only {model!r}", 404, "model_not_found")
    for field, allowed in CANNOT.items():
        if body.get(field) not in allowed:
            raise Refused(
                f"{field} is {body[field]!r:.80}, which this server cannot do (greedy, keeps nothing); leave it out",
                code="unsupported_value",
            )
    named = next((name for name in limits if name in body), limits[-1])
    limit = body.get(named)
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise Refused(f"{named} is {limit!r:.80}; give a whole number of at least 1", code="invalid_value")
    stream, options = body.get("stream") or False, body.get("stream_options") or {}
    if not isinstance(stream, bool) or not isinstance(options, dict):
        raise Refused("stream is true or false, and stream_options an object", code="invalid_value")
    url, text, left_out = find_question(body.get(turns))
    return Ask(_image(url), text.removesuffix(SUFFIX), limit, stream, options.get("include_usage") is True, left_out)


def _image(url: str) -> Image:
    head = DATA_URL.match(url)
    if head is None:
        raise Refused("the image must be a data:image/…;base64 URL; nothing is fetched here", code="invalid_image")
    try:
        return open_image(base64.b64decode(url[head.end() :], validate=True))
    except binascii.Error:
        raise Refused("the image's base64 is damaged", code="invalid_image") from None
    except UnreadableImage as error:
        raise Refused(f"the image cannot be read: {error}", code="invalid_image") from None
