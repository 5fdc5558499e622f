"""What did the server itself count for the images? Read off the answer as it goes by, whole or streamed.

Stated by vLLM as ``prompt_tokens_details.multimodal_tokens.image``, by LiteLLM and Gemini's kin as ``image_tokens``.
Where a server states neither, nothing is compared: the rest of the prompt is not known here. A server that reads the
last image of a conversation alone (``served``) says how many it left out; all others read every one.

    tap = Tap(); tap.feed(chunk); tap.image_tokens()
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MOST_BYTES = 1 << 20  # of an answer that is kept to be read; usage stands at its end
_TAIL = 1 << 16


@dataclass(frozen=True)
class Usage:
    """What an answer says of itself; None for what it does not say."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Tap:
    """Keeps the end of an answer."""

    def __init__(self, streamed: bool) -> None:
        self.streamed, self._parts, self._whole = streamed, bytearray(), True

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the answer."""
        self._parts += chunk
        if len(self._parts) > (2 * _TAIL if self.streamed else MOST_BYTES):
            del self._parts[:-_TAIL]
            self._whole = False

    def whole(self) -> bytes | None:
        """All bytes of the answer, None where it was too long to keep."""
        return bytes(self._parts) if self._whole else None

    def image_tokens(self) -> int | None:
        """Tokens of all images by the server's count, None where it does not say."""
        return next((found for one in self._stating() if (found := image_tokens(one)) is not None), None)

    def left_out(self) -> int:
        """How many images, the first ones, the server says that it did not read."""
        return next((found for one in self._stating() if (found := _count(_details(one, "images_left_out")))), 0)

    def usage(self) -> Usage:
        """The model and the tokens that the answer states."""
        for one in self._stating():
            inner = _get(one, "response") or one
            used, model = _get(inner, "usage"), _get(inner, "model")
            if isinstance(used, dict):
                counts = [
                    _count(used.get(f"{new}_tokens", used.get(f"{old}_tokens")))
                    for new, old in (("input", "prompt"), ("output", "completion"))
                ]
                return Usage(model if isinstance(model, str) else None, *counts)
        return Usage()

    def _stating(self) -> Iterator[Any]:
        """The parts of the answer that may state usage, the last first."""
        if not self.streamed:
            yield parsed(bytes(self._parts)) if self._whole else None
            return
        for line in reversed(bytes(self._parts).split(b"\n")):
            if line.startswith(b"data:") and b'"usage"' in line:
                yield parsed(line[5:])


def parsed(data: bytes) -> Any:
    """What an answer holds, None where it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def image_tokens(answer: Any) -> int | None:
    """What an answer says of its images' tokens."""
    stated = _get(_details(answer, "multimodal_tokens"), "image")
    return _count(_details(answer, "image_tokens") if stated is None else stated)


def _details(answer: Any, key: str) -> Any:
    inner = _get(answer, "response") or answer  # the events of a response carry it inside
    usage = _get(inner, "usage")
    return _get(_get(usage, "prompt_tokens_details") or _get(usage, "input_tokens_details"), key)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None
