"""PruMerge (Shang et al., 2024) keeps the tokens with the most encoder attention and adds their neighbors to each.

With a the attention received, summing to 1 over the page, and C_i the 32 tokens whose keys are most similar to those of
token i by cosine (kept ones among them),

    x_i' = x_i + sum_{j in C_i} a_j x_j                 for the B - 1 kept tokens

and one more token, the sum of a_j x_j over all tokens that are not kept. It has the position of the next token by
attention. At a budget of 1 there is only the first kind.

Differences from the public code: the budget is given, where the code counts the outliers of attention (its default) or
takes a share; attention and keys are means over heads of one encoder block, where the code reads the row of CLS and all
heads at once, at the width of the model; neighbors are merged after the projector, as the tokens come; kept tokens keep
their positions and order, where the code sorts them by attention. The spatial samples of PruMerge+ are left out: their
number follows from the outliers, not from a budget.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import Scene, Selector, top

NEIGHBORS = 32


@dataclass(frozen=True)
class PruMerge(Selector):
    """The most attention, each with its neighbors added, and one token for the rest. ``merge=False`` adds nothing."""

    name: ClassVar[str] = "prumerge"
    needs_encoder_attention: ClassVar[bool] = True
    merge: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.merge, bool):
            raise BadInput(f"prumerge takes merge=True or merge=False, not {self.merge!r}")

    @property
    def merges(self) -> bool:
        """Yes, by default."""
        return self.merge

    def choose(self, scene: Scene, budget: int) -> Selection:
        """The tokens with the most attention, with the weights that form them; all as they are at the full budget."""
        if scene.received is None or scene.keys is None:
            raise BadInput("prumerge reads the encoder's attention, which this model's encoder does not give")
        native = len(scene.features)
        kept = top(scene.received, budget)
        if not self.merge or budget == native:
            return Selection(kept)
        share = scene.received.float() / scene.received.float().sum().clamp_min(1e-12)
        centers = kept[: max(1, budget - 1)]
        weights = torch.zeros(budget, native, device=kept.device)
        weights[: len(centers)] = _neighbor_weights(scene.keys, centers, share)
        if budget > 1:
            weights[-1] = share.index_fill(0, centers, 0.0)
        return Selection(kept, weights)


def _neighbor_weights(keys: Tensor, centers: Tensor, share: Tensor) -> Tensor:
    """[C, N]: 1 at each center, the share of attention at each of its neighbors."""
    units = normalize(keys.float(), dim=-1)
    rows = torch.arange(len(centers), device=centers.device)
    cosine = (units[centers] @ units.T).index_put((rows, centers), units.new_tensor(float("-inf")))
    near = torch.sort(cosine, dim=1, descending=True, stable=True).indices[:, : min(NEIGHBORS, len(keys) - 1)]
    weights = torch.zeros_like(cosine).scatter(1, near, share[near])
    weights[rows, centers] = 1
    return weights
