"""What did an answer say? Its words, out of a whole reply or a stream of events, of either API.

None where it is not one text: several choices, a call of a tool, a refusal, an answer that was not kept whole.

    answer_text("chat", b'{"choices": [{"message": {"content": "42"}}]}', streamed=False)      # '42'
"""

import json
from collections.abc import Iterable
from typing import Any

from stakes.gateway.read_request import Api


def answer_text(api: Api, data: bytes, streamed: bool) -> str | None:
    """The text of one answer, None where there is none to compare."""
    try:
        if not streamed:
            return _whole(api, json.loads(data))
        events = [json.loads(line[5:]) for line in data.split(b"\n") if line.startswith(b"data:") and b"{" in line]
        return _deltas(events) if api == "chat" else _last(events)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None  # a server may send anything


def _whole(api: Api, answer: Any) -> str | None:
    if api == "responses":
        parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        others = [item for item in answer["output"] if item["type"] not in ("message", "reasoning")]
        if others or not parts or any(part["type"] != "output_text" for part in parts):
            return None
        return "".join(part["text"] for part in parts)
    (choice,) = answer["choices"]
    message = choice["message"]
    return None if message.get("tool_calls") else _text(message["content"])


def _deltas(events: Iterable[Any]) -> str | None:
    texts = []
    for event in events:
        if "error" in event:
            return None
        for choice in event["choices"]:
            delta = choice["delta"]
            if choice["index"] or delta.get("tool_calls"):
                return None
            texts.append(delta.get("content") or "")
    return "".join(texts) if texts else None


def _last(events: Iterable[Any]) -> str | None:
    """A stream of responses ends with the whole of it."""
    ends = [event["response"] for event in events if event.get("type") == "response.completed"]
    return _whole("responses", ends[-1]) if ends else None


def _text(content: Any) -> str | None:
    return content if isinstance(content, str) else None
