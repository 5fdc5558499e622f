"""One stream of values in [0, 1]: an anytime-valid test of whether its mean stays at or below a limit m.

    wealth = integral over p in (m, 1) of prod_i (p/m)^x_i ((1-p)/(1-m))^(1-x_i)  d Beta(1/2, 1/2)

exceeds 1/delta with a probability of at most delta, ever, while every value's mean, given those before, is at or below
m, however often one looks (Ville; Robbins' mixture). A change may come late, when a long good period has used the
wealth up: every EPOCH values another bet starts, with a share of the stake that falls as 1/k².

The condition fails where values come in runs, such as five questions of one client about one document: the first value
predicts the other four. ``observe`` therefore counts the values of one unit (a client, a group) within ``window``
seconds as one value, their mean. What is tested is then the mean over such runs, each with the same weight.

    stream = Stream(0.15)
    stream.observe(1.0, unit="client-7", now=12.0, window=60)   # counts once a minute is over
"""

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stakes.errors import BadInput

EPOCH = 256  # values after which another bet starts
LOOK = 8  # values between two looks at the wealth, to save time
BETS = 24  # kept; the poorest is dropped, which can only delay an alarm
STAKE = 6 / np.pi**2  # so that 1 + 1/4 + 1/9 + … adds up to 1
MOST_RUNS = 10_000  # open at a time; the values of further units count as one run


@dataclass
class _OpenRun:
    """The values of one unit, open until ``end``."""

    end: float
    total: float = 0.0
    number: int = 0


@dataclass
class Stream:
    """Tests whether one mean stays at or below ``allowed``.

    ``seen`` and ``total``: values that the test counts, and their sum. ``observed`` and ``observed_total``: the same of
    the values as they came, those of open runs included.
    """

    allowed: float
    bets: NDArray[np.float64] = field(default_factory=lambda: np.array([[1.0, 0.0, 0.0]]))  # stake, values, sum
    seen: int = 0
    total: float = 0.0
    started: int = 1
    highest: float = 0.0  # logarithm of the wealth at its maximum: an alarm stays
    observed: int = 0
    observed_total: float = 0.0
    runs: OrderedDict[str | None, _OpenRun] = field(default_factory=OrderedDict)  # by unit, the first to end first

    @property
    def mean(self) -> float:
        """The mean of the values as they came."""
        return self.observed_total / self.observed if self.observed else 0.0

    def observe(self, value: float, unit: str | None = None, now: float = 0.0, window: float = 0.0) -> None:
        """A value of one unit at a time in seconds; without a unit or a window it counts by itself."""
        if not 0 <= value <= 1:
            raise BadInput(f"a monitored value lies in [0, 1], not at {value}")
        self.observed += 1
        self.observed_total += value
        self.close(now)
        if unit is None or window <= 0:
            self.add(value)
            return
        shared = unit not in self.runs and len(self.runs) >= MOST_RUNS
        run = self.runs.setdefault(None if shared else unit, _OpenRun(now + window))
        run.total += value
        run.number += 1

    def close(self, now: float) -> None:
        """Count the runs that have ended."""
        while self.runs and next(iter(self.runs.values())).end <= now:
            _, run = self.runs.popitem(last=False)
            self.add(min(1.0, run.total / run.number))

    def add(self, value: float) -> None:
        """One more value in [0, 1], independent of those before."""
        if not 0 <= value <= 1:
            raise BadInput(f"a monitored value lies in [0, 1], not at {value}")
        self.seen += 1
        self.total += value
        self.bets[:, 1:] += (1.0, value)
        if self.seen % LOOK == 0:
            stake, seen, total = self.bets.T
            wealth = np.log(stake * STAKE) + log_wealth(seen, total, self.allowed)
            self.highest = max(self.highest, float(np.logaddexp.reduce(wealth)))
            if self.seen % EPOCH == 0:
                self.started += 1
                richest = np.sort(np.argsort(wealth)[-(BETS - 1) :])
                self.bets = np.vstack([self.bets[richest], [1 / self.started**2, 0.0, 0.0]])

    def lower(self, alpha: float) -> float:
        """A bound that the mean has exceeded at some time; wrong with a probability of at most ``alpha``, ever."""
        from scipy.optimize import brentq

        if not self.total:
            return 0.0

        def excess(mean: float) -> float:
            return float(log_wealth(np.array([self.seen]), np.array([self.total]), mean)[0] + np.log(alpha))

        bottom, top = 1e-9, self.total / self.seen * (1 - 1e-9)
        return 0.0 if excess(bottom) <= 0 else float(brentq(excess, bottom, top)) if excess(top) < 0 else top


def log_wealth(seen: NDArray[np.float64], total: NDArray[np.float64], allowed: float) -> NDArray[np.float64]:
    """Log wealth of bets that the mean is above ``allowed``, after so many values with this sum."""
    from scipy.special import betaincc, betaln

    right, left = total + 0.5, seen - total + 0.5
    above = np.maximum(betaincc(right, left, allowed) / betaincc(0.5, 0.5, allowed), 1e-300)
    bets = betaln(right, left) - betaln(0.5, 0.5) + np.log(above)
    return np.asarray(bets - total * np.log(allowed) - (seen - total) * np.log1p(-allowed))
