"""What was true when the budgets were chosen? Allowed disagreement with the full budget, and the mix of tiers.

Three places to take it from:

* the calibration's own log of answers (``of``): how often a tier's budget and the largest one disagreed, at its upper
  bound by document, and some slack; the largest measured budget stands in for full;
* the policy file (``of_policy``), where the calibration has put these very bounds (with soft stakes: of the budget that
  each question gets, by the tier that is read off it);
* a person, who says what would be too much (``Conditions(disagreement={"high": 0.1, "low": 0.5})``).

Error curves are none. "Two right answers agree, so disagreement <= error at the budget + error at full" holds where
right means equal to one gold answer, and nowhere else: with several acceptable answers, or graded by relaxed, anls,
chartqa or vqa, two right answers may be worded otherwise ("$1,240.00 in total" and "$1,240.00"), and a bound from error
rates would alarm although nothing has changed. A policy that does not carry the disagreement itself is refused.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stakes.budgets.bounded_mean import upper_error
from stakes.budgets.policy import Policy
from stakes.errors import BadInput
from stakes.evaluation.grading import grade, is_correct
from stakes.evaluation.outcomes import Outcome

MIX = 0.1  # how far a tier's share may move
TOKENS = 0.02  # how far counted tokens may be from predicted ones on average
LEVEL, SLACK, MOST = 0.95, 0.02, 0.999


@dataclass(frozen=True)
class Conditions:
    """Allowed disagreement of each tier, and its share; no ``mix``: the mix is not watched."""

    disagreement: Mapping[str, float]
    mix: Mapping[str, float] = field(default_factory=dict)
    mix_within: float = MIX
    tokens_within: float = TOKENS

    def __post_init__(self) -> None:
        rates = [*self.disagreement.items(), ("tokens", self.tokens_within), ("mix", self.mix_within)]
        for name, rate in rates:
            if not 0 < rate < 1:
                raise BadInput(f"what is allowed of {name!r} lies between 0 and 1, not at {rate}")
        if self.mix and (set(self.mix) != set(self.disagreement) or abs(sum(self.mix.values()) - 1) > 1e-6):
            raise BadInput(f"the mix needs a share for each of {', '.join(self.disagreement)}, adding up to 1")

    @classmethod
    def of(
        cls, outcomes: Iterable[Outcome], budgets: Mapping[str, int], level: float = LEVEL, slack: float = SLACK
    ) -> "Conditions":
        """From a calibration: the disagreement of each tier's budget with the largest one, at its upper bound."""
        found = list(outcomes)
        upper = disagreements(found, budgets, level)
        tiers = Counter({o.sample: o.tier for o in found if o.tier in budgets}.values())
        mix = {tier: tiers[tier] / tiers.total() for tier in budgets}
        return cls({tier: min(MOST, rate + slack) for tier, rate in upper.items()}, mix)

    @classmethod
    def of_policy(cls, policy: Policy, slack: float = SLACK) -> "Conditions":
        """From a policy file that carries what its calibration saw, by tier or, with soft stakes, by tier read."""
        if policy.soft is not None:
            measured, mix = policy.soft.disagreement or {}, policy.soft.mix or {}
        else:
            measured = {t: plan.disagreement for t, plan in policy.tiers.items() if plan.disagreement is not None}
            counts = {t: 0 if plan.curve is None else max(plan.curve.counts) for t, plan in policy.tiers.items()}
            mix = {t: count / sum(counts.values()) for t, count in counts.items()} if all(counts.values()) else {}
        for tier in policy.tiers:
            if tier not in measured:
                log = "give its calibration's log (--shadow-outcomes), " if policy.soft is None else ""
                raise BadInput(
                    f"the policy does not say how often answers of tier {tier!r} differed from those at full budget, "
                    f"and error rates do not tell, since two right answers may be worded otherwise; {log}calibrate "
                    f"again, or say what is allowed, such as --shadow-allow {tier}=0.1"
                )
        return cls({tier: min(MOST, measured[tier] + slack) for tier in policy.tiers}, mix)


def disagreements(outcomes: Iterable[Outcome], budgets: Mapping[str, int], level: float = LEVEL) -> dict[str, float]:
    """By tier, how often its budget's answer and the largest budget's differ at most: the upper bound by document."""
    found = [o for o in outcomes if o.tier in budgets]
    full = max((o.budget for o in found), default=0)
    answers = {(o.sample, o.budget): o.prediction for o in found}
    compared = [
        (tier, document, same_answer(here, there))
        for sample, (document, tier) in {o.sample: (o.document, o.tier) for o in found}.items()
        if (here := answers.get((sample, budgets[tier]))) is not None
        and (there := answers.get((sample, full))) is not None
    ]
    upper = upper_by_tier(compared, level)
    for tier in budgets:
        if tier not in upper:
            raise BadInput(f"no question of tier {tier!r} was answered at both {budgets[tier]} and {full} tokens")
    return {tier: upper[tier] for tier in budgets}


def upper_by_tier(compared: Iterable[tuple[str, str, bool]], level: float = LEVEL) -> dict[str, float]:
    """From (tier, document, whether two answers say the same): the share that do not, at its bound by document."""
    cells: dict[str, dict[str, list[int]]] = {}
    for tier, document, same in compared:
        cell = cells.setdefault(tier, {}).setdefault(document, [0, 0])
        cell[0] += not same
        cell[1] += 1
    return {
        tier: upper_error([c[0] for c in found.values()], [c[1] for c in found.values()], level)
        for tier, found in cells.items()
    }


def same_answer(one: str, other: str) -> bool:
    """Whether two answers say the same: spacing aside, and by the exact metric (case, one full stop at the end)."""
    here, there = " ".join(one.split()), " ".join(other.split())
    return here == there or is_correct(grade(here, [there], "exact"))
