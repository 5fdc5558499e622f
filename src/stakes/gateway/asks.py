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
from stakes.gateway.read_request import Api
from stakes.gateway.replies import Refused
from stakes.gateway.turns import find_question
from stakes.models.base import SUFFIX
from stakes.vision.decode import open_image

if TYPE_CHECKING:
    from PIL.Image import Image

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
