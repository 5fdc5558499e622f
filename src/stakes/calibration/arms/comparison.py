"""Which arm makes the dearer mistakes, and is that luck? Arms that answered the same samples for the same total.

Every arm beside uniform: errors by tier, their mean over samples, CWE at the costs given and at every cost ratio,
exact McNemar on the dearest tier, a BCa interval of the fall in CWE over whole documents, and the cost ratio from which
the arm pays. Paper, section "Equal-budget protocol" and the tables of arms.

    compare({"uniform": outcomes, "cost": others}, {"high": 5, "low": 1})
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import fsum

from stakes.budgets.frontier import break_even
from stakes.errors import BadInput, LedgerBreach
from stakes.evaluation.outcome_log import Outcome
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


# Do all arms really spend the same? A breach is an error that names the sample and the arm.
#
# Two checks, before and after the answers (paper, "Equal-budget protocol"):
#
# * planned: no budget exceeds its image's native tokens, and all arms plan the same total;
# * realised: no image took more tokens than native, and the realised totals agree within the mechanism's tolerance,
#   exact for deletion, 0.4 % for resizing, 0.02 % for LLaVA's AnyRes ladder.
#
# Tokens are counted as budgets count them. Where that is their mean over decoder layers (``evaluation.layered``),
# totals
# may differ by what whole tokens force, ``rounding``.


TOLERANCE = {"deletion": 0.0, "resolution": 0.004, "anyres": 0.0002}


@dataclass(frozen=True)
class Ledger:
    """The book of one comparison: the samples, their native tokens, and how budgets are realised."""

    samples: Sequence[str]
    native: Sequence[int]
    mechanism: str = "resolution"
    rounding: float = 0.0
    """What whole tokens may leave of a total, as a share."""
    tolerance: float = field(init=False)

    def __post_init__(self) -> None:
        if self.mechanism not in TOLERANCE:
            raise BadInput(f"unknown mechanism {self.mechanism!r}; choose one of {', '.join(TOLERANCE)}")
        if len(self.samples) != len(self.native) or not self.samples:
            raise BadInput(
                f"a ledger needs native tokens for each sample, got {len(self.native)} for {len(self.samples)}"
            )
        object.__setattr__(self, "tolerance", TOLERANCE[self.mechanism] + self.rounding)

    def check_planned(self, arms: Mapping[str, Sequence[int]]) -> int:
        """Check budgets per arm before any answer is paid for; returns the common total."""
        totals = self._totals(arms, "budget", least=1)
        return int(self._agree(totals, tolerance=0.0, what="plan"))

    def check_realised(self, arms: Mapping[str, Sequence[float]]) -> float:
        """Check tokens that the model really read; returns the largest relative deviation between two arms."""
        totals = self._totals(arms, "realised tokens", least=1)
        self._agree(totals, self.tolerance, what="spend")
        return max(totals.values()) / min(totals.values()) - 1

    def _totals(self, arms: Mapping[str, Sequence[float]], what: str, least: int) -> dict[str, float]:
        if not arms:
            raise BadInput("a ledger compares arms, and none was given")
        for arm, tokens in arms.items():
            if len(tokens) != len(self.samples):
                raise LedgerBreach(f"arm {arm!r} has {len(tokens)} {what} for {len(self.samples)} samples")
            for sample, native, taken in zip(self.samples, self.native, tokens, strict=True):
                if taken > native:
                    raise LedgerBreach(
                        f"arm {arm!r}, sample {sample!r}: {what} {taken} exceed the image's {native} native tokens; "
                        "use a larger image or a smaller budget"
                    )
                if taken < least:
                    raise LedgerBreach(
                        f"arm {arm!r}, sample {sample!r}: {what} {taken}, but at least {least} is needed"
                    )
        return {arm: sum(tokens) for arm, tokens in arms.items()}

    def _agree(self, totals: Mapping[str, float], tolerance: float, what: str) -> float:
        least, most = min(totals, key=totals.__getitem__), max(totals, key=totals.__getitem__)
        deviation = totals[most] / totals[least] - 1
        if deviation > tolerance + 1e-12:
            more, fewer = (round(totals[arm], 2) for arm in (most, least))
            raise LedgerBreach(
                f"arms do not {what} the same: {most!r} {more} tokens, {least!r} {fewer} "
                f"({deviation:.3%} apart, {tolerance:.2%} allowed for {self.mechanism})"
            )
        return totals[most]
