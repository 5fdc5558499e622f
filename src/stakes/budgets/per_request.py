"""Budgets for single requests with costs of their own, all bought at one shadow price.

Request q loses ``L_q(b) = sum_t w_qt e_t(b)`` at budget b, with ``w_qt = P(tier t | q) c_t``, or simply its own cost
where that is known: an amount worth 20, a date worth 3, no tiers at all. Under a total of tokens each request takes

    b_q = argmin_b  L_q(b) + price b

with one price for all: the price at which the total is spent. Requests that tie at the price take the smaller or the
larger budget. Offline the larger is given out until the total is reached, and what no tied request can use goes to the
request that gains most from it, so the total is never exceeded. Paper, section "Allocation Principle", per request.

    >>> import numpy as np
    >>> losses = expected_losses(np.array([[20.0], [3.0], [1.0]]), np.array([[0.9, 0.4, 0.1]]))
    >>> spend(losses, (32, 304, 576), total=912).budgets.tolist()
    [576, 304, 32]
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from stakes.budgets.curve import Curve
from stakes.errors import BadInput, InfeasibleBudget
from stakes.signals.base import Reading, Signal
from stakes.signals.learned import LearnedSignal, tier_probabilities
from stakes.signals.prompt import Prompt

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

TIED = 1e-9  # relative to a request's largest loss: values this near are ties
FAR = 64.0  # how far from the stated cost ratio its range is searched


@dataclass(frozen=True)
class Spending:
    """Budgets by request under a hard total, and the price that they were bought at."""

    budgets: Ints
    price: float
    """Fall of expected loss per further token, in units of cost."""
    share: float
    """Of the tokens that tied requests could still take at this price, the share that the total has left for them."""
    spent: int
    loss: float
    gap: float
    """No budgets under the same total lose less than ``loss - gap``."""


def expected_losses(weights: Array, errors: Array) -> Array:
    """Requests × budgets, from weights (requests × curves) and errors (curves × budgets)."""
    if weights.ndim != 2 or errors.ndim != 2 or weights.shape[1] != errors.shape[0]:
        raise BadInput(f"weights {weights.shape} and errors {errors.shape} do not fit: requests × curves × budgets")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInput("an expected cost is a finite number of at least zero")
    return np.asarray(weights @ errors)


def at_price(losses: Array, budgets: Sequence[int], price: float, larger: NDArray[np.bool_] | None = None) -> Ints:
    """Indices of the best budgets at ``price``; of tied ones the smallest, or the largest where ``larger`` is true."""
    value = losses + price * np.asarray(budgets, dtype=float)
    near = value <= value.min(axis=1, keepdims=True) + TIED * losses.max(axis=1, keepdims=True)
    low: Ints = near.argmax(axis=1)
    if larger is None:
        return low
    high: Ints = near.shape[1] - 1 - near[:, ::-1].argmax(axis=1)
    return np.where(larger, high, low)


def spend(losses: Array, budgets: Sequence[int], total: int) -> Spending:
    """The best budgets under ``total``: exact up to ``gap``, the worth of the last few tokens."""
    grid = _grid(losses, budgets)
    if len(losses) * int(grid[0]) > total:
        raise InfeasibleBudget(
            f"{len(losses)} requests take at least {len(losses) * int(grid[0])} tokens at {grid[0]} each, "
            f"more than {total}; give a larger total"
        )
    price = _price(losses, grid, total)
    chosen = at_price(losses, budgets, price)
    left = total - int(grid[chosen].sum())
    tied = grid[at_price(losses, budgets, price, np.ones(len(losses), dtype=bool))] - grid[chosen]
    share = min(1.0, left / int(tied.sum())) if price > 0 and tied.sum() else 0.0
    chosen = _fill(losses, grid, chosen, left)
    spent, loss = int(grid[chosen].sum()), float(losses[np.arange(len(losses)), chosen].sum())
    bound = float((losses + price * grid).min(axis=1).sum()) - price * total
    return Spending(grid[chosen], price, share, spent, loss, max(0.0, loss - bound))


def _grid(losses: Array, budgets: Sequence[int]) -> Ints:
    grid = np.asarray(budgets, dtype=np.int64)
    if losses.ndim != 2 or losses.shape[1] != len(grid) or not len(losses):
        raise BadInput(f"losses must be requests × {len(grid)} budgets, not {losses.shape}")
    if grid[0] < 1 or (np.diff(grid) <= 0).any():
        raise BadInput(f"budgets are whole numbers of tokens that rise, not {list(budgets)}; sort them")
    return grid


def _price(losses: Array, grid: Ints, total: int) -> float:
    """The smallest price at which the smaller of tied budgets fit: the slope at which tokens run out, exactly."""

    def spent(price: float) -> int:
        return int(grid[at_price(losses, list(grid), price)].sum())

    if spent(0.0) <= total:
        return 0.0
    low, high = 0.0, 2 * float(losses.max()) / float(np.diff(grid).min())
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if spent(middle) <= total else (middle, high)
    chosen = at_price(losses, list(grid), high)
    return max(_steepest(row, grid, int(i))[0] for row, i in zip(losses, chosen, strict=True))


def _steepest(row: Array, grid: Ints, start: int, limit: int | None = None) -> tuple[float, int]:
    """The steepest step up from an index, of at most ``limit`` tokens: its slope and its end, or (0, start)."""
    end = len(grid) if limit is None else int(np.searchsorted(grid, grid[start] + limit, side="right"))
    if end <= start + 1:
        return 0.0, start
    slopes = (row[start] - row[start + 1 : end]) / (grid[start + 1 : end] - grid[start])
    best = int(slopes.argmax())
    return (float(slopes[best]), start + 1 + best) if slopes[best] > 0 else (0.0, start)


def _fill(losses: Array, grid: Ints, chosen: Ints, left: int) -> Ints:
    """Give out the tokens that are left, steepest step first."""
    chosen = chosen.copy()
    queue: list[tuple[float, int, int]] = []

    def push(i: int) -> None:
        slope, end = _steepest(losses[i], grid, int(chosen[i]), left)
        if slope > 0:
            heapq.heappush(queue, (-slope, i, end))

    for i in range(len(chosen)):
        push(i)
    while queue and left > 0:
        _, i, end = heapq.heappop(queue)
        extra = int(grid[end] - grid[chosen[i]])
        if extra <= left:
            chosen[i] = end
            left -= extra
        push(i)
    return chosen


def unchanged_range(
    weights_at: Callable[[float], Array],
    errors: Array,
    budgets: Sequence[int],
    total: int,
    ratio: float,
    moved: float = 0.0,
) -> tuple[float, float]:
    """The range of cost ratios around ``ratio`` over which at most a share ``moved`` of the budgets would change.

    ``weights_at(ratio)`` gives the weights at another ratio. The search goes in steps of a quarter until the budgets
    move, then halves the last step to a thousandth. An end at 1/64 or 64 times the ratio means that they did not move.
    """

    def budgets_at(ratio: float) -> Ints:
        return spend(expected_losses(weights_at(ratio), errors), budgets, total).budgets

    stated = budgets_at(ratio)

    def same(factor: float) -> bool:
        return float((budgets_at(ratio * factor) != stated).mean()) <= moved

    ends = []
    for step in (1 / 1.25, 1.25):
        inside, outside = 1.0, step
        while same(outside) and 1 / FAR < outside < FAR:
            inside, outside = outside, outside * step
        if not 1 / FAR < outside < FAR:
            ends.append(FAR if step > 1 else 1 / FAR)
            continue
        while abs(outside / inside - 1) > 1e-3:
            middle = (inside * outside) ** 0.5
            inside, outside = (middle, outside) if same(middle) else (inside, middle)
        ends.append(inside)
    return ratio * ends[0], ratio * ends[1]


class PerRequestPlan(BaseModel):
    """What a policy stores to spend by expected cost: a shadow price, and how far its signal is trusted.

        "soft": {"price": 0.0021, "share": 0.4, "trust": {"high": {"high": 0.9, "low": 0.1}, …}, "promise": {…}}

    At the price a request takes ``argmin_b sum_t w_t e_t(b) + price b``. Two budgets tie for a whole tier when the
    signal gives no probabilities; ``share`` of the requests then take the larger. Which ones is decided by a hash of
    the question and of what it is asked about (``request_hash``), so that the same request always gets the same budget
    and "What is the total?" of a thousand invoices is a thousand draws. "About" is the digest of the images in the
    gateway and the sample's id in a calibration. A question alone draws once for all who ask it, and templates then
    miss the total. The total is only met in expectation; the gateway's controller enforces it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    price: float = Field(ge=0, allow_inf_nan=False)
    share: float = Field(default=0.0, ge=0, le=1)
    trust: dict[str, dict[str, float]] | None = None
    """P(label | tier read), for a signal that gives no probabilities of its own."""
    estimate: dict[str, Any] | None = Field(default=None, alias="promise")
    """CWE and tokens with predicted tiers, as calibration estimated them; ``promise`` is the key in the file."""
    disagreement: dict[str, float] | None = None
    """By tier read, how often answers differ from those at full budget, at most; a tier never read has none."""
    mix: dict[str, float] | None = None
    """How often each tier was read."""

    def weights(
        self, signal: Signal, costs: Mapping[str, float], prompt: str | Prompt, task: str | None, cost: float | None
    ) -> tuple[Reading, dict[str, float]]:
        """The reading, and the expected cost by tier; a request's own ``cost`` replaces those of the tiers."""
        if cost is not None and not 0 < cost < float("inf"):
            raise BadInput(f"the cost of a request must be finite and above zero, not {cost!r}")
        reading, likely = tier_probabilities(signal, prompt, task)
        if reading.decided and self.trust is not None:
            likely = self.trust.get(reading.tier, likely)
        return reading, {tier: p * (costs[tier] if cost is None else cost) for tier, p in likely.items()}

    def budget(self, curves: Mapping[str, Curve], weights: Mapping[str, float], question: str, about: str = "") -> int:
        """The budget at the price; question and ``about`` settle a tie."""
        budgets = next(iter(curves.values())).budgets
        errors = np.array([curves[tier].errors for tier in weights])
        losses = expected_losses(np.array([list(weights.values())]), errors)
        larger = np.array([request_hash(question, about) < self.share])
        return budgets[int(at_price(losses, budgets, self.price, larger)[0])]


def request_hash(question: str, about: str = "") -> float:
    """A number in [0, 1) that depends only on the question and what it is about."""
    # The length in front distinguishes "ab" about "c" from "a" about "bc".
    text = f"{len(about)}:{about}{question}".encode("utf-8", "backslashreplace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest()) / 2**48


def label_probabilities(
    signal: Signal, readings: Sequence[Reading], labels: Sequence[str], tiers: Sequence[str]
) -> dict[str, dict[str, float]] | None:
    """P(label | tier read) by tier read, half a question added to each cell; None if the signal is calibrated."""
    if isinstance(signal, LearnedSignal):
        return None
    prior = 0.5 if len(set(labels)) > 1 else 0.0
    pairs = Counter((reading.tier, label) for reading, label in zip(readings, labels, strict=True))
    cells = {read: {label: pairs[read, label] + prior for label in tiers} for read in tiers}
    return {read: {label: n / sum(row.values()) for label, n in row.items()} for read, row in cells.items()}
