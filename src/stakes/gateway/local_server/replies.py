"""What does an OpenAI-compatible server say? Completions whole or as a stream of events, lists of models, errors.

    completion("embedded", Told("$ 1,204.00", False, prompt_tokens=601, image_tokens=570, completion_tokens=11))
    Refused("there is no model 'x' here", 404, "model_not_found").reply()

``usage`` is vLLM's with --enable-prompt-tokens-details: the whole prompt, and how much of it was the image. Where those
of earlier turns were not put to the model, ``images_left_out`` stands beside it: engines read them all.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from stakes.errors import StakesError

KINDS = {404: "not_found_error", 429: "rate_limit_error"}  # other 4xx: invalid_request_error


@dataclass(frozen=True)
class Told:
    """An answer and what it took; ``prompt_tokens`` holds ``image_tokens``, ``completion_tokens`` the end mark.

    ``left_out``: images that were sent before the one that was read, and were not.
    """

    text: str
    truncated: bool
    prompt_tokens: int
    image_tokens: int
    completion_tokens: int
    left_out: int = 0

    def usage(self) -> dict[str, Any]:
        """As vLLM counts."""
        left_out = {"images_left_out": self.left_out} if self.left_out else {}
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {
                "cached_tokens": 0,
                "multimodal_tokens": {"image": self.image_tokens},
                **left_out,
            },
        }

    @property
    def finish_reason(self) -> str:
        """Why it ends where it ends."""
        return "length" if self.truncated else "stop"


class Refused(StakesError):
    """A request that gets no answer: what the client is told, with which status and under which code."""

    def __init__(self, message: str, status: int = 400, code: str = "bad_request", after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.after_s = status, code, after_s

    def reply(self) -> JSONResponse:
        """OpenAI's ``{"error": {message, type, code}}``."""
        kind = "server_error" if self.status >= 500 else KINDS.get(self.status, "invalid_request_error")
        headers = {} if self.after_s is None else {"retry-after": str(self.after_s)}
        return JSONResponse({"error": {"message": str(self), "type": kind, "code": self.code}}, self.status, headers)


def completion(model: str, told: Told) -> dict[str, Any]:
    """The body of a whole reply."""
    message = {"role": "assistant", "content": told.text}
    choice = {"index": 0, "message": message, "finish_reason": told.finish_reason, "logprobs": None}
    return {**_head(model, "chat.completion"), "choices": [choice], "usage": told.usage()}


def events(model: str, told: Told, *, with_usage: bool) -> Iterator[str]:
    """The same as server-sent events: who speaks, the text, why it ended, the usage if it was asked for, the end."""
    head = _head(model, "chat.completion.chunk")
    for delta, reason in (({"role": "assistant"}, None), ({"content": told.text}, None), ({}, told.finish_reason)):
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        yield _event({**head, "choices": [choice]} | ({"usage": None} if with_usage else {}))
    if with_usage:
        yield _event({**head, "choices": [], "usage": told.usage()})
    yield "data: [DONE]\n\n"


def models(*names: str) -> dict[str, Any]:
    """The body of ``/v1/models``."""
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "stakes"} for name in names]}


def _head(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


# What does a server say by the responses API? One message, whole or as the events that build it up.
#
#     response("embedded", Told("$ 1,204.00", False, prompt_tokens=601, image_tokens=570, completion_tokens=11))
#
# ``usage`` counts as for chat completions, under this API's names; an answer that was cut off is ``incomplete``.


def response(model: str, told: Told) -> dict[str, Any]:
    """The body of a whole reply."""
    status = "incomplete" if told.truncated else "completed"
    message = {**_message(status), "content": [_text(told.text)]}
    return {**_head_response_replies(model), **_end(told), "status": status, "output": [message], "usage": _usage(told)}


def response_events(model: str, told: Told) -> Iterator[str]:
    """The same as server-sent events: begun, the message, its text, and at the end the whole with its usage."""
    whole = response(model, told)
    (message,) = whole["output"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    item, at = {"output_index": 0}, {"item_id": message["id"], "output_index": 0, "content_index": 0}
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("created", {"response": begun}),
        ("in_progress", {"response": begun}),
        ("output_item.added", {**item, "item": {**message, "status": "in_progress", "content": []}}),
        ("content_part.added", {**at, "part": _text("")}),
        ("output_text.delta", {**at, "delta": told.text, "logprobs": []}),
        ("output_text.done", {**at, "text": told.text, "logprobs": []}),
        ("content_part.done", {**at, "part": _text(told.text)}),
        ("output_item.done", {**item, "item": message}),
        (whole["status"], {"response": whole}),
    )
    for number, (name, about) in enumerate(steps):
        event = {"type": f"response.{name}", "sequence_number": number, **about}
        yield f"event: response.{name}\ndata: {json.dumps(event)}\n\n"


def _head_response_replies(model: str) -> dict[str, Any]:
    """What a response says beside its answer: how it was asked, which here is always the same."""
    return {
        "id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": int(time.time()), "model": model,
        "error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": False, "previous_response_id": None,
        "store": False, "temperature": 0, "tool_choice": "none", "tools": [], "top_p": 1,
    }  # fmt: skip


def _message(status: str) -> dict[str, Any]:
    return {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "status": status}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _end(told: Told) -> dict[str, Any]:
    return {"incomplete_details": {"reason": "max_output_tokens"} if told.truncated else None}


def _usage(told: Told) -> dict[str, Any]:
    counted = told.usage()
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": counted["prompt_tokens_details"],
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted["total_tokens"],
    }
