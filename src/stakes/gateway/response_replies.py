"""What does a server say by the responses API? One message, whole or as the events that build it up.

    response("embedded", Told("$ 1,204.00", False, prompt_tokens=601, image_tokens=570, completion_tokens=11))

``usage`` counts as for chat completions, under this API's names; an answer that was cut off is ``incomplete``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from stakes.gateway.replies import Told


def response(model: str, told: Told) -> dict[str, Any]:
    """The body of a whole reply."""
    status = "incomplete" if told.truncated else "completed"
    message = {**_message(status), "content": [_text(told.text)]}
    return {**_head(model), **_end(told), "status": status, "output": [message], "usage": _usage(told)}


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


def _head(model: str) -> dict[str, Any]:
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
