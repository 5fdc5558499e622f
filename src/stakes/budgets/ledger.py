"""Do all arms really spend the same? A breach is an error that names the sample and the arm.

Two checks, before and after the answers (paper, "Equal-budget protocol"):

* planned: no budget exceeds its image's native tokens, and all arms plan the same total;
* realised: no image took more tokens than native, and the realised totals agree within the mechanism's tolerance,
  exact for deletion, 0.4 % for resizing, 0.02 % for LLaVA's AnyRes ladder.

Tokens are counted as budgets count them. Where that is their mean over decoder layers (``evaluation.layered``), totals
may differ by what whole tokens force, ``rounding``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stakes.errors import BadInput, LedgerBreach

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
