"""DART (Wen et al., 2025) keeps, after a few layers, a few pivots and the tokens that are least like them.

Before decoder layer K (0-indexed, default 2), from the keys of layer K-1 after RoPE and from its output, normalized as
behind the last layer: pivots are the ``image`` visual tokens and the ``text`` tokens behind the image with the largest
L1 norm of their keys over all heads (4 and 4). Pivot by pivot, in sequence order, the visual tokens with the smallest
cosine to the pivot are kept, each pivot the same number, of those not yet kept:

    (budget - image) / (image + text) tokens for each pivot; the first pivots take one more where that is not whole

Positions stay as they were. Layers before K keep their full cache.

Differences from the public code: the budget is met exactly, where the code rounds the number of each pivot down and
adds the pivots on top; pivots come in sequence order, where the code walks a set in the order of its hash table; with
fewer text tokens behind the image than ``text``, all of them are pivots; a budget of at most ``image`` keeps pivots
alone; ties go to the lowest index. The drop happens once, at prefill.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import top
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage


@dataclass(frozen=True)
class DART(LayerSelector):
    """One drop, before decoder layer ``layer``: pivots, and what is unlike them."""

    name: ClassVar[str] = "dart"
    layer: int = 2
    image: int = 4
    text: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.layer) is not int or self.layer < 1:
            raise BadInput(f"dart drops before a decoder layer from 1 on, such as layer=2, not {self.layer!r}")
        if type(self.image) is not int or self.image < 1 or type(self.text) is not int or self.text < 0:
            raise BadInput(f"dart takes pivots such as image=4,text=4, not image={self.image!r},text={self.text!r}")

    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:  # noqa: ARG002
        """One stage: ``budget`` tokens from layer K on."""
        return (Stage(self.layer, budget),)

    def choose(self, view: LayerView, keep: int) -> Selection:
        """The pivots among the visual tokens, and what each pivot adds."""
        norms = view.keys().float().abs().sum((1, 2))
        behind = torch.arange(int(view.visual[-1]) + 1, len(norms), device=norms.device)
        chosen = top(norms[view.visual], min(self.image, keep))
        pivots = torch.cat((view.visual[chosen], behind[top(norms[behind], self.text)])).sort().values
        return Selection(unlike(view.norm(view.hidden), view.visual, pivots, chosen, keep))


def unlike(states: Tensor, visual: Tensor, pivots: Tensor, chosen: Tensor, keep: int) -> Tensor:
    """[keep] indices into ``visual``: the ``chosen``, then what is least like each of the ``pivots`` in turn.

    ``states``: [T, D]. ``visual``: [n] and ``pivots``: [P] columns of them.
    """
    states = states.float()
    each, more = divmod(keep - len(chosen), len(pivots))
    for number, pivot in enumerate(pivots):
        cosine = cosine_similarity(states[pivot][None], states[visual], dim=-1).index_fill(0, chosen, float("inf"))
        chosen = torch.cat((chosen, top(-cosine, each + (number < more))))
    return chosen
