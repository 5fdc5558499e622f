"""PyramidDrop (Xing et al., 2024) drops in stages, each by the attention of the last prompt token at that layer.

Before each layer l of ``layers``, score_i is the attention of the last prompt token to visual token i, mean over heads,
from queries and keys that layer l itself makes of what is about to enter it; the highest stay. S stages shrink the
image by one and the same ratio, so that the last one ends exactly at the budget:

    keep_s = round(native * (budget / native) ** (s / S))         s = 1..S

Of 576 tokens to 72 over layers 8, 16, 24 that is 288, 144, 72: the public scripts' ratios 0.5, 0.25, 0.125. By default
there are three stages at the quarters of the decoder, depth * s // 4, those scripts' layers where depth is 32 (a
decoder of less than four layers has fewer stages); ``layers=(8,16,24)`` sets them.

Differences from the public code: kept tokens keep their positions, where the code renumbers the sequence at every
stage; its ratios are given by hand and rounded down, here the budget sets them. Paper and code agree on the query at
inference: "the last instruction token" is the last token of the prompt.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import top
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage


@dataclass(frozen=True)
class PyramidDrop(LayerSelector):
    """Equal ratios over several stages. ``layers``: the layers before which tokens leave; None: the quarters."""

    name: ClassVar[str] = "pyramiddrop"
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.layers
        if layers is not None and not (isinstance(layers, tuple) and layers and all(type(n) is int for n in layers)):
            raise BadInput(f"pyramiddrop drops before layers such as layers=(8,16,24), not {layers!r}")

    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:
        """One ratio for every stage, (budget / native) ** (1 / S); the last keeps the budget exactly."""
        layers = self.layers if self.layers is not None else quarters(depth)
        ratio = budget / native
        keeps = [round(native * ratio ** (stage / len(layers))) for stage in range(1, len(layers))]
        return tuple(Stage(layer, keep) for layer, keep in zip(layers, [*keeps, budget], strict=True))

    def choose(self, view: LayerView, keep: int) -> Selection:
        """The ``keep`` visual tokens with the highest score."""
        return Selection(top(self.scores(view), keep))

    def scores(self, view: LayerView) -> Tensor:
        """[n] attention from the last prompt token to each visual token, in the layer about to run."""
        last = torch.tensor([len(view.hidden) - 1], device=view.hidden.device)
        return view.attention(last, of="this").mean(0)[0, view.visual]


def quarters(depth: int) -> tuple[int, ...]:
    """The layers at a quarter, a half and three quarters of a decoder; without repeats, and never its first."""
    return tuple(sorted({max(1, depth * quarter // 4) for quarter in (1, 2, 3)}))
