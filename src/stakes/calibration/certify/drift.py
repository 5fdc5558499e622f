"""Monitor drift: test after every request whether the conditions of a calibration still hold.

After deployment nobody grades. What can be observed: how often the answer at a tier's budget differs from the answer to
the same request at full budget (shadow answers, for a sample of requests), the mix of tiers, and how far predicted
tokens are from counted ones. Disagreement is a proxy for error, not error: ``error at b <= error at full +
disagreement`` holds, but the error at full budget is not observed either. Each is a stream of values in [0, 1] with an
allowed mean and an anytime-valid test (``stream``). The streams share ``alpha``.

**Condition.** Alarms are false with a probability of at most ``alpha``, ever, if requests are independent. Where they
come in runs (five questions about one document), name the unit of each request, such as its client, and give a
``window``: the values of one unit within so many seconds count as one, their mean. Then runs must be independent, no
longer requests. Runs of five counted one by one gave false alarms nearly always (``python benchmarks/drift.py``).

    monitor = DriftMonitor(Conditions.of(outcomes, policy.budgets))
    monitor.observe("high", predicted=570, counted=574)
    monitor.compare("high", same=False)     # later, once its shadow answer is there
    monitor.alarms()                        # {("disagreement", "high"): "…"}
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stakes.budgets.policy import Policy
from stakes.calibration.certify.ceiling import upper_error
from stakes.calibration.certify.stream import Stream
from stakes.errors import BadInput
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcome_log import Outcome

MIX = 0.1  # how far a tier's share may move
TOKENS = 0.02  # how far counted tokens may be from predicted ones on average
LEVEL, SLACK, MOST = 0.95, 0.02, 0.999
ALPHA = 0.05


@dataclass(frozen=True)
class Conditions:
    """Allowed disagreement of each tier, and its share of requests; without ``mix`` the mix is not monitored.

    They come from the calibration's log (``of``: how often a tier's budget and the largest measured one disagreed, at
    its upper bound by document, plus some slack), from a policy that carries these bounds (``of_policy``), or from a
    person. Error curves cannot give them. "Two right answers agree, so disagreement <= error at the budget + error at
    full" holds only where right means equal to one gold answer: with several acceptable answers, or graded by relaxed,
    anls, chartqa or vqa, two right answers may be worded differently ("$1,240.00 in total" and "$1,240.00"), and a
    bound from error rates would alarm although nothing has changed.
    """

    disagreement: Mapping[str, float]
    mix: Mapping[str, float] = field(default_factory=dict)
    mix_within: float = MIX
    tokens_within: float = TOKENS

    def __post_init__(self) -> None:
        rates = [*self.disagreement.items(), ("tokens", self.tokens_within), ("mix", self.mix_within)]
        for name, rate in rates:
            if not 0 < rate < 1:
                raise BadInput(f"the allowed rate of {name!r} lies between 0 and 1, not at {rate}")
        if self.mix and (set(self.mix) != set(self.disagreement) or abs(sum(self.mix.values()) - 1) > 1e-6):
            raise BadInput(f"the mix needs a share for each of {', '.join(self.disagreement)}, adding up to 1")

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], budgets: Mapping[str, int]) -> "Conditions":
        """From a calibration: the disagreement of each tier's budget with the largest one, at its upper bound."""
        outcomes = list(outcomes)
        upper = disagreements(outcomes, budgets)
        tiers = Counter({o.sample: o.tier for o in outcomes if o.tier in budgets}.values())
        mix = {tier: tiers[tier] / tiers.total() for tier in budgets}
        return cls({tier: min(MOST, rate + SLACK) for tier, rate in upper.items()}, mix)

    @classmethod
    def of_policy(cls, policy: Policy) -> "Conditions":
        """From a policy that carries what its calibration measured; with per-request costs, by the tier read."""
        if policy.per_request is not None:
            measured, mix = policy.per_request.disagreement or {}, policy.per_request.mix or {}
        else:
            measured = {t: plan.disagreement for t, plan in policy.tiers.items() if plan.disagreement is not None}
            counts = {t: 0 if plan.curve is None else max(plan.curve.counts) for t, plan in policy.tiers.items()}
            mix = {t: count / sum(counts.values()) for t, count in counts.items()} if all(counts.values()) else {}
        for tier in policy.tiers:
            if tier not in measured:
                log = "give its calibration's log (--shadow-outcomes), " if policy.per_request is None else ""
                raise BadInput(
                    f"the policy does not say how often answers of tier {tier!r} differed from those at full budget, "
                    "and error rates cannot replace that, since two right answers may be worded differently; "
                    f"{log}calibrate again, or set a limit, such as --shadow-allow {tier}=0.1"
                )
        return cls({tier: min(MOST, measured[tier] + SLACK) for tier in policy.tiers}, mix)


def disagreements(outcomes: Iterable[Outcome], budgets: Mapping[str, int]) -> dict[str, float]:
    """By tier, the upper bound by document of how often its budget's answer and the largest budget's differ."""
    outcomes = [o for o in outcomes if o.tier in budgets]
    full = max((o.budget for o in outcomes), default=0)
    answers = {(o.sample, o.budget): o.prediction for o in outcomes}
    compared = [
        (tier, document, same_answer(here, there))
        for sample, (document, tier) in {o.sample: (o.document, o.tier) for o in outcomes}.items()
        if (here := answers.get((sample, budgets[tier]))) is not None
        and (there := answers.get((sample, full))) is not None
    ]
    upper = upper_by_tier(compared)
    for tier in budgets:
        if tier not in upper:
            raise BadInput(f"no question of tier {tier!r} was answered at both {budgets[tier]} and {full} tokens")
    return {tier: upper[tier] for tier in budgets}


def upper_by_tier(compared: Iterable[tuple[str, str, bool]]) -> dict[str, float]:
    """From (tier, document, whether two answers agree): the share that do not, at its upper bound by document."""
    cells: dict[str, dict[str, list[int]]] = {}
    for tier, document, same in compared:
        cell = cells.setdefault(tier, {}).setdefault(document, [0, 0])
        cell[0] += not same
        cell[1] += 1
    tables = {tier: np.array(list(counts.values())) for tier, counts in cells.items()}
    return {tier: upper_error(table[:, 0], table[:, 1], LEVEL) for tier, table in tables.items()}


def same_answer(one: str, other: str) -> bool:
    """Whether two answers agree by the exact metric, which ignores case and one final period, and up to spacing."""
    here, there = " ".join(one.split()), " ".join(other.split())
    return here == there or is_correct(grade(here, [there], "exact"))


class DriftMonitor:
    """Monitors a policy in use; its memory does not grow with the requests.

    ``window``: seconds in which the requests of one unit count as one; 0: every request counts by itself.
    """

    def __init__(
        self,
        conditions: Conditions,
        alpha: float = ALPHA,
        window: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < alpha < 1:
            raise BadInput(f"alpha is a probability between 0 and 1, not {alpha}")
        if not 0 <= window < float("inf"):
            raise BadInput(f"the window is a number of seconds from 0, not {window}")
        self.window, self.clock, self.false_alarms = window, clock, alpha
        self.conditions, self.requests = conditions, dict.fromkeys(conditions.disagreement, 0)
        within, self.streams = conditions.mix_within, dict[tuple[str, str], Stream]()
        for tier, rate in conditions.disagreement.items():
            self.streams["disagreement", tier] = Stream(rate)
        for tier, share in conditions.mix.items():
            for kind, allowed in (("more", share + within), ("fewer", 1 - share + within)):
                # A share of 95 % cannot rise by 10 %; and of two tiers one is rarer when the other is more frequent.
                if allowed < 1 and (kind == "more" or len(conditions.mix) > 2):
                    self.streams[kind, tier] = Stream(allowed)
        self.streams["tokens", ""] = Stream(conditions.tokens_within)
        self.alpha = alpha / len(self.streams)

    def observe(
        self,
        tier: str,
        same: bool | None = None,
        predicted: int | None = None,
        counted: int | None = None,
        unit: str | None = None,
    ) -> None:
        """One request; ``same``: whether its shadow answer agrees, None where there is none; ``unit``: whose it is."""
        if tier not in self.requests:
            raise BadInput(f"tier {tier!r} is not monitored; the tiers are {', '.join(self.requests)}")
        self.requests[tier] += 1
        for name in self.requests:
            for kind, value in (("more", name == tier), ("fewer", name != tier)):
                if (kind, name) in self.streams:
                    self._add(kind, name, float(value), unit)
        if same is not None:
            self.compare(tier, same, unit)
        if predicted is not None and counted is not None:
            self._add("tokens", "", min(1.0, abs(predicted - counted) / max(1, counted)), unit)

    def compare(self, tier: str, same: bool, unit: str | None = None) -> None:
        """Whether the shadow answer of an observed request agrees."""
        self._add("disagreement", tier, float(not same), unit)

    def _add(self, kind: str, tier: str, value: float, unit: str | None) -> None:
        self.streams[kind, tier].observe(value, unit, self.clock(), self.window)

    @property
    def condition(self) -> str:
        """When the probability of a false alarm holds, in words."""
        if not self.window:
            return "if requests are independent"
        return f"if requests of different clients or groups, or {self.window:g} s apart, are independent"

    def alarms(self) -> dict[tuple[str, str], str]:
        """What no longer holds, by (condition, tier): disagreement, mix or tokens, in words with what to do."""
        now = self.clock()
        for stream in self.streams.values():
            stream.close(now)
        chance = f"a false alarm has probability {self.false_alarms:.0%} at most, {self.condition}"
        return {
            (_condition(kind), tier): f"{self._describe(kind, tier)} ({chance})"
            for (kind, tier), stream in self.streams.items()
            if stream.highest >= -np.log(self.alpha)
        }

    def monitored(self) -> list[tuple[str, str]]:
        """Every (condition, tier) that may alarm."""
        return list(dict.fromkeys((_condition(kind), tier) for kind, tier in self.streams))

    def state(self) -> dict[str, Any]:
        """By tier what is observed, bounded and allowed, and the alarms in words, for metrics and people."""
        alarms = list(self.alarms().values())
        number, tiers = sum(self.requests.values()), {}
        for tier in self.requests:
            stream = self.streams["disagreement", tier]
            tiers[tier] = {
                "shadow_answers": stream.observed,
                "values": stream.seen,
                "disagreement": stream.mean,
                "disagreement_above": stream.lower(self.alpha),
                "disagreement_allowed": stream.allowed,
                "share": self.requests[tier] / number if number else 0.0,
                "share_calibrated": self.conditions.mix.get(tier),
            }
        return {
            "requests": number,
            "tiers": tiers,
            "token_error": self.streams["tokens", ""].mean,
            "alarms": alarms,
            "note": "disagreement with the full budget is a proxy for error, not error; a false alarm has probability "
            f"{self.false_alarms:.0%} at most, ever, {self.condition}",
        }

    def _describe(self, kind: str, tier: str) -> str:
        stream = self.streams[kind, tier]
        if kind == "disagreement":
            return (
                f"disagreement {tier}: answers of tier {tier!r} differ from those at full budget more often than the "
                f"allowed {stream.allowed:.1%} (a proxy for error, not error); calibrate again"
            )
        if kind == "tokens":
            return f"tokens: counts are off by more than {stream.allowed:.1%} on average; check the family"
        moved = "more" if kind == "more" else "less"
        return (
            f"mix {tier}: tier {tier!r} comes {moved} often than calibrated ({self.conditions.mix[tier]:.1%} ± "
            f"{self.conditions.mix_within:.1%}); the budgets were chosen for another mix"
        )


def _condition(kind: str) -> str:
    return "mix" if kind in ("more", "fewer") else kind
