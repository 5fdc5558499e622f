"""Does what was certified still hold? Bounds that may be looked at after every answer, and an alarm that rarely lies.

After deployment nobody grades. What can be seen: how often the answer at a tier's budget differs from the answer to
the same request at full budget (shadow answers, for a sample of requests), which tiers come, and how far predicted
tokens are from counted ones. Disagreement is a proxy for error, not error: ``error at b <= error at full +
disagreement`` holds, but the error at full budget is as little seen as any. For each stream of values in [0, 1] with an
allowed mean m

    capital = integral over p in (m, 1) of prod_i (p/m)^x_i ((1-p)/(1-m))^(1-x_i)  d Beta(1/2, 1/2)

grows beyond 1/delta with a chance of at most delta, ever, while every value's mean, given those before, is at or below
m, however often one looks (Ville; Robbins' mixture). A change may come late, when a long good time has used the capital
up: every EPOCH values another bettor starts afresh, with a share of the stake that falls as 1/k². The streams share
``alpha``. Requests that come in long runs of one tier are a mix that moves, and are called so.

    watch = Watch(Conditions.of(outcomes, policy.budgets))
    watch.observe("high", predicted=570, counted=574)
    watch.compare("high", same=False)     # later, once its shadow answer is there
    watch.alarms()                        # {("disagreement", "high"): "…"}
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stakes.budgets.conditions import Conditions
from stakes.errors import BadInput

ALPHA = 0.05
EPOCH = 256  # values after which another bettor starts
LOOK = 8  # values between two looks at the capital, to save time
BETTORS = 24  # kept; the poorest goes, which can only delay an alarm


@dataclass
class Stream:
    """One mean that is to stay at or below ``allowed``."""

    allowed: float
    bettors: NDArray[np.float64] = field(default_factory=lambda: np.array([[1.0, 0.0, 0.0]]))  # stake, values, sum
    seen: int = 0
    total: float = 0.0
    started: int = 1
    highest: float = 0.0  # logarithm of the capital at its best: once alarmed, alarmed

    def add(self, value: float) -> None:
        """One more value in [0, 1]."""
        if not 0 <= value <= 1:
            raise BadInput(f"a watched value lies in [0, 1], not at {value}")
        self.seen += 1
        self.total += value
        self.bettors[:, 1:] += (1.0, value)
        if self.seen % LOOK == 0:
            stake, seen, total = self.bettors.T
            capitals = np.log(stake * STAKE) + log_capital(seen, total, self.allowed)
            self.highest = max(self.highest, float(np.logaddexp.reduce(capitals)))
            if self.seen % EPOCH == 0:
                self.started += 1
                kept = np.sort(np.argsort(capitals)[-(BETTORS - 1) :])
                self.bettors = np.vstack([self.bettors[kept], [1 / self.started**2, 0.0, 0.0]])

    def lower(self, alpha: float) -> float:
        """The mean has not stayed at or below this all along; wrong with a chance of at most ``alpha``, ever."""
        from scipy.optimize import brentq

        if not self.total:
            return 0.0

        def excess(mean: float) -> float:
            return float(log_capital(np.array([self.seen]), np.array([self.total]), mean)[0] + np.log(alpha))

        bottom, top = 1e-9, self.total / self.seen * (1 - 1e-9)
        return 0.0 if excess(bottom) <= 0 else float(brentq(excess, bottom, top)) if excess(top) < 0 else top


STAKE = 6 / np.pi**2  # so that 1 + 1/4 + 1/9 + … adds up to 1


def log_capital(seen: NDArray[np.float64], total: NDArray[np.float64], allowed: float) -> NDArray[np.float64]:
    """Logarithms of the capitals of bets that the mean is above ``allowed``, after so many values with this sum."""
    from scipy.special import betaincc, betaln

    right, left = total + 0.5, seen - total + 0.5
    above = np.maximum(betaincc(right, left, allowed) / betaincc(0.5, 0.5, allowed), 1e-300)
    bets = betaln(right, left) - betaln(0.5, 0.5) + np.log(above)
    return np.asarray(bets - total * np.log(allowed) - (seen - total) * np.log1p(-allowed))


class Watch:
    """Watches a policy at work; what it keeps does not grow with the requests."""

    def __init__(self, conditions: Conditions, alpha: float = ALPHA) -> None:
        if not 0 < alpha < 1:
            raise BadInput(f"alpha is a chance between 0 and 1, not {alpha}")
        self.conditions, self.requests = conditions, dict.fromkeys(conditions.disagreement, 0)
        within, self.streams = conditions.mix_within, dict[tuple[str, str], Stream]()
        for tier, rate in conditions.disagreement.items():
            self.streams["disagreement", tier] = Stream(rate)
        for tier, share in conditions.mix.items():
            for kind, allowed in (("more", share + within), ("fewer", 1 - share + within)):
                # A share of 95 % cannot rise by 10 %; and of two tiers one comes less when the other comes more.
                if allowed < 1 and (kind == "more" or len(conditions.mix) > 2):
                    self.streams[kind, tier] = Stream(allowed)
        self.streams["tokens", ""] = Stream(conditions.tokens_within)
        self.alpha = alpha / len(self.streams)

    def observe(
        self, tier: str, same: bool | None = None, predicted: int | None = None, counted: int | None = None
    ) -> None:
        """One request; ``same``: whether its shadow answer agrees, None where none was asked."""
        if tier not in self.requests:
            raise BadInput(f"tier {tier!r} is not watched; the tiers are {', '.join(self.requests)}")
        self.requests[tier] += 1
        for name in self.requests:
            for kind, value in (("more", name == tier), ("fewer", name != tier)):
                if (kind, name) in self.streams:
                    self.streams[kind, name].add(float(value))
        if same is not None:
            self.compare(tier, same)
        if predicted is not None and counted is not None:
            self.streams["tokens", ""].add(min(1.0, abs(predicted - counted) / max(1, counted)))

    def compare(self, tier: str, same: bool) -> None:
        """A shadow answer of a request that was observed before, and whether it agrees."""
        self.streams["disagreement", tier].add(float(not same))

    def alarms(self) -> dict[tuple[str, str], str]:
        """What no longer holds, by (condition, tier): disagreement, mix or tokens, in words that say what to do."""
        return {
            (_condition(kind), tier): self._words(kind, tier)
            for (kind, tier), stream in self.streams.items()
            if stream.highest >= -np.log(self.alpha)
        }

    def watched(self) -> list[tuple[str, str]]:
        """Every (condition, tier) that may alarm."""
        return list(dict.fromkeys((_condition(kind), tier) for kind, tier in self.streams))

    def state(self) -> dict[str, Any]:
        """For the metrics and a person: by tier what is seen, bounded and allowed, and the alarms in words."""
        number, shadow = sum(self.requests.values()), {}
        for tier in self.requests:
            stream = self.streams["disagreement", tier]
            shadow[tier] = {
                "shadow_answers": stream.seen,
                "disagreement": stream.total / stream.seen if stream.seen else 0.0,
                "disagreement_above": stream.lower(self.alpha),
                "disagreement_allowed": stream.allowed,
                "share": self.requests[tier] / number if number else 0.0,
                "share_calibrated": self.conditions.mix.get(tier),
            }
        tokens = self.streams["tokens", ""]
        return {
            "requests": number,
            "tiers": shadow,
            "token_error": tokens.total / tokens.seen if tokens.seen else 0.0,
            "alarms": list(self.alarms().values()),
            "note": "disagreement with the full budget is a proxy for error, not error",
        }

    def _words(self, kind: str, tier: str) -> str:
        stream = self.streams[kind, tier]
        if kind == "disagreement":
            return (
                f"disagreement {tier}: answers of tier {tier!r} differ from those at full budget more often than the "
                f"{stream.allowed:.1%} that is allowed (a proxy for error, not error); calibrate again"
            )
        if kind == "tokens":
            return f"tokens: counts are off by more than {stream.allowed:.1%} on average; check the family"
        moved = "more" if kind == "more" else "less"
        return (
            f"mix {tier}: tier {tier!r} comes {moved} often than calibrated ({self.conditions.mix[tier]:.1%}, give or "
            f"take {self.conditions.mix_within:.1%}); the budgets were chosen for another mix"
        )


def _condition(kind: str) -> str:
    return "mix" if kind in ("more", "fewer") else kind
