"""Budgets as tokens averaged over decoder layers: what an in-model selector with ``count=layers`` spends.

    layers = layer_budgets(model, Setting("deletion", "fastv:count=layers"))  # None where budgets count what is left
    layers.spent(972, 512)                                                    # (205, 511.8)

Of 972 tokens 205 are left after the last drop, and the five layers see 511.8 on average. Tokens are whole, so not every
average can be reached: an answer takes the most that does not exceed its budget, and ``rounding`` is what one token
more would add. With FastV that is less than one token, (depth - layer) / depth; stages that shrink together move more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stakes.data.sample import Sample
from stakes.errors import InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.models.identity import depth_of

if TYPE_CHECKING:
    from stakes.vision.selectors.layers import LayerSelector


@dataclass(frozen=True)
class LayerBudgets:
    """A selector whose budgets are averages, in a decoder of ``depth`` layers."""

    selector: LayerSelector
    depth: int

    def spent(self, native: int, budget: int) -> tuple[int, float]:
        """Tokens left after the last drop, and their mean over layers, which is at most the budget."""
        left = self.selector.left(native, budget, self.depth)
        return left, self.selector.average(native, left, self.depth)

    def least(self, native: int) -> int:
        """The smallest budget: all tokens up to the first drop, and one after the last."""
        return math.ceil(self.selector.average(native, 1, self.depth))

    def rounding(self, native: int, budget: int) -> float:
        """An upper bound on what whole tokens leave unspent of this budget; 0 where all tokens are kept."""
        left, average = self.spent(native, budget)
        return 0.0 if left == native else self.selector.average(native, left + 1, self.depth) - average

    def check(self, samples: Sequence[Sample], native: Sequence[int], assignments: Sequence[Sequence[int]]) -> None:
        """Refuse, before any answer is paid for, a budget that the layers before the first drop already exceed."""
        least = [self.least(tokens) for tokens in native]
        smallest = [min(budgets) for budgets in zip(*assignments, strict=True)]
        short = [i for i in range(len(samples)) if smallest[i] < least[i]]
        if short:
            first = short[0]
            others = f" ({len(short)} of {len(samples)} samples take more)" if len(short) > 1 else ""
            raise InfeasibleBudget(
                f"sample {samples[first].id!r}: {self.selector.name} cannot average {smallest[first]} of "
                f"{native[first]} tokens over {self.depth} layers, since those before its first drop see all of them"
                f"{others}; the smallest feasible budget is {max(least[i] for i in short)}"
            )


def layer_budgets(model: Any, setting: Setting) -> LayerBudgets | None:
    """How budgets come about where this setting averages them over the model's layers; None where it does not."""
    if setting.selector is None or ":" not in setting.selector:  # by default budgets count what is left
        return None
    from stakes.vision.selectors import make
    from stakes.vision.selectors.layers import LayerSelector

    selector = make(setting.selector)
    if not isinstance(selector, LayerSelector) or selector.count != "layers":
        return None
    return LayerBudgets(selector, depth_of(model))
