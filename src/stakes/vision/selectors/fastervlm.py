"""FasterVLM (Zhang et al., 2024) keeps the tokens with the most encoder attention.

Differences from the public code: attention is the mean over heads and queries of one encoder block where the code reads
the row of CLS, which Qwen's encoder and SigLIP do not have; ties go to the lowest index.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.selectors.base import Scene, Selector, top


@dataclass(frozen=True)
class FasterVLM(Selector):
    """The most attention received in the encoder."""

    name: ClassVar[str] = "fastervlm"
    needs_encoder_attention: ClassVar[bool] = True

    def rank(self, scene: Scene, count: int) -> Tensor:
        """[count] indices by falling attention."""
        if scene.received is None:
            raise BadInput("fastervlm reads the encoder's attention, which this model's encoder does not give")
        return top(scene.received, count)
