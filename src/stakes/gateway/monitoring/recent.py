"""What was decided lately? The last decisions in memory, in numbers; with their words and images only where asked.

recent = Recent(keep_images=8)
recent.add(plan, status=200, result="answered", counted=252, ms=81.0, mean=252.0)
recent.picture(1, 0, "seen")                      # ("image/png", b"…")

Nothing here is ever written to a disk, and it ends with the process.
"""

import base64
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from stakes.gateway.monitoring.logs import without_quotes
from stakes.gateway.proxy.fit import Pair, Plan

DECISIONS, POINTS = 24, 240
MOST_BYTES = 128 << 20  # of all images that are kept; beyond it the oldest are let go
LONGEST_QUESTION = 300
Side = Literal["original", "seen"]


@dataclass
class Kept:
    """One decision: what is shown of it, and its images if any are kept."""

    id: int
    shown: dict[str, Any]
    pairs: list[Pair] = field(default_factory=list, repr=False)

    @property
    def bytes(self) -> int:
        """How much its images take."""
        return sum(len(pair.original) + len(pair.seen_url or "") for pair in self.pairs)


class Recent:
    """The last decisions, newest first; ``keep_images``: how many of them keep their images and question."""

    def __init__(self, keep_images: int = 0) -> None:
        self.keep_images = keep_images
        self._kept: deque[Kept] = deque(maxlen=max(DECISIONS, keep_images))
        self._means: deque[tuple[int, float]] = deque(maxlen=POINTS)
        self._count = 0

    def add(
        self, plan: Plan, *, status: int, result: str, counted: int | None, ms: float, images: float, mean: float
    ) -> None:
        """Note one request; ``images``, ``mean``: the controller's count of images and its running mean after it."""
        self._count += 1
        words = self.keep_images > 0
        shown = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"), "api": plan.api, "tier": plan.tier,
            "why": plan.why if words else without_quotes(plan.why), "outcome": plan.outcome, "status": status,
            "result": result, "native": list(plan.natives), "budget": list(plan.budgets),
            "predicted": list(plan.predicted), "unmeasured": plan.unmeasured, "counted": counted,
            "fit_ms": round(1000 * plan.fit_s, 1), "ms": round(ms, 1),
            "question": plan.question[:LONGEST_QUESTION] if words else None,
        }  # fmt: skip
        self._kept.appendleft(Kept(self._count, shown, plan.pairs if words else []))
        if plan.outcome in ("fitted", "observed") and status < 400:
            self._means.append((int(images), round(mean, 2)))
        self._let_go()

    def shown(self) -> list[dict[str, Any]]:
        """The decisions for the page, newest first; ``pictures``: how many pairs can be asked for."""
        return [{"id": one.id, **one.shown, "pictures": len(one.pairs)} for one in self._kept]

    def means(self) -> list[tuple[int, float]]:
        """(images so far, running mean) after each of the last fitted requests."""
        return list(self._means)

    def picture(self, decision: int, place: int, side: Side) -> tuple[str, bytes] | None:
        """An image of a decision, (media type, bytes); None where it is not kept."""
        for one in self._kept:
            if one.id == decision and 0 <= place < len(one.pairs):
                pair = one.pairs[place]
                if side == "original" or pair.seen_url is None:
                    return f"image/{pair.format}", pair.original
                head, _, text = pair.seen_url.partition(",")
                return head.removeprefix("data:").removesuffix(";base64"), base64.b64decode(text)
        return None

    def _let_go(self) -> None:
        """Images of the decisions beyond the number to keep, and of the oldest beyond the bytes."""
        room = MOST_BYTES
        for place, one in enumerate(self._kept):
            room -= one.bytes
            if place >= self.keep_images or room < 0:
                one.pairs = []
                one.shown["question"] = None
