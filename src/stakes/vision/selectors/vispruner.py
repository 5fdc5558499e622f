"""VisPruner (Zhang et al., 2025) keeps the tokens with the most encoder attention and, of the rest, diverse ones.

Of a budget B, floor(B * important) tokens are those with the highest attention received. Of the others, in falling
order of attention, up to 8 are removed per round until B - floor(B * important) are left: every second one (1st, 3rd,
…) is compared by cosine with those between them (2nd, 4th, …), and those with the most similar partner go. Then those
that stay come first, the least similar last, and the others after them.

``important`` is the share of the budget for attention, 0.5 as in the public scripts; with 1 it is ``fastervlm``.

Differences from the public code: attention is the mean over heads and queries where the code reads the row of CLS,
which Qwen's encoder and SigLIP do not have; cosines are of the merged features, not of the encoder's own; ties go to
the lowest index; an odd number of tokens can be compared and a round removes at most those that it compares, where the
code fails. The selection at one budget is not part of that at a larger one.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import Scene, Selector, top

REMOVED_PER_ROUND = 8


@dataclass(frozen=True)
class VisPruner(Selector):
    """Important tokens by encoder attention, diverse ones of the rest."""

    name: ClassVar[str] = "vispruner"
    needs_encoder_attention: ClassVar[bool] = True
    important: float = 0.5

    def __post_init__(self) -> None:
        number = isinstance(self.important, int | float) and not isinstance(self.important, bool)
        if not (number and 0 <= self.important <= 1):
            raise BadInput(f"vispruner's important share is between 0 and 1, not {self.important!r}")

    def choose(self, scene: Scene, budget: int) -> Selection:
        """Important indices, then diverse ones."""
        if scene.received is None:
            raise BadInput("vispruner reads the encoder's attention, which this model's encoder does not give")
        count = int(budget * self.important)  # rounded down, as in the public code
        order = top(scene.received, len(scene.received))
        diverse = _without_duplicates(normalize(scene.features.float(), dim=-1), order[count:], budget - count)
        return Selection(torch.cat((order[:count], diverse)))


def _without_duplicates(units: Tensor, rest: Tensor, count: int) -> Tensor:
    """[R] tokens -> [count] of them, after rounds that remove the tokens most similar to a neighbor in the order."""
    cosine = units[rest] @ units[rest].T
    left = torch.arange(len(rest) if count else 0, device=rest.device)
    while len(left) > count:
        first, second = left[::2], left[1::2]
        removed = min(REMOVED_PER_ROUND, len(left) - count, len(first))
        partner = cosine[first][:, second].max(1).values if len(second) else cosine.new_zeros(len(first))
        left = torch.cat((first[top(partner, len(first))[removed:]], second))
    return rest[left]
