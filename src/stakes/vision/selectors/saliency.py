"""Keeps the tokens with the largest features: saliency_i = ||f_i||_2 on merged features.

The paper reports a saliency ranking without defining it; this definition is ours.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stakes.vision.selectors.base import Scene, Selector, top


@dataclass(frozen=True)
class Saliency(Selector):
    """The L2 norm of each merged feature; the largest stay."""

    name: ClassVar[str] = "saliency"

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices by decreasing norm."""
        return top(scene.features.float().norm(dim=-1), count)
