"""Anthropic's Messages API as a scripted upstream speaks it, and requests in its form."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.gateway.upstream import Seen, Wire

_ABOUT = {"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "stop_sequence": None}


def image_block(url: str, **more: Any) -> dict[str, Any]:
    """A block of the API from a data URL."""
    head, _, data = url.partition(",")
    kind = head.removeprefix("data:").removesuffix(";base64")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}, **more}


def answer(seen: "Seen", wire: "Wire", tokens: int) -> None:
    """Answers 42 and counts, as the service does: refuses a request without a key, a version or a length."""
    body = seen.json
    if not (seen.header("x-api-key") or seen.header("authorization")):
        return wire.reply(_error("authentication_error", "x-api-key header is required"), 401)
    if seen.header("anthropic-version") is None:
        return wire.reply(_error("invalid_request_error", "anthropic-version: header is required"), 400)
    if seen.path.endswith("/count_tokens"):
        return wire.reply(json.dumps({"input_tokens": tokens}).encode())
    if "max_tokens" not in body:
        return wire.reply(_error("invalid_request_error", "max_tokens: Field required"), 400)
    if body.get("stream"):
        return _stream(wire, tokens)
    content = [{"type": "text", "text": "42"}]
    usage = {"input_tokens": tokens, "output_tokens": 1}
    message = {**_ABOUT, "content": content, "stop_reason": "end_turn", "usage": usage}
    return wire.reply(json.dumps(message).encode(), 200, "application/json", "request-id: req_1")


def events(tokens: int) -> list[dict[str, Any]]:
    """The events of a streamed answer."""
    start: dict[str, Any] = {
        **_ABOUT,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": tokens, "output_tokens": 1},
    }
    deltas = [{"type": "text_delta", "text": text} for text in ("4", "2")]
    end = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def framed(event: dict[str, Any]) -> bytes:
    """One event as it is sent."""
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _stream(wire: "Wire", tokens: int) -> None:
    wire.begin_stream()
    for event in events(tokens):
        wire.chunk(framed(event))
    wire.end()


def _error(kind: str, message: str) -> bytes:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
