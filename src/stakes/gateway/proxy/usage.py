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

from stakes.gateway.monitoring.logs import Log
from stakes.gateway.monitoring.metrics import Metrics
from stakes.gateway.monitoring.recent import Recent
from stakes.gateway.proxy.fit import APART, Plan

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


# How is one request booked? Tokens by tier, images outside the cap, and the prediction beside the server's count.


def count(metrics: Metrics, plan: Plan, accepted: bool) -> None:
    """Book a request whose answer has begun; ``accepted``: the upstream did not refuse it."""
    metrics.requests.labels(plan.tier, plan.outcome if accepted else "upstream_refused").inc()
    if not accepted:
        return
    if plan.outcome in APART:
        metrics.apart_images.labels(plan.outcome).inc(plan.images)
        metrics.apart_tokens.labels(plan.outcome).inc(sum(plan.natives))
        return
    metrics.images.labels(plan.tier).inc(len(plan.natives))
    if plan.unmeasured:
        metrics.apart_images.labels("uncompressed").inc(plan.unmeasured)
    native, predicted = sum(plan.natives), sum(plan.predicted)
    for kind, tokens in (("native", native), ("budgeted", sum(plan.budgets)), ("predicted", predicted)):
        metrics.tokens.labels(plan.tier, kind).inc(tokens)
    if plan.outcome == "fitted":
        metrics.tokens.labels(plan.tier, "saved").inc(max(0, native - predicted))


def compare(metrics: Metrics, plan: Plan, tap: Tap | None) -> int | None:
    """Book the server's own count beside the prediction; gives that count, None where it does not say."""
    if tap is None or plan.expected is None:
        return None
    plan.left_out = min(tap.left_out(), plan.images - 1)
    expected, counted = plan.expected, tap.image_tokens()
    if counted is None:
        metrics.usage.labels("unknown").inc()
        return None
    metrics.usage.labels("agreed" if counted == expected else "differed").inc()
    metrics.prediction_error.observe(counted - expected)
    metrics.tokens.labels(plan.tier, "actual").inc(counted)
    return counted


def note(
    recent: Recent, log: Log, plan: Plan, path: str, ms: float, *, status: int, result: str, counted: int | None
) -> None:
    """Write a request down for the live page and in the log; ``ms``: since it came."""
    total = plan.rules.controller.state()
    recent.add(
        plan, status=status, result=result, counted=counted, ms=ms, images=total["images"], mean=total["mean"]
    )  # fmt: skip
    log.say(
        "request", path=path, status=status, result=result, outcome=plan.outcome, tier=plan.tier,
        why=log.why(plan.why), images=plan.images, native=list(plan.natives), budget=list(plan.budgets),
        predicted=list(plan.predicted), counted=counted, fit_ms=round(1000 * plan.fit_s, 1), ms=round(ms, 1),
        question=plan.question if log.questions else None,
    )  # fmt: skip
