"""Which arm makes the dearer mistakes, and is that luck? Arms that answered the same samples for the same total.

Every arm beside uniform: errors by tier, their mean over samples, CWE at the costs given and at every cost ratio,
exact McNemar on the dearest tier, a BCa interval of the fall in CWE over whole documents, and the cost ratio from which
the arm pays. Paper, section "Equal-budget protocol" and the tables of arms.

    compare({"uniform": outcomes, "cost": others}, {"high": 5, "low": 1})
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum

from stakes.budgets.frontier import break_even
from stakes.errors import BadInput
from stakes.evaluation.outcomes import Outcome
from stakes.evaluation.statistics import RATIOS, Discordant, Gain, cwe, cwe_gain, cwe_sweep, discordant


@dataclass(frozen=True)
class ArmRow:
    """One arm. What compares it with uniform is None for uniform itself."""

    arm: str
    errors: Mapping[str, float]
    """By tier."""
    average: float
    """Over all samples, whatever they cost."""
    cwe: float
    ratios: Mapping[float, float]
    """CWE when a mistake in the dearest tier costs r times any other."""
    realised: int
    dear: Discordant | None
    """On the dearest tier: answers that this arm puts right (b) and puts wrong (c), with the exact p."""
    gain: Gain | None
    """CWE of uniform minus CWE of this arm."""
    break_even: float | None
    """The cost ratio from which the arm pays; inf: none does. None with other than two tiers."""
    layers: float | None = None
    """Where budgets are averages over layers: the tokens spent so, which all arms have in common."""

    @property
    def spent(self) -> int:
        """Tokens as the budgets count them, to the nearest."""
        return self.realised if self.layers is None else round(self.layers)


@dataclass(frozen=True)
class Comparison:
    """All arms, uniform first."""

    rows: tuple[ArmRow, ...]
    costs: Mapping[str, float]
    counts: Mapping[str, int]
    dearest: str
    metric: str
    documents: int

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def compare(
    arms: Mapping[str, Sequence[Outcome]], costs: Mapping[str, float], ratios: Sequence[float] = RATIOS
) -> Comparison:
    """Compare arms whose outcomes are of the same samples, in the same order."""
    if "uniform" not in arms:
        raise BadInput("there is no uniform arm to compare with")
    base = arms["uniform"]
    samples = [outcome.sample for outcome in base]
    for arm, outcomes in arms.items():
        if [outcome.sample for outcome in outcomes] != samples:
            raise BadInput(f"arm {arm!r} did not answer the samples of the uniform arm in their order")
    tiers = [outcome.tier for outcome in base]
    for tier in dict.fromkeys(tiers):
        if tier not in costs:
            raise BadInput(f"tier {tier!r} has no cost; the costs are of {', '.join(costs)}")
    counts = Counter(tiers)
    present = [tier for tier in costs if tier in counts]
    if not present:
        raise BadInput("there are no outcomes to compare")
    dearest = max(present, key=costs.__getitem__)
    rows = [_row(arm, outcomes, base, costs, present, dearest, ratios) for arm, outcomes in arms.items()]
    rows.sort(key=lambda row: row.arm != "uniform")
    return Comparison(
        rows=tuple(rows),
        costs=dict(costs),
        counts={tier: counts[tier] for tier in present},
        dearest=dearest,
        metric=base[0].metric,
        documents=len({outcome.document for outcome in base}),
    )


def _row(
    arm: str,
    outcomes: Sequence[Outcome],
    base: Sequence[Outcome],
    costs: Mapping[str, float],
    tiers: Sequence[str],
    dearest: str,
    ratios: Sequence[float],
) -> ArmRow:
    right, before = ([outcome.correct for outcome in answers] for answers in (outcomes, base))
    names = [outcome.tier for outcome in outcomes]
    prices = [costs[tier] for tier in names]
    errors, even = (_errors(answers, tiers) for answers in (outcomes, base))
    pays = None
    if len(tiers) == 2:
        cheap = next(tier for tier in tiers if tier != dearest)
        sizes = {"high": names.count(dearest), "low": names.count(cheap)}
        without, with_arm = ({"high": e[dearest], "low": e[cheap]} for e in (even, errors))
        pays = break_even(without, with_arm, sizes)
    dear = [i for i, tier in enumerate(names) if tier == dearest]
    itself = arm == "uniform"
    return ArmRow(
        arm=arm,
        errors=errors,
        average=1 - sum(right) / len(right),
        cwe=cwe(right, prices),
        ratios=cwe_sweep(right, names, dearest, ratios),
        realised=sum(outcome.realised for outcome in outcomes),
        dear=None if itself else discordant([before[i] for i in dear], [right[i] for i in dear]),
        gain=None if itself else cwe_gain(before, right, prices, [outcome.document for outcome in outcomes]),
        break_even=None if itself else pays,
        layers=None if outcomes[0].layers is None else fsum(outcome.spent for outcome in outcomes),
    )


def _errors(outcomes: Sequence[Outcome], tiers: Sequence[str]) -> dict[str, float]:
    by_tier: dict[str, list[bool]] = {tier: [] for tier in tiers}
    for outcome in outcomes:
        by_tier[outcome.tier].append(outcome.correct)
    return {tier: 1 - sum(right) / len(right) for tier, right in by_tier.items()}
