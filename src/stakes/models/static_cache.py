"""Where do keys and values stand so that a decoding step is always the same work at the same addresses?

In buffers of a fixed size that outlive the answer: a captured graph reads and writes them again and again. Row i holds
its tokens in columns 0 to ``lengths[layer, i]`` - 1; what stands behind is old and never looked at. Layers count on
their own, since selectors inside the model leave later layers fewer tokens. One row more than was asked for takes what
nobody wants: the padding of a bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class StaticCache:
    """``keys``, ``values``: [layers, B + 1, L, H, h]. ``lengths``: [layers, B] int32."""

    keys: Tensor
    values: Tensor
    lengths: Tensor

    @classmethod
    def make(cls, layers: int, rows: int, columns: int, heads: int, like: Tensor, width: int) -> StaticCache:
        """An empty one, of the kind and on the device of ``like``."""
        shape = (layers, rows + 1, columns, heads, width)
        counts = torch.zeros(layers, rows, dtype=torch.int32, device=like.device)
        return cls(like.new_zeros(shape), like.new_zeros(shape), counts)

    @property
    def rows(self) -> int:
        """Requests that fit."""
        return self.lengths.shape[1]

    @property
    def columns(self) -> int:
        """Tokens of one request that fit."""
        return self.keys.shape[2]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one layer, [B + 1, L, H, h]."""
        return self.keys[index], self.values[index]

    def take(self, layer: int, keys: Tensor, values: Tensor, valid: Tensor) -> None:
        """Move another cache's layer in: [B, H, T, h], of which ``valid`` [B, T] bool says what is a token."""
        size, length = valid.shape
        order = torch.sort(~valid, dim=1, stable=True).indices[:, :, None, None]
        for buffer, x in ((self.keys[layer], keys), (self.values[layer], values)):
            moved = x.transpose(1, 2)
            buffer[:size, :length] = moved.gather(1, order.expand(-1, -1, *moved.shape[2:]))
        self.lengths[layer, :size] = valid.sum(1)
