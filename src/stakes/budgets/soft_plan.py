"""What does a policy keep so that it can spend by expected cost? A shadow price, and how far its signal is trusted.

    "soft": {"price": 0.0021, "share": 0.4, "trust": {"high": {"high": 0.9, "low": 0.1}, …}, "promise": {…}}

At this price a request takes ``argmin_b sum_t w_t e_t(b) + price b`` (``soft``). Where two budgets tie, as they do for
a whole tier when the signal knows no shades, ``share`` of the requests take the larger: which ones is read off a
digest of the question and of what it is asked about, so that the same request always gets the same budget, and "What is
the total?" of a thousand invoices is a thousand draws. About means the images' digest in the gateway and the sample's
id in a calibration (``soften``); a question alone draws for all that ask it, and templates then miss the total. The
total is expected to come out; it is the gateway's controller that holds it.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from stakes.budgets.curve import Curve
from stakes.budgets.soft import at_price, expected_losses
from stakes.errors import BadInput
from stakes.signals.base import Reading, Signal
from stakes.signals.chances import chances, gives_chances


class SoftPlan(BaseModel):
    """The price, and what it rests on."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    price: float = Field(ge=0, allow_inf_nan=False)
    share: float = Field(default=0.0, ge=0, le=1)
    trust: dict[str, dict[str, float]] | None = None
    """P(label | tier read), for a signal that gives no probabilities of its own."""
    promise: dict[str, Any] | None = None
    """What the calibration saw with predicted tiers (``soften.Promise``)."""
    disagreement: dict[str, float] | None = None
    """By tier read, how often answers differ from those at full budget, at most; a tier never read has none."""
    mix: dict[str, float] | None = None
    """How often each tier was read."""

    def weights(
        self, signal: Signal, costs: Mapping[str, float], question: str, task: str | None, cost: float | None
    ) -> tuple[Reading, dict[str, float]]:
        """The reading, and the expected cost that falls on each tier's curve; a told ``cost`` replaces the tiers'."""
        if cost is not None and not 0 < cost < float("inf"):
            raise BadInput(f"a told cost must be finite and above zero, not {cost!r}")
        reading, likely = chances(signal, question, task)
        if reading.decided and self.trust is not None:
            likely = self.trust.get(reading.tier, likely)
        return reading, {tier: p * (costs[tier] if cost is None else cost) for tier, p in likely.items()}

    def budget(self, curves: Mapping[str, Curve], weights: Mapping[str, float], question: str, about: str = "") -> int:
        """The budget at the price; ``about``: what the question is asked about, which settles a tie with it."""
        budgets = next(iter(curves.values())).budgets
        errors = np.array([curves[tier].errors for tier in weights])
        losses = expected_losses(np.array([list(weights.values())]), errors)
        return budgets[int(at_price(losses, budgets, self.price, np.array([coin(question, about) < self.share]))[0])]


def coin(question: str, about: str = "") -> float:
    """A number in [0, 1) that belongs to the question and what it is about (the images' digest, or the sample's id)."""
    # The length before it keeps "ab" about "c" and "a" about "bc" apart.
    text = f"{len(about)}:{about}{question}".encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest()) / 2**48


def trust_of(signal: Signal, readings: list[Reading], labels: list[str], tiers: list[str]) -> dict[str, Any] | None:
    """P(label | tier read) by tier read, half a question added to each cell; None where the signal has its own."""
    if gives_chances(signal):
        return None
    found = {}
    for read in tiers:
        mine = [label for reading, label in zip(readings, labels, strict=True) if reading.tier == read]
        counts = {tier: mine.count(tier) + 0.5 * (len(set(labels)) > 1) for tier in tiers}
        found[read] = {tier: count / sum(counts.values()) for tier, count in counts.items()}
    return found


def above(curve: Curve, floor: int) -> Curve:
    """The part of a curve at or above ``floor``."""
    start = sum(budget < floor for budget in curve.budgets)
    if start == len(curve.budgets):
        raise BadInput(f"no measured budget reaches the floor of {floor}; the largest is {curve.budgets[-1]}")
    return Curve(curve.budgets[start:], curve.errors[start:], curve.counts[start:])
