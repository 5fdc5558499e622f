"""DivPrune (Alvar et al., 2025) keeps the subset with the largest least distance, greedily: max-min diversity.

    s_1 = argmax_i min_{j != i} d(i, j),    s_k = argmax_{i not chosen} min_{j < k} d(i, s_j),    d = 1 - cos

on the features that enter the language model. It is ``redundancy`` but for the start: the token that is farthest from
its nearest neighbor, not from all others on average. Distances are compared on a grid of 1e-6, so a tie goes to the
lowest index on every machine.

Differences from the public code: a chosen token is never chosen again (there exact duplicates, such as blank paper, are
at distance 0 like the chosen ones themselves, and the code can return one index twice, which keeps fewer tokens).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stakes.vision.selectors.base import Scene, Selector
from stakes.vision.selectors.redundancy import Redundancy


@dataclass(frozen=True)
class DivPrune(Selector):
    """Max-min diversity from the most isolated token."""

    name: ClassVar[str] = "divprune"

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices in greedy order."""
        return Redundancy(seed="nearest").rank(scene, count)
