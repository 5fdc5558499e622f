"""How many tokens for each single request, when its cost is a number of its own? Spend at one shadow price.

Request q loses ``L_q(b) = sum_t w_qt e_t(b)`` at budget b, with ``w_qt = P(tier t | q) c_t``, or simply its own cost
where that is known: an amount worth 20, a date worth 3, no tiers at all. Under a total of tokens each request takes

    b_q = argmin_b  L_q(b) + price b

one price for all: the price at which the total is spent. Requests that tie at the price take the smaller budget or the
larger one; offline the larger is given out until the total is reached, and what no tied request can use goes to whoever
gains most from it, so the total is never exceeded. Paper, section "Allocation Principle", per request.

    >>> import numpy as np
    >>> losses = expected_losses(np.array([[20.0], [3.0], [1.0]]), np.array([[0.9, 0.4, 0.1]]))
    >>> spend(losses, (32, 304, 576), total=912).budgets.tolist()
    [576, 304, 32]
"""

import hashlib
import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from stakes.budgets.curve import Curve
from stakes.errors import BadInput, InfeasibleBudget
from stakes.signals.base import Reading, Signal
from stakes.signals.learned import chances, gives_chances

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SAME = 1e-9  # relative to a request's largest loss: values this near are ties
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


def at_price(losses: Array, budgets: Sequence[int], price: float, take: NDArray[np.bool_] | None = None) -> Ints:
    """Places of the cheapest budgets at ``price``; of tied ones the smallest, or the largest where ``take`` says so."""
    value = losses + price * np.asarray(budgets, dtype=float)
    near = value <= value.min(axis=1, keepdims=True) + SAME * losses.max(axis=1, keepdims=True)
    low: Ints = near.argmax(axis=1)
    if take is None:
        return low
    high: Ints = near.shape[1] - 1 - near[:, ::-1].argmax(axis=1)
    return np.where(take, high, low)


def spend(losses: Array, budgets: Sequence[int], total: int) -> Spending:
    """The best budgets under ``total``: exact up to ``gap``, the worth of the last few tokens."""
    grid = _grid(losses, budgets)
    if len(losses) * int(grid[0]) > total:
        raise InfeasibleBudget(
            f"{len(losses)} requests take at least {len(losses) * int(grid[0])} tokens at {grid[0]} each, "
            f"more than {total}; give a larger total"
        )
    price = _price(losses, grid, total)
    places = at_price(losses, budgets, price)
    left = total - int(grid[places].sum())
    tied = grid[at_price(losses, budgets, price, np.ones(len(losses), dtype=bool))] - grid[places]
    share = min(1.0, left / int(tied.sum())) if price > 0 and tied.sum() else 0.0
    places = _fill(losses, grid, places, left)
    rows = np.arange(len(losses))
    spent, loss = int(grid[places].sum()), float(losses[rows, places].sum())
    least = float((losses + price * grid).min(axis=1).sum()) - price * total
    return Spending(grid[places], price, share, spent, loss, max(0.0, loss - least))


def _grid(losses: Array, budgets: Sequence[int]) -> Ints:
    grid = np.asarray(budgets, dtype=np.int64)
    if losses.ndim != 2 or losses.shape[1] != len(grid) or not len(losses):
        raise BadInput(f"losses must be requests × {len(grid)} budgets, not {losses.shape}")
    if grid[0] < 1 or (np.diff(grid) <= 0).any():
        raise BadInput(f"budgets are whole numbers of tokens that rise, not {list(budgets)}")
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
    places = at_price(losses, list(grid), high)
    return max(slope for slope, _ in (_step(row, grid, place) for row, place in zip(losses, places, strict=True)))


def _step(row: Array, grid: Ints, place: int, limit: int | None = None) -> tuple[float, int]:
    """The steepest step up from a place, of at most ``limit`` tokens: its slope and where it leads, or (0, place)."""
    end = len(grid) if limit is None else int(np.searchsorted(grid, grid[place] + limit, side="right"))
    if end <= place + 1:
        return 0.0, place
    slopes = (row[place] - row[place + 1 : end]) / (grid[place + 1 : end] - grid[place])
    best = int(slopes.argmax())
    return (float(slopes[best]), place + 1 + best) if slopes[best] > 0 else (0.0, place)


def _fill(losses: Array, grid: Ints, places: Ints, left: int) -> Ints:
    """Give out what is left, steepest step first."""
    places = places.copy()
    heap: list[tuple[float, int, int]] = []

    def offer(i: int) -> None:
        slope, to = _step(losses[i], grid, int(places[i]), left)
        if slope > 0:
            heapq.heappush(heap, (-slope, i, to))

    for i in range(len(places)):
        offer(i)
    while heap and left > 0:
        _, i, to = heapq.heappop(heap)
        extra = int(grid[to] - grid[places[i]])
        if extra <= left:
            places[i] = to
            left -= extra
        offer(i)
    return places


def unchanged_range(
    weights_at: Callable[[float], Array],
    errors: Array,
    budgets: Sequence[int],
    total: int,
    ratio: float,
    moved: float = 0.0,
) -> tuple[float, float]:
    """Cost ratios around ``ratio`` over which at most a share ``moved`` of the requests would change its budget.

    ``weights_at(ratio)`` gives the weights at another ratio. Searched in steps of a quarter until something moves, then
    halved to a thousandth; an end at 1/64 or 64 times the ratio means that nothing moved up to there.
    """
    now = spend(expected_losses(weights_at(ratio), errors), budgets, total).budgets

    def same(factor: float) -> bool:
        then = spend(expected_losses(weights_at(ratio * factor), errors), budgets, total).budgets
        return float((then != now).mean()) <= moved

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


# What does a policy keep so that it can spend by expected cost? A shadow price, and how far its signal is trusted.
#
#     "soft": {"price": 0.0021, "share": 0.4, "trust": {"high": {"high": 0.9, "low": 0.1}, …}, "promise": {…}}
#
# At this price a request takes ``argmin_b sum_t w_t e_t(b) + price b`` (``soft``). Where two budgets tie, as they do
# for
# a whole tier when the signal knows no shades, ``share`` of the requests take the larger: which ones is read off a
# digest of the question and of what it is asked about, so that the same request always gets the same budget, and
# "What is
# the total?" of a thousand invoices is a thousand draws. About means the images' digest in the gateway and the
# sample's
# id in a calibration (``soften``); a question alone draws for all that ask it, and templates then miss the total. The
# total is expected to come out; it is the gateway's controller that holds it.


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
