"""Compare arms that answered the same samples for the same total, and check that they did spend the same.

For every arm beside uniform: errors by tier, their mean over samples, CWE at the given costs and at every cost ratio,
the exact McNemar test on the most expensive tier and the sign-flip test over whole documents, a BCa interval of the CWE
gain over whole documents, and the cost ratio from which the arm pays. Paper, section "Equal-budget protocol" and the
tables of arms. Where a signal read the tiers and labels are known, budgets follow the reading, and errors and costs are
by the label.

    compare({"uniform": outcomes, "cost": others}, {"high": 5, "low": 1})
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import fsum

from stakes.budgets.frontier import break_even, format_pays, pays_below
from stakes.errors import BadInput, LedgerBreach
from stakes.evaluation.outcome_log import Outcome
from stakes.evaluation.statistics import RATIOS, Discordant, Gain, cwe, cwe_gain, cwe_sweep, discordant

TOLERANCE = {"deletion": 0.0, "resolution": 0.004, "anyres": 0.0002}


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
    """CWE at each cost ratio r (``tiers.at_ratio``)."""
    realised: int
    high_cost: Discordant | None
    """On the most expensive tier: wins (b) and losses (c) against uniform, with the exact p and that by document."""
    gain: Gain | None
    """CWE of uniform minus CWE of this arm."""
    break_even: float | None
    """The cost ratio from which the arm pays; 0: at every one; inf: from none. None with other than two tiers."""
    pays: str
    """The same in words, with the ratio below which an arm pays that gains in the cheapest tier only."""
    layers: float | None = None
    """Where budgets are averages over layers: the tokens spent by that count, which all arms have in common."""

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
    most_expensive: str
    metric: str
    documents: int
    read_as: Mapping[str, int]
    """Samples by tier as read, which decides the budget; ``counts`` are by label where labels are known."""
    agreement: float | None = None
    """Share of readings that are the label; None: labels are not known, or all are read as they are."""
    unit: str = "document"
    """What is independent: document or group."""

    def record(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self)


def compare(
    arms: Mapping[str, Sequence[Outcome]],
    costs: Mapping[str, float],
    ratios: Sequence[float] = RATIOS,
    *,
    labels: Sequence[str] | None = None,
    unit: str = "document",
) -> Comparison:
    """Compare arms whose outcomes are of the same samples, in the same order.

    ``labels``: the true tier of each sample, where the outcomes' tiers are a signal's readings.
    """
    if "uniform" not in arms:
        raise BadInput("there is no uniform arm to compare with")
    base = arms["uniform"]
    samples = [outcome.sample for outcome in base]
    for arm, outcomes in arms.items():
        if [outcome.sample for outcome in outcomes] != samples:
            raise BadInput(f"arm {arm!r} did not answer the samples of the uniform arm in their order")
    readings = [outcome.tier for outcome in base]
    names = readings if labels is None else list(labels)
    for tier in dict.fromkeys(names):
        if tier not in costs:
            raise BadInput(f"tier {tier!r} has no cost; the costs are of {', '.join(costs)}")
    counts = {tier: names.count(tier) for tier in costs if tier in names}
    if not counts:
        raise BadInput("there are no outcomes to compare")
    most_expensive = max(counts, key=costs.__getitem__)
    documents, prices = [outcome.document for outcome in base], [costs[tier] for tier in names]
    high_cost = [i for i, tier in enumerate(names) if tier == most_expensive]
    before, even = [outcome.correct for outcome in base], _errors(base, names, counts)

    def row(arm: str, outcomes: Sequence[Outcome]) -> ArmRow:
        right, errors = [outcome.correct for outcome in outcomes], _errors(outcomes, names, counts)
        itself, pairs = arm == "uniform", ([of[i] for i in high_cost] for of in (before, right, documents))
        from_ratio, pays = (None, "") if itself else _pays(even, errors, counts, most_expensive)
        return ArmRow(
            arm=arm,
            errors=errors,
            average=1 - sum(right) / len(right),
            cwe=cwe(right, prices),
            ratios=cwe_sweep(right, names, costs, ratios),
            realised=sum(outcome.realised for outcome in outcomes),
            high_cost=None if itself else discordant(*pairs),
            gain=None if itself else cwe_gain(before, right, prices, documents),
            break_even=from_ratio,
            pays=pays,
            layers=None if outcomes[0].layers is None else fsum(outcome.spent for outcome in outcomes),
        )

    rows = sorted((row(*arm) for arm in arms.items()), key=lambda row: row.arm != "uniform")
    agreed = sum(map(operator.eq, readings, names)) / len(names)
    return Comparison(
        rows=tuple(rows),
        costs=dict(costs),
        counts=counts,
        most_expensive=most_expensive,
        metric=base[0].metric,
        documents=len(set(documents)),
        read_as={tier: readings.count(tier) for tier in costs if tier in readings},
        agreement=agreed if agreed < 1 else None,
        unit=unit,
    )


def _errors(outcomes: Sequence[Outcome], names: Sequence[str], tiers: Iterable[str]) -> dict[str, float]:
    by_tier: dict[str, list[bool]] = {tier: [] for tier in tiers}
    for outcome, tier in zip(outcomes, names, strict=True):
        by_tier[tier].append(outcome.correct)
    return {tier: 1 - sum(right) / len(right) for tier, right in by_tier.items()}


def _pays(
    uniform: Mapping[str, float], arm: Mapping[str, float], counts: Mapping[str, int], most_expensive: str
) -> tuple[float | None, str]:
    """The cost ratio from which an arm of two tiers pays, and the same in words."""
    if len(counts) != 2:
        return None, ""
    cheap = next(tier for tier in counts if tier != most_expensive)
    without, with_arm = ({"high": of[most_expensive], "low": of[cheap]} for of in (uniform, arm))
    sizes = {"high": counts[most_expensive], "low": counts[cheap]}
    ratio = break_even(without, with_arm, sizes)
    return ratio, format_pays(ratio, pays_below(without, with_arm, sizes))


@dataclass(frozen=True)
class EqualTotals:
    """Checks that all arms of a comparison spend the same; a breach is an error that names the sample and the arm.

    Two checks, before and after the answers (paper, "Equal-budget protocol"):

    * planned: no budget exceeds its image's native tokens, and all arms plan the same total;
    * realised: no image took more tokens than native, and the realised totals agree within the mechanism's tolerance,
      exact for deletion, 0.4 % for resizing, 0.02 % for LLaVA's AnyRes ladder.

    Tokens are counted as budgets count them. Where that is their mean over decoder layers, totals may differ by what
    whole tokens force, ``rounding``, as a share.
    """

    samples: Sequence[str]
    native: Sequence[int]
    mechanism: str = "resolution"
    rounding: float = 0.0

    def __post_init__(self) -> None:
        if self.mechanism not in TOLERANCE:
            raise BadInput(f"unknown mechanism {self.mechanism!r}; choose one of {', '.join(TOLERANCE)}")
        if len(self.samples) != len(self.native) or not self.samples:
            raise BadInput(f"native tokens are needed for each sample, got {len(self.native)} for {len(self.samples)}")

    def check_planned(self, arms: Mapping[str, Sequence[int]]) -> int:
        """Check budgets per arm before any answer is paid for; returns the common total."""
        totals = self._totals(arms, "budget")
        self._check_equal(totals, tolerance=0.0, verb="plan")
        return int(max(totals.values()))

    def check_realised(self, arms: Mapping[str, Sequence[float]]) -> float:
        """Check tokens that the model really read; returns the largest relative deviation between two arms."""
        totals = self._totals(arms, "realised tokens")
        return self._check_equal(totals, TOLERANCE[self.mechanism] + self.rounding, verb="spend")

    def _totals(self, arms: Mapping[str, Sequence[float]], what: str) -> dict[str, float]:
        if not arms:
            raise BadInput("there is no arm to check")
        for arm, tokens in arms.items():
            if len(tokens) != len(self.samples):
                raise LedgerBreach(f"arm {arm!r} has {len(tokens)} {what} for {len(self.samples)} samples")
            for sample, native, count in zip(self.samples, self.native, tokens, strict=True):
                if count > native:
                    raise LedgerBreach(
                        f"arm {arm!r}, sample {sample!r}: {what} {count} exceed the image's {native} native tokens; "
                        "use a larger image or a smaller budget"
                    )
                if count < 1:
                    raise LedgerBreach(f"arm {arm!r}, sample {sample!r}: {what} {count}, but at least 1 is needed")
        return {arm: sum(tokens) for arm, tokens in arms.items()}

    def _check_equal(self, totals: Mapping[str, float], tolerance: float, verb: str) -> float:
        least, most = min(totals, key=totals.__getitem__), max(totals, key=totals.__getitem__)
        deviation = totals[most] / totals[least] - 1
        if deviation > tolerance + 1e-12:
            more, fewer = (round(totals[arm], 2) for arm in (most, least))
            raise LedgerBreach(
                f"arms do not {verb} the same: {most!r} {more} tokens, {least!r} {fewer} "
                f"(a difference of {deviation:.3%}, {tolerance:.2%} allowed for {self.mechanism})"
            )
        return deviation
