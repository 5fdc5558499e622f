"""How does a column go through a decoder? The stock model's weights and arithmetic, in few and steady operations.

``read``: whole prompts, packed one after another without padding, into the cache; one state comes back for each.
``step``: one token for each row, on top of what the cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast.state import Packed, StaticCache
from stakes.models.local.attention import PARTS

# Which matrices does a decoder layer read, and in how few reads?
#
# The query, key and value matrices stand one below the other, and so do the gate's and the up projection's: one
# product
# instead of three and of two, which a single column needs to be fast on a GPU. There the model's own parameters become
# views of the joined ones, so no weight is held twice and the stock model goes on working on the same numbers.


ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}


@dataclass(frozen=True)
class LayerWeights:
    """One decoder layer; matrices are [out, in]. ``widths``: rows of query, key and value in ``qkv``."""

    first_norm: Tensor
    second_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor
    down: Tensor
    widths: tuple[int, int, int]
    head: int  # width of one head
    scale: float
    eps: float
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


def known(language_model: Any) -> bool:
    """Whether every layer is of the one kind that all families here share, and sees all that is before it."""
    sliding = "sliding_attention" in (getattr(language_model.config, "layer_types", None) or [])
    return not sliding and all(_known(layer) for layer in language_model.layers)


def _known(layer: Any) -> bool:
    parts = {name for name, _ in layer.named_children()}
    attention = {name for name, _ in layer.self_attn.named_children()}
    gated = {name for name, _ in layer.mlp.named_children()}
    same = parts == PARTS and attention - {"q_norm", "k_norm"} == ATTENTION and gated == GATED
    return same and layer.mlp.down_proj.bias is None and _is_silu(layer.mlp.act_fn)


def _is_silu(act: Any) -> bool:
    return type(act).__name__ in ("SiLU", "SiLUActivation")


def layer_weights(layer: Any) -> LayerWeights:
    """The weights of one stock layer, joined."""
    attention, mlp = layer.self_attn, layer.mlp
    three = (attention.q_proj, attention.k_proj, attention.v_proj)
    biased = three[0].bias is not None
    normed = hasattr(attention, "q_norm")
    return LayerWeights(
        first_norm=layer.input_layernorm.weight,
        second_norm=layer.post_attention_layernorm.weight,
        qkv=joined([part.weight for part in three]),
        qkv_bias=joined([part.bias for part in three]) if biased else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_up=joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
        widths=(len(three[0].weight), len(three[1].weight), len(three[2].weight)),
        head=int(attention.head_dim),
        scale=float(attention.scaling),
        eps=float(layer.input_layernorm.variance_epsilon),
        query_norm=attention.q_norm.weight if normed else None,
        key_norm=attention.k_norm.weight if normed else None,
    )


def joined(parts: Sequence[Any]) -> Tensor:
    """[sum of rows, ...]: these parameters one below the other; on a GPU they become views of what is returned."""
    first = parts[0]
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    if all(part.data_ptr() == end for part, end in zip(parts[1:], ends, strict=False)) and _one_storage(parts):
        rows = sum(len(part) for part in parts)
        whole: Tensor = first.detach().as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())
        return whole
    with torch.inference_mode(False), torch.no_grad():  # parameters must stay ones that anybody can use
        whole = torch.cat([part.detach() for part in parts])
        if whole.is_cuda and not first.is_inference():  # what was made in inference mode cannot take a view's place
            for part, own in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
                part.data = own
    return whole


def _one_storage(parts: Sequence[Any]) -> bool:
    storage = parts[0].untyped_storage().data_ptr()
    return all(part.is_contiguous() and part.untyped_storage().data_ptr() == storage for part in parts)


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
