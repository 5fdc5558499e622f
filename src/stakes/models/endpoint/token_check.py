"""How many tokens the server itself counted for an image, from its own usage, by the most exact way that it offers.

1. ``usage.prompt_tokens_details.multimodal_tokens.image`` (vLLM with --enable-prompt-tokens-details): exact.
2. ``usage.prompt_tokens`` minus the tokens of the same prompt without the image, counted by ``POST /tokenize`` (vLLM)
   or by a reply of one token to the text alone (any server); once per question. The rest includes the markers around an
   image (2 for Qwen-VL), the same for every image: the first answer shows how many, at most ``MOST_MARKERS``.
3. Neither: unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stakes.errors import StakesError
from stakes.http import HttpClient, Unusable

MOST_MARKERS = 8

TextCounter = Callable[[str, "threading.Event | None"], int]


class ServerTokens:
    """The token counts of one server; ``text_body``: question -> the body of a chat request without its image."""

    def __init__(self, client: HttpClient, text_body: Callable[[str], dict[str, Any]]) -> None:
        self._client, self._text_body = client, text_body
        self._count_text: TextCounter | None = None
        self._probed = False
        self._texts: dict[str, int] = {}
        self._markers: int | None = None
        self._lock = threading.Lock()

    def of_image(self, usage: Any, question: str, predicted: int, stop: threading.Event | None = None) -> int | None:
        """Visual tokens by the server's count; None where it gives none."""
        stated = _count_at(usage, "prompt_tokens_details", "multimodal_tokens", "image")
        if stated is not None:
            return stated
        prompt = _count_at(usage, "prompt_tokens")
        text = None if prompt is None else self._text(question, stop)
        if prompt is None or text is None:
            return None
        over = prompt - text - predicted
        with self._lock:
            if self._markers is None and 0 <= over <= MOST_MARKERS:
                self._markers = over
            counted = prompt - text - (self._markers or 0)
        # Text may lose or gain a token next to an image; a resized image changes by whole rows and columns.
        return predicted if abs(counted - predicted) == 1 else counted

    def _text(self, question: str, stop: threading.Event | None) -> int | None:
        with self._lock:  # one thread finds out, once, which way works; after that the way may not fail
            if not self._probed:
                for counter in (self._by_tokenize, self._by_reply):
                    try:
                        self._texts[question], self._count_text = counter(question, stop), counter
                        break
                    except StakesError:
                        continue
                self._probed = True
            count, counter_used = self._texts.get(question), self._count_text
        if count is None and counter_used is not None:
            count = self._texts[question] = counter_used(question, stop)
        return count

    def _by_tokenize(self, question: str, stop: threading.Event | None) -> int:
        body = self._text_body(question)
        body = {"model": body["model"], "messages": body["messages"], "add_generation_prompt": True}
        return self._request(self._client.url("tokenize", root=True), body, stop, "count")

    def _by_reply(self, question: str, stop: threading.Event | None) -> int:
        body = self._text_body(question)
        body |= {key: 1 for key in ("max_tokens", "max_completion_tokens") if key in body}
        return self._request(self._client.url("chat/completions"), body, stop, "usage", "prompt_tokens")

    def _request(self, url: str, body: dict[str, Any], stop: threading.Event | None, *path: str) -> int:
        def read(reply: Any) -> int:
            count = _count_at(reply, *path)
            if count is None:
                raise Unusable(f"its reply has no {'.'.join(path)}")
            return count

        return self._client.request("POST", url, body, read, stop)[0]


def _count_at(record: Any, *path: str) -> int | None:
    """The whole number at a path of nested objects, None if there is none or it is negative."""
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record if isinstance(record, int) and not isinstance(record, bool) and record >= 0 else None
