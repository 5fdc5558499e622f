"""How does a column go through a decoder? The stock model's weights and arithmetic, in few and steady operations.

``read``: whole prompts, packed one after another without padding, into the cache; one state comes back for each.
``step``: one token for each row, on top of what the cache holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast_packing import Packed
from stakes.models.fast_weights import LayerWeights
from stakes.models.static_cache import StaticCache


@dataclass(frozen=True)
class Layers:
    """A decoder's layers and last norm, and the operations between their matrix products."""

    weights: list[LayerWeights]
    final_norm: Tensor
    ops: Any

    def read(self, packed: Packed, cache: StaticCache) -> Tensor:
        """[B, D] normed states of every prompt's last token; keys and values go to the cache."""
        x, ops = packed.embeds, self.ops
        for index, w in enumerate(self.weights):
            query, key, value = self._heads(w, ops.norm(x, w.first_norm, w.eps), packed.cos, packed.sin)
            cache.write(index, packed.rows, packed.columns, key, value)
            seen = ops.attend_packed(
                query, key, value, packed.ends, packed.lengths, packed.longest, w.scale, True
            ).flatten(1)
            if index + 1 == len(self.weights) and index >= len(packed.deepstack):
                x, seen = x[packed.last], seen[packed.last]  # nobody reads the others' output: see last_column
            x = self._after(w, x, seen)
            if index < len(packed.deepstack):
                x = x.index_add(0, packed.visual, packed.deepstack[index].to(x.dtype))
        x = x if len(packed.deepstack) < len(self.weights) else x[packed.last]
        out: Tensor = ops.norm(x, self.final_norm, self.weights[-1].eps)
        return out

    def step(self, x: Tensor, cos: Tensor, sin: Tensor, cache: StaticCache, rows: Tensor) -> Tensor:
        """[B, D] -> [B, D], normed: one token a row, at ``cache.lengths``, which the caller counts on afterwards."""
        ops, more = self.ops, None
        for index, w in enumerate(self.weights):
            if more is None:
                h = ops.norm(x, w.first_norm, w.eps)
            else:
                x, h = ops.add_norm(x, more, w.first_norm, w.eps)
            query, key, value = self._heads(w, h, cos, sin)
            lengths = cache.lengths[index]
            cache.write(index, rows, lengths.long(), key, value)
            kept = slice(0, cache.rows)
            seen = ops.attend_cached(query, cache.keys[index, kept], cache.values[index, kept], lengths + 1, w.scale)
            x, h = ops.add_norm(x, linear(seen.flatten(1), w.out, w.out_bias), w.second_norm, w.eps)
            more = linear(ops.gated(linear(h, w.gate_up)), w.down)
        out: Tensor = ops.add_norm(x, more, self.final_norm, self.weights[-1].eps)[1]
        return out

    def _heads(self, w: LayerWeights, h: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[n, D] -> turned queries and keys, and values: [n, heads, h], [n, key heads, h] twice."""
        flat = torch.split(linear(h, w.qkv, w.qkv_bias), list(w.widths), -1)
        query, key, value = (x.view(len(h), -1, w.head) for x in flat)
        if w.query_norm is not None and w.key_norm is not None:
            query = self.ops.norm(query, w.query_norm, w.eps)
            key = self.ops.norm(key, w.key_norm, w.eps)
        return self.ops.turn(query, cos, sin), self.ops.turn(key, cos, sin), value

    def _after(self, w: LayerWeights, x: Tensor, seen: Tensor) -> Tensor:
        x, h = self.ops.add_norm(x, linear(seen, w.out, w.out_bias), w.second_norm, w.eps)
        return x + linear(self.ops.gated(linear(h, w.gate_up)), w.down)
