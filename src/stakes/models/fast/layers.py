"""A decoder's layers with the stock model's weights and arithmetic, in few operations of fixed shape.

``Layers.prefill`` runs whole prompts, packed without padding, and writes the KV cache; one state per prompt comes back.
``Layers.step`` runs one token per row on top of the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from stakes.models.fast.state import StaticCache, VarlenBatch
from stakes.models.local.attention import has_known_parts
from stakes.models.local.kv_cache import has_sliding_window

ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj"}
MLP_PARTS = {"gate_proj", "up_proj", "down_proj", "act_fn"}


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


def supports(language_model: Any) -> bool:
    """Whether every layer has the parts that all families here share, and full causal attention."""
    return not has_sliding_window(language_model.config) and all(_supports(layer) for layer in language_model.layers)


def _supports(layer: Any) -> bool:
    attention, mlp = ({name for name, _ in module.named_children()} for module in (layer.self_attn, layer.mlp))
    same = has_known_parts(layer) and attention - {"q_norm", "k_norm"} == ATTENTION_PARTS and mlp == MLP_PARTS
    return same and layer.mlp.down_proj.bias is None and is_silu(layer.mlp.act_fn)


def is_silu(activation: Any) -> bool:
    """Whether an activation module of transformers or torch is SiLU."""
    return type(activation).__name__ in ("SiLU", "SiLUActivation")


def layer_weights(layer: Any) -> LayerWeights:
    """The weights of one stock layer, fused to one product instead of three (qkv) and of two (gate and up)."""
    attention, mlp = layer.self_attn, layer.mlp
    three = (attention.q_proj, attention.k_proj, attention.v_proj)
    normed = hasattr(attention, "q_norm")
    return LayerWeights(
        first_norm=layer.input_layernorm.weight,
        second_norm=layer.post_attention_layernorm.weight,
        qkv=fuse([part.weight for part in three]),
        qkv_bias=fuse([part.bias for part in three]) if three[0].bias is not None else None,
        out=attention.o_proj.weight,
        out_bias=attention.o_proj.bias,
        gate_up=fuse([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight,
        widths=(len(three[0].weight), len(three[1].weight), len(three[2].weight)),
        head=int(attention.head_dim),
        scale=float(attention.scaling),
        eps=float(layer.input_layernorm.variance_epsilon),
        query_norm=attention.q_norm.weight if normed else None,
        key_norm=attention.k_norm.weight if normed else None,
    )


def fuse(parts: Sequence[Any]) -> Tensor:
    """[sum of rows, ...]: these parameters concatenated along their rows.

    On a GPU the model's own parameters become views of the result, so no weight is stored twice and the stock model
    keeps working on the same numbers. Parameters that are adjacent views already are not copied.
    """
    first = parts[0]
    ends = [part.data_ptr() + part.numel() * part.element_size() for part in parts]
    if all(part.data_ptr() == end for part, end in zip(parts[1:], ends, strict=False)) and _one_storage(parts):
        rows = sum(len(part) for part in parts)
        whole: Tensor = first.detach().as_strided((rows, *first.shape[1:]), first.stride(), first.storage_offset())
        return whole
    with torch.inference_mode(False), torch.no_grad():  # the parameters must stay usable outside inference mode
        whole = torch.cat([part.detach() for part in parts])
        if whole.is_cuda and not first.is_inference():  # an inference tensor cannot become a view
            for part, own in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
                part.data = own
    return whole


def _one_storage(parts: Sequence[Any]) -> bool:
    storage = parts[0].untyped_storage().data_ptr()
    return all(part.is_contiguous() and part.untyped_storage().data_ptr() == storage for part in parts)


@dataclass(frozen=True)
class Layers:
    """A decoder's layers and final norm, and the operations between their matrix products."""

    weights: list[LayerWeights]
    final_norm: Tensor
    ops: Any

    def prefill(self, batch: VarlenBatch, cache: StaticCache) -> Tensor:
        """[B, D] normed states of every prompt's last token; keys and values are written to the cache."""
        x, ops = batch.embeds, self.ops
        for index, w in enumerate(self.weights):
            h = ops.norm(x, w.first_norm, w.eps)
            heads = self._heads(w, linear(h, w.qkv, w.qkv_bias))
            query, key = ops.rope_and_write(heads, batch.rope, cache.layer(index), batch.where)
            out = ops.varlen_attention(query, key, heads[2], batch.segments, w.scale, True).flatten(1)
            if index + 1 == len(self.weights) and index >= len(batch.deepstack):
                x, out = x[batch.last], out[batch.last]  # nobody reads the other outputs: see last_token_prefill
            x, h = ops.add_norm(x, linear(out, w.out, w.out_bias), w.second_norm, w.eps)
            x = x + linear(ops.swiglu(linear(h, w.gate_up)), w.down)
            if index < len(batch.deepstack):
                x = x.index_add(0, batch.visual, batch.deepstack[index].to(x.dtype))
        x = x if len(batch.deepstack) < len(self.weights) else x[batch.last]
        normed: Tensor = ops.norm(x, self.final_norm, self.weights[-1].eps)
        return normed

    def step(self, x: Tensor, rope: tuple[Tensor, Tensor], cache: StaticCache, rows: Tensor) -> Tensor:
        """[B, D] -> [B, D], normed: one token per row, at ``cache.lengths``, which the caller then increments."""
        ops, first = self.ops, self.weights[0]
        columns, lengths = cache.lengths.long(), cache.lengths + 1
        following = [*(w.first_norm for w in self.weights[1:]), self.final_norm]
        h: Tensor = ops.norm(x, first.first_norm, first.eps)
        for index, (w, next_norm) in enumerate(zip(self.weights, following, strict=True)):
            keys, values = cache.layer(index)
            heads = self._heads(w, ops.skinny_gemm(h, w.qkv, w.qkv_bias))
            query, _ = ops.rope_and_write(heads, rope, (keys, values), (rows, columns[index]))
            out = ops.decode_attention(query, keys[:-1], values[:-1], lengths[index], w.scale)
            x, h = ops.linear_add_norm(x, out.flatten(1), w.out, w.out_bias, w.second_norm, w.eps)
            inner = ops.swiglu(ops.skinny_gemm(h, w.gate_up))
            x, h = ops.linear_add_norm(x, inner, w.down, None, next_norm, w.eps)
        return h

    def _heads(self, w: LayerWeights, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[n, sum of widths] -> queries, keys and values: [n, heads, h], [n, key heads, h] twice."""
        query, key, value = (x.view(len(x), -1, w.head) for x in torch.split(qkv, list(w.widths), -1))
        if w.query_norm is not None and w.key_norm is not None:
            query = self.ops.norm(query, w.query_norm, w.eps)
            key = self.ops.norm(key, w.key_norm, w.eps)
        return query, key, value
