"""What was true when the budgets were chosen? Allowed disagreement with the full budget, and the mix of tiers.

Three places to take it from, the best first:

* the calibration's own log of answers (``of``): how often a tier's budget and the largest one disagreed, at its upper
  bound by document, and some slack;
* the policy's curves (``of_policy``): two answers that are both right agree, so ``disagreement <= error at the budget +
  error at full``, each at its upper bound, the largest measured budget standing in for full. Looser, and always there;
* a person, who says what would be too much (``Conditions(disagreement={"high": 0.1, "low": 0.5})``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stakes.budgets.bounded_mean import upper_error
from stakes.budgets.policy import CurveRecord, Policy
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
        found = [o for o in outcomes if o.tier in budgets]
        full = max((o.budget for o in found), default=0)
        answers = {(o.sample, o.budget): o.prediction for o in found}
        documents = {o.sample: (o.document, o.tier) for o in found}
        counts: dict[str, dict[str, list[int]]] = {tier: {} for tier in budgets}
        for sample, (document, tier) in documents.items():
            here, there = answers.get((sample, budgets[tier])), answers.get((sample, full))
            if here is not None and there is not None:
                cell = counts[tier].setdefault(document, [0, 0])
                cell[0] += not same_answer(here, there)
                cell[1] += 1
        for tier, cells in counts.items():
            if not cells:
                raise BadInput(f"no question of tier {tier!r} was answered at both {budgets[tier]} and {full} tokens")
        upper = {
            tier: upper_error([c[0] for c in cells.values()], [c[1] for c in cells.values()], level) + slack
            for tier, cells in counts.items()
        }
        number = len(documents)
        mix = {tier: sum(t == tier for _, t in documents.values()) / number for tier in budgets}
        return cls({tier: min(MOST, rate) for tier, rate in upper.items()}, mix)

    @classmethod
    def of_policy(cls, policy: Policy, level: float = LEVEL, slack: float = SLACK) -> "Conditions":
        """From the curves of a policy file alone; every question counts as a document of its own."""
        allowed, counts = {}, {}
        for tier, plan in policy.tiers.items():
            if plan.curve is None:
                raise BadInput(
                    f"tier {tier!r} has no measured curve, so nothing is known of how often its answers may differ "
                    f"from those at full budget; say what is allowed, such as --shadow-allow {tier}=0.1"
                )
            # Both bounds hold together with a chance of level: each gets half of what may go wrong.
            ends = [_upper(plan.curve, budget, (1 + level) / 2) for budget in (plan.budget, plan.curve.budgets[-1])]
            allowed[tier], counts[tier] = min(MOST, sum(ends) + slack), max(plan.curve.counts)
        return cls(allowed, {tier: count / sum(counts.values()) for tier, count in counts.items()})


def same_answer(one: str, other: str) -> bool:
    """Whether two answers say the same: spacing aside, and by the exact metric (case, one full stop at the end)."""
    here, there = " ".join(one.split()), " ".join(other.split())
    return here == there or is_correct(grade(here, [there], "exact"))


def _upper(curve: CurveRecord, budget: int, level: float) -> float:
    """Clopper and Pearson's bound of the error at the largest measured budget that is not above this one."""
    place = max((i for i, measured in enumerate(curve.budgets) if measured <= budget), default=0)
    number = curve.counts[place]
    wrong = round(curve.errors[place] * number)
    return upper_error([1] * wrong + [0] * (number - wrong), [1] * number, level)
