"""The last decisions, in memory for the dashboard: numbers only, or with questions and images where asked.

    recent = RecentDecisions(keep_images=8)
    recent.add(plan, status=200, result="answered", counted=252, ms=81.0)
    recent.image(1, 0, "seen")                        # ("image/png", b"…")

Nothing here is written to a disk, and it ends with the process.
"""

import base64
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from stakes.gateway.monitoring.logs import without_quotes
from stakes.gateway.proxy.decide import ImagePair, RequestPlan

Side = Literal["original", "seen"]
DECISIONS, POINTS = 24, 240
MOST_BYTES = 128 << 20  # of all kept images; beyond it the oldest are dropped
LONGEST_QUESTION = 300


@dataclass
class RecentDecision:
    """One decision: its JSON record, and its images if they are kept."""

    id: int
    record: dict[str, Any]
    pairs: list[ImagePair] = field(default_factory=list, repr=False)

    @property
    def bytes(self) -> int:
        """The size of its images."""
        return sum(len(pair.original) + len(pair.seen_url or "") for pair in self.pairs)


class RecentDecisions:
    """The last decisions, newest first; ``keep_images``: how many of them keep their images and question.

    ``first`` and ``step`` of their numbers: several processes of one gateway number theirs differently.
    """

    def __init__(self, keep_images: int = 0, first: int = 1, step: int = 1) -> None:
        self.keep_images, self._step = keep_images, step
        self._decisions: deque[RecentDecision] = deque(maxlen=max(DECISIONS, keep_images))
        self._means: deque[tuple[float, int, float]] = deque(maxlen=POINTS)
        self._last = first - step

    def add(self, plan: RequestPlan, *, status: int | None, result: str, counted: int | None, ms: float) -> None:
        """Record one request, and after a booked one the controller's count of images and running mean."""
        self._last += self._step
        with_text = self.keep_images > 0
        record = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"), "time": time.time(), "api": plan.api,
            **plan.decision(),
            "why": _encodable(plan.why if with_text else without_quotes(plan.why)), "status": status, "result": result,
            "unmeasured": plan.unmeasured, "counted": counted,
            "fit_ms": round(1000 * plan.fit_s, 1), "ms": round(ms, 1),
            "question": _encodable(plan.question[:LONGEST_QUESTION]) if with_text else None,
        }  # fmt: skip
        self._decisions.appendleft(RecentDecision(self._last, record, plan.pairs if with_text else []))
        if plan.booked:
            total = plan.rules.controller.state() if plan.client is None else plan.rules.state()
            self._means.append((time.time(), int(total["images"]), round(total["mean"], 2)))
        self._drop_images()

    def records(self) -> list[dict[str, Any]]:
        """The decisions as JSON, newest first; ``pictures``: how many image pairs are kept."""
        return [{"id": one.id, **one.record, "pictures": len(one.pairs)} for one in self._decisions]

    def points(self) -> list[tuple[float, int, float]]:
        """(when, images so far, running mean) after each of the last fitted requests."""
        return list(self._means)

    def image(self, decision: int, index: int, side: Side) -> tuple[str, bytes] | None:
        """An image of a decision as (media type, bytes); None if it is not kept."""
        pairs = next((one.pairs for one in self._decisions if one.id == decision), [])
        if not 0 <= index < len(pairs):
            return None
        pair = pairs[index]
        if pair.seen_url is None or (side == "original" and pair.original):
            return (f"image/{pair.format}", pair.original) if pair.original else None  # a page of a PDF has none
        head, _, text = pair.seen_url.partition(",")
        return head.removeprefix("data:").removesuffix(";base64"), base64.b64decode(text)

    def _drop_images(self) -> None:
        """Drop images and questions beyond the number to keep, and the oldest beyond ``MOST_BYTES``."""
        left = MOST_BYTES
        for index, one in enumerate(self._decisions):
            left -= one.bytes
            if index >= self.keep_images or left < 0:
                one.pairs = []
                one.record["question"] = None


def _encodable(text: str) -> str:
    """The text with "?" for lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode("utf-8")
