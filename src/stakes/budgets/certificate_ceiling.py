"""Which budgets keep a tier's error under a ceiling, for certain? Learn-then-Test, from the largest budget down.

"Error at b is at or above the ceiling" is tested at each budget, largest first, each at the full level, and the first
that cannot be refuted ends it (fixed-sequence testing, arXiv 2110.01052). The order is fixed before any answer is seen,
so the chance that any budget is passed wrongly is at most the level: all budgets from the smallest that passed upward
may be used, whichever is then chosen and why. No curve is assumed to fall.

Every document may be used for this, also those that the budgets are chosen on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stakes.budgets.bounded_mean import chance_of_more, upper_error
from stakes.budgets.by_document import ByDocument
from stakes.errors import BadInput


@dataclass(frozen=True)
class Ceiling:
    """One tier's ceiling and what the answers say of it."""

    tier: str
    ceiling: float
    level: float
    """Of confidence, for this tier: several ceilings share the chance of a mistake."""
    budget: int | None
    """The smallest budget that passed; None: not even the largest did."""
    largest: int
    """The largest budget measured, where the test begins."""
    least: float | None
    """Where none passed: the least ceiling that the largest budget would have passed."""
    tested: Mapping[int, float]
    """The p-value at each budget that was tested, from the largest down."""

    @property
    def met(self) -> bool:
        """Whether some budget keeps the ceiling."""
        return self.budget is not None

    def __str__(self) -> str:
        sure = f"with {self.level:.4g} confidence"
        if self.budget is None:
            return (
                f"{self.tier} error <= {self.ceiling:g} cannot be certified {sure}: the least that the largest "
                f"measured budget, {self.largest} tokens, keeps to is {self.least:.3f}; allow that much, measure "
                "larger budgets or label more documents"
            )
        return f"{self.tier} error <= {self.ceiling:g} {sure} from {self.budget} tokens up"


def hold_ceilings(measured: ByDocument, ceilings: Mapping[str, float], confidence: float) -> dict[str, Ceiling]:
    """Test every tier's ceiling; together they are wrong with a chance of at most ``1 - confidence``."""
    for tier, ceiling in ceilings.items():
        if tier not in measured.wrong:
            raise BadInput(f"a ceiling is given for tier {tier!r}; the tiers are {', '.join(measured.wrong)}")
        if not 0 < ceiling < 1:
            raise BadInput(f"the ceiling of tier {tier!r} is {ceiling:g}; give an error rate between 0 and 1")
    level = 1 - (1 - confidence) / max(1, len(ceilings))
    return {tier: _test(measured, tier, ceiling, level) for tier, ceiling in ceilings.items()}


def _test(measured: ByDocument, tier: str, ceiling: float, level: float) -> Ceiling:
    wrong, asked = measured.wrong[tier], measured.asked[tier]
    columns = [j for j in range(len(measured.budgets)) if asked[:, j].any()][::-1]
    if not columns:
        raise BadInput(f"tier {tier!r} has no answers to test its ceiling on")
    tested: dict[int, float] = {}
    passed = None
    for j in columns:
        p = tested[measured.budgets[j]] = chance_of_more(wrong[:, j], asked[:, j], ceiling)
        if p > 1 - level:
            break
        passed = measured.budgets[j]
    largest = columns[0]
    least = upper_error(wrong[:, largest], asked[:, largest], level) if passed is None else None
    return Ceiling(tier, ceiling, level, passed, measured.budgets[largest], least, tested)
