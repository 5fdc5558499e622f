"""An upstream whose answers have log-probabilities, surer with more tokens; and a policy that asks it again."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import httpx
from tests.gateway.gateways import Gateway, ask, page, policy
from tests.gateway.upstream import Seen, Wire, honest, usage

from stakes import Policy, count_tokens
from stakes.models.base import CONFIDENCE
from stakes.vision.image.resize import fitted_size

FIRST, SECOND, LOW = 64, 256, 32


def escalating(below: float = 0.8, review: float | None = None, **more: Any) -> Policy:
    """High asks again; the mean pays for it, so that the controller gives each tier its option."""
    tiers = {
        "high": {"cost": 5, "budget": FIRST, "escalate": {"to": SECOND, "below": below}, "review_below": review},
        "low": {"cost": 1, "budget": LOW},
    }
    return policy(**{"tiers": tiers, "confidence": CONFIDENCE, "mean_budget": 256, "burst": 8192, **more})


@dataclass
class Unsure:
    """Answers with the images' tokens and a confidence: ``first`` up to FIRST tokens an image, else ``second``."""

    first: float | None = 0.5
    second: float | None = 0.9
    statuses: list[int] = field(default_factory=list)
    """Of the next answers; 0: the connection is dropped, 1: in the middle of the answer. Then 200."""

    def __call__(self, seen: Seen, wire: Wire) -> None:
        if seen.path != "/v1/chat/completions":
            return honest(seen, wire)
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            return wire.drop()
        if status == 1:
            wire.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
            return wire.drop()
        if status != 200:
            return wire.reply(b'{"error": {"message": "scripted"}}', status)
        return self.answer(seen.json, wire)

    def answer(self, body: Any, wire: Wire) -> None:
        counted = usage(body)
        tokens, images = counted["prompt_tokens"] - 10, str(body).count("data:image")
        confidence = self.first if tokens <= FIRST * images else self.second
        asked = body.get("logprobs") and confidence is not None
        entry = {"token": "4", "logprob": math.log(confidence or 1), "bytes": [52], "top_logprobs": []}
        logprobs = {"content": [entry, {**entry, "token": "2"}]} if asked else None
        about = {"id": "c", "created": 1, "model": "tiny"}
        if not body.get("stream"):
            message = {"role": "assistant", "content": f"{tokens}"}
            choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs}
            return wire.reply(json.dumps({**about, "choices": [choice], "usage": counted}).encode())
        wire.begin_stream()
        for text in (f"{tokens}", ""):
            part = None if logprobs is None else {"content": [entry]}
            choice = {"index": 0, "delta": {"content": text}, "logprobs": part, "finish_reason": None}
            wire.chunk(b"data: " + json.dumps({**about, "choices": [choice]}).encode() + b"\n\n")
        wire.chunk(b"data: " + json.dumps({**about, "choices": [], "usage": counted}).encode() + b"\n\n")
        return wire.done()


def tokens_at(budget: int) -> int:
    """Of the usual page."""
    size = fitted_size(*page().size, budget, "qwen2.5-vl")
    return count_tokens("qwen2.5-vl", size.width, size.height)


ONE, BOTH = tokens_at(FIRST), tokens_at(FIRST) + tokens_at(SECOND)


def post(front: Gateway, question: str = "What is the total?", *urls: str, **more: Any) -> httpx.Response:
    return httpx.post(f"{front.base_url}/chat/completions", json=ask(question, *urls, **more), trust_env=False)


def text_of(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def spent(front: Gateway) -> float:
    """Tokens booked, once nothing is reserved any more."""
    state = front.state()
    assert state["tokens_reserved"] == 0
    return state["tokens_spent"]
