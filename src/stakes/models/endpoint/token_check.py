"""How many tokens did the server itself count for an image? From its own usage, by the surest way it offers.

1. ``usage.prompt_tokens_details.multimodal_tokens.image`` (vLLM with --enable-prompt-tokens-details): exact.
2. ``usage.prompt_tokens`` less the same prompt without the image, which ``POST /tokenize`` counts (vLLM), or a reply of
   one token to the text alone (any server); once per question. What is then still left over are the markers around an
   image (2 for Qwen-VL), the same for every image: the first answer tells how many, at most ``MOST_MARKERS``.
3. Neither: unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stakes.errors import StakesError
from stakes.models.wire import Unusable, Wire

MOST_MARKERS = 8

Way = Callable[[str, "threading.Event | None"], int]


class ServerTokens:
    """Reads one server's counts; ``text_body``: question -> the body of a chat request without its image."""

    def __init__(self, wire: Wire, text_body: Callable[[str], dict[str, Any]]) -> None:
        self._wire, self._text_body = wire, text_body
        self._way: Way | None = None
        self._looked = False
        self._texts: dict[str, int] = {}
        self._markers: int | None = None
        self._lock = threading.Lock()

    def of_image(self, usage: Any, question: str, predicted: int, stop: threading.Event | None = None) -> int | None:
        """Visual tokens by the server's count, None where it does not say."""
        stated = _whole(usage, "prompt_tokens_details", "multimodal_tokens", "image")
        if stated is not None:
            return stated
        prompt = _whole(usage, "prompt_tokens")
        text = None if prompt is None else self._text(question, stop)
        if prompt is None or text is None:
            return None
        over = prompt - text - predicted
        with self._lock:
            if self._markers is None and 0 <= over <= MOST_MARKERS:
                self._markers = over
            counted = prompt - text - (self._markers or 0)
        # Text may lose or gain a token where an image stood beside it; a resized image changes by rows and columns.
        return predicted if abs(counted - predicted) == 1 else counted

    def _text(self, question: str, stop: threading.Event | None) -> int | None:
        with self._lock:  # the ways are tried by one thread, once; a way that worked may not fail later
            if not self._looked:
                for way in (self._tokenized, self._replied):
                    try:
                        self._texts[question], self._way = way(question, stop), way
                        break
                    except StakesError:
                        continue
                self._looked = True
            known, found = self._texts.get(question), self._way
        if known is None and found is not None:
            known = self._texts[question] = found(question, stop)
        return known

    def _tokenized(self, question: str, stop: threading.Event | None) -> int:
        body = self._text_body(question)
        body = {"model": body["model"], "messages": body["messages"], "add_generation_prompt": True}
        return self._ask(self._wire.at("tokenize", root=True), body, stop, "count")

    def _replied(self, question: str, stop: threading.Event | None) -> int:
        body = self._text_body(question)
        body |= {key: 1 for key in ("max_tokens", "max_completion_tokens") if key in body}
        return self._ask(self._wire.at("chat/completions"), body, stop, "usage", "prompt_tokens")

    def _ask(self, url: str, body: dict[str, Any], stop: threading.Event | None, *path: str) -> int:
        def read(reply: Any) -> int:
            count = _whole(reply, *path)
            if count is None:
                raise Unusable(f"its reply has no {'.'.join(path)}")
            return count

        return self._wire.ask("POST", url, body, read, stop)[0]


def _whole(found: Any, *path: str) -> int | None:
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
