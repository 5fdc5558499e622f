"""VisionZip (Yang et al., 2024) keeps the tokens with the most encoder attention and merges the rest into a few.

Dominant tokens: the highest attention received in one encoder block. The paper reads the row of CLS; Qwen's encoder
and SigLIP have none, so it is the mean over heads and queries, averaged over each 2 x 2 merge group and put back from
window order into reading order (both by the model, which knows its encoder). Contextual tokens, of the remaining tokens
in reading order: every step-th token is a target, every other one is assigned to its most similar target by cosine of
head-mean keys, and

    target' = target + mean of its assigned tokens          (added, not averaged, as in the public code)

A contextual token keeps its target's position. ``contextual`` is the share of the budget that is spent on them (default
10 of 64, the paper's 54 + 10). ``merge=False`` spends all of it on dominant tokens.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import Scene, Selector, top


@dataclass(frozen=True)
class VisionZip(Selector):
    """Dominant tokens by encoder attention, plus contextual ones that absorb the rest."""

    name: ClassVar[str] = "visionzip"
    needs_encoder_attention: ClassVar[bool] = True
    merge: bool = True
    contextual: float = 10 / 64

    def __post_init__(self) -> None:
        if not isinstance(self.merge, bool):
            raise BadInput(f"visionzip takes merge=True or merge=False, not {self.merge!r}")
        number = isinstance(self.contextual, int | float) and not isinstance(self.contextual, bool)
        if not (number and 0 <= self.contextual <= 1):
            raise BadInput(f"visionzip's contextual share is between 0 and 1, not {self.contextual!r}")

    @property
    def merges(self) -> bool:
        """Yes, by default."""
        return self.merge

    def choose(self, scene: Scene, budget: int) -> Selection:
        """Dominant indices, then contextual ones with the weights that form them."""
        if scene.received is None or scene.keys is None:
            raise BadInput("visionzip reads the encoder's attention, which this model's encoder does not give")
        native = len(scene.features)
        targets = round(budget * self.contextual) if self.merge and budget < native else 0
        dominant = top(scene.received, budget - targets)
        if targets == 0:
            return Selection(dominant)
        left = torch.ones(native, dtype=torch.bool, device=dominant.device)
        left[dominant] = False
        rest = left.nonzero()[:, 0]
        step = max(1, len(rest) // targets)
        center = rest[::step][:targets]
        weights = torch.zeros(budget, native, device=dominant.device)
        weights[torch.arange(len(dominant)), dominant] = 1
        weights[len(dominant) :] = _contextual_weights(scene.keys, rest, center, native)
        return Selection(torch.cat((dominant, center)), weights)


def _contextual_weights(keys: Tensor, rest: Tensor, center: Tensor, native: int) -> Tensor:
    """[C, N]: 1 at each target, 1/m at each of the m tokens assigned to it."""
    weights = torch.zeros(len(center), native, device=keys.device)
    others = rest[~torch.isin(rest, center)]
    if len(others):
        similarity = normalize(keys[others].float(), dim=-1) @ normalize(keys[center].float(), dim=-1).T
        weights[similarity.argmax(1), others] = 1
        weights /= weights.sum(1, keepdim=True).clamp_min(1)
    weights[torch.arange(len(center)), center] = 1
    return weights
