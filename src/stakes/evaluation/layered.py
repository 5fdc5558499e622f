"""What is a budget of tokens averaged over decoder layers? That of an in-model selector with ``count=layers``.

    layers = layered(model, Setting("deletion", "fastv:count=layers"))        # None where budgets count what is left
    layers.spent(972, 512)                                                    # (205, 511.8)

Of 972 tokens 205 are left after the last drop, and the five layers see 511.8 on average. Tokens are whole, so that not
every average can be had: an answer takes the most that is no more than its budget, and ``rounding`` is what one token
more would add. With FastV that is less than one token, (depth - layer) / depth; stages that shrink together move more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stakes.errors import InfeasibleBudget
from stakes.evaluation.fingerprint import Setting
from stakes.evaluation.items import Asked
from stakes.models.identity import depth_of

if TYPE_CHECKING:
    from stakes.vision.selectors.layers import LayerSelector


@dataclass(frozen=True)
class Layered:
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
        """More than what whole tokens can leave of this budget; nothing of a budget of all tokens."""
        left, average = self.spent(native, budget)
        return 0.0 if left == native else self.selector.average(native, left + 1, self.depth) - average

    def check(self, asked: Sequence[Asked], native: Sequence[int], lanes: Sequence[Sequence[int]]) -> None:
        """Refuse, before any answer is paid for, a budget that the layers before the first drop already take."""
        least = [self.least(tokens) for tokens in native]
        small = [i for i in range(len(asked)) if min(lane[i] for lane in lanes) < least[i]]
        if small:
            one, budget = asked[small[0]], min(lane[small[0]] for lane in lanes)
            others = f" ({len(small)} of {len(asked)} samples take more)" if len(small) > 1 else ""
            raise InfeasibleBudget(
                f"sample {one.id!r}: {self.selector.name} cannot average {budget} of {native[small[0]]} tokens over "
                f"{self.depth} layers, since those before its first drop see all of them{others}; the smallest "
                f"feasible budget is {max(least[i] for i in small)}"
            )


def layered(model: Any, setting: Setting) -> Layered | None:
    """Whether this setting's budgets are averages over the model's layers, and then how they come about."""
    if setting.selector is None or ":" not in setting.selector:  # by default budgets count what is left
        return None
    from stakes.vision.selectors import make
    from stakes.vision.selectors.layers import LayerSelector

    selector = make(setting.selector)
    if not isinstance(selector, LayerSelector) or selector.count != "layers":
        return None
    return Layered(selector, depth_of(model))
