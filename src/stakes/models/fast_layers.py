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
            h = ops.norm(x, w.first_norm, w.eps)
            query, key, value = self._heads(w, linear(h, w.qkv, w.qkv_bias))
            places = (cache.layer(index), packed.rows, packed.columns)
            query, key = ops.place(query, key, value, packed.cos, packed.sin, *places)
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
        columns, lengths = cache.lengths.long(), cache.lengths + 1
        for index, w in enumerate(self.weights):
            if more is None:
                h = ops.norm(x, w.first_norm, w.eps)
            else:
                x, h = ops.add_norm(x, more, w.first_norm, w.eps)
            keys, values = cache.layer(index)
            query, _ = ops.place(
                *self._heads(w, ops.few_rows(h, w.qkv, w.qkv_bias)), cos, sin, (keys, values), rows, columns[index]
            )
            seen = ops.attend_cached(query, keys[:-1], values[:-1], lengths[index], w.scale)
            x, h = ops.add_norm(x, ops.few_rows(seen.flatten(1), w.out, w.out_bias), w.second_norm, w.eps)
            more = ops.few_rows(ops.gated(ops.few_rows(h, w.gate_up)), w.down)
        out: Tensor = ops.add_norm(x, more, self.final_norm, self.weights[-1].eps)[1]
        return out

    def _heads(self, w: LayerWeights, all_three: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[n, sum of widths] -> queries, keys and values: [n, heads, h], [n, key heads, h] twice."""
        flat = torch.split(all_three, list(w.widths), -1)
        query, key, value = (x.view(len(x), -1, w.head) for x in flat)
        if w.query_norm is not None and w.key_norm is not None:
            query = self.ops.norm(query, w.query_norm, w.eps)
            key = self.ops.norm(key, w.key_norm, w.eps)
        return query, key, value

    def _after(self, w: LayerWeights, x: Tensor, seen: Tensor) -> Tensor:
        x, h = self.ops.add_norm(x, linear(seen, w.out, w.out_bias), w.second_norm, w.eps)
        return x + linear(self.ops.gated(linear(h, w.gate_up)), w.down)
