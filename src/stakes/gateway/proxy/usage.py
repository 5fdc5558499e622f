"""Reads what the server counted for the images off its response, and counts requests and tokens in the metrics.

The count is ``prompt_tokens_details.multimodal_tokens.image`` of vLLM, or ``image_tokens`` of LiteLLM and Gemini-like
servers. Where a server states neither, nothing is compared, because the rest of the prompt is not known here. A server
that reads only the last image of a conversation (``local_server``) states how many it left out.

    reader = UsageReader(streamed=False); reader.feed(chunk); reader.image_tokens()

``CapCheck`` notices an engine that ignores what it was asked for. Of a server that states the whole prompt only, text
has no more tokens than bytes, and a template adds at most ``TEMPLATE``, so the rest are image tokens for certain. That
shows images that take many tokens too many, and never too few.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stakes.gateway.proxy.decide import RequestPlan, may_have_read

if TYPE_CHECKING:
    from stakes.gateway.monitoring.metrics import Metrics

MOST_BYTES = 1 << 20  # of a response that is kept to be read; usage is at its end
_TAIL = 1 << 16
WINDOW = 10  # of the last comparisons
ENOUGH = 3  # of which so many differ
TEMPLATE = 256  # tokens of a chat template, system text of its own included
PARAMETERS = {
    "pixels": "the size of images, or its bounds are others (--min-pixels, --max-pixels, --image-max-tokens)",
    "vllm": "mm_processor_kwargs; vLLM needs --trust-request-mm-kwargs",
    "vllm-deletion": "stakes_budget; vLLM needs the plugin of stakes and --trust-request-mm-kwargs",
    "lmdeploy": "mm_processor_kwargs",
    "detail": "the detail of images",
    "gemini": "media_resolution",
}
"""By actuator, what should set the tokens and why it may not."""


@dataclass(frozen=True)
class Usage:
    """What a response states about itself; None for what it does not state."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class UsageReader:
    """Keeps the end of a response and reads its usage."""

    def __init__(self, streamed: bool) -> None:
        self.streamed, self._parts, self._whole = streamed, bytearray(), True

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes of the response."""
        self._parts += chunk
        if len(self._parts) > (2 * _TAIL if self.streamed else MOST_BYTES):
            del self._parts[:-_TAIL]
            self._whole = False

    def whole(self) -> bytes | None:
        """All bytes of the response, None where it was too long to keep."""
        return bytes(self._parts) if self._whole else None

    def image_tokens(self) -> int | None:
        """Tokens of all images by the server's count, None where it states none."""
        return next((count for one in self._candidates() if (count := image_tokens(one)) is not None), None)

    def left_out(self) -> int:
        """How many images, the first ones, the server states that it did not read."""
        return next((count for one in self._candidates() if (count := _count(_details(one, "images_left_out")))), 0)

    def usage(self) -> Usage:
        """The model and the tokens that the response states; a stream of messages states them in two events."""
        found: dict[str, Any] = {}
        for one in self._candidates():
            inner = _inner(one)
            used, model = _get(inner, "usage"), _get(inner, "model")
            if isinstance(used, dict):
                stated = {
                    "model": model if isinstance(model, str) else None,
                    "input_tokens": _input_tokens(used),
                    "output_tokens": _count(used.get("output_tokens", used.get("completion_tokens"))),
                }
                found = {name: value for name, value in stated.items() if value is not None} | found
        return Usage(**found)

    def _candidates(self) -> Iterator[Any]:
        """The parts of the response that may state usage, the last first."""
        if not self.streamed:
            yield parsed(bytes(self._parts)) if self._whole else None
            return
        for line in reversed(bytes(self._parts).split(b"\n")):
            if line.startswith(b"data:") and b'"usage"' in line:
                yield parsed(line[5:])


def parsed(data: bytes) -> Any:
    """The JSON of a response, None where it is not JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def image_tokens(answer: Any) -> int | None:
    """The image tokens that a response states."""
    stated = _get(_details(answer, "multimodal_tokens"), "image")
    return _count(_details(answer, "image_tokens") if stated is None else stated)


def _inner(answer: Any) -> Any:
    """What states the usage: the events of the responses and messages APIs carry it inside."""
    return _get(answer, "response") or _get(answer, "message") or answer


def _input_tokens(used: dict[str, Any]) -> int | None:
    """All tokens of the prompt; the messages API counts those that it read from or wrote to its cache apart."""
    tokens = _count(used.get("input_tokens", used.get("prompt_tokens")))
    cached = [_count(used.get(f"cache_{what}_input_tokens")) for what in ("read", "creation")]
    return None if tokens is None else tokens + sum(filter(None, cached))


def _details(answer: Any, key: str) -> Any:
    usage = _get(_inner(answer), "usage")
    return _get(_get(usage, "prompt_tokens_details") or _get(usage, "input_tokens_details"), key)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def settle_request(metrics: "Metrics", plan: RequestPlan, status: int) -> None:
    """Settle and count a request whose response has begun."""
    metrics.requests.labels(plan.tier, plan.outcome if status < 400 else "upstream_refused").inc()
    if not plan.decided:
        metrics.undecided.inc()
    settle_images(metrics, plan, read=may_have_read(status))


def settle_images(metrics: "Metrics", plan: RequestPlan, read: bool) -> None:
    """Book and count the images if the model may have read them (``read``), or else return the grant."""
    plan.settle(read)
    if not read:
        return
    if not plan.budgets:
        metrics.uncapped_images.labels(plan.outcome).inc(plan.images)
        metrics.uncapped_tokens.labels(plan.outcome).inc(sum(plan.natives))
        return
    metrics.images.labels(plan.tier).inc(len(plan.natives))
    if plan.unmeasured:
        metrics.uncapped_images.labels("uncompressed").inc(plan.unmeasured)
    native, predicted = sum(plan.natives), sum(plan.predicted) + plan.other_tokens
    budgeted = sum(plan.budgets) + plan.other_budget
    for kind, tokens in (("native", native), ("budgeted", budgeted), ("predicted", predicted)):
        metrics.tokens.labels(plan.tier, kind).inc(tokens)
    if plan.outcome == "fitted":
        metrics.tokens.labels(plan.tier, "saved").inc(max(0, native - predicted))
        if metrics.has_worth:
            metrics.count_worth(plan.tier, max(0, native - predicted))


def compare_usage(metrics: "Metrics", plan: RequestPlan, reader: UsageReader | None) -> int | None:
    """Count whether the server agrees with the prediction; returns its count, None where it states none."""
    if reader is None or plan.expected is None:
        return None
    plan.left_out = min(reader.left_out(), plan.images - 1)
    expected, counted = plan.expected, reader.image_tokens()
    if counted is None:
        metrics.usage.labels("unknown").inc()
        return None
    metrics.usage.labels("agreed" if counted == expected else "differed").inc()
    metrics.prediction_error.observe(counted - expected)
    metrics.tokens.labels(plan.tier, "actual").inc(counted)
    return counted


class CapCheck:
    """Compares the requests of one upstream; ``parameter``: what should have set the tokens, in words."""

    def __init__(self, parameter: str) -> None:
        self._parameter = parameter
        self._last: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # (expected, counted)
        self._reported = False

    def add(self, plan: RequestPlan, counted: int | None, reader: UsageReader | None) -> str | None:
        """Compare one answered request; a sentence when enough of the last ones differ, until they agree again."""
        expected = plan.expected
        if expected is None or reader is None:
            return None
        if counted is None:
            prompt = reader.usage().input_tokens
            if prompt is None:
                return None
            counted = max(expected, prompt - plan.text_bytes - TEMPLATE)
        self._last.append((expected, counted))
        differing = [(due, had) for due, had in self._last if due != had]
        if len(differing) < ENOUGH:
            self._reported = self._reported and bool(differing)
            return None
        if self._reported:
            return None
        self._reported = True
        return self._sentence(differing)

    def _sentence(self, differing: list[tuple[int, int]]) -> str:
        due, had = (round(sum(one) / len(differing)) for one in zip(*differing, strict=True))
        what = "ignores" if had > due else "changes"
        return (
            f"TOKENS DO NOT FOLLOW THE BUDGET: in {len(differing)} of the last {len(self._last)} requests images took "
            f"{had} tokens on average where {due} were asked for, {had / due:.1f} times as many; the upstream {what} "
            f"{self._parameter}"
        )
