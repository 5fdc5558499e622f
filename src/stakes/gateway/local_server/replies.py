"""Replies of an OpenAI-compatible server: chat completions and responses, whole or streamed, models and errors.

    chat_completion("embedded", Completion("$ 1,204.00", False, prompt_tokens=601, image_tokens=570, output_tokens=11))
    ApiError("there is no model 'x' here", 404, "model_not_found").reply()

``usage`` is vLLM's with --enable-prompt-tokens-details: the whole prompt, and how much of it was the image. If images
of earlier turns were not given to the model, ``images_left_out`` counts them; engines read them all. Beside OpenAI's
fields a reply has ``stakes: {"confidence": 0.31, "warning": "…"}`` where the model gives a confidence; the warning is
there where the embedded reader is not sure.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response

from stakes.errors import StakesError
from stakes.gateway.proxy.scan import Api

ERROR_TYPES = {404: "not_found_error", 429: "rate_limit_error"}  # other 4xx: invalid_request_error


class ApiError(StakesError):
    """A request that gets no answer: the message, the HTTP status and a code for machines."""

    def __init__(self, message: str, status: int = 400, code: str = "bad_request", after_s: int | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.after_s = status, code, after_s

    def reply(self) -> JSONResponse:
        """OpenAI's ``{"error": {message, type, code}}``."""
        kind = "server_error" if self.status >= 500 else ERROR_TYPES.get(self.status, "invalid_request_error")
        headers = {} if self.after_s is None else {"retry-after": str(self.after_s)}
        return JSONResponse({"error": {"message": str(self), "type": kind, "code": self.code}}, self.status, headers)


@dataclass(frozen=True)
class Completion:
    """An answer and its usage. ``prompt_tokens`` include ``image_tokens``; ``output_tokens`` include the end token.

    ``left_out``: images of earlier turns that the model did not read. ``confidence``, ``warning``: as ``Answer`` and
    ``models.embedded`` have them. ``logprobs``: of each token and of the end token, where they were asked for; a text
    is empty where the answer splits into other tokens than it was generated from.
    """

    text: str
    truncated: bool
    prompt_tokens: int
    image_tokens: int
    output_tokens: int
    left_out: int = 0
    confidence: float | None = None
    warning: str | None = None
    logprobs: tuple[tuple[str, float], ...] | None = None

    @property
    def total_tokens(self) -> int:
        """Prompt and output."""
        return self.prompt_tokens + self.output_tokens

    def prompt_details(self) -> dict[str, Any]:
        """What the prompt's tokens are, as vLLM states it."""
        left_out = {"images_left_out": self.left_out} if self.left_out else {}
        return {"cached_tokens": 0, "multimodal_tokens": {"image": self.image_tokens}, **left_out}

    def extension(self) -> dict[str, Any]:
        """The field of our own, which clients of OpenAI's API ignore."""
        if self.confidence is None:
            return {}
        return {"stakes": {"confidence": self.confidence, **({"warning": self.warning} if self.warning else {})}}


def completion_reply(api: Api, model: str, answer: Completion, *, stream: bool, with_usage: bool) -> Response:
    """The HTTP response with an answer, whole or as server-sent events."""
    if not stream:
        return JSONResponse((chat_completion if api == "chat" else response)(model, answer))
    chat = api == "chat"
    events = chat_events(model, answer, with_usage=with_usage) if chat else response_events(model, answer)
    return Response("".join(events), media_type="text/event-stream")


def chat_completion(model: str, answer: Completion) -> dict[str, Any]:
    """The body of a whole chat completion."""
    message = {"role": "assistant", "content": answer.text}
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer), "logprobs": _logprobs(answer)}
    head = _chat_head(model, "chat.completion")
    return {**head, "choices": [choice], "usage": _chat_usage(answer), **answer.extension()}


def chat_events(model: str, answer: Completion, *, with_usage: bool) -> Iterator[str]:
    """The same as server-sent events: role, text, finish reason, the usage if it was asked for, the end."""
    head = _chat_head(model, "chat.completion.chunk")
    usage = {"usage": None} if with_usage else {}
    deltas: list[dict[str, str]] = [{"role": "assistant"}, {"content": answer.text}, {}]
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None if delta else _finish_reason(answer)}
        if "content" in delta:
            choice["logprobs"] = _logprobs(answer)
        extension = {} if delta else answer.extension()
        yield f"data: {json.dumps({**head, 'choices': [choice], **usage, **extension})}\n\n"
    if with_usage:
        yield f"data: {json.dumps({**head, 'choices': [], 'usage': _chat_usage(answer)})}\n\n"
    yield "data: [DONE]\n\n"


def _chat_head(model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _logprobs(answer: Completion) -> dict[str, Any] | None:
    if answer.logprobs is None:
        return None
    rest = {"bytes": None, "top_logprobs": list[Any]()}
    return {"content": [{"token": token, "logprob": value, **rest} for token, value in answer.logprobs]}


def _chat_usage(answer: Completion) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.total_tokens,
        "prompt_tokens_details": answer.prompt_details(),
    }


def _finish_reason(answer: Completion) -> str:
    return "length" if answer.truncated else "stop"


def response(model: str, answer: Completion) -> dict[str, Any]:
    """The body of a whole response; an answer that was cut off is ``incomplete``."""
    status = "incomplete" if answer.truncated else "completed"
    message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "status": status}
    return {
        "id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": int(time.time()), "model": model,
        "error": None, "instructions": None, "metadata": {}, "parallel_tool_calls": False, "previous_response_id": None,
        "store": False, "temperature": 0, "tool_choice": "none", "tools": [], "top_p": 1, "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if answer.truncated else None,
        "output": [{**message, "content": [_text_part(answer.text)]}],
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": answer.prompt_details(),
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.total_tokens,
        },
        **answer.extension(),
    }  # fmt: skip


def response_events(model: str, answer: Completion) -> Iterator[str]:
    """The same as server-sent events: created, the message, its text, and at the end the whole with its usage."""
    whole = response(model, answer)
    (message,) = whole["output"]
    started = {**whole, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    item, at = {"output_index": 0}, {"item_id": message["id"], "output_index": 0, "content_index": 0}
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("created", {"response": started}),
        ("in_progress", {"response": started}),
        ("output_item.added", {**item, "item": {**message, "status": "in_progress", "content": []}}),
        ("content_part.added", {**at, "part": _text_part("")}),
        ("output_text.delta", {**at, "delta": answer.text, "logprobs": []}),
        ("output_text.done", {**at, "text": answer.text, "logprobs": []}),
        ("content_part.done", {**at, "part": _text_part(answer.text)}),
        ("output_item.done", {**item, "item": message}),
        (whole["status"], {"response": whole}),
    )
    for number, (name, about) in enumerate(steps):
        event = {"type": f"response.{name}", "sequence_number": number, **about}
        yield f"event: response.{name}\ndata: {json.dumps(event)}\n\n"


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
