"""FastV (Chen et al., 2024) drops, after a few layers, the visual tokens that receive little attention.

Before decoder layer K (0-indexed, default 2), score_i is the post-softmax attention of layer K-1 to visual token i,
mean over heads; the ``budget`` highest stay, in sequence order. Which queries count differs between the paper and its
code:

    rows="last"  (default)  the last prompt token's row: the public code
    rows="mean"             the mean over all rows, what a token receives from all others: the paper's text

Positions stay as they were. Layers before K keep their full cache; the drop happens once, at prefill.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from stakes.errors import BadInput
from stakes.vision.deletion.exact import Selection
from stakes.vision.selectors.base import top
from stakes.vision.selectors.layers import LayerSelector, LayerView, Stage

ROWS_AT_A_TIME = 128


@dataclass(frozen=True)
class FastV(LayerSelector):
    """One drop, before decoder layer ``layer``, by the attention of the layer in front of it."""

    name: ClassVar[str] = "fastv"
    layer: int = 2
    rows: Literal["last", "mean"] = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.layer) is not int or self.layer < 1:
            raise BadInput(f"fastv drops before a decoder layer from 1 on, such as layer=2, not {self.layer!r}")
        if self.rows not in ("last", "mean"):
            raise BadInput(f"fastv scores by rows='last' or rows='mean', not {self.rows!r}")

    def stages(self, native: int, budget: int, depth: int) -> tuple[Stage, ...]:  # noqa: ARG002
        """One stage: ``budget`` tokens from layer K on."""
        return (Stage(self.layer, budget),)

    def choose(self, view: LayerView, keep: int) -> Selection:
        """The ``keep`` visual tokens with the highest score."""
        return Selection(top(self._scores(view)[view.visual], keep))

    def _scores(self, view: LayerView) -> Tensor:
        """[T] attention that each token receives."""
        length = len(view.hidden)
        every = torch.arange(length, device=view.hidden.device)
        rows = every[-1:] if self.rows == "last" else every
        parts = [view.attention(some).mean(0).sum(0) for some in torch.split(rows, ROWS_AT_A_TIME)]
        return torch.stack(parts).sum(0) / len(rows)
